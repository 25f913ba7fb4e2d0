"""Collects what a diagnosis is made from, and makes it: for `chargehand doctor` and the HTTP interface.

Nothing here can hang: whatever may (the store's disk, a node that was stopped, another process's memory) is looked at
by a process that is left behind when its time is over. No application is imported.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from chargehand import __version__, clock
from chargehand.errors import ConfigurationError
from chargehand.model.doctor.diagnosis import Diagnosis, diagnose
from chargehand.model.doctor.facts import Facts, Other, facts_of
from chargehand.settings import read
from chargehand.stores.location import Location, locate_unread

PATIENCE = 8.0
"""Seconds that a look at one store may take."""
MOST_NODES = 8
"""Nodes that are looked at when nothing says which is meant."""


class Located(Protocol):
    """Whatever belongs to one store; a Chargehand."""

    @property
    def location(self) -> Location: ...


def examine(hand: Located, patience: float = PATIENCE) -> Diagnosis:
    """What is the matter with this store and its node. It blocks for a moment; `patience` seconds at the most."""
    return _diagnosed(look(hand.location, patience), plain=_is_plain(hand.location), others=())


def told(found: Diagnosis) -> dict[str, Any]:
    """A diagnosis as plain data, for JSON."""
    return {**msgspec.to_builtins(found), "well": found.well}


def find_and_examine(address: str | None = None, patience: float = PATIENCE) -> Diagnosis:
    """The same, for the store that is meant here: named, by CHARGEHAND_URL, in this folder, or of a running node.

    If only running nodes are found, and several, it is about the one in the worst state; the others are named.
    """
    named, looked_in = _named(address)
    if not named:
        return _worst(_running(_told(patience, "nodes")), looked_in, patience)
    location, *rest = named
    found = look(location, patience, with_nodes=True)
    real = str(found["path"])
    beside = [Other(path=str(other), why=named[other]) for other in rest if str(other.resolved()) != real]
    serving = [other for other in _running(found) if other.path != real]
    return _diagnosed(found, plain=_is_plain(location), others=(*beside, *serving))


def _running(found: dict[str, Any]) -> tuple[Other, ...]:
    """The nodes of this user that run here, oldest first."""
    return tuple(Other(path=node["path"], why="a running node", pid=node["pid"]) for node in found.get("nodes", ()))


def _named(address: str | None) -> tuple[dict[Location, str], tuple[str, ...]]:
    """The stores that are named here, the one that is meant first; and what was looked for in vain."""
    if address is not None:
        return {locate_unread(address): "--store"}, ()
    found: dict[Location, str] = {}
    vain: list[str] = []
    url, here = _set(), os.path.join(os.getcwd(), "chargehand.db")
    if url:
        found[locate_unread(url)] = "what is set as CHARGEHAND_URL"
    else:
        vain.append("CHARGEHAND_URL is not set")
    if os.path.lexists(here):
        found.setdefault(locate_unread(here), "chargehand.db in this folder")
    else:
        vain.append(f"there is no chargehand.db in {os.getcwd()}")
    return found, (*vain, "no node of yours runs")


def _set() -> str | None:
    """The store that is set here: in the environment, in `.env`, in chargehand.toml."""
    try:
        settings = read(Path.cwd(), {})
    except ConfigurationError:  # every other command says what is wrong there
        return os.environ.get("CHARGEHAND_URL")
    return settings.url if "url" in settings.origins else None


def _is_plain(location: Location) -> bool:
    """Whether commands that are given here are about this store."""
    return location == locate_unread(_set() or os.path.join(os.getcwd(), "chargehand.db"))


def _worst(running: tuple[Other, ...], looked_in: tuple[str, ...], patience: float) -> Diagnosis:
    """Of several nodes, the one that needs a doctor most."""
    diagnoses: list[Diagnosis] = []
    for node in running[:MOST_NODES]:
        rest = tuple(other for other in running if other is not node)
        diagnoses.append(_diagnosed(look(locate_unread(node.path), patience), plain=False, others=rest))
    if not diagnoses:
        return _diagnosed({"looked_in": looked_in}, plain=True, others=())
    order = ["error", "warning", "note", None]
    return min(diagnoses, key=lambda diagnosis: order.index(diagnosis.status))


def _diagnosed(found: dict[str, Any], *, plain: bool, others: tuple[Other, ...]) -> Diagnosis:
    return diagnose(facts_from(found, plain=plain, others=others), clock.hour)


def facts_from(found: dict[str, Any], *, plain: bool, others: tuple[Other, ...]) -> Facts:
    """What a look found, as facts."""
    parts = {"now_ms": clock.now_ms(), "version": __version__, "plain": plain, **found}
    return msgspec.structs.replace(facts_of(parts), others=others)


# a process that looks

_left: "list[subprocess.Popen[bytes]]" = []
"""Those that hang in the kernel: they die when they can, and are buried by whoever looks next."""


def look(location: Location, patience: float = PATIENCE, *, with_nodes: bool = False) -> dict[str, Any]:
    """What is found of one store within so many seconds; `stuck` says what was not."""
    more = ("nodes",) if with_nodes else ()
    return {"path": str(location), **_told(patience, "store", location.url, *more)}


def sections(path: str, patience: float) -> dict[str, Any]:
    """What a bug report needs of one store, by the names of files."""
    return _told(patience, "bundle", path)


def _told(patience: float, *words: str) -> dict[str, Any]:
    """Everything that a looking process says in time, and what it was at if it did not come to an end."""
    found: dict[str, Any] = {}
    step, until = "nothing yet", clock.monotonic() + patience
    with _looking(*words) as process:
        for line in _lines(process, until):
            said = msgspec.json.decode(line)
            found |= said["found"]
            step = said["next"]
        if step == "":
            return found
        if clock.monotonic() < until and process.stderr is not None:  # it ended: that is our fault, not the disk's
            last = process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            return {**found, "refused": {**found.get("refused", {}), step: last or "the look at it ended"}}
    return {**found, "stuck": step, "patience": patience}


@contextmanager
def _looking(*words: str) -> "Generator[subprocess.Popen[bytes]]":
    """A process of its own, which finds this very package; ended at the end, but not waited for in vain."""
    here = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "chargehand.doctor", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=env,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        _left.append(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        _left[:] = [each for each in _left if each.poll() is None]


def _lines(process: "subprocess.Popen[bytes]", until: float) -> Generator[bytes]:
    """Whole lines, as they come, until it ends or the time is over."""
    assert process.stdout is not None
    descriptor, rest = process.stdout.fileno(), b""
    while (left := until - clock.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
