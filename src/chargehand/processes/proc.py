"""Reads /proc: processes and the machine's memory. It starts and signals nothing."""

import os
import re

import msgspec

MARK = "CHARGEHAND_LIFE"
"""The environment variable that identifies the descendants of a worker."""
TICK = os.sysconf("SC_CLK_TCK")


class Stat(msgspec.Struct, frozen=True):
    """The status of a process, from /proc/PID/stat."""

    state: str
    parent: int
    session: int
    cpu: float
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


def stat(pid: int) -> Stat | None:
    """Returns the status of a process; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    cpu = sum(int(n) for n in fields[11:15]) / TICK
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), cpu, int(fields[17]), int(fields[19]))


def alive(pid: int, start: int) -> bool:
    """Whether the process with this pid and start time exists and is not a zombie."""
    found = stat(pid)
    return found is not None and found.start == start and not found.dead


def pids() -> list[int]:
    """Returns the pids of all visible processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


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


def cpu_of(leader: int) -> float | None:
    """Returns the CPU seconds used by a worker and all processes of its session; None if they cannot be read."""
    try:
        own = stat(leader)
    except OSError:
        return None
    if own is None:
        return None
    others = (stat(pid) for pid in session_members(leader) if pid != leader)
    return own.cpu + sum(seen.cpu for seen in others if seen is not None)


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


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it has exited


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""  # it has exited, or may not be read


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
