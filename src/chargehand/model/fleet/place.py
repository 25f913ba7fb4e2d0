"""One worker's place in its crew: what it is, what is planned for it, and what is known of its present life.

Pure data; the fleet and its parts decide.
"""

from enum import StrEnum

import msgspec

from chargehand.model.fleet.death import Evidence, Reason
from chargehand.model.fleet.lifecycle import ALIVE, TRANSITIONS, Status
from chargehand.model.fleet.policy import History


class After(StrEnum):
    """What follows when a worker that was asked to stop has stopped."""

    STAY = "stay stopped until somebody starts it"
    START = "start again at once"
    SLEEP = "come back with the next job"
    REMOVE = "the place is no more"


class Place(msgspec.Struct):
    """One worker's place, through all its lives. Moments are monotonic seconds; None means that nothing is planned."""

    component: str
    crew: str
    index: int
    status: Status = Status.STOPPED
    reason: Reason | None = None
    """Why it is not (or was last not) at work, in one word."""
    text: str | None = None
    """The same for people."""
    history: History = msgspec.field(default_factory=History)
    restarts: int = 0
    restarted_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    evidence: Evidence = Evidence()
    """What the report of the last death will say of the process; empty once the report is made."""

    # what is planned
    start_at: float | None = None
    in_line: bool = False
    """Due to be started, but others load, or there is no room yet."""
    unfit: bool = False
    """It needs more than there is at all."""
    behind_breaker: bool = False
    after: After | None = None
    why_leave: Reason | None = None
    """It takes nothing more, and is stopped as soon as it has no job: why."""
    paused: bool = False
    """A person wants it paused; the status follows when the worker says so."""

    # its present life
    life: int = 0
    pid: int | None = None
    started_at: float = 0.0
    ready_at: float | None = None
    heard: bool = False
    framed_at: float = 0.0
    load_until: float = 0.0
    look_at: float | None = None
    cpu: float | None = None
    turns: int = -1
    turned_at: float = 0.0
    still_cpu: float | None = None
    still_since: float = 0.0
    unresponsive: bool = False
    stalled: bool = False
    job: str | None = None
    others: set[str] = msgspec.field(default_factory=set[str])
    """What it has in hand beside that job, in a crew that takes several at once."""
    job_until: float | None = None
    recalled: set[str] = msgspec.field(default_factory=set[str])
    """Of what it has in hand, what a person has cancelled."""
    cancel_at: float | None = None
    """If it has some of that still at this moment, it is replaced."""
    endless: bool = False
    """The job in hand has no timeout."""
    jobs: int = 0
    memory: int = 0
    sleep_at: float | None = None
    rest_at: float | None = None
    """When it has been without a job for as long as it may; `sleep_at` is later if it has just looked for one."""
    verdict: Reason | None = None
    stage: int = 0
    """How far a stop has gone (0 not asked, 1 asked, 2 terminated, 3 killed)."""
    press_at: float | None = None

    # its last crash
    done_at_crash: int | None = None
    idle_crash_at: float | None = None
    idle_crash_cause: str | None = None

    @property
    def alive(self) -> bool:
        return self.status in ALIVE

    @property
    def asleep(self) -> bool:
        """Stopped because it had nothing to do."""
        return self.status is Status.STOPPED and self.after is After.SLEEP and self.start_at is None

    @property
    def doing(self) -> str | None:
        """What it has in hand, for people."""
        return f"{self.job} and {len(self.others)} more" if self.others else self.job

    @property
    def flags(self) -> tuple[str, ...]:
        """What stands beside the status."""
        return tuple(name for name in ("unresponsive", "stalled") if getattr(self, name))

    def due(self) -> float | None:
        """The earliest moment that is planned."""
        moments = (self.start_at, self.look_at, self.job_until, self.cancel_at, self.sleep_at, self.press_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def move(self, status: Status) -> None:
        """Change the status, along the table only."""
        if status is self.status:
            return
        if status not in TRANSITIONS[self.status]:
            raise AssertionError(f"{self.component}: {self.status} → {status} is not in the table")
        self.status = status

    def shift(self, late: float) -> None:
        """The supervisor itself was late: nothing of what it did not see is held against the worker."""
        self.framed_at += late
        self.started_at += late
        self.load_until += late
        self.turned_at += late
        self.still_since += late
        for name in ("ready_at", "look_at", "job_until", "cancel_at", "sleep_at", "rest_at", "press_at"):
            moment = getattr(self, name)
            if moment is not None:
                setattr(self, name, moment + late)

    def begin(self, now: float, load_limit: float) -> None:
        """A new life: nothing of the old one is left."""
        self.move(Status.STARTING)
        self.life += 1
        self.start_at, self.in_line, self.behind_breaker = None, False, False
        self.after, self.why_leave, self.verdict, self.stage, self.press_at = None, None, None, 0, None
        self.started_at = self.framed_at = self.turned_at = now
        self.load_until = now + load_limit
        self.ready_at, self.heard, self.cpu, self.turns, self.still_cpu = None, False, None, -1, None
        self.unresponsive = self.stalled = False
        self.jobs, self.memory, self.sleep_at, self.rest_at, self.text = 0, 0, None, None, None

    def end(self) -> None:
        """The process is gone."""
        self.pid = self.ready_at = self.look_at = self.sleep_at = self.press_at = None
        self.job_until = self.cancel_at = None
        self.job, self.others, self.recalled, self.endless = None, set(), set(), False
        self.unresponsive = self.stalled = False
