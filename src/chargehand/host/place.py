"""The addresses at which servers of this machine serve the dashboard, in a file beside the store.

They are no secret. Each counts while the process that wrote it lives.
"""

import os

import msgspec

from chargehand.processes import proc
from chargehand.stores import notes
from chargehand.stores.location import Location


class _Server(msgspec.Struct, frozen=True):
    """The URL of the dashboard, and a process that serves it."""

    url: str
    pid: int
    start: int


class _Record(_Server, frozen=True):
    """The server that started last, and the others, newest first. Earlier versions know only the first."""

    others: tuple[_Server, ...] = ()


def keep(location: Location, url: str) -> bool:
    """Records that this process serves the URL. Returns False if a process that lives has recorded the same one."""
    known: list[bool] = []

    def with_this(content: str) -> str:
        before = _living(content)
        known[:] = [server.url == url for server in before]
        found = proc.stat(os.getpid())
        this = _Server(url, os.getpid(), found.start if found else 0)
        return _written([this, *(server for server in before if server != this)])

    notes.change(location.site, with_this)
    return not any(known)


def find(location: Location) -> str | None:
    """Returns the URL of the dashboard on the newest server; None if no process that lives has recorded one."""
    return next((server.url for server in _living(notes.read(location.site) or "")), None)


def forget(location: Location) -> None:
    """Removes what this process has recorded."""
    if any(server.pid == os.getpid() for server in _living(notes.read(location.site) or "")):
        notes.change(location.site, _without_this)


def _without_this(content: str) -> str:
    return _written([server for server in _living(content) if server.pid != os.getpid()])


def _written(servers: list[_Server]) -> str:
    if not servers:
        return ""
    first, *others = servers
    return msgspec.json.encode(_Record(first.url, first.pid, first.start, tuple(others))).decode()


def _living(content: str) -> list[_Server]:
    """Returns the servers in the record whose processes live, newest first."""
    try:
        record = msgspec.json.decode(content.encode(), type=_Record)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return []
    servers = (_Server(record.url, record.pid, record.start), *record.others)
    return [server for server in servers if proc.alive(server.pid, server.start)]
