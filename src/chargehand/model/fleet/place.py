"""One worker's place in its crew: its status, what is planned for it, and what is known of its current process.

Plain data; the fleet decides.
"""

from enum import StrEnum

import msgspec

from chargehand.model.error_line import ErrorLine, error_line
from chargehand.model.fleet.cards import WorkerGpu
from chargehand.model.fleet.death import Cause, Evidence, Reason
from chargehand.model.fleet.lifecycle import ALIVE, TRANSITIONS, Status
from chargehand.model.fleet.policy import History
from chargehand.model.fleet.usage import Usage


class After(StrEnum):
    """What follows when a worker has stopped as requested."""

    STAY = "stay"
    """Stay stopped until an operator starts it."""
    START = "start"
    """Start again at once."""
    SLEEP = "sleep"
    """Start again with the next job."""
    REMOVE = "remove"
    """Remove the place."""


class Shortage(StrEnum):
    """Why a worker that is due does not start: its declared memory does not fit, or its GPUs are not available."""

    TEMPORARY = "temporary"
    """Others use the memory or the GPUs."""
    PERMANENT = "permanent"
    """The crew declares more than the limit, or more than any GPU of the node has."""


class Slot(msgspec.Struct):
    """The deadlines of one of several jobs that a worker performs at the same time."""

    until: float | None
    """When its timeout is over; None: it has none."""
    end_at: float | None = None
    """When the worker is replaced if the job, which was asked to end, has not ended."""
    expired: bool = False
    """Whether it was asked to end because of its timeout."""

    @property
    def due(self) -> float | None:
        """The next deadline."""
        return self.until if self.end_at is None else self.end_at

    def shift(self, late: float) -> None:
        """Extends the deadlines."""
        self.until = None if self.until is None else self.until + late
        self.end_at = None if self.end_at is None else self.end_at + late


class Place(msgspec.Struct):
    """One worker's place, across all its incarnations. Times are monotonic seconds; None: nothing is planned."""

    component: str
    crew: str
    index: int
    concurrency: int = 1
    """How many jobs it performs at the same time."""
    status: Status = Status.STOPPED
    reason: Reason | None = None
    """Why the worker is not running, or last was not."""
    text: str | None = None
    """The reason as a text for people."""
    error: ErrorLine | None = None
    """What it crashed of, in one line, as long as it is crashed or given up."""
    history: History = msgspec.field(default_factory=History)
    restarts_total: int = 0
    """The number of restarts in all lives of the node."""
    restarted_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    evidence: Evidence = Evidence()
    """The facts about the last death for its report; empty after the report is made."""

    # plans
    start_at: float | None = None
    in_line: bool = False
    """Whether it is due to start, but waits for other workers to load or for memory."""
    shortage: Shortage | None = None
    """Why it cannot start while it waits in line; None if its memory fits."""
    short_of: str = ""
    """What other workers must release for it: `memory` or `gpu_memory`, as far as it is declared."""
    short_since: float | None = None
    """Since when it waits for that."""
    behind_breaker: bool = False
    after: After | None = None
    why_leave: Reason | None = None
    """Why the worker accepts no more jobs and is stopped as soon as it holds none."""
    suspicion: str = ""
    """Why it is replaced, if `why_leave` is SUSPECT."""
    paused: bool = False
    """Whether it is to be paused; the status follows when the worker confirms it."""

    # the current process
    life: int = 0
    pid: int | None = None
    last_pid: int | None = None
    """As `pid`, but kept when the process has ended, for messages about its end."""
    started_at: float = 0.0
    ready_at: float | None = None
    framed: bool = False
    framed_at: float = 0.0
    load_until: float = 0.0
    look_at: float | None = None
    cpu: Usage | None = None
    cpu_at: float = 0.0
    turns: int = -1
    turned_at: float = 0.0
    still_cpu: float | None = None
    still_since: float = 0.0
    unresponsive: bool = False
    stalled: bool = False
    blocked: bool = False
    """Whether several of its jobs were late because its event loop did not run, so that any of them may be to blame."""
    job: str | None = None
    others: set[str] = msgspec.field(default_factory=set[str])
    """The other jobs of its batch, or those that it performs at the same time."""
    slots: dict[str, Slot] = msgspec.field(default_factory=dict[str, Slot])
    """With `concurrency`: the jobs that it performs, and a call of `discover`."""
    job_until: float | None = None
    """When its job times out; with `concurrency`, the next deadline of a slot, or an earlier time."""
    recalled: set[str] = msgspec.field(default_factory=set[str])
    """The jobs it holds that were cancelled."""
    cancel_at: float | None = None
    """When the worker is replaced if it still holds a cancelled job."""
    endless: bool = False
    """Whether its job has no timeout."""
    jobs: int = 0
    memory: int = 0
    gpus: tuple[WorkerGpu, ...] = ()
    """The GPUs that are assigned to it, until its process and all its descendants have ended."""
    sleep_at: float | None = None
    well_at: float | None = None
    """When it has been ready for so long that a part of its history is cleared."""
    free_at: float = 0.0
    """When it last was ready, and received no job."""
    rest_at: float | None = None
    """When it has been without a job for `idle_exit`; `sleep_at` is later if it has just called `discover`."""
    verdict: Reason | None = None
    stage: int = 0
    """The stage of a stop (0 not asked, 1 asked, 2 terminated, 3 killed)."""
    press_at: float | None = None

    # the last crash
    done_at_crash: int | None = None
    idle_crash_at: float | None = None
    idle_crash_cause: Cause | None = None

    @property
    def alive(self) -> bool:
        return self.status in ALIVE

    @property
    def asleep(self) -> bool:
        """Whether it exited because it was idle, and no job has started it again yet."""
        return self.status is Status.ASLEEP and not self.in_line

    @property
    def resting(self) -> bool:
        """Whether its process is about to exit because it is idle; the status is `asleep` when it has."""
        return self.after is After.SLEEP and self.alive

    @property
    def asked(self) -> bool:
        """Whether its process was asked to exit."""
        return self.status is Status.STOPPING or self.resting

    @property
    def doing(self) -> str | None:
        """The jobs it holds, as text."""
        return f"{self.job} and {len(self.others)} more" if self.others else self.job

    @property
    def blamed(self) -> set[str] | None:
        """The jobs because of which the worker is replaced; None: all that it holds."""
        if self.verdict is Reason.CANCELLED:
            return self.recalled
        if self.verdict is Reason.JOB_TIMEOUT and self.slots and not self.blocked:
            return {job for job, slot in self.slots.items() if slot.expired}
        return None

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags shown beside the status."""
        return tuple(name for name in ("unresponsive", "stalled") if getattr(self, name))

    def due(self) -> float | None:
        """Returns the earliest planned time."""
        due = self.start_at  # compared one by one: this runs for every worker at every step of the node
        for moment in (self.look_at, self.job_until, self.cancel_at, self.sleep_at, self.press_at, self.well_at):
            if moment is not None and (due is None or moment < due):
                due = moment
        return due

    def move(self, status: Status) -> None:
        """Changes the status. Raises AssertionError for a transition that is not in TRANSITIONS."""
        if status is self.status:
            return
        if status not in TRANSITIONS[self.status]:
            raise AssertionError(f"{self.component}: {self.status} → {status} is not in the table")
        self.status = status

    def shift(self, late: float) -> None:
        """Extends all deadlines by the time in which the supervisor itself was delayed."""
        self.framed_at += late
        self.started_at += late
        self.load_until += late
        self.turned_at += late
        self.still_since += late
        self.cpu_at += late
        self.free_at += late
        for name in ("ready_at", "look_at", "job_until", "cancel_at", "sleep_at", "rest_at", "press_at", "well_at"):
            moment = getattr(self, name)
            if moment is not None:
                setattr(self, name, moment + late)
        for slot in self.slots.values():
            slot.shift(late)

    def begin(self, now: float, load_limit: float) -> None:
        """Resets the place for a new process."""
        self.move(Status.STARTING)
        self.life += 1
        self.start_at, self.in_line, self.behind_breaker = None, False, False
        self.after, self.why_leave, self.verdict, self.stage, self.press_at = None, None, None, 0, None
        self.started_at = self.framed_at = self.turned_at = now
        self.load_until = now + load_limit
        self.ready_at, self.well_at, self.framed, self.cpu, self.turns, self.still_cpu = (
            None,
            None,
            False,
            None,
            -1,
            None,
        )
        self.unresponsive = self.stalled = self.blocked = False
        self.last_pid = None
        self.jobs, self.memory, self.sleep_at, self.rest_at, self.text = 0, 0, None, None, None

    @property
    def cause(self) -> ErrorLine | None:
        """Why the worker is not at work, in one line; None if there is no reason."""
        if self.ready_at is not None:
            return None
        crashed = self.status in (Status.CRASHED, Status.FAILED)
        return self.error if crashed and self.error is not None else error_line(self.text)

    def end(self) -> None:
        """Clears what concerned the process, which has ended."""
        self.pid = self.ready_at = self.well_at = self.look_at = self.sleep_at = self.press_at = None
        self.job_until = self.cancel_at = None
        self.job, self.others, self.recalled, self.slots, self.endless = None, set(), set(), {}, False
        self.gpus = ()
        self.unresponsive = self.stalled = False
