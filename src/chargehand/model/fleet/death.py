"""What a worker's death means: one word for the reason, a sentence for people, and what becomes of the job in hand.

Pure. Exit code and signal are facts; the reason is a judgement, and never hides in a number.
"""

import signal
from enum import StrEnum

import msgspec

from chargehand.errors import EXIT_CONFIGURATION, EXIT_SET_UP, EXIT_UNRECOVERABLE
from chargehand.model.job import Crashed, Interrupted, Outcome, Stopped, TimedOut


class Reason(StrEnum):
    """Why a worker is not there: every word that can stand in a report, a health row or a status."""

    CRASH = "crash"
    OOM = "oom"
    EXITED = "exited"
    HEARTBEAT_TIMEOUT = "heartbeat timeout"
    HUNG = "hung"
    BAD_FRAME = "bad frame"
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


MEANINGS: dict[Reason, str] = {
    Reason.CRASH: "a signal that nobody of ours sent ended it",
    Reason.OOM: "the kernel killed it because memory ran out",
    Reason.EXITED: "it ended by itself, with whatever code, or somebody sent it a SIGTERM",
    Reason.HEARTBEAT_TIMEOUT: "no frame came, and it used no CPU time: hung, and killed",
    Reason.HUNG: "frames came, but its working thread stood still: hung, and killed",
    Reason.BAD_FRAME: "it said what is no frame: killed",
    Reason.START_TIMEOUT: "its first frame, or the end of its set-up, did not come in time: killed",
    Reason.JOB_TIMEOUT: "its job took longer than it may: killed, and charged to the job alone",
    Reason.CANCELLED: "a person cancelled its job, which did not end by itself in time: killed, and charged to nobody",
    Reason.SET_UP_FAILED: "the handler's set_up raised",
    Reason.CONFIGURATION: "it said that its configuration is wrong: given up at once",
    Reason.UNRECOVERABLE: "it said that its successor could do no better: given up at once",
    Reason.NOT_STARTED: "the process could not be made",
    Reason.BREAKER: "all of its crew crashed of the same cause; another of them is tried first",
    Reason.RECYCLED: "it had done its number of jobs, or grown too large, and was replaced",
    Reason.RESTARTED: "a person had it restarted",
    Reason.DRAINED: "a person had it drained",
    Reason.STOPPED: "it was asked to stop",
    Reason.SCALED_DOWN: "its crew was made smaller",
    Reason.IDLE: "it had nothing to do for long enough; it comes back with the next job",
}

_FATAL = {EXIT_CONFIGURATION: Reason.CONFIGURATION, EXIT_UNRECOVERABLE: Reason.UNRECOVERABLE}


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a death, as far as the kernel and the worker itself told them."""

    exit_code: int | None = None
    signal: int | None = None
    said: str | None = None
    """The worker's own last words about why it ends."""
    had_job: bool = False
    oom: bool = False

    @property
    def how(self) -> str:
        return f"signal {self.signal}{_name(self.signal)}" if self.signal else f"exit code {self.exit_code}"

    @property
    def fatal(self) -> bool:
        """Whether a restart cannot help. A job may call sys.exit(2) for reasons of its own: without words, and with a
        job in hand, it is not meant."""
        return self.exit_code in _FATAL and (self.said is not None or not self.had_job)


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
    """What it sent that was not a frame, cut."""


def _name(number: int) -> str:
    """A signal's name, in brackets, if it has one."""
    return f", {signal.Signals(number).name}" if number in set(signal.Signals) else ""


def reason_of(death: Death, verdict: Reason | None) -> Reason:
    """One word for it: the supervisor's own verdict if it had one."""
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


def last_outcome(death: Death, verdict: Reason | None, who: str, *, asked: bool, stacks: str = "") -> Outcome:
    """What a death means for the job in hand: a crash, unless it was our wish or nothing that the job did."""
    if verdict is Reason.JOB_TIMEOUT:
        where = f"; it stood here:\n{stacks}" if stacks else "; it could not say where it stood"
        return TimedOut(f"the job took longer than its timeout, and {who} was replaced{where}")
    if verdict is Reason.CANCELLED:
        return Stopped(f"the job did not end by itself when it was cancelled, and {who} was replaced")
    if asked:
        return Interrupted(f"{who} was stopped before the job was done")
    if death.fatal and death.said is not None:
        return Interrupted(f"{who} gave up: {death.said}")
    reason = reason_of(death, verdict)
    after = "" if reason in (Reason.CRASH, Reason.EXITED) else f" ({reason})"
    where = f"; it stood here:\n{stacks}" if stacks else ""
    return Crashed(f"{who} ended by {death.how}{after} with the job in hand{where}")
