"""The files of a bug report about a store and its node, without secrets. Runs in the child process.

`redaction` removes what handlers and their callers wrote, and what looks like a secret.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from chargehand import __version__
from chargehand.doctor import server
from chargehand.doctor.looks import ASKED, asked, holder
from chargehand.doctor.redaction import HIDDEN, SECRET_NAME, Hiding, log_line, without_words
from chargehand.doctor.tables import Peek
from chargehand.errors import ChargehandError
from chargehand.host import nodelock
from chargehand.host.calls import Connection, NoNode
from chargehand.model.records import CrashFilter
from chargehand.stores.location import Location, locate_unread
from chargehand.stores.sqlite.peek import ENGINE_ERROR, engine_versions
from chargehand.stores.sqlite.peek import Peek as SqlitePeek

MOST_CRASHES = 50
MOST_LINES = 1000
OURS = ("CHARGEHAND_", "EMBED_WORKERS", "WORKER_PROCESSES", "PIPELINE_THREADS_PER_JOB", "NODE_NAME", "CORS_ORIGINS")
"""Prefixes of Chargehand's own settings, whose values are shown."""


def sections(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the files of the bundle, one at a time."""
    location = nodelock.nearest(locate_unread(name).resolved())
    node = holder(location)
    theirs = _environment(node.get("pid"))
    hide = Hiding({**theirs, **os.environ})

    def clean(found: Any) -> Any:
        return hide(without_words(found))

    yield (
        "node",
        {
            "versions.json": versions(),
            "environment.json": {"here": _shown(dict(os.environ), hide), "node": _shown(theirs, hide)},
        },
    )
    yield "log", {"status.json": clean(asked(location) if node["held"] else {"silent": "there is no node"})}
    yield "tables", {"log.json": hide([log_line(line) for line in _log(location)])}
    try:
        peek, about = _opened(location)
        yield "tables", {"schema.sql": peek.tables(), **about}
    except (ChargehandError, ENGINE_ERROR) as error:
        yield "", {"store.json": {"error": hide(str(error))}}
        return
    for title, look in _TABLES.items():
        try:
            yield "tables", {title: clean(msgspec.json.decode(msgspec.json.encode(look(peek))))}
        except (ChargehandError, ENGINE_ERROR, ValueError) as error:
            yield "tables", {title: {"error": str(error)}}


def _opened(location: Location) -> tuple[Peek, dict[str, Any]]:
    """Returns the open store, and the files about its server, if it is on one."""
    if location.server is None:
        return SqlitePeek(location), {}
    peek, about = server.opened(location)
    for name, look in server.LOOKS.items():
        try:
            about |= look(peek)
        except ChargehandError as error:
            about[name] = {"error": str(error)}
    return peek, {"server.json": about}


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


def _shown(environment: dict[str, str], hide: Hiding) -> dict[str, str]:
    """Returns the names of all variables, and the values of Chargehand's own that are not secrets."""
    return {
        name: hide(value) if name.startswith(OURS) and not SECRET_NAME.search(name) else HIDDEN
        for name, value in sorted(environment.items())
    }
