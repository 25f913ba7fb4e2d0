"""The looks at a store and its node: each yields what is looked at next, and what was found so far.

Any of them may hang (a dead mount, a stopped node): they run in a process of their own (`python -m chargehand.doctor`).
They write nothing, and import no application.
"""

import fcntl
import hashlib
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chargehand import clock
from chargehand.errors import ChargehandError
from chargehand.host import nodelock
from chargehand.host.calls import Connection, NoNode
from chargehand.model.doctor.wording import place_in
from chargehand.model.health import APP
from chargehand.model.records import CrashFilter
from chargehand.processes import proc
from chargehand.stores.sqlite import ground
from chargehand.stores.sqlite.peek import ENGINE_ERROR, Peek, kind_of, known_schema, lockers, writers

ASKED = 2.0
"""Seconds that a node has to answer."""
HELD = 1.0
"""Seconds after which a write lock that is held all the while is remarkable."""
REST = 0.02
MOST_CRASHES = 50
NODE = ("from chargehand.node.main import main", "from chargehand.node import main")
"""How a node's command line begins: of this version, and of 0.1.0."""
LOCK_END = "-node"
DELETED = " (deleted)"


# the nodes that run here


def nodes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of this user that runs on the machine: which store it serves."""
    yield "processes", {}
    found: list[dict[str, Any]] = []
    for pid in proc.pids():
        if not any(begin in command_of(pid) for begin in NODE) or proc.mark_of(pid) != "node":
            continue
        seen = proc.stat(pid)
        if seen is not None and not seen.dead and _owner(pid) == os.getuid():
            found += [{"pid": pid, "path": path, "start": seen.start} for path in stores_of(pid)]
    yield "its mount", {"nodes": sorted(found, key=lambda node: node["start"])}


def stores_of(pid: int) -> list[str]:
    """The stores whose lock a process holds."""
    found: set[str] = set()
    for target in links_of(pid).values():
        name = target.removesuffix(DELETED)
        if name.endswith(LOCK_END):
            found.add(name.removesuffix(LOCK_END))
    return sorted(found)


def links_of(pid: int) -> dict[str, str]:
    """The files that a process has open, by descriptor; none if it is gone, or somebody else's."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                found[name] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def command_of(pid: int) -> str:
    """Its command line, cut; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(300).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def process(pid: int) -> dict[str, Any] | None:
    """A process as it is shown; None if it is gone."""
    seen = proc.stat(pid)
    if seen is None or seen.dead:
        return None
    with open("/proc/uptime") as file:
        up = float(file.read().split()[0])
    owner = _owner(pid)
    if owner is None:
        return None
    return {
        "pid": pid, "state": seen.state, "age_s": max(0.0, up - seen.start / proc.TICK), "user": user(owner),
        "command": command_of(pid),
    }  # fmt: skip


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None  # it is gone


def user(uid: int) -> str:
    """A user's name, or number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


# one store


def store(name: str, *more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything about one store and its node, the least likely to hang first; after other nodes, if that is wanted."""
    if more:
        yield from nodes()
    with open("/proc/self/mountinfo") as lines:
        filesystem = ground.filesystem_of(Path(name), lines.read())
    below: dict[str, Any] = {"filesystem": filesystem, "network": filesystem in ground.NETWORK}
    yield "its file", {"ground": below}
    path = Path(os.path.realpath(name))
    yield "its file", {"path": str(path)}
    below |= under(path)
    yield "its node", {"ground": below}
    node = holder(path)
    yield "its node", {"node": node}
    if node["held"] and not node["elsewhere"] and not node.get("refused"):
        node |= asked(path)
    yield "its write lock", {"node": node}
    yield "its tables", {"lock": locked(path)}
    if below["exists"] and below["kind"] == "file" and not below["error"]:
        yield from book(path)
    yield "processes", {}
    yield "", {"orphans": [] if node["held"] else orphans(path)}


def under(path: Path) -> dict[str, Any]:
    """The file, and the disk that it is on."""
    found: dict[str, Any] = {"exists": True, "kind": "file", "error": None}
    try:
        room = os.statvfs(path.parent)
        found["free"] = room.f_bavail * room.f_frsize
        seen = os.stat(path)
        found |= {"kind": kind_of(seen.st_mode), "size": seen.st_size}
        if not os.access(path, os.R_OK | os.W_OK):
            found["error"] = f"it may not be read and written by {user(os.getuid())}"
    except FileNotFoundError:
        found["exists"] = False
    except OSError as error:
        found["error"] = error.strerror or str(error)
    return found


def holder(path: Path) -> dict[str, Any]:
    """Who holds the lock that makes a node single."""
    try:
        seen = nodelock.holder(path)
    except OSError as error:  # it is somebody else's; the kernel still says who has locked it
        pid = next(iter(lockers(Path(f"{path}{LOCK_END}"), kernel_locks())), None)
        found = {"held": pid is not None, "refused": True, "silent": error.strerror, "elsewhere": False}
        return found if pid is None else {**found, "pid": pid, "process": process(pid)}
    if seen is None:
        return {"held": False, "elsewhere": False}
    here = nodelock.pid_namespace()
    elsewhere = seen.get("pid_namespace", here) != here
    pid = seen.get("pid")
    found = {"held": True, "pid": pid, "name": str(seen.get("node", "")), "elsewhere": elsewhere}
    if pid is not None and not elsewhere:
        found |= {"process": process(pid), "gone_file": _gone(pid, path)}
    return found


def _gone(pid: int, path: Path) -> bool:
    """Whether a node has a store open, and it is not the one that is at its path now."""
    links = links_of(pid)
    if f"{path}-lock" not in (target.removesuffix(DELETED) for target in links.values()):
        return False  # it has not opened it yet, or we may not see
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return True
    for name in links:
        with suppress(OSError):  # closed meanwhile
            seen = os.stat(f"/proc/{pid}/fd/{name}")
            if (seen.st_dev, seen.st_ino) == (there.st_dev, there.st_ino):
                return False
    return proc.stat(pid) is not None


def asked(path: Path) -> dict[str, Any]:
    """What the node answers, or why it does not."""
    listens = False
    try:
        line = Connection(Path(f"{path}-sock"), ASKED)
        listens = True
        try:
            reply = line.reply(line.say("STATUS"), ASKED)
        finally:
            line.close()
    except NoNode as error:
        return {"silent": str(error), "refused": isinstance(error.__cause__, PermissionError), "listens": listens}
    if reply is None:
        return {"silent": f"it said nothing for {ASKED:g} s", "listens": True}
    return {"view": reply["status"]} if "status" in reply else {"silent": str(reply.get("error")), "listens": True}


def locked(path: Path) -> dict[str, Any] | None:
    """Who has held the write lock all the while that we looked; None if it was free for a moment."""
    began = clock.monotonic()
    found: list[int] = []
    while clock.monotonic() - began < HELD:
        found = writers(path, kernel_locks())
        if not found and _free(path):
            return None
        clock.sleep(REST)
    who = process(found[0]) if found and found[0] > 0 else None
    return {"seconds": round(clock.monotonic() - began, 1), "holder": who}


def kernel_locks() -> str:
    """Every lock on the machine, as the kernel lists them."""
    with open("/proc/locks") as file:
        return file.read()


def _free(path: Path) -> bool:
    """Whether our own write lock can be had; for whoever the kernel does not list, in another container."""
    try:
        descriptor = os.open(f"{path}-lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True  # nobody has made it yet, or it is not for us
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def orphans(path: Path) -> list[dict[str, Any]]:
    """Processes that carry the mark of a worker of this store, while no node is there to have any."""
    mark = hashlib.sha256(os.fsencode(path)).hexdigest()[:16] + "/"
    found: list[dict[str, Any]] = []
    for pid in proc.pids():
        of = proc.mark_of(pid)
        seen = proc.stat(pid)
        if of is not None and of.startswith(mark) and seen is not None and not seen.dead:
            found.append({"pid": pid, "component": [*of.split("/"), "?", "?"][2]})
    return found


# the tables


def book(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the tables say. What an older or newer schema does not have is told as refused, and the rest goes on."""
    told: dict[str, Any] = {"knows": known_schema()}
    try:
        peek = Peek(path)
        told["schema"] = peek.schema()
    except (ChargehandError, ENGINE_ERROR) as error:
        yield "its tables", {"book": {**told, "error": str(error)}}
        return
    found: dict[str, Any] = {"book": told}
    refused: dict[str, str] = {}
    for name, look in _LOOKS.items():
        yield f"its {name.removesuffix('_ms').replace('_', ' ')}", found
        try:
            found = {name: look(peek)}
        except (ChargehandError, ENGINE_ERROR, ValueError) as error:
            found, refused[name] = {}, str(error)
    if refused and told["schema"] == told["knows"]:  # of another schema that was to be expected
        found["refused"] = refused
    yield "processes", found
    peek.close()


def _crashes(peek: Peek) -> list[dict[str, Any]]:
    """The newest of each crew; where it stood, instead of all that it wrote."""
    newest: dict[str, dict[str, Any]] = {}
    for crash in peek.fleet.crashes(CrashFilter(limit=MOST_CRASHES)):
        if crash.crew not in newest:
            known = {name: getattr(crash, name) for name in ("crew", "reason", "text", "signal", "at_ms")}
            newest[crash.crew] = {**known, "where": place_in(crash.stacks)}
    return list(newest.values())


def _last_done(peek: Peek) -> dict[str, int]:
    names = {row.queue for row in peek.fleet.crews()} | {queue for queue, _ in peek.jobs.waiting()}
    found = {name: peek.last_done(name) for name in names}
    return {name: at for name, at in found.items() if at is not None}


_LOOKS: dict[str, Callable[[Peek], Any]] = {
    "pauses": lambda peek: peek.fleet.pauses(),
    "crews": lambda peek: peek.fleet.crews(),
    "given_up": lambda peek: peek.fleet.given_up(),
    "waiting": lambda peek: dict(peek.jobs.waiting()),
    "last_beat_ms": lambda peek: max(
        (r.last_heartbeat_ms or 0 for r in peek.fleet.health() if r.component == APP), default=None
    ),
    "newest_ms": lambda peek: peek.newest_ms(),
    "crashes": _crashes,
    "last_done": _last_done,
    "next_run": lambda peek: peek.next_run(),
    "queues": lambda peek: peek.jobs.counts(),
}
"""By the names that the facts have; the cheap ones first."""
