"""Decides when a crashed worker is restarted, and when it is given up.

Pure: time and randomness are parameters.
"""

import math
from typing import Annotated

import msgspec

from chargehand.model.fleet.cards import Need
from chargehand.model.records import RestartNote


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for restarting a worker that died. Times are seconds."""

    first_pause: float = 1.0
    """The delay before the first restart; doubled with every further crash in a row."""
    longest_pause: float = 60.0
    """The maximum delay before a restart."""
    window: float = 300.0
    """The sliding window in which `rapid_limit` counts crashes."""
    rapid_limit: int = 5
    """The number of restarts within the window; after one more crash the worker is given up."""
    lifetime_limit: int = 20
    """The number of restarts in total; after one more crash the worker is given up."""
    healthy_after: float = 300.0
    """When a worker has been ready for this long, its delay and its window are reset."""
    forgive_after: float = 6 * 3600.0
    """When a worker has been ready for this long, its lifetime count is reset, too."""
    breaker_window: float = 60.0
    """If all workers of a crew crash of the same cause within this time, only one is restarted."""


class LivenessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker may be silent, load, make no progress or take to stop. Times are seconds."""

    beat: float = 5.0
    """The interval of heartbeats while the worker's state does not change."""
    node_beat: Annotated[float, msgspec.Meta(ge=0.05)] = 5.0
    """The interval of the node's own heartbeat, which a monitor reads in the store (component `app`)."""
    lease: Annotated[float, msgspec.Meta(ge=1.0)] = 30.0
    """Other nodes of the same store take the jobs of this one if they have not seen it for so long."""
    bad_frames: Annotated[int, msgspec.Meta(ge=1)] = 3
    """A worker that sends this many invalid health frames in a row is replaced."""
    first_frame: float = 30.0
    """The time limit from the start of the process to its first frame."""
    set_up: float = 300.0
    """The time limit of the handler's `set_up`, which can extend it with `more_time`."""
    silent: float = 30.0
    """A worker without heartbeats for this long is hung if it uses no CPU time either."""
    idle: float = 30.0
    """An idle worker that sends heartbeats, but whose main thread makes no progress for this long, is hung."""
    still: float = 300.0
    """Without a job timeout: a worker that makes no progress and uses no CPU time for this long is hung."""
    stalled: float = 600.0
    """Without a job timeout: a worker that makes no progress for this long, but uses CPU time, is flagged."""
    lag: Annotated[float, msgspec.Meta(ge=0.1)] = 3.0
    """With `concurrency`: a worker that holds jobs, and whose event loop does not run for this long, is flagged
    `stalled` and receives no more jobs until the loop runs again."""
    stacks: float = 0.25
    """How long a worker that is about to be killed may take to write its stack traces."""
    cancel: float = 10.0
    """How long a cancelled job, or with `concurrency` one that has exceeded its timeout, may take to end before its
    worker is replaced."""
    grace: float = 10.0
    """How long a job may take to finish when its worker is asked to stop."""
    terminate: float = 2.0
    """The time from SIGTERM to a worker's children to SIGKILL to the worker and its children."""


class StartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers start at the same time, and how much memory all workers may declare together, in bytes."""

    stagger: float = 0.02
    """Seconds between two starts."""
    most_loading: int = 4
    """The maximum number of workers that are `starting` at the same time."""
    memory: int | None = None
    """The limit for the sum of the crews' `memory`; None: the memory of the machine or of its control group."""
    gpu_memory: int | None = None
    """The limit for the sum of the crews' `gpu_memory`; None: only what the GPUs have."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a crew that the supervisor needs. Bytes and seconds."""

    workers: int = 1
    recycle_jobs: int | None = None
    recycle_memory: int | None = None
    idle_exit: float | None = None
    memory: int | None = None
    gpu_memory: int | None = None
    gpus: Need | None = None
    """The GPUs that each worker needs; None if the node assigns none."""
    concurrency: int = 1
    """How many jobs a worker performs at the same time."""


class History(msgspec.Struct):
    """The crashes of one place: the times of those that are charged, and the number of crashes in a row."""

    charged: list[float] = msgspec.field(default_factory=list[float])
    streak: int = 0
    rested_at: float = -math.inf
    restarts: int = 0
    """The number of restarts since the last rest."""

    def add(self, now: float, *, charge: bool) -> None:
        """Records a crash: it extends the streak, and counts against the limits if it is charged."""
        self.streak += 1
        if charge:
            self.charged.append(now)

    def rest(self, now: float) -> None:
        """Starts a new streak and a new window; the lifetime count remains."""
        self.streak, self.restarts, self.rested_at = 0, 0, now

    def forgive(self) -> None:
        """Resets the lifetime count."""
        self.charged.clear()

    def rested(self, policy: RestartPolicy, ready_at: float | None, now: float) -> None:
        """Resets the limits according to how long the worker has been ready."""
        if ready_at is None or now < ready_at + policy.healthy_after:
            return
        self.rest(now)
        if now >= ready_at + policy.forgive_after:
            self.forgive()

    def rest_due(self, policy: RestartPolicy, ready_at: float) -> float | None:
        """Returns when `rested` next has an effect on a worker that stays ready; None if nothing is left to reset."""
        if self.streak or self.restarts:
            return ready_at + policy.healthy_after
        return ready_at + policy.forgive_after if self.charged else None

    def copy(self) -> "History":
        """Returns an independent copy."""
        return History(list(self.charged), self.streak, self.rested_at, self.restarts)

    def note(self, component: str, fingerprint: str, restarts_total: int, now: float) -> RestartNote:
        """Returns the history with ages instead of times, as the store keeps it."""
        return RestartNote(
            component=component,
            fingerprint=fingerprint,
            charged_age_ms=tuple(_age_ms(when, now) for when in self.charged),
            streak=self.streak,
            rested_age_ms=None if self.rested_at == -math.inf else _age_ms(self.rested_at, now),
            restarts=self.restarts,
            restarts_total=restarts_total,
        )

    def charged_since(self, moment: float) -> int:
        """Returns how many charged crashes happened since this time, or since the last rest."""
        return sum(1 for when in self.charged if when >= max(moment, self.rested_at))


def restored(note: RestartNote, fingerprint: str | None, now: float) -> History:
    """Returns the history that an earlier node kept; an empty one if the code or the settings have changed since.

    A planned restart is not restored: the worker starts with the node. Its next crash has the backoff of its streak.
    """
    if note.fingerprint != fingerprint:
        return History()
    rested_at = -math.inf if note.rested_age_ms is None else now - note.rested_age_ms / 1000
    return History([now - age / 1000 for age in note.charged_age_ms], note.streak, rested_at, note.restarts)


def _age_ms(when: float, now: float) -> int:
    return max(0, round((now - when) * 1000))


class Restart(msgspec.Struct, frozen=True):
    """Restart the worker, not before `at`."""

    at: float


class GiveUpOn(msgspec.Struct, frozen=True):
    """Do not restart the worker; an operator must act. The reason is for people."""

    reason: str


class Budget(msgspec.Struct, frozen=True):
    """How many crashes a worker may still have before it is given up: within the window, and in total."""

    rapid_left: int
    lifetime_left: int


def after_crash(policy: RestartPolicy, history: History, now: float, jitter: float) -> Restart | GiveUpOn:
    """Decides what follows a crash that is already in the history."""
    recent = history.charged_since(now - policy.window)
    if recent > policy.rapid_limit:
        return GiveUpOn(f"{recent} crashes within {policy.window:g} s")
    if len(history.charged) > policy.lifetime_limit:
        return GiveUpOn(f"{len(history.charged)} crashes in total")
    pause = min(policy.first_pause * 2 ** min(history.streak - 1, 30), policy.longest_pause)
    return Restart(now + min(pause * (1 + jitter / 10), policy.longest_pause))


def budget(policy: RestartPolicy, history: History, ready_at: float | None, now: float) -> Budget:
    """Returns what remains of the limits now, taking the current run into account."""
    seen = history.copy()
    seen.rested(policy, ready_at, now)
    recent = seen.charged_since(now - policy.window)
    return Budget(max(0, policy.rapid_limit - recent), max(0, policy.lifetime_limit - len(seen.charged)))
