"""What the oracle knows of one worker's place: what people want of it, its past, and its present life."""

import math
from typing import TYPE_CHECKING

import msgspec

from chargehand.model.job import Claim

if TYPE_CHECKING:
    from actors import Worker

EPS = 1e-6

# The table of the specification (SV-4), written out again: the shipped one must agree with it.
TABLE = {
    ("starting", "healthy"), ("starting", "paused"), ("starting", "stopping"), ("starting", "crashed"),
    ("healthy", "paused"), ("paused", "healthy"),
    ("healthy", "stopping"), ("healthy", "crashed"), ("paused", "stopping"), ("paused", "crashed"),
    ("healthy", "asleep"), ("paused", "asleep"), ("asleep", "starting"), ("asleep", "stopped"),
    ("stopping", "stopped"), ("stopping", "crashed"),
    ("crashed", "starting"), ("crashed", "failed"), ("crashed", "stopped"),
    ("stopped", "starting"), ("failed", "starting"),
}  # fmt: skip


class Life(msgspec.Struct):
    """One life of a worker, as it was seen from the node."""

    worker: "Worker | None"
    started_at: float
    ready_at: float | None = None
    heard_at: float | None = None
    idle_since: float | None = None
    idle_before: float | None = None
    """The same, before it was asked to look for work: that is no work."""
    memory: int = 0
    jobs: int = 0
    hand: dict[str, Claim] = msgspec.field(default_factory=dict[str, Claim])
    """What it has, by the job's id."""
    ahead: dict[str, Claim] = msgspec.field(default_factory=dict[str, Claim])
    """What it was sent and has not begun."""
    known: dict[str, Claim] = msgspec.field(default_factory=dict[str, Claim])
    """What the node believes that it has, begun or not."""
    heard_end_at: float = 0.0
    """When the node last heard of the end of a job."""
    looks: bool = False
    limit: float | None = None
    """Seconds that what it has may take."""
    handed_at: float = 0.0
    busy_since: float = 0.0
    """When it was handed something and had nothing before."""
    deadlines: dict[str, tuple[float, float | None]] = msgspec.field(
        default_factory=dict[str, tuple[float, float | None]]
    )
    """Of a worker that performs several at the same time: when it was handed each, and the seconds that it may take."""
    expired: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """Which of these it was told have had their time, and when."""
    unsure: float = 0.0
    """Seconds before that at which the node may have believed so: it need not know when a job is begun that it sent
    ahead."""
    recalled: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """Which of its jobs it was told are cancelled, and when."""
    dismissed: bool = False
    """A person wants it to leave: it gets nothing more."""
    suspect: bool = False
    """It is replaced because of the jobs that it failed."""
    first: str = ""
    """The first of the jobs that it was last handed together."""
    may_be_asked: bool = False
    """A person wants it to stop, whatever it does."""
    asked_at: float | None = None
    sigterm: bool = False
    blocked: bool = False
    """Whether it is replaced because its loop did not run while several jobs were late: any of them may be to blame."""
    verdict: str | None = None
    condemned_at: float = 0.0
    terminated_at: float | None = None
    killed_at: float | None = None

    @property
    def busy(self) -> bool:
        return bool(self.hand) or self.looks


class Record(msgspec.Struct):
    """One place. `state`: alive, due, breaker, failed, stay, asleep, occupied."""

    component: str
    crew: str
    index: int
    state: str = "due"
    intent: str = "run"
    """What is wanted of it: run, stay, sleep, remove."""
    earliest: float = 0.0
    latest: float = 0.0
    life: Life | None = None
    gpus: tuple[str, ...] = ()
    """The GPUs of its present life."""
    may_wake: bool = False
    """It sleeps, and may be woken; or not."""
    occupied: bool = False
    """An earlier life, of an earlier node, cannot be killed."""
    # its past
    charged: list[float] = msgspec.field(default_factory=list[float])
    streak: int = 0
    rested_at: float = -math.inf
    restarts: int = 0
    unkept: bool = False
    """Whether its past has changed, and the store was not yet asked to keep it."""
    done_before: int | None = None
    crashed: bool = False
    """Whether the last life ended in a crash."""
    idle_crash: tuple[float, str] | None = None
    crash_at: float | None = None
    """When it last crashed: the death for a timeout or a cancelled job is no crash, although it looks like one."""
    suspect: bool = False
    """Whether the last life was replaced because of the jobs that it failed, and that is not reported yet."""
    report: tuple[str, bool] | None = None
    """The report that must come now: its reason, and whether the crash is charged."""

    def due(self, earliest: float, latest: float | None = None) -> None:
        """It is to be started between then and then; unless somebody is still in its place."""
        self.state, self.earliest = "occupied" if self.occupied else "due", earliest
        self.latest = earliest if latest is None else latest

    def forget(self) -> None:
        """A person cleared its past."""
        self.charged, self.streak, self.rested_at = [], 0, -math.inf
        self.renew()
        self.unkept = True
        self.done_before = self.idle_crash = None

    def renew(self) -> None:
        """A person starts it: that is no restart, and the count of them begins anew."""
        self.restarts, self.crashed, self.unkept = 0, False, True

    def rest(self, now: float, healthy_after: float, forgive_after: float) -> None:
        """Its life was healthy for so long that a part of its past does not count any more."""
        ready_at = None if self.life is None else self.life.ready_at
        if ready_at is None or now < ready_at + healthy_after - EPS:
            return
        self.streak, self.restarts, self.rested_at = 0, 0, now
        if now >= ready_at + forgive_after - EPS:
            self.charged.clear()


class Past(msgspec.Struct, frozen=True):
    """What the store keeps of a worker."""

    charged: tuple[float, ...]
    streak: int
    rested_at: float
    restarts: int
    restarts_total: int
