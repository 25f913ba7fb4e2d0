"""What becomes of the jobs in a worker's hand: one, or several that it was handed together."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from actors import AWAKE, Worker
from loads import Loads
from oracle_jobs import SICK

from chargehand.model.job import Claim, Done, GaveUp, Outcome, Raised, RetryLater, Stopped

Claims = Sequence[Claim]


class Performances(Loads):
    """See the module."""

    endless: set[str]
    """Jobs that end only when somebody sees to it."""

    def _ends(self, worker: Worker, claims: Claims, outcome: Outcome | None = None) -> None:
        """The attempt ends: with this outcome; of several one has it, and the others, in any order, have their own."""
        left = [claim for claim in claims if worker.hand.get(claim.id) is claim]
        if len(left) > 1:
            self._chance.shuffle(left)
        for number, claim in enumerate(left):
            worker.outcome(claim, self._own_end() if number else outcome)

    def _own_end(self) -> Outcome:
        weights = {} if self.calm else self._world.profile.jobs
        kinds = {"done": Done(), "raised": Raised("alone"), "retry": RetryLater(0, "later"), "gave up": GaveUp("never")}
        return kinds[self._draw({kind: weights.get(kind, 0.0) for kind in kinds} | {"done": 1.0})]

    def _says(self, worker: Worker, claims: Claims) -> bool:
        """The jobs say how far they are, and so hear whether they are cancelled; whether any is left."""
        for claim in claims if worker.goes_on else ():
            if worker.hand.get(claim.id) is claim:
                worker.turn()
                if worker.is_cancelled(claim):
                    worker.outcome(claim, Stopped("it heard"))
        return any(worker.hand.get(claim.id) is claim for claim in claims)

    def _done(self, worker: Worker, claims: Claims, took: float) -> None:
        if self._chance.random() < 0.05:
            worker.memory += 600 << 20
        self._after(worker, took, lambda: self._ends(worker, claims))

    def _raised(self, worker: Worker, claims: Claims, took: float) -> None:
        self._after(worker, took, lambda: self._ends(worker, claims, Raised("it raised")))

    def _sick(self, worker: Worker, claims: Claims, took: float) -> None:
        """The process is broken: it fails everything at once."""

        def end() -> None:
            for claim in claims:
                worker.outcome(claim, Raised(SICK))

        self._after(worker, 0.0002, end)

    def _broken(self, worker: Worker, claims: Claims, took: float) -> None:
        """It says that its process is broken, and exits; or hangs instead of that."""
        exits = self._chance.random() < 0.8

        def leave() -> None:
            worker.broken = "CUDA error"
            worker.tell("broken")
            if exits:
                self._after(worker, 0.001, lambda: worker.die(code=1))
            else:
                self._falls_mute(worker, 0.0)

        self._after(worker, took, leave)

    def _retry(self, worker: Worker, claims: Claims, took: float) -> None:
        after_ms = self._chance.choice([0, 500, 20_000])
        self._after(worker, took, lambda: self._ends(worker, claims, RetryLater(after_ms, "later")))

    def _gave_up(self, worker: Worker, claims: Claims, took: float) -> None:
        self._after(worker, took, lambda: self._ends(worker, claims, GaveUp("never")))

    def _progress(self, worker: Worker, claims: Claims, took: float) -> None:
        """A long job that calls progress now and then."""
        for n in range(1, 6):
            self._after(worker, n * took, lambda: self._says(worker, claims))
        self._after(worker, 6 * took, lambda: self._ends(worker, claims))

    def _crash(self, worker: Worker, claims: Claims, took: float) -> None:
        self._after(worker, took, lambda: worker.die(signal=11))

    def _kills_the_node(self, worker: Worker, claims: Claims, took: float) -> None:
        self._after(worker, took, lambda: worker.node is self._world.node and self._world.kill_node())

    def _oom(self, worker: Worker, claims: Claims, took: float) -> None:
        self._after(worker, took, lambda: worker.die(signal=9, oom=True))

    def _exits(self, worker: Worker, claims: Claims, took: float) -> None:
        """The process ends by itself without a word: with a job in hand, even code 2 is not meant."""
        code = self._chance.choice([0, 1, 2, 3, 5])
        self._after(worker, took, lambda: worker.die(code=code))

    def _fatal(self, worker: Worker, claims: Claims, took: float) -> None:
        code = self._chance.choice([2, 3])
        self._after(worker, took, lambda: self._say(worker, code, "this cannot work"))

    def _falls_mute(self, worker: Worker, rate: float) -> None:
        worker.mute = worker.stuck = True
        worker.works_in = self._chance.choice(["thread", "ended", "children"]) if rate > 0.01 else "thread"
        worker.waiting = self._chance.choice([0, 1, 20])
        worker.use(rate)

    def _silent(self, worker: Worker, claims: Claims, took: float) -> None:
        """Hung in C code: no frame, no CPU time, for ever."""
        self._after(worker, min(took, 1.0), lambda: self._falls_mute(worker, 0.0))

    def _wakes_late(self, worker: Worker, claims: Claims, took: float) -> None:
        """The same, but it comes back: perhaps when it has long been declared dead."""
        self._falls_mute(worker, 0.0)
        self._after(worker, self._chance.choice([20, 29, 30.1, 44, 70]), lambda: self._ends(worker, claims))

    def _brink(self, worker: Worker, claims: Claims, took: float) -> None:
        """Silent and at rest for a little less than is allowed."""
        limit = self._world.profile.liveness.silent
        self._falls_mute(worker, 0.0)
        self._after(worker, limit - self._chance.choice([0.01, 0.1, 0.4]), lambda: self._ends(worker, claims))

    def _interpreter(self, worker: Worker, claims: Claims, took: float) -> None:
        """C code holds the interpreter: silent, but at work."""
        self._falls_mute(worker, self._chance.choice([0.005, 0.02, 0.9, 3.0]))
        self._after(worker, self._chance.choice([32, 50, 100, 500]), lambda: self._ends(worker, claims))

    def _deadlock(self, worker: Worker, claims: Claims, took: float) -> None:
        """It beats, but its working thread waits for ever."""
        worker.stuck = True
        worker.use(AWAKE)

    def _stalled(self, worker: Worker, claims: Claims, took: float) -> None:
        """It beats and uses CPU time, but its working thread shows no turn for a long time."""
        worker.stuck = True
        worker.use(self._chance.choice([0.01, 1.0]))
        self._after(worker, self._chance.choice([400, 700, 1300]), lambda: self._ends(worker, claims))

    def _garbage(self, worker: Worker, claims: Claims, took: float) -> None:
        def garbage() -> None:
            worker.garbage = True
            worker.tell("garbage")

        self._after(worker, min(took, 5.0), garbage)

    def _noise(self, worker: Worker, claims: Claims, took: float) -> None:
        """What it says on its pulse is no frame: up to twice is forgiven."""
        count = self._chance.choice([1, 2, 3, 5])
        worker.garbage |= count >= 3
        for n in range(count):
            self._after(worker, took + n / 1000, worker.noise)
        self._after(worker, took + 1, lambda: self._ends(worker, claims))

    def _late_outcome(self, worker: Worker, claims: Claims, took: float) -> None:
        """It ends just when its time, or the grace of a stop, is over."""
        timeout_ms = claims[0].timeout_ms
        limit = 10.0 if timeout_ms is None else min(timeout_ms / 1000, 60.0)
        self._after(worker, limit + self._chance.choice([-0.3, -0.01, 0.1, 0.24]), lambda: self._ends(worker, claims))

    def _last_words(self, worker: Worker, claims: Claims, took: float) -> None:
        """It dies right after it said how its job, or some of several, ended: that counts."""

        def end() -> None:
            for claim in claims[: self._chance.randint(1, len(claims))]:
                worker.outcome(claim, self._chance.choice([Done(), Raised("it raised")]))
            if worker.runs:
                worker.die(signal=11)

        self._after(worker, took, end)

    def _endless(self, worker: Worker, claims: Claims, took: float) -> None:
        """It never ends by itself, but says how far it is, and so hears when it is cancelled; perhaps too late."""
        pause = self._chance.choice([0.5, 3.0, 12.0])

        def go_on() -> None:
            if self._says(worker, claims):
                self._after(worker, pause, go_on)

        self.endless.update(claim.id for claim in claims)
        self._after(worker, pause, go_on)

    def _swallows(self, worker: Worker, claims: Claims, took: float) -> None:
        """It never ends, and goes on though its task is cancelled; others that are in the same hand go on, too."""
        worker.swallowing.update(claim.id for claim in claims)
        self.endless.update(claim.id for claim in claims)

    def _deaf(self, worker: Worker, claims: Claims, took: float) -> None:
        """It never ends, and hears nothing; with or without the interpreter in its hands."""
        worker.mute, worker.stuck = self._chance.random() < 0.5, True
        worker.use(0.9)
        self.endless.update(claim.id for claim in claims)

    _performances: ClassVar[dict[str, Callable[..., None]]] = {
        "done": _done, "raised": _raised, "retry": _retry, "gave up": _gave_up, "progress": _progress,
        "kills the node": _kills_the_node,
        "crash": _crash, "oom": _oom, "exits": _exits, "fatal": _fatal, "silent": _silent, "wakes late": _wakes_late,
        "brink": _brink, "interpreter": _interpreter, "deadlock": _deadlock, "stalled": _stalled,
        "garbage": _garbage, "noise": _noise, "late outcome": _late_outcome, "last words": _last_words,
        "endless": _endless, "deaf": _deaf, "swallows": _swallows, "sick": _sick, "broken": _broken,
    }  # fmt: skip
