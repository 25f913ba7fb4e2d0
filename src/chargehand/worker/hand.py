"""The short jobs that a worker was sent ahead, and the permits to begin them.

The node writes a permit for each job into a pipe that both can read. Whoever reads a permit has it: the worker, which
then begins the job, or the node, which calls the job back. So the node knows exactly what the worker has begun, even if
the worker has died, is stopped, or is inside C code. Workers load this module, so it imports nothing heavy.
"""

import os
from collections import deque
from typing import Any

from chargehand.protocol.frame import PERMIT_BYTES


class Hand:
    """The jobs that were sent ahead, in order, each with the number of its permit."""

    def __init__(self, permits: int) -> None:
        self._permits = permits
        self._jobs: deque[tuple[int, dict[str, Any]]] = deque()
        self._permit: int | None = None
        """A permit whose job has not arrived yet."""
        self._halted = False

    def add(self, body: dict[str, Any]) -> None:
        """Adds the jobs of an AHEAD frame; after a failure they are dropped, because the node calls them back, unless
        the node has seen the failure when it sent them."""
        if body.get("first"):
            self._halted = False
        if not self._halted:
            jobs: list[dict[str, Any]] = body["jobs"]
            self._jobs.extend(enumerate(jobs, body["number"]))

    def next(self) -> dict[str, Any] | None:
        """Returns the next job that may be begun; None if all that are here were called back, or none is here."""
        while self._jobs:
            permit = self._permit if self._permit is not None else self._take_permit()
            if permit is None:
                self._jobs.clear()
                return None
            self._permit = permit
            number, body = self._jobs.popleft()
            if number == permit:
                self._permit = None
                return body
        return None

    def _take_permit(self) -> int | None:
        try:
            return int.from_bytes(os.read(self._permits, PERMIT_BYTES), "little")
        except BlockingIOError:
            return None

    def ended(self, *, well: bool) -> None:
        """Records how a job ended: after a failure nothing is begun until the node has seen it."""
        if not well:
            self._halted = True
            self._jobs.clear()

    def resume(self) -> None:
        """Records that the node has handed out a job to begin at once."""
        self._halted = False
