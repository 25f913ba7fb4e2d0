"""What the tests of the fleet share: a fleet and a clock that only the test moves."""

from typing import Any

from chargehand.model.fleet import orders
from chargehand.model.fleet.death import Death, Reason
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import (
    Action,
    Dismiss,
    DumpStacks,
    Event,
    Exited,
    Framed,
    GivenUp,
    Kill,
    Replace,
    Spawn,
    Started,
    Status,
    Tick,
)
from chargehand.model.fleet.orders import Answer, Verb
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.model.fleet.usage import ThreadUsage, Usage

ONE, TWO, THREE = "worker:tag:0", "worker:tag:1", "worker:tag:2"
AT_ONCE = StartPolicy(stagger=0.0, most_loading=1000)


def used(cpu: float, **more: Any) -> Usage:
    """A reading: one thread that has used so much CPU time."""
    return Usage(threads={1: ThreadUsage(cpu)}, **more)


class World:
    """See the module. Every frame's counter moves, unless the test says what it is."""

    def __init__(
        self,
        workers: int = 1,
        *,
        jitter: float = 0.0,
        now: float = 1000.0,
        starts: StartPolicy = AT_ONCE,
        liveness: LivenessPolicy | None = None,
        crews: dict[str, Terms] | None = None,
        begin: bool = True,
        **terms: Any,
    ) -> None:
        self.now, self.turns = now, 0
        made = crews or {"tag": Terms(workers=workers, **terms)}
        self.fleet = Fleet(made, RestartPolicy(), liveness or LivenessPolicy(), starts, lambda: jitter)
        self.begun = self.fleet.begin(now) if begin else []

    @property
    def place(self) -> Place:
        return self.fleet.places[ONE]

    @property
    def statuses(self) -> list[str]:
        return [place.status.value for place in self.fleet.places.values()]

    def tell(self, event: Event) -> list[Action]:
        return self.fleet.handle(event, self.now)

    def tick(self, late: float = 0.0) -> list[Action]:
        if late:
            self.fleet.late(late)
        return self.tell(Tick())

    def after(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.tick()

    def until_due(self) -> list[Action]:
        """Let exactly so much time pass that something is due."""
        due = self.fleet.next_due()
        assert due is not None, "nothing will ever be due"
        self.now = max(due, self.now)
        return self.tick()

    def frame(
        self, status: str = "healthy", component: str = ONE, *, turns: int | None = None, memory: int = 0
    ) -> list[Action]:
        self.turns += 1
        return self.tell(Framed(component, status, self.turns if turns is None else turns, memory))

    def beat(self, seconds: float, *, turns: int | None = None, component: str = ONE) -> list[Action]:
        """Frames every 5 s for so long; everything that was done meanwhile."""
        actions: list[Action] = []
        for _ in range(round(seconds / 5)):
            self.now += 5
            actions += [*self.frame(self.fleet.places[component].status.value, component, turns=turns), *self.tick()]
        return actions

    def ready(self, *components: str) -> None:
        """These, which have been spawned, load and are ready."""
        for component in components or (ONE,):
            place = self.fleet.places[component]
            assert place.status is Status.STARTING
            self.tell(Started(component, 100 + place.life))
            self.frame("starting", component)
            self.frame("healthy", component)
            assert place.status is Status.HEALTHY

    def again(self, component: str = ONE) -> None:
        """Whoever died comes back, through to being ready."""
        if self.fleet.places[component].status is not Status.STARTING:
            assert Spawn(component, self.fleet.places[component].life + 1) in self.until_due()
        self.ready(component)

    def exit(
        self,
        component: str = ONE,
        *,
        code: int | None = None,
        signal: int | None = None,
        crew_done: int = 0,
        **death: Any,
    ) -> list[Action]:
        facts = Death(exit_code=code, signal=signal, **death)
        return self.tell(Exited(component=component, death=facts, crew_done=crew_done))

    def crash(self, component: str = ONE, *, crew_done: int = 0, **death: Any) -> list[Action]:
        return self.exit(component, signal=11, crew_done=crew_done, **death)

    def give_up(self, component: str = ONE) -> list[Action]:
        return self.exit(component, code=2, said="no such model")

    def work(self, job: str = "job-1", timeout: float | None = 3600.0, component: str = ONE) -> None:
        self.fleet.began(component, job, timeout, self.now)

    def finish(self, component: str = ONE) -> list[Action]:
        """Its job ends, and it is handed no other."""
        self.fleet.ended(component, self.now)
        return self.fleet.let_go(component, self.now)

    def look(self, seconds: float) -> list[Action]:
        """The first looks for work, and is handed none."""
        self.work("tag/?", 30.0)
        assert self.beat(seconds) == []
        self.fleet.ended(ONE, self.now, job=False)
        return self.fleet.let_go(ONE, self.now)

    def order(self, verb: Verb, scope: str | None = ONE) -> tuple[list[Action], list[str]]:
        actions, answers = orders.carry_out(self.fleet, verb, scope, self.now)
        return actions, words(answers)

    def scale(self, count: int | None, crew: str | None = "tag") -> tuple[list[Action], list[str]]:
        actions, answers = orders.scale(self.fleet, crew, count, self.now)
        return actions, words(answers)


def words(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def started(workers: int = 1, **options: Any) -> World:
    """A world in which everybody is ready."""
    world = World(workers, **options)
    world.ready(*world.fleet.places)
    return world


def condemned(reason: str, component: str = ONE) -> list[Action]:
    """What is done with a worker that is to be killed: it gets nothing more, and says where it stands."""
    return [Dismiss(component), DumpStacks(component, Reason(reason))]


def killed(reason: str, component: str = ONE) -> list[Action]:
    return [Kill(component, Reason(reason))]


def told(actions: list[Action]) -> list[Action]:
    """What people are told of a death, without the report that is kept."""
    return [action for action in actions if isinstance(action, Replace | GivenUp)]


def pause_of(actions: list[Action]) -> float:
    """After how long the one that died comes back."""
    (pause,) = [action.pause for action in actions if isinstance(action, Replace)]
    return pause
