"""Histories by chance: whatever happens and whatever people order, a place has one process at most, and is watched."""

from typing import Any

from fleet_world import used
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chargehand.model.fleet import orders
from chargehand.model.fleet.death import Death
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import (
    TRANSITIONS,
    Action,
    Ask,
    Broken,
    Dismiss,
    DumpStacks,
    Event,
    Examine,
    Examined,
    Exited,
    Framed,
    GivenUp,
    Kill,
    MoreTime,
    NotStarted,
    Occupied,
    PausesChanged,
    Removed,
    SetPaused,
    Spawn,
    Started,
    Status,
    StopAsked,
    Terminate,
    Tick,
    WorkWaits,
)
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms

CREWS = {
    "tag": Terms(workers=3, recycle_jobs=2, idle_exit=40.0, memory=3),
    "scan": Terms(workers=1, recycle_memory=5, memory=2),
}
STARTS = StartPolicy(stagger=0.02, most_loading=2, memory=9)
MOST = 5
NAMES = [f"worker:{crew}:{index}" for crew in CREWS for index in range(MOST)]
SCOPES = [None, *CREWS, *NAMES]
VERBS = [Verb.START, Verb.STOP, Verb.DRAIN, Verb.RESTART, Verb.RESET]


class Process:
    """What the hands know of one life."""

    def __init__(self) -> None:
        self.ready = self.dismissed = False
        self.job: float | None = None
        self.turns, self.cpu, self.burns = 0, 0.0, False


class Machine(RuleBasedStateMachine):
    """The hands, and people, played by chance. The rules are what can really happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.done = 1000.0, 0
        self.processes: dict[str, Process] = {}
        self.spawns_fail = False
        self.stopped = False
        self.fleet = Fleet(CREWS, RestartPolicy(), LivenessPolicy(), STARTS, lambda: 0.5)
        self.unkillable: set[str] = set()

    # the hands

    @initialize(failed=st.sets(st.sampled_from(NAMES[:3])), unkillable=st.sets(st.sampled_from(NAMES[:2])))
    def begin(self, failed: set[str], unkillable: set[str]) -> None:
        for name in unkillable:
            self.unkillable.add(name)
            self.tell(Occupied(name, 7))
        self.act(self.fleet.begin(self.now, dict.fromkeys(failed, "earlier")))
        self.settle()

    def tell(self, event: Event) -> None:
        before = {name: place.status for name, place in self.fleet.places.items()}
        actions = self.fleet.handle(event, self.now)
        for name, place in self.fleet.places.items():
            if name in before:
                assert reachable(before[name], place.status), f"{name}: {before[name]} → {place.status} by {event}"
        self.act(actions)

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(component):
                    self.spawn(component)
                case Ask(component) | Dismiss(component):
                    self.processes[component].dismissed = True
                case Examine(component):
                    process = self.processes[component]
                    process.cpu += process.burns
                    self.tell(Examined(component, used(process.cpu)))
                case Terminate(component) | Kill(component) | DumpStacks(component) | SetPaused(component):
                    assert component in self.processes, f"{action} for nobody"
                case GivenUp(component):
                    assert self.fleet.places[component].status is Status.FAILED
                case Removed(component):
                    assert component not in self.processes
                    assert component not in self.fleet.places
                case _:
                    pass

    def spawn(self, component: str) -> None:
        assert component not in self.processes, "an old life overlaps its successor"
        assert component not in self.unkillable, "an old life overlaps its successor"
        assert not self.stopped
        if self.spawns_fail:
            self.tell(NotStarted(component, "no room"))
        else:
            self.processes[component] = Process()
            self.tell(Started(component, 7))

    def settle(self) -> None:
        """Do what is due now. It must not be endless: the node would burn a core."""
        for _ in range(60):
            due = self.fleet.next_due()
            if due is None or due > self.now:
                return
            self.tell(Tick())
        raise AssertionError("something is due, and a tick does not do it")

    def living(self, which: int, **wanted: Any) -> tuple[str, Process] | None:
        found = [
            (name, process)
            for name, process in self.processes.items()
            if all(getattr(process, key) == value for key, value in wanted.items())
        ]
        return found[which % len(found)] if found else None

    # what happens

    @rule(seconds=st.sampled_from([0.0, 0.02, 0.25, 1.0, 2.0, 10.0, 16.0, 31.0, 61.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    @rule(seconds=st.sampled_from([5.0, 30.0, 300.0]), turns=st.booleans())
    def time_passes_while_all_beat(self, seconds: float, turns: bool) -> None:
        for _ in range(round(seconds / 5)):
            self.now += 5
            for name in list(self.processes):
                self.beat(name, turns, 0)
            self.settle()

    @rule(seconds=st.sampled_from([2.0, 500.0]))
    def the_node_was_late(self, seconds: float) -> None:
        self.now += seconds
        self.fleet.late(seconds)
        self.tell(Tick())
        self.settle()

    def beat(self, name: str, turns: bool, memory: int) -> None:
        process = self.processes[name]
        process.turns += turns
        place = self.fleet.places[name]
        status = "starting" if not process.ready else "paused" if place.paused else "healthy"
        self.tell(Framed(name, status, process.turns, memory))

    @rule(which=st.integers(0, 9), turns=st.booleans(), memory=st.integers(0, 9))
    def one_beats(self, which: int, turns: bool, memory: int) -> None:
        if found := self.living(which):
            self.beat(found[0], turns, memory)

    @rule(which=st.integers(0, 9))
    def one_is_ready(self, which: int) -> None:
        if found := self.living(which, ready=False):
            found[1].ready = True
            found[1].turns += 1
            self.beat(found[0], False, 0)

    @rule(which=st.integers(0, 9), what=st.sampled_from(["stopping", "nonsense", "broken", "burns"]))
    def one_is_strange(self, which: int, what: str) -> None:
        if found := self.living(which):
            name, process = found
            if what == "burns":
                process.burns = not process.burns
            else:
                self.tell(Broken(name) if what == "broken" else Framed(name, what, process.turns))

    @rule(which=st.integers(0, 9), seconds=st.sampled_from([1.0, 1e9]))
    def one_asks_for_time(self, which: int, seconds: float) -> None:
        found = self.living(which, ready=False)
        if found:
            self.tell(MoreTime(found[0], seconds))
            self.settle()

    @rule(which=st.integers(0, 9), timeout=st.sampled_from([None, 1.0, 20.0, 3600.0]))
    def one_is_handed_a_job(self, which: int, timeout: float | None) -> None:
        found = self.living(which, ready=True, dismissed=False, job=None)
        if found is not None and not self.fleet.places[found[0]].paused:
            found[1].job = timeout or 0.0
            self.fleet.began(found[0], "job", timeout, self.now)

    @rule(which=st.integers(0, 9), more=st.booleans())
    def a_job_ends(self, which: int, more: bool) -> None:
        found = self.living(which)
        if found is None or found[1].job is None:
            return
        name, process = found
        self.done += 1
        process.job = None
        if self.fleet.ended(name, self.now) and more and not process.dismissed:
            process.job = 1.0
            self.fleet.began(name, "job", 1.0, self.now)
        else:
            self.act(self.fleet.let_go(name, self.now))

    @rule(which=st.integers(0, 9), code=st.sampled_from([None, 0, 1, 2, 5]), said=st.sampled_from([None, "x"]))
    def one_ends(self, which: int, code: int | None, said: str | None) -> None:
        if found := self.living(which):
            self.end(found[0], code, said)

    @rule(signal=st.sampled_from([9, 11]))
    def all_of_a_crew_end(self, signal: int) -> None:
        for name in [name for name in self.processes if name.startswith("worker:tag:")]:
            self.end(name, None, None, signal)

    def end(self, name: str, code: int | None, said: str | None, signal: int = 11) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            number = None if code is not None else signal
            death = Death(exit_code=code, signal=number, said=said, had_job=process.job is not None)
            self.tell(Exited(component=name, death=death, crew_done=self.done))
            self.settle()

    @rule(fail=st.booleans())
    def the_machine_is_full(self, fail: bool) -> None:
        self.spawns_fail = fail

    @rule()
    def the_unkillable_are_gone(self) -> None:
        self.unkillable.clear()
        for name in list(self.fleet.places):
            self.tell(Occupied(name, None))

    @rule(crew=st.sampled_from([*CREWS, "nobody"]), count=st.integers(0, 4))
    def work_waits(self, crew: str, count: int) -> None:
        self.tell(WorkWaits(crew, count))

    # what people do

    @rule(scopes=st.sets(st.sampled_from(["*", *CREWS, *NAMES]), max_size=2))
    def they_pause(self, scopes: set[str]) -> None:
        self.tell(PausesChanged(scopes))

    @rule(verb=st.sampled_from(VERBS), scope=st.sampled_from(SCOPES), twice=st.booleans())
    def they_order(self, verb: Verb, scope: str | None, twice: bool) -> None:
        if scope in NAMES and scope not in self.fleet.places:
            return
        failed = {name for name, place in self.fleet.places.items() if place.status is Status.FAILED}
        for _ in range(1 + twice):
            actions, answers = orders.carry_out(self.fleet, verb, scope, self.now)
            assert all(answer.text for answer in answers)
            self.act(actions)
        if verb not in (Verb.RESTART, Verb.RESET):
            left = {name for name in failed if self.fleet.places[name].status is Status.FAILED}
            assert left == failed - {name for name in failed if name in self.processes}
        self.settle()

    @rule(crew=st.sampled_from(list(CREWS)), count=st.integers(0, MOST))
    def they_scale(self, crew: str, count: int) -> None:
        actions, _ = orders.scale(self.fleet, crew, count, self.now)
        self.act(actions)
        kept = [place.index for place in self.fleet.crew(crew) if place.index < count]
        assert sorted(kept) == list(range(count))
        self.settle()

    @precondition(lambda self: len(self.processes) > 2)
    @rule()
    def they_stop_everything(self) -> None:
        self.tell(StopAsked())
        self.stopped = True
        self.settle()

    # what always holds

    @invariant()
    def there_is_a_process_exactly_where_the_status_says_so(self) -> None:
        alive = {name for name, place in self.fleet.places.items() if place.alive}
        assert alive == set(self.processes)
        assert self.fleet.all_gone() == (not alive)

    @invariant()
    def everybody_alive_is_watched(self) -> None:
        for place in self.fleet.places.values():
            if place.alive:
                assert place.due() is not None, f"{place.component} is {place.status}, and nobody will look"
            else:
                assert (place.due() is not None) == (place.start_at is not None), "somebody will look at nobody"

    @invariant()
    def few_load(self) -> None:
        loading = sum(place.status is Status.STARTING for place in self.fleet.places.values())
        assert loading <= STARTS.most_loading
        needed = sum(CREWS[place.crew].memory or 0 for place in self.fleet.places.values() if place.alive)
        assert needed <= (STARTS.memory or 0)

    @invariant()
    def whoever_died_is_on_its_way_back_or_waits_for_something_that_ends(self) -> None:
        places = self.fleet.places.values()
        for place in places:
            if place.status is Status.CRASHED:
                assert place.start_at is not None or place.in_line or place.behind_breaker
            if place.behind_breaker:
                assert place.crew in self.fleet.breakers
                assert not place.in_line
        if any(place.in_line for place in places) and self.fleet.all_gone():
            assert self.fleet.next_due() is not None, "somebody waits in line for nobody"

    def teardown(self) -> None:
        """A stop ends everything."""
        self.tell(StopAsked())
        self.stopped = True
        for _ in range(5):
            self.now += 10
            self.settle()
        for name in list(self.processes):
            self.end(name, None, None, 9)
        assert self.fleet.all_gone()
        assert self.fleet.next_due() is None
        assert not any(place.in_line for place in self.fleet.places.values())


def reachable(before: Status, after: Status) -> bool:
    """Along the table, and through nothing but a death or a stop on the way."""
    passing = {Status.CRASHED, Status.STOPPED}
    first = TRANSITIONS[before]
    second = {status for middle in first & passing for status in TRANSITIONS[middle]}
    return before is after or after in first | second
