"""The files of a bug report about a store and its node, without secrets. Runs in the child process.

Payloads, results and errors of jobs are not included. Log lines of workers are included, so they are searched for the
values of environment variables that name a key, a token or a password, and for passwords in addresses.
"""

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from chargehand import __version__
from chargehand.doctor.looks import ASKED, asked, holder
from chargehand.errors import ChargehandError
from chargehand.host.calls import Connection, NoNode
from chargehand.model.records import CrashFilter
from chargehand.stores.location import Location, locate_unread
from chargehand.stores.sqlite.peek import ENGINE_ERROR, Peek, engine_versions

MOST_CRASHES = 50
MOST_LINES = 1000
HIDDEN = "***"
OURS = ("CHARGEHAND_", "EMBED_WORKERS", "WORKER_PROCESSES", "PIPELINE_THREADS_PER_JOB", "NODE_NAME", "CORS_ORIGINS")
"""Prefixes of Chargehand's own settings, whose values are shown."""
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|DSN|AUTH|COOKIE|PRIVATE", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)@")
SHORTEST = 6
"""The minimum length of a value that is replaced everywhere; a shorter one may be an ordinary word."""


def sections(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the files of the bundle, one at a time."""
    location = locate_unread(name).resolved()
    node = holder(location)
    theirs = _environment(node.get("pid"))
    hide = Hiding({**theirs, **os.environ})
    yield (
        "node",
        {
            "versions.json": versions(),
            "environment.json": {"here": hide.shown(dict(os.environ)), "node": hide.shown(theirs)},
        },
    )
    yield "log", {"status.json": hide(asked(location) if node["held"] else {"silent": "there is no node"})}
    yield "tables", {"log.json": hide(_log(location))}
    try:
        peek = Peek(location)
    except (ChargehandError, ENGINE_ERROR) as error:
        yield "", {"store.json": {"error": str(error)}}
        return
    yield "tables", {"schema.sql": peek.tables()}
    for title, look in _TABLES.items():
        try:
            yield "tables", {title: hide(msgspec.json.decode(msgspec.json.encode(look(peek))))}
        except (ChargehandError, ENGINE_ERROR, ValueError) as error:
            yield "tables", {title: {"error": str(error)}}


_TABLES: dict[str, Callable[[Peek], Any]] = {
    "health.json": lambda peek: peek.fleet.health(),
    "crashes.json": lambda peek: peek.fleet.crashes(CrashFilter(limit=MOST_CRASHES)),
    "store.json": lambda peek: {
        "schema": peek.schema(), "crews": peek.fleet.crews(), "pauses": peek.fleet.pauses(),
        "given_up": peek.fleet.given_up(), "waiting": peek.jobs.waiting(), "queues": peek.jobs.counts(),
        "claims": len(peek.jobs.claims()),
    },
}  # fmt: skip


def versions() -> dict[str, str]:
    """Returns the versions of the software that runs here."""
    return {
        "chargehand": __version__, "python": sys.version, "kernel": platform.platform(), **engine_versions(),
        "msgspec": msgspec.__version__, "executable": sys.executable,
    }  # fmt: skip


def _environment(pid: int | None) -> dict[str, str]:
    """Returns the environment of a process; empty if it may not be read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in text.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _log(location: Location) -> list[Any]:
    """Returns the last log lines of the node."""
    lines: list[Any] = []
    try:
        line = Connection(location, ASKED)
        try:
            call = line.send("LOGS", count=MOST_LINES)
            while (reply := line.reply(call, ASKED)) is not None and "lines" in reply:
                lines += reply["lines"]
                if not reply.get("more", False):
                    break
        finally:
            line.close()
    except NoNode as error:
        lines.append({"text": f"no log: {error}"})
    return lines


class Hiding:
    """Replaces secrets in nested data."""

    def __init__(self, environment: dict[str, str]) -> None:
        values = {value for name, value in environment.items() if _SECRET.search(name) and len(value) >= SHORTEST}
        self._secrets = sorted(values, key=len, reverse=True)

    def __call__(self, value: Any) -> Any:
        """Returns the value with all secrets replaced."""
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, HIDDEN)
                return _ADDRESS.sub(rf"\1:{HIDDEN}@", value)
            case dict():
                return {self(name): self(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case list() | tuple():
                return [self(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value

    def shown(self, environment: dict[str, str]) -> dict[str, str]:
        """Returns the names of all variables, and the values of Chargehand's own that are not secrets."""
        return {
            name: self(value) if name.startswith(OURS) and not _SECRET.search(name) else HIDDEN
            for name, value in sorted(environment.items())
        }
