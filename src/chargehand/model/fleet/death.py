"""Classifies the death of a worker: a reason code, a text, and the outcome of the job that it held.

Pure. Exit code and signal are facts; the reason is a judgement and is never encoded in a number.
"""

import signal
from enum import StrEnum

import msgspec

from chargehand.errors import EXIT_CONFIGURATION, EXIT_SET_UP, EXIT_UNRECOVERABLE, STACKS_FOLLOW
from chargehand.model.doctor.wording import SIGNALS
from chargehand.model.error_line import ErrorLine, error_line
from chargehand.model.job import Crashed, Interrupted, Outcome, Stopped, TimedOut


class Reason(StrEnum):
    """Why a worker is not running: all reason codes of reports, health rows and statuses."""

    CRASH = "crash"
    OOM = "oom"
    EXITED = "exited"
    HEARTBEAT_TIMEOUT = "heartbeat timeout"
    HUNG = "hung"
    BAD_FRAME = "bad frame"
    BROKEN = "broken"
    SUSPECT = "suspect"
    START_TIMEOUT = "start timeout"
    JOB_TIMEOUT = "job timeout"
    CANCELLED = "cancelled"
    SET_UP_FAILED = "set-up failed"
    CONFIGURATION = "configuration error"
    UNRECOVERABLE = "unrecoverable error"
    NOT_STARTED = "not started"
    BREAKER = "breaker open"
    RECYCLED = "recycled"
    RESTARTED = "restarted"
    DRAINED = "drained"
    STOPPED = "stopped"
    SCALED_DOWN = "scaled down"
    IDLE = "idle"
    GAVE_WAY = "gave way"


MEANINGS: dict[Reason, str] = {
    Reason.CRASH: "the worker was ended by a signal that Chargehand did not send",
    Reason.OOM: "the kernel's out-of-memory killer killed the worker",
    Reason.EXITED: "the worker exited by itself, with any exit code, or after a SIGTERM from outside",
    Reason.HEARTBEAT_TIMEOUT: "the worker sent no heartbeat and used no CPU time; it was killed",
    Reason.HUNG: "the worker sent heartbeats, but its main thread made no progress; it was killed",
    Reason.BAD_FRAME: "the worker sent an invalid frame; it was killed",
    Reason.BROKEN: "the worker reported that its process is broken (`WorkerBroken`, `is_sound`, a lost GPU context); "
    "it was replaced, and the job is charged with a crash",
    Reason.SUSPECT: "the worker failed several jobs in a row that may not be at fault; it was replaced, uncharged",
    Reason.START_TIMEOUT: "the worker did not send its first frame, or did not finish `set_up`, in time; it was killed",
    Reason.JOB_TIMEOUT: "the worker's job exceeded its timeout; the worker was killed, and only the job is charged",
    Reason.CANCELLED: "the worker's job was cancelled and did not end in time; the worker was killed, uncharged",
    Reason.SET_UP_FAILED: "the handler's set_up raised",
    Reason.CONFIGURATION: "the worker reported a configuration error; it was given up at once",
    Reason.UNRECOVERABLE: "the worker reported that a restart cannot help; it was given up at once",
    Reason.NOT_STARTED: "the process could not be started",
    Reason.BREAKER: "all workers of the crew crashed of the same cause; only one other worker is restarted",
    Reason.RECYCLED: "the worker reached `recycle_jobs` or `recycle_memory` and was replaced",
    Reason.RESTARTED: "an operator restarted the worker",
    Reason.DRAINED: "an operator drained the worker",
    Reason.STOPPED: "the worker was asked to stop",
    Reason.SCALED_DOWN: "the crew was scaled down",
    Reason.IDLE: "the worker reached `idle_exit`, or was idle while another waited for its declared memory; the next "
    "job starts it again",
    Reason.GAVE_WAY: "another worker waited for the declared memory of this one, which was always busy; it starts "
    "again after that one",
}
"""The meaning of each reason, for the reference documentation."""

_FATAL = {EXIT_CONFIGURATION: Reason.CONFIGURATION, EXIT_UNRECOVERABLE: Reason.UNRECOVERABLE}


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a death, from the kernel and from the worker itself."""

    exit_code: int | None = None
    signal: int | None = None
    said: str | None = None
    """The reason that the worker sent before it exited."""
    broken: str | None = None
    """Why the worker reported its process as broken, as a traceback."""
    had_job: bool = False
    oom: bool = False

    @property
    def how(self) -> str:
        """The signal or the exit code, as text."""
        return signal_in_words(self.signal) if self.signal else f"exit code {self.exit_code}"

    @property
    def fatal(self) -> bool:
        """Whether a restart cannot help; an exit code without a reason does not count if a job was running."""
        return self.exit_code in _FATAL and (self.said is not None or not self.had_job)


class Cause(msgspec.Struct, frozen=True):
    """What a worker without a job died of, by which crashes are compared; `text` is for people, and not compared."""

    reason: Reason
    exit_code: int | None
    signal: int | None
    text: str

    @property
    def key(self) -> tuple[Reason, int | None, int | None]:
        return self.reason, self.exit_code, self.signal


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was known of a process when it died, for its crash report; empty if the process was never started."""

    incarnation: str = ""
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    job: str | None = None
    """The job that the worker held; of several, the first."""
    memory: int | None = None
    uptime_ms: int | None = None
    """Since the worker was ready; None if it never was."""
    stacks: str = ""
    lines: tuple[str, ...] = ()
    """The last lines of its log."""
    frames: tuple[str, ...] = ()
    """Invalid frames that the worker sent, shortened."""


def signal_in_words(number: int) -> str:
    """Returns the number and the name of a signal, such as `signal 9, SIGKILL`; without the name if it has none."""
    return f"signal {number}" + (f", {signal.Signals(number).name}" if number in set(signal.Signals) else "")


def reason_of(death: Death, verdict: Reason | None) -> Reason:
    """Returns the reason of a death: the supervisor's verdict, if there is one."""
    if verdict is not None:
        return verdict
    if death.oom:
        return Reason.OOM
    if death.signal:
        return Reason.CRASH
    if death.fatal and death.exit_code is not None:
        return _FATAL[death.exit_code]
    if death.exit_code == EXIT_SET_UP and death.said is not None:
        return Reason.SET_UP_FAILED
    return Reason.EXITED


def crash_line(
    reason: str, text: str, *, signal: int | None = None, where: str = "", loading: bool = False
) -> ErrorLine:
    """Returns a crash in one line: the exception that ended the worker, or the signal and where it struck.

    `text`: the reason in words, with the traceback if there is one; `loading`: the worker had not been ready yet.
    """
    after = (f" in {where}" if where else "") + (" while loading" if loading else "")
    if reason == Reason.OOM:
        return ErrorLine(f"out of memory{after}", "OOM")
    if reason == Reason.CRASH and signal:
        number, _, name = signal_in_words(signal).partition(", ")
        known = SIGNALS.get(signal)
        return ErrorLine(f"{known}{after} ({name})" if known else f"{name or number}{after}", name or None)
    return error_line(text) or ErrorLine(reason)


def last_outcome(
    death: Death, verdict: Reason | None, who: str, *, asked: bool, blocked: bool = False, stacks: str = ""
) -> Outcome:
    """Returns the outcome of the worker's job: a crash, unless the worker was asked to stop or the job is not to
    blame. `blocked`: several jobs were late, and nobody knows which of those in hand has kept the others from
    ending."""
    if verdict is Reason.JOB_TIMEOUT and not blocked:
        where = f"{STACKS_FOLLOW}{stacks}" if stacks else "; no stack traces are available"
        return TimedOut(f"the job took longer than its timeout, and {who} was replaced{where}")
    if verdict is Reason.CANCELLED:
        return Stopped(f"the job did not end after it was cancelled, and {who} was replaced")
    if asked:
        return Interrupted(f"{who} was stopped before the job was done")
    if death.fatal and death.said is not None:
        return Interrupted(f"{who} gave up: {death.said}")
    reason = reason_of(death, verdict)
    if reason is Reason.BROKEN:
        return Crashed(f"{who} reported that its process is broken, and was replaced:\n{death.broken}")
    after = "" if reason in (Reason.CRASH, Reason.EXITED) else f" ({reason})"
    where = f"{STACKS_FOLLOW}{stacks}" if stacks else ""
    return Crashed(f"{who} ended by {death.how}{after} while it performed the job{where}")
