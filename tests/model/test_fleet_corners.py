"""Corners in which the fleet once went wrong."""

import pytest
from fleet_world import ONE, THREE, TWO, World, started
from ledger_builders import T, fast, grant, ledger, serve, working

from chargehand.model.batch import Grant, Result
from chargehand.model.fleet import orders
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import (
    Broken,
    Dismiss,
    MoreTime,
    NotStarted,
    Occupied,
    Removed,
    Report,
    Spawn,
    Status,
    StopAsked,
)
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import StartPolicy
from chargehand.model.held import SECONDS_AHEAD

ONE_AT_A_TIME = StartPolicy(stagger=0.0, most_loading=1)


def test_a_counter_that_stood_still_while_loading_is_not_held_against_the_worker() -> None:  # spec: SV-5 SV-7
    world = World()
    for _ in range(12):
        world.now += 5
        world.frame("starting", turns=0)
    assert world.frame("healthy", turns=0) == []
    world.now += 29
    assert world.frame("healthy", turns=0) == []
    world.now += 1
    assert Dismiss(ONE) in world.frame("healthy", turns=0)


def test_what_could_not_be_started_is_not_watched() -> None:  # spec: SV-3
    world = World()
    world.tell(StopAsked())
    world.tell(NotStarted(ONE, "no room"))
    assert world.fleet.next_due() is None
    assert world.after(60) == []


def test_what_could_not_be_started_makes_room_for_the_next() -> None:  # spec: SV-9
    world = World(2, starts=ONE_AT_A_TIME)
    assert world.begun == [Spawn(ONE, 1)]
    world.order(Verb.STOP, ONE)
    assert Spawn(TWO, 1) in world.tell(NotStarted(ONE, "no room"))


@pytest.mark.parametrize("verb", [Verb.START, Verb.RESTART, Verb.RESET])
def test_no_order_fills_a_place_in_which_somebody_cannot_be_killed(verb: Verb) -> None:  # spec: WP-7 SV-6
    world = World(begin=False)
    world.tell(Occupied(ONE, 77))
    assert world.fleet.begin(world.now) == []
    assert world.order(verb)[0] == []
    assert "unkillable" in (world.place.text or "")
    orders.scale(world.fleet, "tag", 0, world.now)
    assert orders.scale(world.fleet, "tag", 1, world.now)[0] == []
    assert world.tell(Occupied(ONE, None)) == [Spawn(ONE, 1)]


@pytest.mark.parametrize("before", [Verb.STOP, Verb.DRAIN])
def test_an_order_to_start_is_kept_until_the_unkillable_is_gone(before: Verb) -> None:  # spec: WP-7 SV-10
    world = World(begin=False)
    world.tell(Occupied(ONE, 77))
    world.fleet.begin(world.now)
    world.order(before)
    world.order(Verb.START)
    assert world.tell(Occupied(ONE, None)) == [Spawn(ONE, 1)]


def test_a_stopped_worker_stays_so_when_the_unkillable_are_looked_at() -> None:  # spec: SV-10
    world = started()
    world.order(Verb.STOP)
    world.exit(code=0)
    assert world.tell(Occupied(ONE, None)) == []
    assert world.place.status is Status.STOPPED


def test_an_open_breaker_takes_the_others_out_of_the_line() -> None:  # spec: SV-9
    world = started(3)
    world.fleet._admission._policy = ONE_AT_A_TIME
    world.crash(ONE)
    world.crash(TWO)
    world.after(2)  # both are due; one starts, one stands in line
    world.crash(THREE)
    waiting = [place for place in world.fleet.places.values() if place.behind_breaker]
    assert waiting
    assert not any(place.in_line for place in waiting)


def test_the_report_of_one_behind_the_breaker_says_what_it_died_of() -> None:  # spec: WP-8
    world = started(2)
    world.crash(ONE)
    (report,) = [action for action in world.crash(TWO) if isinstance(action, Report)]
    assert (report.reason, report.follows) == (Reason.CRASH, "waits: another worker of its crew is restarted first")


def test_a_plea_for_time_does_not_bring_a_condemned_worker_back() -> None:  # spec: SV-3
    world = World()
    world.after(30)
    assert world.place.verdict is Reason.START_TIMEOUT
    world.tell(MoreTime(ONE, 100.0))
    world.tick()
    due = world.fleet.next_due()
    assert due is not None
    assert due > world.now


def test_no_incarnation_is_repeated_when_a_crew_shrinks_and_grows() -> None:  # spec: WK-4
    world = started(2)
    orders.scale(world.fleet, "tag", 1, world.now)
    world.exit(TWO, code=0)
    assert orders.scale(world.fleet, "tag", 2, world.now)[0] == [Spawn(TWO, 2)]


def test_a_worker_that_talks_nonsense_is_handed_nothing_more() -> None:  # spec: WK-6
    assert Dismiss(ONE) in started().tell(Broken(ONE))


def test_a_healthy_run_counts_also_if_it_ends_in_order() -> None:  # spec: RP-4
    world = started()
    for _ in range(4):
        world.crash(ONE)
        world.until_due()
        world.ready(ONE)
    world.now += 400
    world.order(Verb.RESTART)
    world.exit(ONE, code=0)
    world.ready(ONE)
    world.crash(ONE)
    assert world.place.start_at == world.now + 1


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.DRAIN, Verb.RESTART, Verb.START])
def test_a_place_that_is_going_goes_whatever_is_ordered(verb: Verb) -> None:  # spec: SV-10
    world = started(2)
    world.fleet.began(TWO, "job", None, world.now)
    orders.scale(world.fleet, "tag", 1, world.now)
    world.order(verb, TWO)
    world.fleet.ended(TWO, world.now)
    world.fleet.let_go(TWO, world.now)
    assert Removed(TWO) in world.exit(TWO, code=0)


def test_a_recycled_worker_neither_opens_nor_closes_a_breaker() -> None:  # spec: SV-9
    world = started(3)
    world.order(Verb.RESTART, THREE)
    world.crash(ONE)
    world.crash(TWO)
    assert not world.fleet.breakers
    world = started(2)
    world.crash(ONE)
    world.crash(TWO)
    assert world.fleet.breakers
    world.until_due()
    probe = next(place.component for place in world.fleet.places.values() if place.alive)
    world.ready(probe)
    world.order(Verb.RESTART, probe)
    world.tick()
    assert world.fleet.breakers


def test_who_woke_for_work_asks_for_it() -> None:  # spec: WP-3
    made = ledger()
    made.pools["a"].asleep = 1
    made.next_batch(T)
    made.confirm(Result(grants=(Grant("a", (), None, 1),)), T)
    assert made.waiting() == {"a": 1}
    made.pools["a"].asleep = 0
    serve(made, "w0")
    assert made.batch_due(T) == T
    assert made.next_batch(T).poll is False


def test_what_only_a_paused_worker_could_do_goes_back() -> None:  # spec: PD-1
    made = fast(working(), SECONDS_AHEAD / 10)
    made.next_batch(T)
    grant(made, 1, 2)
    made._paused_workers = frozenset()
    made.pools["a"].remove("w0")
    assert made.batch_due(T) == T
    assert [s.id for s in made.next_batch(T).settlements] == ["job-1", "job-2"]
