"""A whole crew that crashes of one cause, with a virtual clock: one is tried, instead of all budgets being burnt."""

import pytest
from fleet_world import ONE, THREE, TWO, World, pause_of, started, told

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import (
    Action,
    BreakerClosed,
    BreakerOpened,
    Forgiven,
    GivenUp,
    NotStarted,
    Report,
    Spawn,
    Status,
    StopAsked,
)
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import Terms

CAUSE = "crash (signal 11, SIGSEGV)"


def opened(workers: int = 2) -> World:
    """All have crashed of the same cause; the first is tried."""
    world = started(workers)
    for name in world.fleet.places:
        world.crash(name)
    assert world.fleet.breakers == {"tag": f"{CAUSE}; only {ONE} is restarted"}
    return world


# opening


# spec: SV-9
def test_when_all_crash_of_one_cause_only_one_is_tried() -> None:
    world = started(3)
    assert pause_of(world.crash(ONE)) == 1
    world.now += 0.1
    assert pause_of(world.crash(TWO)) == 1
    assert world.fleet.breakers == {}
    world.now += 0.1
    actions = world.crash(THREE)
    assert BreakerOpened("tag", CAUSE, ONE) in actions
    assert told(actions) == []
    assert world.until_due() == [Spawn(ONE, 2)]
    assert world.now == pytest.approx(1001)
    assert world.statuses == ["starting", "crashed", "crashed"]
    for name in (TWO, THREE):
        place = world.fleet.places[name]
        assert (place.behind_breaker, place.reason, place.start_at) == (True, Reason.BREAKER, None)
    world.ready()
    assert world.beat(295) == []


# spec: SV-9
def test_who_is_back_already_is_the_one_that_is_tried() -> None:
    world = started(2)
    world.crash(TWO)
    world.again(TWO)
    assert BreakerOpened("tag", CAUSE, TWO) in world.crash(ONE)
    assert world.statuses == ["crashed", "healthy"]
    assert world.beat(200, component=TWO) == []


# spec: SV-9
@pytest.mark.parametrize(("apart", "opens"), [(59.0, True), (61.0, False)])
def test_only_crashes_within_60_s_count(apart: float, opens: bool) -> None:
    world = started(2)
    world.crash(ONE)
    world.again(ONE)
    world.now += apart - 1
    world.frame(component=TWO)
    world.crash(TWO)
    assert bool(world.fleet.breakers) is opens


# spec: SV-9
def test_different_causes_open_nothing() -> None:
    world = started(2)
    world.crash(ONE)
    assert pause_of(world.exit(TWO, signal=6)) == 1
    assert world.fleet.breakers == {}


# spec: SV-9, WK-6
def test_crashes_with_a_job_in_hand_open_nothing() -> None:
    world = started(2)
    world.crash(ONE, had_job=True)
    assert pause_of(world.crash(TWO, had_job=True)) == 1
    world.again(ONE)
    world.again(TWO)
    world.crash(ONE)
    assert pause_of(world.crash(TWO, had_job=True)) > 1
    assert world.fleet.breakers == {}


# spec: SV-9
def test_a_crew_of_one_has_no_breaker() -> None:
    world = started()
    assert pause_of(world.crash()) == 1
    assert world.fleet.breakers == {}


# spec: SV-9
def test_another_crew_is_not_concerned() -> None:
    world = World(crews={"tag": Terms(workers=2), "scan": Terms(workers=2)})
    world.ready(*world.fleet.places)
    for name in (ONE, TWO):
        world.crash(name)
    assert list(world.fleet.breakers) == ["tag"]
    assert pause_of(world.crash("worker:scan:0")) == 1


# spec: SV-9
def test_processes_that_cannot_be_made_are_a_cause_like_any_other() -> None:
    world = World(2)
    world.tell(NotStarted(ONE, "no room"))
    assert BreakerOpened("tag", "no room", ONE) in world.tell(NotStarted(TWO, "no room"))


# spec: SV-9, SV-10
def test_who_is_not_to_be_at_work_is_not_waited_for() -> None:
    """Of four, one was stopped by a person and one given up: all means the other two."""
    world = started(4)
    world.order(Verb.STOP, "tag:3")
    world.exit("worker:tag:3", code=0)
    world.give_up(THREE)
    world.crash(ONE)
    assert BreakerOpened("tag", CAUSE, ONE) in world.crash(TWO)


# the one that is tried


# spec: SV-9, RP-4
def test_five_healthy_minutes_bring_the_others_back() -> None:
    world = opened(3)
    world.again()
    assert world.beat(295) == []
    actions = world.beat(5)
    assert isinstance(actions[0], BreakerClosed)
    assert actions[1:] == [Spawn(TWO, 2), Spawn(THREE, 2)]
    assert world.fleet.breakers == {}


# spec: SV-9, RP-1
def test_the_one_that_is_tried_has_its_backoff_and_the_others_lose_nothing() -> None:
    world, pauses = opened(2), list[float]()
    spent = len(world.fleet.places[TWO].history.charged)
    for _ in range(4):
        world.again()
        pauses.append(pause_of(world.crash()))
    assert pauses == [2, 4, 8, 16]
    assert len(world.fleet.places[TWO].history.charged) == spent
    assert list(world.fleet.breakers) == ["tag"]


# spec: SV-9, RP-2
def test_when_the_one_that_is_tried_is_given_up_all_are() -> None:
    world = opened(3)
    actions: list[Action] = []
    for _ in range(5):
        world.again()
        actions = world.crash()
    given_up = [action for action in actions if isinstance(action, GivenUp)]
    assert [action.component for action in given_up] == [ONE, TWO, THREE]
    assert all(ONE in action.reason for action in given_up[1:]), "they say for whom"
    assert world.statuses == ["failed"] * 3
    assert (world.fleet.breakers, world.fleet.next_due()) == ({}, None)


# spec: SV-9
def test_one_that_comes_to_grief_behind_an_open_breaker_waits_too() -> None:
    world = started(3)
    world.crash(ONE)
    world.again(ONE)
    world.crash(TWO)
    world.again(TWO)
    world.crash(THREE)
    assert world.statuses == ["healthy", "healthy", "crashed"]
    assert told(world.crash(TWO)) == []
    assert world.fleet.places[TWO].behind_breaker


# people


# spec: SV-9, RP-6
@pytest.mark.parametrize("scope", [ONE, TWO, "tag", None])
def test_a_reset_brings_all_back_at_once(scope: str | None) -> None:
    world = opened(3)
    actions, _ = world.order(Verb.RESET, scope)
    assert BreakerClosed("tag", "an operator reset it") in actions
    assert {Spawn(TWO, 2), Spawn(THREE, 2)} <= {action for action in actions if isinstance(action, Spawn)}
    assert Forgiven(ONE) not in actions, "it had not been given up"
    again, _ = world.order(Verb.RESET, scope)
    assert not any(isinstance(action, BreakerClosed) for action in again)


# spec: SV-9, SV-10
def test_a_start_of_one_that_waits_says_why_it_does_not() -> None:
    world = opened(2)
    actions, (text,) = world.order(Verb.START, TWO)
    assert actions == []
    assert "waits" in text


# spec: SV-9, SV-10
@pytest.mark.parametrize("how", ["stop", "scale"])
def test_when_the_one_that_is_tried_is_taken_away_the_others_come_back(how: str) -> None:
    world = started(2)
    world.crash(TWO)
    world.again(TWO)
    world.crash(ONE)
    assert world.fleet.breakers == {"tag": f"{CAUSE}; only {TWO} is restarted"}
    if how == "stop":
        world.order(Verb.STOP, TWO)
    else:
        world.scale(1)
    actions = world.until_due()
    assert isinstance(actions[0], BreakerClosed)
    assert Spawn(ONE, 2) in actions


# spec: SV-9, PD-3
def test_a_stop_of_everything_forgets_the_breaker() -> None:
    world = opened(2)
    assert world.tell(StopAsked()) == []
    assert (world.fleet.breakers, world.statuses, world.fleet.next_due()) == ({}, ["stopped"] * 2, None)


# spec: SV-9, SV-10
def test_one_that_waits_can_be_stopped_and_then_stays_so() -> None:
    world = opened(2)
    assert world.order(Verb.STOP, TWO) == ([], ["is stopped"])
    world.again()
    assert isinstance(world.beat(300)[0], BreakerClosed)
    assert world.fleet.places[TWO].status is Status.STOPPED


# spec: SV-9
def test_the_report_says_what_follows() -> None:
    world = started(2)
    world.crash(ONE)
    report = world.crash(TWO)[0]
    assert isinstance(report, Report)
    assert report.follows == "waits: another worker of its crew is restarted first"
