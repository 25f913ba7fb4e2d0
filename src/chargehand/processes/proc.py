"""What /proc says of processes and of the machine. Reads only; it starts and signals nothing."""

import os
import re

import msgspec

MARK = "CHARGEHAND_LIFE"
"""The environment variable by which the descendants of a worker are recognised."""
TICK = os.sysconf("SC_CLK_TCK")


class Stat(msgspec.Struct, frozen=True):
    """What /proc says of a process."""

    state: str
    parent: int
    session: int
    cpu: float
    threads: int
    start: int

    @property
    def dead(self) -> bool:
        """Whether nothing of it runs any more: a leader can be a corpse while its threads are still ending."""
        return self.state in "ZX" and self.threads <= 1


def boot_id() -> str:
    """The name of this boot of the machine: pids mean nothing across boots."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat(pid: int) -> Stat | None:
    """The process, unless it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    cpu = sum(int(n) for n in fields[11:15]) / TICK
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), cpu, int(fields[17]), int(fields[19]))


def alive(pid: int, start: int) -> bool:
    """Whether that very process is there, and not only its corpse."""
    found = stat(pid)
    return found is not None and found.start == start and not found.dead


def pids() -> list[int]:
    """Every process on the machine that we may see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def mark_of(pid: int) -> str | None:
    """The mark that a process inherited from the worker it descends from."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return None  # gone, or another user's
    for entry in environment.split(b"\0"):
        if entry.startswith(MARK.encode() + b"="):
            return entry[len(MARK) + 1 :].decode(errors="replace")
    return None


def session_members(session: int) -> list[int]:
    """Living processes of a session. Its number is not given to anybody else while one of them lives."""
    found: list[int] = []
    for pid in pids():
        seen = stat(pid)
        if seen is not None and seen.session == session and not seen.dead:
            found.append(pid)
    return found


def cpu_of(leader: int) -> float | None:
    """CPU seconds used so far by a worker and everything in its session; None if that cannot be told."""
    try:
        own = stat(leader)
    except OSError:
        return None
    if own is None:
        return None
    others = (stat(pid) for pid in session_members(leader) if pid != leader)
    return own.cpu + sum(seen.cpu for seen in others if seen is not None)


def where_threads_stand(pid: int) -> str:
    """What the kernel says of each thread of a process: its state, and what it waits for in the kernel."""
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
        return []  # it is gone


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""  # gone, or not for us to read


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory so far, as far as it tells us."""
    found = re.search(r"^oom_kill (\d+)$", _text("/proc/vmstat"), re.MULTILINE)
    return int(found[1]) if found else 0


def memory_of_machine() -> int:
    """The bytes of memory that we may use: the machine's, or less if a control group says so."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _text(path)
        if text.isdigit():
            limits.append(int(text))
    return min(limits)
