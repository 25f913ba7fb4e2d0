"""The node's control socket: its address, its requests and their limits, for both the server and the clients."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chargehand.model.job import NewJob

FRAME_LIMIT = 4 << 20
MOST_JOBS = 1000
"""The maximum number of jobs in one request; larger batches are written to the store directly."""
MOST_FOLLOWED = 10_000
"""The maximum number of jobs that one caller can wait for at the same time."""
LONGEST_ADDRESS = 100
WAKE = "WAKE"
"""The request to look for items at once."""


class Call(msgspec.Struct, frozen=True):
    """A request; which fields are used depends on its kind."""

    call: int
    jobs: tuple[NewJob, ...] = ()
    queue: str | None = None
    id: str = ""
    ids: tuple[str, ...] = ()
    verb: str = ""
    scope: str | None = None
    who: str = ""
    origin: str = ""
    reason: str | None = None
    for_ms: int | None = None
    count: int | None = None
    follow: bool = False
    topics: tuple[str, ...] = ()
    last: str | None = None
    mirror: bool = False
    end: bool = False
    deleted: bool = False
    """The node ends when it is drained."""


@contextmanager
def address_of(path: Path) -> Generator[str]:
    """Yields an address that the kernel accepts: a path that is too long is reached through its folder's descriptor."""
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
