"""What becomes of a worker while it loads: drawn by the seed, by the profile's weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from actors import Worker
from profiles import Weights

if TYPE_CHECKING:
    from stage import World


class Loads:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world, self._chance = world, world.chance
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
        if not worker.busy and not self.calm:
            self._world.tally["crash while idle"] += 1
            worker.die(signal=11)

    _loads: ClassVar[dict[str, Callable[..., None]]] = {
        "quick": _quick, "slow": _slow, "asks for time": _asks, "for ever": _never, "mute": _never,
        "crash": _load_crash, "set-up failed": _set_up_failed, "fatal": _load_fatal, "interpreter": _load_interpreter,
        "falls silent": _falls_silent, "epidemic": _epidemic, "not started": _never,
    }  # fmt: skip
