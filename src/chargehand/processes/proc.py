"""Reads /proc: processes and the machine's memory. It starts and signals nothing.

A host that only waits loads this module, so it imports the model when a node or `doctor` needs it.
"""

import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chargehand.model.fleet.stacks import SignalState
    from chargehand.model.fleet.usage import ThreadUsage, Usage

MARK = "CHARGEHAND_LIFE"
"""The environment variable that identifies the descendants of a worker."""
_LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""
TICK = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """The status of a process, from /proc/PID/stat."""

    state: str
    parent: int
    session: int
    cpu: float
    """CPU seconds of all threads, ended ones included."""
    reaped: float
    """CPU seconds of ended children that were waited for."""
    threads: int
    start: int

    @property
    def dead(self) -> bool:
        """Whether no thread runs any more: the main thread can be a zombie while others are still ending."""
        return self.state in "ZX" and self.threads <= 1


def boot_id() -> str:
    """Returns the id of the current boot: pids are not comparable across boots."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def pid_namespace() -> str:
    """Returns the name of the pid namespace of this process: pids are not comparable with those of another one."""
    return os.readlink("/proc/self/ns/pid")


def stat(pid: int) -> Stat | None:
    """Returns the status of a process; None if it does not exist."""
    return _stat(f"/proc/{pid}/stat")


def _stat(path: str) -> Stat | None:
    try:
        text = _bytes(path)
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    cpu, reaped = (sum(int(n) for n in fields[at : at + 2]) / TICK for at in (11, 13))
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), cpu, reaped, int(fields[17]), int(fields[19]))


def alive(pid: int, start: int) -> bool:
    """Whether the process with this pid and start time exists and is not a zombie."""
    found = stat(pid)
    return found is not None and found.start == start and not found.dead


def pids() -> list[int]:
    """Returns the pids of all visible processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def owner_of(pid: int) -> int | None:
    """Returns the effective user of a process; None if it has exited."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[2]) for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return None


def mark_of(pid: int) -> str | None:
    """Returns the mark that a process inherited from a worker; None if it has none or cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return None  # it has exited, or belongs to another user
    for entry in environment.split(b"\0"):
        if entry.startswith(MARK.encode() + b"="):
            return entry[len(MARK) + 1 :].decode(errors="replace")
    return None


def session_members(session: int) -> list[int]:
    """Returns the living processes of a session; the kernel does not reuse its id while one of them lives."""
    found: list[int] = []
    for pid in pids():
        seen = stat(pid)
        if seen is not None and seen.session == session and not seen.dead:
            found.append(pid)
    return found


def usage_of(pid: int, own: int) -> "Usage | None":
    """Returns the CPU time of a worker whose pulse thread has the id `own`; None if it cannot be read."""
    from chargehand.model.fleet.usage import Usage

    try:
        threads = {int(task): _thread(pid, task) for task in _listed(f"/proc/{pid}/task")}
        whole = stat(pid)
        if whole is None:
            return None
        children = whole.reaped + sum(seen.cpu + seen.reaped for seen in descendants(pid).values())
    except OSError:
        return None
    # The whole contains the threads that have ended, each reading of a thread is a little older.
    ended = whole.cpu - sum(thread.cpu for thread in threads.values())
    pulse = threads.pop(own, None)
    return Usage(threads=threads, own=pulse.cpu if pulse else 0.0, ended=ended, children=round(children, 2))


def memory_of(pid: int) -> int | None:
    """Returns the resident memory of a process in bytes; None if it has exited."""
    sizes = _text(f"/proc/{pid}/statm").split()
    return int(sizes[1]) * os.sysconf("SC_PAGE_SIZE") if sizes else None


def _thread(pid: int, task: str) -> "ThreadUsage":
    """Reads a thread: its CPU time in nanoseconds if the kernel has it, and whether it sleeps on a futex."""
    from chargehand.model.fleet.usage import ThreadUsage

    base = f"/proc/{pid}/task/{task}"
    exact = _text(f"{base}/schedstat").split()
    where = _text(f"{base}/wchan")
    seen = None if exact and "futex" in where else _stat(f"{base}/stat")
    cpu = int(exact[0]) / 1e9 if exact else seen.cpu if seen else 0.0
    unknown = where in ("", "0") and seen is not None and seen.state == "S"  # the kernel does not say where it sleeps
    return ThreadUsage(cpu, "futex" in where or unknown)


def descendants(pid: int) -> dict[int, Stat]:
    """Returns the processes below this one, zombies included; a worker adopts what its children leave."""
    found: dict[int, Stat] = {}
    parents = [pid]
    while parents:
        parent = parents.pop()
        for task in _listed(f"/proc/{parent}/task"):
            for child in _text(f"/proc/{parent}/task/{task}/children").split():
                seen = stat(int(child))
                if seen is not None and int(child) not in found:
                    found[int(child)] = seen
                    parents.append(int(child))
    return found


def thread_states(pid: int) -> str:
    """Describes each thread of a process: its state, and the kernel function in which it waits."""
    lines: list[str] = []
    for task in sorted(_listed(f"/proc/{pid}/task"), key=int):
        found = stat(int(task))
        if found is None:
            continue
        base = f"/proc/{pid}/task/{task}"
        lines.append(
            f"thread {task} {_text(f'{base}/comm')!r}: state {found.state}, in {_text(f'{base}/wchan') or '?'}"
        )
        lines += [f"  {line}" for line in _text(f"{base}/stack").splitlines()]
    return "\n".join(lines)


def signal_state(pid: int, number: int) -> "SignalState":
    """Returns what the kernel knows about a signal in a process; the state is X if the process does not exist."""
    from chargehand.model.fleet.stacks import SignalState

    def holds(fields: dict[str, str], name: str) -> bool:
        return bool(int(fields.get(name, "0"), 16) >> (number - 1) & 1)

    whole = _status(f"/proc/{pid}")
    tasks = _listed(f"/proc/{pid}/task")
    return SignalState(
        state=whole.get("State", "X")[:1],
        caught=holds(whole, "SigCgt"),
        pending=holds(whole, "ShdPnd"),
        blocking=frozenset(int(task) for task in tasks if holds(_status(f"/proc/{pid}/task/{task}"), "SigBlk")),
    )


def shares(pid: int, descriptor: int) -> bool:
    """Returns whether a process has the same file under this descriptor as this one; True if that cannot be read."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), os.fstat(descriptor))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _status(folder: str) -> dict[str, str]:
    """Returns the fields of a status file; none if the process or the thread has ended."""
    lines = (line.partition(":") for line in _text(f"{folder}/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it has exited


def _text(path: str) -> str:
    try:
        return _bytes(path).decode(errors="surrogateescape").strip()
    except OSError:
        return ""  # it has exited, or may not be read


def _bytes(path: str) -> bytes:
    """Reads a file of /proc without a file object: several are read for each heartbeat of each worker."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def listening() -> list[tuple[str, int]]:
    """Returns the addresses and ports of the TCP sockets on which this process listens."""
    mine: set[str] = set()
    for name in _listed("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            mine.add(os.readlink(f"/proc/self/fd/{name}"))
    found: list[tuple[str, int]] = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in _text(f"/proc/self/net/{table}").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and f"socket:[{fields[9]}]" in mine:
                address, _, port = fields[1].partition(":")
                raw = bytes.fromhex(address)
                words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]  # little-endian words
                found.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def oom_kills() -> int:
    """Returns how many processes the kernel's out-of-memory killer has killed since boot; 0 if unknown."""
    found = re.search(r"^oom_kill (\d+)$", _text("/proc/vmstat"), re.MULTILINE)
    return int(found[1]) if found else 0


def memory_of_machine() -> int:
    """Returns the memory available in bytes: the machine's, or the limit of the control group if that is lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _text(path)
        if text.isdigit():
            limits.append(int(text))
    return min(limits)
