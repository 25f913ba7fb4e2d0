"""Collects the facts about a store and its node and returns the diagnosis, for `chargehand doctor` and HTTP.

Whatever may hang (the store's disk, a stopped node, another process's memory) is read by a child process with a
timeout, so nothing here hangs. No application is imported.
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
from chargehand.settings.known import Settings
from chargehand.settings.layers import read
from chargehand.stores.location import Location, locate_unread

PATIENCE = 8.0
"""The timeout for examining one store, in seconds."""
MOST_NODES = 8
"""The maximum number of nodes that are examined if no store is named."""


class Located(Protocol):
    """An object with the location of a store, such as a Chargehand."""

    @property
    def location(self) -> Location: ...


def examine(hand: Located, patience: float = PATIENCE) -> Diagnosis:
    """Returns the diagnosis of this store and its node. Blocks for at most `patience` seconds."""
    return _diagnosed(look(hand.location, patience), plain=_is_plain(hand.location), others=())


def told(found: Diagnosis) -> dict[str, Any]:
    """Returns a diagnosis as plain data, for JSON."""
    return {**msgspec.to_builtins(found), "well": found.well}


def find_and_examine(address: str | None = None, patience: float = PATIENCE, *, app: str | None = None) -> Diagnosis:
    """Finds the store (by `address`, CHARGEHAND_URL, the application's module, this folder, or a running node) and
    returns its diagnosis.

    If several running nodes are all that is found, the diagnosis is of the one in the worst state and names the others.
    """
    named, looked_in = _named(address, app)
    if not named:
        return _worst(_running(_told(patience, "nodes")), looked_in, patience)
    location, *rest = named
    found = look(location, patience, with_nodes=True)
    real = str(found["path"])
    beside = [Other(path=str(other), why=named[other]) for other in rest if str(other.resolved()) != real]
    serving = [other for other in _running(found) if other.path != real]
    return _diagnosed(found, plain=_is_plain(location), others=(*beside, *serving))


def is_named(address: str | None = None, app: str | None = None) -> bool:
    """Whether the store is named by `address`, CHARGEHAND_URL, the application or this folder, instead of found as that
    of a node."""
    return bool(_named(address, app)[0])


def _running(found: dict[str, Any]) -> tuple[Other, ...]:
    """Returns the running nodes of this user, oldest first."""
    return tuple(Other(path=node["path"], why="a running node", pid=node["pid"]) for node in found.get("nodes", ()))


def _named(address: str | None, app: str | None) -> tuple[dict[Location, str], tuple[str, ...]]:
    """Returns the configured stores, most specific first, each with its source; and which sources name none."""
    if address is not None:
        return {locate_unread(address, _node()): "--store"}, ()
    found: dict[Location, str] = {}
    vain: list[str] = []
    url, here = _set(), _here()
    if url:
        found[locate_unread(url, _node())] = "the store set by CHARGEHAND_URL"
    else:
        vain.append("CHARGEHAND_URL is not set")
        if beside := _beside(app):
            found[locate_unread(str(beside))] = f"chargehand.db beside {app}"
    if here is None:
        vain.append("the current folder was deleted")
    elif os.path.lexists(here / "chargehand.db"):
        found.setdefault(locate_unread(str(here / "chargehand.db")), "chargehand.db in this folder")
    else:
        vain.append(f"there is no chargehand.db in {here}")
    return found, (*vain, "no node of this user is running")


def _beside(app: str | None) -> Path | None:
    """Returns the store beside the module of an application, `package.jobs:hand`, which is not imported; None if there
    is none."""
    here = _here()
    if app is None or here is None:
        return None
    store = here.joinpath(*app.partition(":")[0].split(".")).parent / "chargehand.db"
    return store if os.path.lexists(store) else None


def _here() -> Path | None:
    """Returns the current folder; None if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _set() -> str | None:
    """Returns the store that the environment, `.env` or chargehand.toml sets."""
    settings = _settings()
    if settings is None:
        return os.environ.get("CHARGEHAND_URL")
    return settings.url if "url" in settings.origins else None


def _node() -> str | None:
    """Returns the name of this machine's node, as the same sources set it; None if they cannot be read."""
    settings = _settings()
    return None if settings is None else settings.node


def _settings() -> Settings | None:
    """Returns the settings of processes that are started here; None if they cannot be read."""
    here = _here()
    try:
        return None if here is None else read(here, {})
    except ConfigurationError:  # the other commands report the error
        return None


def _is_plain(location: Location) -> bool:
    """Whether commands that run here without `--store` use this store."""
    here = _here()
    plain = _set() or _beside(os.environ.get("CHARGEHAND_APP")) or (None if here is None else here / "chargehand.db")
    return plain is not None and str(location) == str(locate_unread(str(plain)))


def _worst(running: tuple[Other, ...], looked_in: tuple[str, ...], patience: float) -> Diagnosis:
    """Returns the diagnosis of the node in the worst state."""
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
    """Converts what was found to facts."""
    parts = {"now_ms": clock.now_ms(), "version": __version__, "plain": plain, **found}
    return msgspec.structs.replace(facts_of(parts), others=others)


# the child process

_left: "list[subprocess.Popen[bytes]]" = []
"""Killed processes that still hang in the kernel; the next examination reaps those that have exited."""


def look(location: Location, patience: float = PATIENCE, *, with_nodes: bool = False) -> dict[str, Any]:
    """Returns the facts about one store that were found before the timeout; `stuck` names the step that hung."""
    more = ("nodes",) if with_nodes else ()
    words = ("store",) if location.server is None else ("server", location.path.name)
    return {"path": str(location), **_told(patience, words[0], *words[1:], *more, url=location.url)}


def sections(store: str, patience: float, given: str | None = None) -> dict[str, Any]:
    """Returns the files of a bug report about the store of a diagnosis, by name.

    `given` is its address on the command line. The diagnosis names the store without the password.
    """
    addresses = [address for address in (given, _set()) if address is not None]
    urls = [address for address in addresses if str(locate_unread(address)) == store]
    return _told(patience, "bundle", url=(urls or [store])[0])


def _told(patience: float, what: str, *more: str, url: str | None = None) -> dict[str, Any]:
    """Returns what the child process printed before the timeout, and the step at which it hung or failed."""
    found: dict[str, Any] = {}
    step, until = "start", clock.monotonic() + patience
    words = (what, *more) if url is None else (what, "-", *more)
    with _looking(*words, told=url or "") as process:
        for line in _lines(process, until):
            said = msgspec.json.decode(line)
            found |= said["found"]
            step = said["next"]
        if step == "":
            return found
        if clock.monotonic() < until and process.stderr is not None:  # it failed before the timeout: nothing hangs
            last = process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            return {**found, "refused": {**found.get("refused", {}), step: last or "the examination failed"}}
    return {**found, "stuck": step, "patience": patience}


@contextmanager
def _looking(*words: str, told: str) -> "Generator[subprocess.Popen[bytes]]":
    """Starts a child process that imports this package; kills it at the end, and waits one second for its exit.

    It reads the text `told` from its standard input.
    """
    here = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "chargehand.doctor", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=env,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(told.encode())
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
    """Yields complete lines until the process exits or the timeout is reached."""
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
