"""What kind of history a seed tells: each profile makes other troubles likely, so that all are met often enough."""

from dataclasses import dataclass, field

from chargehand.model.fleet.cards import Need
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms

LIFTED = RestartPolicy(rapid_limit=10**6, lifetime_limit=10**6, longest_pause=5.0)
MINUTES = LivenessPolicy(beat=15.0, first_frame=90.0, silent=90.0, idle=90.0)
HOURS = LivenessPolicy(beat=60.0, first_frame=360.0, silent=360.0, idle=360.0)
"""For histories of hours: the same judgement with fewer frames."""

Weights = dict[str, float]
GOOD: Weights = {"done": 30, "raised": 2, "retry": 2, "gave up": 1, "progress": 3}
TROUBLE: Weights = {
    "crash": 3, "oom": 0.5, "exits": 1, "fatal": 0.2, "silent": 1, "wakes late": 1, "interpreter": 1, "brink": 1,
    "deadlock": 1, "stalled": 0.3, "garbage": 0.5, "noise": 0.5, "late outcome": 1, "last words": 1,
}  # fmt: skip
LOADS: Weights = {
    "quick": 60, "slow": 4, "asks for time": 2, "for ever": 1, "mute": 1, "crash": 2, "set-up failed": 1, "fatal": 0.3,
    "interpreter": 1, "falls silent": 0.5, "not started": 1,
}  # fmt: skip
DEEDS: Weights = {
    "enqueue": 12, "poison": 1, "pause": 2, "resume": 2, "order": 2, "scale": 0.5, "kill a worker": 2, "sigterm": 1,
    "hang while idle": 1, "kill the node": 0.7, "stop the node": 0.7, "node stands still": 1, "machine sleeps": 0.5,
    "store trouble": 1, "ghost": 3, "retry a job": 1, "cancel a job": 1, "nothing": 1,
}  # fmt: skip

LOOKS: Weights = {"quick": 40, "slow": 1, "crash": 0.5, "hangs": 0.3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of history. Weights are relative; times are seconds."""

    name: str
    crews: dict[str, Terms]
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    liveness: LivenessPolicy = field(default_factory=LivenessPolicy)
    starts: StartPolicy = field(default_factory=StartPolicy)
    poll: float = 1.0
    """How often the node asks the store; seldom in histories of many hours."""
    jobs: Weights = field(default_factory=lambda: GOOD)
    loads: Weights = field(default_factory=lambda: LOADS)
    deeds: Weights = field(default_factory=lambda: DEEDS)
    least_deeds: int = 5
    most_deeds: int = 18
    gaps: tuple[float, ...] = (0.01, 0.5, 3, 15, 60)
    """Between two deeds."""
    takes: tuple[float, ...] = (0.0001, 0.001, 0.05, 1.0, 8.0, 30.0)
    """How long a job takes that ends by itself."""
    timeouts: tuple[int | None, ...] = (3_600_000, None, 5_000, 60_000)
    batches: tuple[int, ...] = (1, 1, 3, 12)
    lives: tuple[float, ...] = ()
    """If not empty: an idle worker crashes so long after it was ready."""
    hiccups: float = 0.02
    """How often the node's next step comes late, by less than is forgiven."""
    slow_store: float = 0.01
    batching: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Crews that take several jobs at once: how many, and how long they wait for them."""
    flows: float = 0.0
    """How often a job that ends well leaves others; 0: there are no flows."""
    most_in_hand: int = 1
    """How many short jobs a worker may have in its hand."""
    gpus: tuple[int, ...] = ()
    """The memory of each GPU."""
    discovers: tuple[str, ...] = ()
    """Crews whose work is found in the application's table."""
    looks: Weights = field(default_factory=lambda: LOOKS)
    page: int = 4
    enough: int = 6
    look_every: float = 2.0
    item_timeout: int | None = 60_000


PROFILES = (
    Profile(
        name="work",
        crews={"a": Terms(workers=2), "b": Terms(workers=1, recycle_jobs=3)},
        restart=LIFTED,
        jobs={**GOOD, "crash": 2, "exits": 2, "late outcome": 1, "last words": 1, "wakes late": 0.5},
        deeds={**DEEDS, "store trouble": 4},
        loads={"quick": 20, "crash": 1, "not started": 1},
        batches=(1, 1, 3, 20),
        slow_store=0.2,
        hiccups=0.05,
    ),
    Profile(
        name="restarts",
        crews={"a": Terms(workers=1), "b": Terms(workers=2)},
        loads={"quick": 10, "slow": 4, "crash": 6, "set-up failed": 1, "fatal": 0.1, "not started": 1},
        jobs={"done": 3, "crash": 3, "exits": 1, "raised": 1},
        deeds={"enqueue": 2, "poison": 1, "order": 1.2, "resume": 0.5, "pause": 0.5, "kill a worker": 3, "nothing": 6},
        gaps=(5, 60, 200, 400, 900),
        lives=(0.5, 20, 100, 200, 290, 299.8, 300.5, 340, 2000),
        least_deeds=8,
        most_deeds=16,
        poll=60.0,
        liveness=MINUTES,
    ),
    Profile(
        name="long lives",
        crews={"a": Terms(workers=1), "b": Terms(workers=1, recycle_jobs=2)},
        restart=RestartPolicy(lifetime_limit=4),
        liveness=HOURS,
        loads={"quick": 6, "slow": 5, "crash": 3},
        jobs={"done": 3, "crash": 3},
        deeds={"enqueue": 2, "order": 1, "kill a worker": 2, "nothing": 4},
        gaps=(30, 300, 2000, 9000),
        lives=(150, 290, 299, 320, 2000, 21_590, 21_610, 21_610),
        batches=(1, 1, 2),
        least_deeds=6,
        most_deeds=14,
        poll=600.0,
    ),
    Profile(
        name="watch",
        crews={"a": Terms(workers=2), "b": Terms(workers=1)},
        restart=LIFTED,
        jobs={**GOOD, **TROUBLE, "done": 8},
        loads=LOADS,
        takes=(0.05, 1.0, 20.0, 80.0, 400.0),
        timeouts=(None, None, 600_000, 20_000, 90_000),
        deeds={**DEEDS, "hang while idle": 3, "node stands still": 3, "machine sleeps": 2, "order": 1, "scale": 0.2},
        gaps=(1, 20, 60, 200),
        batches=(1, 3, 4),
        hiccups=0.1,
        poll=5.0,
        most_deeds=14,
    ),
    Profile(
        name="people",
        crews={"a": Terms(workers=2, idle_exit=20.0), "b": Terms(workers=2, recycle_memory=1 << 30)},
        starts=StartPolicy(most_loading=2),
        jobs={"done": 30, "raised": 1, "crash": 1, "wakes late": 0.5, "late outcome": 1, "last words": 1},
        loads={"quick": 20, "slow": 2, "crash": 1, "fatal": 0.3},
        deeds={
            "enqueue": 10,
            "pause": 4,
            "resume": 4,
            "order": 9,
            "scale": 3,
            "sigterm": 2,
            "stop the node": 1,
            "kill the node": 1,
            "kill a worker": 1,
            "retry a job": 1,
            "cancel a job": 1,
            "nothing": 2,
        },
        slow_store=0.1,
        gaps=(0.01, 0.5, 2, 6, 15, 40),
        least_deeds=10,
        most_deeds=26,
    ),
    Profile(
        name="poison",
        crews={"a": Terms(workers=2), "b": Terms(workers=1)},
        jobs={"done": 20, "crash": 3, "raised": 1, "late outcome": 1},
        deeds={"enqueue": 5, "poison": 5, "order": 0.5, "kill the node": 0.3, "ghost": 2, "nothing": 2},
        takes=(0.001, 0.05, 1.0, 5.0),
        poll=5.0,
        gaps=(0.5, 5, 20, 60),
        batches=(1, 3, 6),
        most_deeds=14,
    ),
    Profile(
        name="breaker",
        crews={"a": Terms(workers=3, memory=3 << 30), "b": Terms(workers=2, memory=1 << 30)},
        starts=StartPolicy(most_loading=2, memory=10 << 30, stagger=0.5),
        jobs={"done": 6, "crash": 1},
        loads={"quick": 5, "epidemic": 9, "slow": 2, "crash": 1, "set-up failed": 1},
        deeds={
            "enqueue": 2,
            "epidemic": 4,
            "order": 1.5,
            "scale": 0.7,
            "kill a worker": 2,
            "kill the node": 0.2,
            "stop the node": 0.2,
            "nothing": 4,
        },
        gaps=(2, 10, 40, 150, 400),
        liveness=MINUTES,
        poll=20.0,
        least_deeds=6,
        most_deeds=16,
    ),
    Profile(
        name="ghosts",
        crews={"a": Terms(workers=2), "b": Terms(workers=2)},
        restart=LIFTED,
        jobs={"done": 8, "raised": 3, "retry": 6, "crash": 3, "last words": 1, "late outcome": 1},
        deeds={
            "enqueue": 8,
            "ghost": 14,
            "kill the node": 3,
            "stop the node": 1,
            "kill a worker": 2,
            "order": 1,
            "store trouble": 1,
            "retry a job": 1,
            "nothing": 2,
        },
        takes=(0.001, 2.0, 8.0, 20.0),
        gaps=(0.1, 1, 4, 15),
        batches=(1, 3, 6),
        least_deeds=8,
        most_deeds=24,
        slow_store=0.05,
    ),
    Profile(
        name="discovery",
        crews={"a": Terms(workers=2), "b": Terms(workers=1, idle_exit=10.0)},
        discovers=("a", "b"),
        restart=LIFTED,
        jobs={"done": 30, "raised": 2, "retry": 1, "gave up": 0.5, "crash": 1, "last words": 1, "wakes late": 0.5},
        deeds={
            "items": 10,
            "touch": 3,
            "withdraw": 1,
            "wake": 3,
            "table trouble": 1,
            "enqueue": 1,
            "pause": 2,
            "resume": 3,
            "order": 2,
            "cancel a job": 2,
            "retry a job": 2,
            "kill a worker": 2,
            "kill the node": 1,
            "stop the node": 0.5,
            "node stands still": 0.3,
            "machine sleeps": 0.2,
            "store trouble": 1.5,
            "nothing": 2,
        },
        takes=(0.001, 0.05, 1.0, 4.0),
        gaps=(0.1, 1, 3, 10),
        batches=(1, 3),
        look_every=3.0,
        slow_store=0.1,
        least_deeds=6,
        most_deeds=16,
    ),
    Profile(
        name="cancel",
        crews={"a": Terms(workers=2), "b": Terms(workers=2)},
        batching={"b": (3, 0.05)},
        restart=LIFTED,
        jobs={"done": 14, "progress": 8, "endless": 8, "deaf": 4, "raised": 1, "crash": 1, "late outcome": 1},
        loads={"quick": 20, "slow": 1, "crash": 1},
        deeds={
            "enqueue": 9,
            "cancel a job": 16,
            "retry a job": 3,
            "pause": 1,
            "resume": 1,
            "order": 2,
            "ghost": 1,
            "kill a worker": 1,
            "sigterm": 1,
            "kill the node": 0.7,
            "stop the node": 0.7,
            "node stands still": 0.7,
            "store trouble": 1,
            "nothing": 2,
        },
        timeouts=(None, None, 60_000),
        takes=(0.0005, 0.05, 1.0, 3.0, 9.9),
        gaps=(0.02, 0.5, 2, 9, 12),
        batches=(1, 3, 8),
        least_deeds=10,
        most_deeds=26,
        slow_store=0.03,
    ),
    Profile(
        name="sick",
        crews={"a": Terms(workers=3), "b": Terms(workers=1), "c": Terms(workers=2)},
        batching={"c": (3, 0.05)},
        restart=LIFTED,
        jobs={"done": 40, "progress": 3, "broken": 1, "crash": 0.5, "gave up": 0.5},
        loads={"quick": 20, "slow": 0.5},
        deeds={
            "enqueue": 14,
            "turn sick": 8,
            "retry a job": 1,
            "bad jobs": 3,
            "upstream": 2,
            "poison": 0.5,
            "order": 0.5,
            "pause": 0.5,
            "resume": 1,
            "kill a worker": 1,
            "kill the node": 0.3,
            "stop the node": 0.3,
            "store trouble": 0.5,
            "nothing": 2,
        },
        takes=(0.001, 0.05, 1.0, 6.0),
        gaps=(0.1, 2, 8, 30),
        batches=(1, 4, 12, 20),
        least_deeds=10,
        most_deeds=24,
    ),
    Profile(
        name="node deaths",
        crews={"a": Terms(workers=1), "b": Terms(workers=2)},
        loads={"quick": 10, "slow": 1, "crash": 5, "set-up failed": 1},
        jobs={"done": 6, "crash": 2, "raised": 1},
        deeds={
            "enqueue": 4,
            "killer": 1.5,
            "poison": 1,
            "order": 1.5,
            "scale": 0.5,
            "kill a worker": 2,
            "kill the node": 4,
            "stop the node": 1,
            "store trouble": 0.5,
            "nothing": 3,
        },
        gaps=(0.5, 5, 40, 120, 400),
        lives=(0.5, 20, 200, 299.8, 300.5, 400),
        least_deeds=8,
        most_deeds=18,
        poll=20.0,
        liveness=MINUTES,
    ),
    Profile(
        name="gpus",
        crews={
            "a": Terms(workers=3, idle_exit=15.0, gpu_memory=30, gpus=Need(count=1, memory=30)),
            "b": Terms(workers=2, idle_exit=25.0, gpus=Need(count=1)),
            "c": Terms(workers=1, idle_exit=40.0, gpu_memory=20, gpus=Need(count=2, memory=20)),
        },
        gpus=(80, 50),
        restart=LIFTED,
        jobs={"done": 12, "crash": 2, "exits": 1, "late outcome": 1},
        loads={"quick": 8, "slow": 3, "for ever": 0.3, "crash": 2, "not started": 0.5},
        deeds={
            "enqueue": 10,
            "order": 6,
            "scale": 1,
            "pause": 1,
            "resume": 1,
            "kill a worker": 3,
            "kill the node": 0.7,
            "stop the node": 0.3,
            "node stands still": 0.5,
            "nothing": 4,
        },
        takes=(0.05, 1.0, 8.0),
        gaps=(0.5, 3, 10, 40),
        batches=(1, 3, 6),
        least_deeds=8,
        most_deeds=20,
    ),
    Profile(
        name="at the same time",
        crews={
            "a": Terms(workers=2, concurrency=4),
            "b": Terms(workers=1, concurrency=3, recycle_jobs=5),
            "c": Terms(workers=2, concurrency=8, idle_exit=15.0),
        },
        discovers=("c",),
        jobs={
            **GOOD,
            "crash": 1,
            "exits": 0.5,
            "fatal": 0.2,
            "late outcome": 2,
            "last words": 1,
            "wakes late": 0.5,
            "stalled": 0.7,
            "deadlock": 0.5,
            "interpreter": 0.3,
            "endless": 1,
            "swallows": 1,
            "deaf": 0.5,
            "broken": 0.3,
        },
        deeds={
            **DEEDS,
            "poison": 2,
            "cancel a job": 6,
            "store trouble": 2,
            "machine sleeps": 0.3,
            "turn sick": 0.5,
            "items": 3,
            "touch": 1,
        },
        restart=LIFTED,
        loads={"quick": 20, "crash": 1, "not started": 0.5},
        takes=(0.001, 0.05, 1.0, 5.0, 20.0),
        timeouts=(3_600_000, None, 5_000, 20_000),
        gaps=(0.01, 0.3, 3, 12),
        batches=(1, 2, 5, 12),
        slow_store=0.05,
    ),
    Profile(
        name="several",
        crews={"a": Terms(workers=2), "b": Terms(workers=1, recycle_jobs=4)},
        batching={"a": (4, 0.2), "b": (3, 0.0)},
        jobs={**GOOD, "crash": 3, "exits": 1, "fatal": 0.3, "late outcome": 2, "last words": 4, "wakes late": 1},
        deeds={**DEEDS, "poison": 3, "store trouble": 2, "machine sleeps": 0.2, "node stands still": 0.5},
        restart=LIFTED,
        loads={"quick": 20, "crash": 1, "not started": 0.5},
        takes=(0.001, 0.05, 1.0, 5.0),
        timeouts=(3_600_000, None, 5_000, 20_000),
        gaps=(0.01, 0.3, 3, 12),
        batches=(1, 2, 5, 12),
        slow_store=0.05,
    ),
    Profile(
        name="flows",
        crews={"a": Terms(workers=2), "b": Terms(workers=2)},
        flows=0.25,
        restart=LIFTED,
        jobs={
            "done": 30,
            "raised": 2,
            "retry": 2,
            "gave up": 3,
            "crash": 2,
            "endless": 1,
            "last words": 1,
            "wakes late": 0.3,
        },
        loads={"quick": 20, "crash": 0.5},
        deeds={
            "flow": 14,
            "follow": 10,
            "enqueue": 1,
            "cancel a flow": 3,
            "retry a flow": 4,
            "cancel a job": 5,
            "retry a job": 7,
            "kill a worker": 2,
            "kill the node": 1,
            "stop the node": 0.5,
            "pause": 0.5,
            "resume": 0.5,
            "store trouble": 1,
            "ghost": 2,
            "nothing": 2,
        },
        takes=(0.001, 0.05, 1.0, 4.0),
        timeouts=(3_600_000, None, 5_000),
        gaps=(0.01, 0.5, 3, 10),
        batches=(1, 3),
        slow_store=0.05,
        least_deeds=8,
        most_deeds=24,
    ),
    Profile(
        name="tiny",
        crews={"a": Terms(workers=2), "b": Terms(workers=3, recycle_jobs=25)},
        most_in_hand=64,
        restart=LIFTED,
        jobs={
            "done": 300,
            "raised": 4,
            "retry": 2,
            "gave up": 1,
            "crash": 4,
            "exits": 1,
            "progress": 2,
            "last words": 2,
            "interpreter": 0.3,
            "deadlock": 0.3,
            "late outcome": 0.5,
        },
        deeds={
            "enqueue": 30,
            "urgent": 4,
            "poison": 2,
            "pause": 2,
            "resume": 3,
            "order": 2,
            "scale": 0.5,
            "cancel a job": 4,
            "retry a job": 1,
            "kill a worker": 5,
            "sigterm": 1,
            "kill the node": 0.5,
            "stop the node": 0.7,
            "node stands still": 0.3,
            "store trouble": 0.7,
            "ghost": 1,
            "nothing": 1,
        },
        loads={"quick": 20, "crash": 0.5},
        takes=(0.0001, 0.0001, 0.0001, 0.0001, 0.0002, 0.0002, 0.0005, 0.001, 0.004),
        timeouts=(3_600_000, None, 5_000),
        gaps=(0.0005, 0.002, 0.01, 0.2, 3),
        batches=(1, 8, 40),
        hiccups=0.005,
        least_deeds=10,
        most_deeds=24,
    ),
    Profile(
        name="tiny and long",
        crews={"a": Terms(workers=3), "b": Terms(workers=1)},
        most_in_hand=16,
        jobs={"done": 100, "crash": 3, "raised": 3, "endless": 1, "wakes late": 0.5, "last words": 2},
        deeds={
            "enqueue": 20,
            "turn sick": 1,
            "poison": 2,
            "pause": 2,
            "resume": 3,
            "cancel a job": 8,
            "kill a worker": 4,
            "kill the node": 0.5,
            "order": 2,
            "nothing": 2,
        },
        restart=LIFTED,
        loads={"quick": 20},
        takes=(0.0001, 0.0001, 0.0002, 0.0002, 0.0005, 0.02, 2.0),
        timeouts=(None, 5_000, 60_000),
        gaps=(0.001, 0.006, 0.05, 1, 12),
        batches=(1, 6, 25),
        least_deeds=8,
        most_deeds=20,
    ),
)
