"""The stacks of a running worker on request: when a dump is complete, when a signal is safe, and why there is no dump.

Pure. The pulse thread of the worker writes the dump while it holds the interpreter. If C code holds the interpreter,
the pulse thread cannot, and a signal makes faulthandler write the dump without the interpreter. That is safe only while
no thread runs Python code: faulthandler reads the frames of every thread, and a frame that changes meanwhile can crash
the process.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.orders import places_of
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.usage import Usage, working

PATIENCE = 0.5
"""Seconds within which the pulse thread answers, unless C code holds the interpreter."""
LIMIT = 1.0
"""Seconds within which a signal makes the worker write its stacks."""
FIRST_LOOK, LONGEST_LOOK = 0.002, 0.05
"""Seconds between two checks for the dump: twice as long after each, up to the longest."""
MEASURED = 0.2
"""Seconds over which the CPU use of the worker is measured."""
LONGEST = 256 << 10
"""Bytes of a dump; of a longer one the end is kept, which has the main thread."""
SUSPENDED, DEAD = "Tt", "ZX"
"""The states of a process that a signal or a debugger has stopped, and of one that has exited."""


class StackCode(StrEnum):
    """The meaning of an answer to a request for stacks, for programs; its text is for people and may change."""

    DUMPED = "dumped"
    NO_PROCESS = "no_process"
    STARTING = "starting"
    SUSPENDED = "suspended"
    EXITED = "exited"
    BUSY = "busy"
    NO_HANDLER = "no_handler"
    NOT_DELIVERED = "not_delivered"


class WorkerStacks(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is doing now: the Python stacks of its threads, and what the kernel knows about them."""

    component: str
    pid: int | None = None
    job: str | None = None
    """The job that it performs."""
    code: str
    """One of `StackCode`; `dumped` if there are stacks."""
    text: str
    """Why there are no stacks, or how they were written."""
    stacks: str = ""
    threads: str = ""
    """Each thread as the kernel sees it: its state, and the kernel function in which it waits."""
    memory: int | None = None
    """Bytes of memory that the process uses (resident)."""
    cpu: float | None = None
    """Cores that the process and its child processes used while the stacks were written, at least 0.2 s; 1.0 is one."""
    cpu_s: float | None = None
    """CPU seconds that the process and its child processes have used since the process started."""


class SignalState(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel knows about one signal in a process."""

    state: str
    """The state of the process, such as `S` or `T`."""
    caught: bool
    """Whether the process has a handler for the signal."""
    pending: bool
    """Whether the signal was sent to the process, and no thread has received it yet."""
    blocking: Collection[int] = ()
    """The threads that block the signal; one that runs its handler does."""


class Written(msgspec.Struct, frozen=True):
    """The dumps that a worker has written since it was asked."""

    on_signal: str = ""
    """The dump of the signal's handler, which may be incomplete."""
    on_request: str | None = None
    """The dump of the pulse thread; None while it is incomplete."""


Why = tuple[StackCode, str]


def written(parts: Sequence[bytes]) -> Written:
    """Returns the dumps in the file of a worker, from its parts between the marks of the pulse thread.

    What precedes the first mark was written on the signal. So was what follows a mark that has no second one: the pulse
    thread lost the interpreter to C code before it could write, or it is writing at this moment.
    """
    texts = [part[-LONGEST:].decode(errors="replace").strip() for part in parts]
    begun = texts[-1] if len(texts) % 2 == 0 else ""
    return Written(texts[0] or begun, next((text for text in texts[1:-1] if text), None))


def worker_of(fleet: Fleet, name: str) -> Place:
    """Returns the place of a worker by its name, as worker:crew:index or crew:index. Raises UnknownCrew if there is
    none, ConfigurationError if the name means several workers."""
    if name in fleet.crews or name in ("", "*"):
        known = ", ".join(place.component for place in places_of(fleet, name or None))
        raise ConfigurationError(f"{name!r} is not the name of one worker; there are: {known or 'none'}")
    return places_of(fleet, name)[0]


def why_no_dump(place: Place) -> Why | None:
    """Returns why the worker is not asked for its stacks; None if it is."""
    if not place.alive:
        reason = f" ({place.text})" if place.text not in (None, place.status.value) else ""
        return StackCode.NO_PROCESS, f"has no process: it is {place.status.value}{reason}"
    if place.verdict is not None:
        return StackCode.EXITED, f"is about to exit ({place.verdict.value}); `chargehand crashes` has its report"
    return None


def exited() -> Why:
    """Returns the answer for a worker that exited before it wrote its stacks."""
    return StackCode.EXITED, "exited before it wrote its stacks; `chargehand crashes` shows whether it crashed"


def why_still(seen: SignalState) -> Why | None:
    """Returns the answer for a process that runs no code; None if it runs."""
    if seen.state in DEAD:
        return exited()
    if seen.state in SUSPENDED:
        return StackCode.SUSPENDED, f"is suspended by SIGSTOP or a debugger (state {seen.state})"
    return None


def why_no_signal(
    seen: SignalState, before: Usage | None, after: Usage | None, seconds: float, *, ready: bool, has_file: bool
) -> Why | None:
    """Returns why a worker whose pulse thread did not answer must not receive the signal; None if it may.

    The readings are of its CPU time, `seconds` apart; `ready` is whether it has ever sent a heartbeat, `has_file`
    whether it still has the file into which faulthandler writes.
    """
    if not seen.caught and not ready:
        return StackCode.STARTING, "has just been started, and cannot write its stacks yet"
    silent = f"did not answer within {seconds:.1f} s"
    if not seen.caught:  # the default action of the signal ends the process
        return StackCode.NO_HANDLER, f"{silent}, and its code has removed the handler of SIGUSR1"
    if not has_file:  # faulthandler would write into any file that has its number now
        return StackCode.NO_HANDLER, f"{silent}, and its code has closed the file for its stacks"
    if before is None or after is None or len(working(before, after, seconds)) > 1:
        return StackCode.BUSY, f"{silent}; several threads may run Python code, and a signal could crash it: try again"
    return None


def is_complete(found: Written, before: SignalState, now: SignalState) -> bool:
    """Returns whether the handler of the signal has written its dump and returned.

    The kernel blocks a signal in the thread that runs its handler.
    """
    return bool(found.on_signal) and not now.pending and set(now.blocking) <= set(before.blocking)


def why_incomplete(found: Written, now: SignalState) -> Why:
    """Returns why the dump is not complete after `LIMIT` seconds."""
    if now.pending or found.on_signal:
        where = "; its main thread waits in the kernel (state D)" if now.state == "D" else ""
        return StackCode.NOT_DELIVERED, f"did not handle SIGUSR1 within {LIMIT:g} s{where}"
    return StackCode.NO_HANDLER, "received SIGUSR1 and wrote no stacks: its code has replaced the handler"
