"""What becomes of a worker while it loads, and of a job in its hand: drawn by the seed, by the profile's weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from actors import AWAKE, Worker
from profiles import Weights

from chargehand.model.job import Claim, Done, GaveUp, Raised, RetryLater

if TYPE_CHECKING:
    from stage import World


class Fates:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world, self._chance = world, world.chance
        self.poison: set[str] = set()
        self.scripted: dict[str, Callable[[Worker, Claim], None]] = {}
        """Jobs whose fate is told by a scenario instead of drawn."""
        self.calm = False
        self.epidemics: set[str] = set()
        """Crews whose workers cannot load, all for the same reason."""

    def _draw(self, weights: Weights) -> str:
        return self._chance.choices(list(weights), list(weights.values()))[0]

    # loading

    def draw_load(self, component: str) -> str:
        """How the next worker of this place loads."""
        kind = "quick" if self.calm else self._draw(self._world.profile.loads)
        if kind == "epidemic" and component.split(":")[1] not in self.epidemics:
            kind = "quick"
        self._world.tally[f"load: {kind}"] += 1
        return kind

    def load(self, worker: Worker, kind: str) -> None:
        """Have it load."""
        worker.mute = kind == "mute"
        self._world.after(0.05, worker.beat)
        self._loads[kind](self, worker)

    def _after(self, worker: Worker, seconds: float, act: Callable[[], object]) -> None:
        self._world.after(seconds, lambda: worker.runs and act())

    def _quick(self, worker: Worker) -> None:
        self._after(worker, self._chance.uniform(0.06, 2.0), lambda: self._ready(worker))

    def _slow(self, worker: Worker) -> None:
        self._after(worker, self._chance.choice([20, 60, 150, 290]), lambda: self._ready(worker))

    def _asks(self, worker: Worker) -> None:
        def ask() -> None:
            worker.load_until = max(worker.load_until, self._world.now + 600)
            worker.tell("more time", 600.0)

        self._after(worker, 250, ask)
        self._after(worker, self._chance.choice([400, 840, 900]), lambda: self._ready(worker))

    def _never(self, worker: Worker) -> None:
        """Its set-up never ends; or not even a first frame comes."""

    def _load_crash(self, worker: Worker) -> None:
        self._after(worker, self._chance.choice([0.01, 0.2, 5.0]), lambda: worker.die(signal=11))

    def _epidemic(self, worker: Worker) -> None:
        self._after(worker, self._chance.uniform(0.2, 3.0), lambda: worker.die(code=1))

    def _set_up_failed(self, worker: Worker) -> None:
        self._after(worker, 1.0, lambda: self._say(worker, 5, "no such model"))

    def _load_fatal(self, worker: Worker) -> None:
        code, words = self._chance.choice([(2, "no handler"), (3, "no GPU"), (2, None)])
        self._after(worker, 0.5, lambda: self._say(worker, code, words))

    def _load_interpreter(self, worker: Worker) -> None:
        self._after(worker, 0.1, lambda: setattr(worker, "mute", True))
        self._after(worker, self._chance.choice([40, 100, 250]), lambda: self._ready(worker))

    def _falls_silent(self, worker: Worker) -> None:
        def silent() -> None:
            worker.mute = True
            worker.use(0)

        self._after(worker, 0.1, silent)

    def _say(self, worker: Worker, code: int, words: str | None) -> None:
        """It ends by its own decision, and says why."""
        worker.said = words
        if words is not None:
            worker.tell("fatal", words)
        worker.die(code=code)

    def _ready(self, worker: Worker) -> None:
        worker.ready()
        lives = () if self.calm else self._world.profile.lives
        if lives:
            self._after(worker, self._chance.choice(lives), lambda: self._falls(worker))

    def _falls(self, worker: Worker) -> None:
        """An idle worker crashes; a busy one is spared, or its jobs would all be crashes."""
        if worker.claim is None and not self.calm:
            self._world.tally["crash while idle"] += 1
            worker.die(signal=11)

    _loads: ClassVar[dict[str, Callable[..., None]]] = {
        "quick": _quick, "slow": _slow, "asks for time": _asks, "for ever": _never, "mute": _never,
        "crash": _load_crash, "set-up failed": _set_up_failed, "fatal": _load_fatal, "interpreter": _load_interpreter,
        "falls silent": _falls_silent, "epidemic": _epidemic, "not started": _never,
    }  # fmt: skip

    # performing

    def perform(self, worker: Worker, claim: Claim) -> None:
        """How this attempt goes."""
        if claim.id in self.scripted:
            self.scripted[claim.id](worker, claim)
            return
        kind = "done" if self.calm else self._draw(self._world.profile.jobs)
        if claim.id in self.poison:
            kind = "crash"
        if kind == "stalled" and claim.timeout_ms is not None and claim.timeout_ms > 10**6:
            kind = "done"  # would only make the history long
        self._world.tally[f"job: {kind}"] += 1
        took = self._chance.choice(self._world.profile.takes)
        if self.calm:
            took = min(took, 1.0)
        self._performances[kind](self, worker, claim, took)

    def _done(self, worker: Worker, claim: Claim, took: float) -> None:
        if self._chance.random() < 0.05:
            worker.memory += 600 << 20
        self._after(worker, took, lambda: worker.outcome(claim))

    def _raised(self, worker: Worker, claim: Claim, took: float) -> None:
        self._after(worker, took, lambda: worker.outcome(claim, Raised("it raised")))

    def _retry(self, worker: Worker, claim: Claim, took: float) -> None:
        after_ms = self._chance.choice([0, 500, 20_000])
        self._after(worker, took, lambda: worker.outcome(claim, RetryLater(after_ms, "later")))

    def _gave_up(self, worker: Worker, claim: Claim, took: float) -> None:
        self._after(worker, took, lambda: worker.outcome(claim, GaveUp("never")))

    def _progress(self, worker: Worker, claim: Claim, took: float) -> None:
        """A long job that calls progress now and then."""
        for n in range(1, 6):
            self._after(worker, n * took, lambda: worker.claim is claim and worker.turn())
        self._after(worker, 6 * took, lambda: worker.outcome(claim))

    def _crash(self, worker: Worker, claim: Claim, took: float) -> None:
        self._after(worker, took, lambda: worker.die(signal=11))

    def _oom(self, worker: Worker, claim: Claim, took: float) -> None:
        self._after(worker, took, lambda: worker.die(signal=9, oom=True))

    def _exits(self, worker: Worker, claim: Claim, took: float) -> None:
        """The process ends by itself without a word: with a job in hand, even code 2 is not meant."""
        code = self._chance.choice([0, 1, 2, 3, 5])
        self._after(worker, took, lambda: worker.die(code=code))

    def _fatal(self, worker: Worker, claim: Claim, took: float) -> None:
        code = self._chance.choice([2, 3])
        self._after(worker, took, lambda: self._say(worker, code, "this cannot work"))

    def _falls_mute(self, worker: Worker, rate: float) -> None:
        worker.mute = worker.stuck = True
        worker.use(rate)

    def _silent(self, worker: Worker, claim: Claim, took: float) -> None:
        """Hung in C code: no frame, no CPU time, for ever."""
        self._after(worker, min(took, 1.0), lambda: self._falls_mute(worker, 0.0))

    def _wakes_late(self, worker: Worker, claim: Claim, took: float) -> None:
        """The same, but it comes back: perhaps when it has long been declared dead."""
        self._falls_mute(worker, 0.0)
        self._after(worker, self._chance.choice([20, 29, 30.1, 44, 70]), lambda: worker.outcome(claim))

    def _brink(self, worker: Worker, claim: Claim, took: float) -> None:
        """Silent and at rest for a little less than is allowed."""
        limit = self._world.profile.liveness.silent
        self._falls_mute(worker, 0.0)
        self._after(worker, limit - self._chance.choice([0.01, 0.1, 0.4]), lambda: worker.outcome(claim))

    def _interpreter(self, worker: Worker, claim: Claim, took: float) -> None:
        """C code holds the interpreter: silent, but at work."""
        self._falls_mute(worker, self._chance.choice([0.02, 0.9, 3.0]))
        self._after(worker, self._chance.choice([32, 50, 100, 500]), lambda: worker.outcome(claim))

    def _deadlock(self, worker: Worker, claim: Claim, took: float) -> None:
        """It beats, but its working thread waits for ever."""
        worker.stuck = True
        worker.use(AWAKE)

    def _stalled(self, worker: Worker, claim: Claim, took: float) -> None:
        """It beats and uses CPU time, but its working thread shows no turn for a long time."""
        worker.stuck = True
        worker.use(self._chance.choice([0.01, 1.0]))
        self._after(worker, self._chance.choice([400, 700, 1300]), lambda: worker.outcome(claim))

    def _garbage(self, worker: Worker, claim: Claim, took: float) -> None:
        def garbage() -> None:
            worker.garbage = True
            worker.tell("garbage")

        self._after(worker, min(took, 5.0), garbage)

    def _noise(self, worker: Worker, claim: Claim, took: float) -> None:
        """What it says on its pulse is no frame: up to twice is forgiven."""
        count = self._chance.choice([1, 2, 3, 5])
        worker.garbage |= count >= 3
        for n in range(count):
            self._after(worker, took + n / 1000, worker.noise)
        self._after(worker, took + 1, lambda: worker.outcome(claim))

    def _late_outcome(self, worker: Worker, claim: Claim, took: float) -> None:
        """It ends just when its time, or the grace of a stop, is over."""
        limit = 10.0 if claim.timeout_ms is None else min(claim.timeout_ms / 1000, 60.0)
        self._after(worker, limit + self._chance.choice([-0.3, -0.01, 0.1, 0.24]), lambda: worker.outcome(claim))

    def _last_words(self, worker: Worker, claim: Claim, took: float) -> None:
        """It dies right after it said how its job ended: that counts."""

        def end() -> None:
            worker.outcome(claim, self._chance.choice([Done(), Raised("it raised")]))
            if worker.runs:
                worker.die(signal=11)

        self._after(worker, took, end)

    _performances: ClassVar[dict[str, Callable[..., None]]] = {
        "done": _done, "raised": _raised, "retry": _retry, "gave up": _gave_up, "progress": _progress,
        "crash": _crash, "oom": _oom, "exits": _exits, "fatal": _fatal, "silent": _silent, "wakes late": _wakes_late,
        "brink": _brink, "interpreter": _interpreter, "deadlock": _deadlock, "stalled": _stalled,
        "garbage": _garbage, "noise": _noise, "late outcome": _late_outcome, "last words": _last_words,
    }  # fmt: skip
