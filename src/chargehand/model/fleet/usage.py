"""The CPU time of a worker by what used it, and whether two readings show work.

Pure. While C code holds the interpreter, every other Python thread wakes up 200 times a second to ask for it, at about
0.4 % of a core each; that is no work. A thread that holds the interpreter may wait for native threads or for child
processes that work, and uses no CPU time itself.
"""

from collections.abc import Mapping

import msgspec

NOTHING = 0.001
"""CPU seconds of a thread that count as none."""
WAITING_SHARE = 0.01
"""The share of a core below which a thread that waits for the interpreter does no work."""
ROUNDING = 0.03
"""CPU seconds of ended threads that count as none: the kernel rounds the sum of all threads, twice, to 10 ms."""


class ThreadUsage(msgspec.Struct, frozen=True):
    """The CPU seconds of a thread, and whether it sleeps as a thread does that waits for the interpreter."""

    cpu: float
    waits: bool = False


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU seconds that a worker has used since its start."""

    threads: Mapping[int, ThreadUsage]
    """The threads that run the handler's code, by thread id."""
    own: float = 0.0
    """The pulse thread, which does no work of the handler."""
    ended: float = 0.0
    """Threads that have ended."""
    children: float = 0.0
    """Child processes and their descendants, ended ones included."""

    @property
    def total(self) -> float:
        """The sum of all but the pulse thread."""
        return sum(thread.cpu for thread in self.threads.values()) + self.ended + self.children


def shows_work(before: Usage, after: Usage, seconds: float) -> bool:
    """Whether a silent worker has worked in the `seconds` between two readings."""
    if after.children != before.children or after.ended - before.ended > ROUNDING:
        return True
    waiting = _cost_of_waiting(before, after, seconds)
    for number, thread in after.threads.items():
        earlier = before.threads.get(number)
        used = thread.cpu - (0.0 if earlier is None else earlier.cpu)
        if used > (waiting if thread.waits else NOTHING):
            return True
    return False


def cores(before: Usage, after: Usage, seconds: float) -> float:
    """Returns how many cores the worker and its child processes have used in the `seconds` between two readings."""
    return round(max(0.0, after.total - before.total) / seconds, 2)


def working(before: Usage, after: Usage, seconds: float) -> list[int]:
    """Returns the threads that have used more CPU time in the `seconds` than waiting for the interpreter costs."""
    most = _cost_of_waiting(before, after, seconds)
    earlier = {number: thread.cpu for number, thread in before.threads.items()}
    return [number for number, thread in after.threads.items() if thread.cpu - earlier.get(number, 0.0) > most]


def _cost_of_waiting(before: Usage, after: Usage, seconds: float) -> float:
    """Returns the CPU seconds up to which a thread only waits for the interpreter."""
    # The pulse thread waits for the interpreter all the time: it shows what that costs on this machine.
    return max(NOTHING, WAITING_SHARE * seconds, 2 * (after.own - before.own))
