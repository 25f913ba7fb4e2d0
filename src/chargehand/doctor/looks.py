"""The examinations of a store and its node: each yields the name of its next step and what was found so far.

Any of them may hang (a dead mount, a stopped node), so they run in a child process (`python -m chargehand.doctor`).
They write nothing and import no application.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from chargehand import clock
from chargehand.doctor import tables
from chargehand.errors import ChargehandError, StoreError
from chargehand.host import nodelock, restart_plan
from chargehand.host.calls import Connection, NoNode
from chargehand.processes import proc
from chargehand.stores.location import Location, locate_unread, location_of_node_lock
from chargehand.stores.refusal import owner_of
from chargehand.stores.sqlite import files
from chargehand.stores.sqlite.peek import ENGINE_ERROR, Peek, is_damage, known_schema
from chargehand.system.private import user

ASKED = 2.0
"""The timeout for an answer of the node, in seconds."""
HELD = 1.0
"""Seconds after which a write lock that was never free is reported."""
REST = 0.02
UNLISTED = 0
"""Stands for a process that the kernel does not list, because it is in another container."""
NODE = ("from chargehand.node.main import main", "from chargehand.node import main")
"""The start of a node's command line: in this version, and in 0.1.0."""


# running nodes


def nodes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Finds every running node of this user, and the store that it serves."""
    yield "processes", {}
    found: list[dict[str, Any]] = []
    for pid in proc.pids():
        seen = proc.stat(pid)
        if seen is None or seen.dead or proc.owner_of(pid) != os.getuid():
            continue
        # Its open files first: to read the memory of any other process may hang.
        locks = locks_of(pid)
        if locks and any(begin in command_of(pid) for begin in NODE) and proc.mark_of(pid) == "node":
            addresses = sorted({address_of(location) for location in locks})
            found += [{"pid": pid, "path": path, "start": seen.start} for path in addresses]
    yield "mount", {"nodes": sorted(found, key=lambda node: node["start"])}


def locks_of(pid: int) -> list[Location]:
    """Returns the stores of whose node lock a process has a descriptor."""
    found = (location_of_node_lock(target.removesuffix(files.DELETED)) for target in links_of(pid).values())
    return [location for location in found if location is not None]


def address_of(location: Location) -> str:
    """Returns the address of a store by the lock of its node, which names a store on a server.

    The node itself is not asked: one that is stopped would take the time for everything else.
    """
    found: dict[str, Any] = {}
    if location.in_state_folder:
        with suppress(OSError, StoreError):  # another user's
            found = nodelock.holder(location) or {}
    return str(found.get("store") or location)


def links_of(pid: int) -> dict[str, str]:
    """Returns the open files of a process by descriptor; none if it has exited or belongs to another user."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed in the meantime
                found[name] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def command_of(pid: int) -> str:
    """Returns the first 300 bytes of a command line; empty if the process has exited."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(300).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def process(pid: int) -> dict[str, Any] | None:
    """Returns a process as it is shown; None if it has exited."""
    seen = proc.stat(pid)
    if seen is None or seen.dead:
        return None
    with open("/proc/uptime") as file:
        up = float(file.read().split()[0])
    owner = proc.owner_of(pid)
    if owner is None:
        return None
    return {
        "pid": pid, "state": seen.state, "age_s": max(0.0, up - seen.start / proc.TICK), "user": user(owner),
        "command": command_of(pid),
    }  # fmt: skip


# one store


def store(name: str, *more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Examines one store and its node, the step least likely to hang first; with `more`, first all running nodes."""
    if more:
        yield from nodes()
    location = locate_unread(name)
    filesystem = files.filesystem(location)
    below: dict[str, Any] = {"filesystem": filesystem, "network": filesystem in files.NETWORK}
    yield "file", {"ground": below}
    location = location.resolved()
    yield "file", {"path": str(location)}
    below |= under(location)
    yield "node", {"ground": below}
    node = holder(location)
    yield "node", {"node": node}
    if node["held"] and not node["elsewhere"] and not node.get("refused"):
        node |= asked(location)
    yield "write lock", {"node": node}
    yield "tables", {"lock": locked(location)}
    if below["exists"] and below["kind"] == "file" and not below["error"]:
        yield from book(location)
    yield "processes", {}
    yield "", {"orphans": [] if node["held"] else orphans(location)}


def under(location: Location) -> dict[str, Any]:
    """Returns the facts about the file and its disk."""
    found = files.file_facts(location)
    if not found["exists"] or found["error"] or found["kind"] != "file":
        return found
    if not files.is_accessible(location):
        owner, me = owner_of(location.path), user(os.getuid())
        return {**found, "error": f"it belongs to {owner}, and the user {me} has no permission to read and write it"}
    try:
        location.check()
    except StoreError as error:
        return {**found, "error": str(error)}
    return found | files.header_facts(location)


def holder(location: Location) -> dict[str, Any]:
    """Returns the process that holds the lock of the node."""
    try:
        seen = nodelock.holder(location)
    except (OSError, StoreError) as error:  # another user's file; the kernel still lists who has locked it
        pid = next(iter(files.lockers(location.node, kernel_locks())), None)
        why = error.strerror if isinstance(error, OSError) else str(error)
        found = {"held": pid is not None, "refused": True, "silent": why, "elsewhere": False}
        return found if pid is None else {**found, "pid": pid, "process": process(pid)}
    if seen is None:
        plan = restart_plan.announced(location)
        return {"held": False, "elsewhere": False, "restarts": None if plan is None else msgspec.to_builtins(plan)}
    here = nodelock.pid_namespace()
    elsewhere = seen.get("pid_namespace", here) != here
    pid = seen.get("pid")
    found = {"held": True, "pid": pid, "name": str(seen.get("node", "")), "elsewhere": elsewhere}
    if pid is not None and not elsewhere:
        gone = _gone(pid, location)
        found |= {"process": process(pid), "gone_file": gone is not None, "gone_name": gone or ""}
    return found


def _gone(pid: int, location: Location) -> str | None:
    """Returns the file of the store that a node uses although it is no longer the one at its path; None if none is."""
    if location.server is not None:
        return None
    links = links_of(pid)
    gone = str(location) if files.is_replaced(location, pid, links) else files.deleted_beside(location, pid, links)
    return None if proc.stat(pid) is None else gone


def asked(location: Location) -> dict[str, Any]:
    """Returns the status that the node answers, or why it does not answer."""
    listens = False
    try:
        line = Connection(location, ASKED)
        listens = True
        try:
            reply = line.reply(line.send("STATUS"), ASKED)
        finally:
            line.close()
    except NoNode as error:
        return {
            "silent": str(error), "listens": listens, "refused": isinstance(error.__cause__, PermissionError),
            "no_socket": isinstance(error.__cause__, FileNotFoundError),
        }  # fmt: skip
    if reply is None:
        return {"silent": f"no reply within {ASKED:g} s", "listens": True}
    return {"view": reply["status"]} if "status" in reply else {"silent": str(reply.get("error")), "listens": True}


def locked(location: Location) -> dict[str, Any] | None:
    """Returns the process that kept all others from writing; None if it was not the same one all the time.

    That is the holder of SQLite's own write lock: the holder of ours waits for it, too.
    """
    began = clock.monotonic()
    same: set[int] | None = None
    engine: set[int] = set()
    while clock.monotonic() - began < HELD:
        listed = kernel_locks()
        engine = set(files.engine_writers(location, listed))
        found = engine or set(files.lockers(location.lock, listed))
        if not found and not files.is_write_lock_free(location):
            found = {UNLISTED}
        same = found if same is None else same & found
        if not same:
            return None
        clock.sleep(REST)
    pid = next(iter(same or ()), UNLISTED)
    who = process(pid) or process(_keeper(location.lock))
    return {"seconds": round(clock.monotonic() - began, 1), "holder": who, "engine": pid in engine}


def _keeper(lock: Path) -> int:
    """Returns a process that has a locked descriptor of this file, which another one may have locked and left to it."""
    for pid in proc.pids():
        for name, target in links_of(pid).items():
            with suppress(OSError):  # closed in the meantime
                if target == str(lock) and "FLOCK" in Path(f"/proc/{pid}/fdinfo/{name}").read_text():
                    return pid
    return UNLISTED


def kernel_locks() -> str:
    """Returns all file locks on the machine, as the kernel lists them."""
    with open("/proc/locks") as file:
        return file.read()


def orphans(location: Location) -> list[dict[str, Any]]:
    """Returns the running processes marked as workers of this store, for a store without a node."""
    mark = f"{location.mark}/"
    found: list[dict[str, Any]] = []
    for pid in proc.pids():
        of = proc.mark_of(pid)
        seen = proc.stat(pid)
        if of is not None and of.startswith(mark) and seen is not None and not seen.dead:
            found.append({"pid": pid, "component": [*of.split("/"), "?", "?"][2]})
    return found


# the tables


def book(location: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the tables. What cannot be read is listed in `refused`, unless the schema is of another version."""
    told: dict[str, Any] = {"knows": known_schema()}
    try:
        peek = Peek(location)
        told["schema"] = peek.schema()
    except (ChargehandError, ENGINE_ERROR) as error:
        yield "tables", {"book": {**told, "error": str(error), "damaged": is_damage(error)}}
        return
    try:
        yield from tables.read(peek, told, ENGINE_ERROR, is_damage)
    except (ChargehandError, ENGINE_ERROR) as error:
        yield "processes", {"book": {**told, "error": str(error), "damaged": True}}
    finally:
        peek.close()
