"""When a worker is started again, and when it is given up on: numbers in, decision out.

Pure: time and chance are handed in.
"""

import math

import msgspec


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits under which a worker that died is started again. Seconds."""

    first_pause: float = 1.0
    """Before the first restart; doubled with every crash in a row."""
    longest_pause: float = 60.0
    """Before any restart."""
    window: float = 300.0
    """In which `rapid_limit` counts: a sliding window over the moments of the crashes."""
    rapid_limit: int = 5
    """Restarts within the window; one crash more, and the worker is given up."""
    lifetime_limit: int = 20
    """Restarts in all; one crash more, and the worker is given up."""
    healthy_after: float = 300.0
    """Running for so long, from ready, resets the pauses and the window."""
    forgive_after: float = 6 * 3600.0
    """Running for so long, from ready, resets the lifetime count, too."""
    breaker_window: float = 60.0
    """When all workers of a crew crash of the same cause within so long, only one is tried further."""


class LivenessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker may be silent, loading, standing still or stopping. Seconds."""

    beat: float = 5.0
    """Between two reports of a worker whose state does not change."""
    first_frame: float = 30.0
    """From the start of the process to its first frame."""
    set_up: float = 300.0
    """For the handler's `set_up`, which can ask for more with `more_time`."""
    silent: float = 30.0
    """Without a frame: hung if it uses no CPU time either."""
    idle: float = 30.0
    """Beating, without a job, but its working thread does not turn: hung."""
    still: float = 300.0
    """In a job without a timeout, beating, its working thread standing still, and no CPU time used: hung."""
    stalled: float = 600.0
    """The same, but CPU time is used: it is flagged, and left alone."""
    stacks: float = 0.25
    """How long a worker that is about to be killed may take to write down where it stands."""
    cancel: float = 10.0
    """For a cancelled job to end by itself, before its worker is replaced."""
    grace: float = 10.0
    """For the job in hand when its worker is asked to stop."""
    terminate: float = 2.0
    """From the SIGTERM to what a worker started, to the SIGKILL to all of it."""


class StartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers start at a time, and how many bytes all of them may need together."""

    stagger: float = 0.02
    """Seconds between two starts."""
    most_loading: int = 4
    """Workers that may be `starting` at the same time."""
    memory: int | None = None
    """None: the machine's, or its control group's. Counted against what crews declare as `memory`."""
    gpu_memory: int | None = None
    """None: not limited. Counted against what crews declare as `gpu_memory`."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a crew asks of its supervisor. Bytes and seconds."""

    workers: int = 1
    recycle_jobs: int | None = None
    recycle_memory: int | None = None
    idle_exit: float | None = None
    memory: int | None = None
    gpu_memory: int | None = None


class History(msgspec.Struct):
    """What is remembered of one place's deaths: when each that counts happened, and the streak without a rest."""

    charged: list[float] = msgspec.field(default_factory=list[float])
    streak: int = 0
    rested_at: float = -math.inf

    def add(self, now: float, *, charge: bool) -> None:
        """A death: it always lengthens the streak, and counts against the limits if it is to be charged."""
        self.streak += 1
        if charge:
            self.charged.append(now)

    def rest(self, now: float) -> None:
        """The worker ran well for long enough: the streak and the window begin anew; the lifetime count stays."""
        self.streak, self.rested_at = 0, now

    def forgive(self) -> None:
        """It ran well for so long that its past no longer counts at all."""
        self.charged.clear()

    def rested(self, policy: RestartPolicy, ready_at: float | None, now: float) -> None:
        """Take account of how long the worker has run well since it was ready."""
        if ready_at is None or now - ready_at < policy.healthy_after:
            return
        self.rest(now)
        if now - ready_at >= policy.forgive_after:
            self.forgive()

    def charged_since(self, moment: float) -> int:
        """How many deaths count since then, or since the last rest."""
        return sum(1 for when in self.charged if when >= max(moment, self.rested_at))


class Restart(msgspec.Struct, frozen=True):
    """Start the worker again, not before `at`."""

    at: float


class GiveUpOn(msgspec.Struct, frozen=True):
    """Do not start it again; somebody must look. The reason is for people."""

    reason: str


class Budget(msgspec.Struct, frozen=True):
    """How many crashes a worker may still have before it is given up: within the window, and in all."""

    rapid_left: int
    lifetime_left: int


def after_crash(policy: RestartPolicy, history: History, now: float, jitter: float) -> Restart | GiveUpOn:
    """What follows a death that is already in the history's streak (and in its charges, if it is to be charged)."""
    recent = history.charged_since(now - policy.window)
    if recent > policy.rapid_limit:
        return GiveUpOn(f"{recent} crashes within {policy.window:g} s")
    if len(history.charged) > policy.lifetime_limit:
        return GiveUpOn(f"{len(history.charged)} crashes in all")
    pause = min(policy.first_pause * 2 ** min(history.streak - 1, 30), policy.longest_pause)
    return Restart(now + min(pause * (1 + jitter / 10), policy.longest_pause))


def budget(policy: RestartPolicy, history: History, ready_at: float | None, now: float) -> Budget:
    """What is left of the limits now, a present healthy run included."""
    seen = History(list(history.charged), history.streak, history.rested_at)
    seen.rested(policy, ready_at, now)
    recent = seen.charged_since(now - policy.window)
    return Budget(max(0, policy.rapid_limit - recent), max(0, policy.lifetime_limit - len(seen.charged)))
