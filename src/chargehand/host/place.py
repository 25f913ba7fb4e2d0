"""The address at which a server of this machine serves the dashboard, in a file beside the store.

It holds no secret. It counts while the process that wrote it lives.
"""

import os

import msgspec

from chargehand.processes import proc
from chargehand.stores import notes
from chargehand.stores.location import Location


class _Record(msgspec.Struct, frozen=True):
    """The URL of the dashboard, and the process that serves it."""

    url: str
    pid: int
    start: int


def keep(location: Location, url: str) -> bool:
    """Records the URL. Returns False if a process that lives has recorded the same one."""
    written: list[str] = []

    def same(content: str) -> bool:
        other = _living(content)
        return other is not None and other.url == url

    def make() -> str:
        found = proc.stat(os.getpid())
        written.append(msgspec.json.encode(_Record(url, os.getpid(), found.start if found else 0)).decode())
        return written[0]

    notes.keep(location.site, same, make)
    return bool(written)


def find(location: Location) -> str | None:
    """Returns the URL of the dashboard; None if no process that lives has recorded one."""
    found = _living(notes.read(location.site) or "")
    return None if found is None else found.url


def forget(location: Location) -> None:
    """Removes the record, if this process has written it."""
    found = _living(notes.read(location.site) or "")
    if found is not None and found.pid == os.getpid():
        notes.remove(location.site)


def _living(content: str) -> _Record | None:
    try:
        record = msgspec.json.decode(content.encode(), type=_Record)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return record if proc.alive(record.pid, record.start) else None
