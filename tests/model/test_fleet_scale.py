"""A crew made larger and smaller while it works, with a virtual clock."""

import pytest
from fleet_world import ONE, THREE, TWO, started

from chargehand.errors import ConfigurationError, UnknownCrew
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Ask, Dismiss, Forgiven, PausesChanged, Removed, Replace, Spawn, StopAsked
from chargehand.model.fleet.orders import MOST_WORKERS
from chargehand.model.fleet.policy import StartPolicy


# spec: SV-10
def test_a_crew_can_grow() -> None:
    world = started()
    assert world.scale(3) == ([Spawn(TWO, 1), Spawn(THREE, 1)], ["starts", "starts"])
    assert world.scale(3)[0] == []
    assert list(world.fleet.places) == [ONE, TWO, THREE]


# spec: SV-10
def test_a_crew_can_shrink_from_its_end() -> None:
    world = started(3)
    assert world.scale(1)[0] == [Ask(TWO), Ask(THREE)]
    assert world.scale(1)[0] == []
    assert world.exit(TWO, code=0) == [Removed(TWO)]
    assert world.exit(THREE, code=0) == [Removed(THREE)]
    assert (list(world.fleet.places), world.statuses) == ([ONE], ["healthy"])
    assert world.beat(3600) == []


# spec: SV-10, RP-7
def test_who_has_a_job_finishes_it_before_it_goes() -> None:
    world = started(2)
    world.work("job-7", component=TWO)
    for _ in range(2):
        assert world.scale(1) == ([Dismiss(TWO)], ["finishes job-7, then is removed"])
    assert world.fleet.places[TWO].status == "healthy"
    assert world.finish(TWO) == [Ask(TWO)]
    assert world.fleet.places[TWO].why_leave is Reason.SCALED_DOWN
    assert world.exit(TWO, code=0) == [Removed(TWO)]


# spec: SV-10
def test_a_crew_can_have_nobody_and_grow_again() -> None:
    world = started(2)
    world.scale(0)
    for name in (ONE, TWO):
        world.exit(name, code=0)
    assert (world.fleet.places, world.fleet.next_due(), world.fleet.all_gone()) == ({}, None, True)
    assert [type(action) for action in world.scale(1)[0]] == [Spawn]


# spec: HT-5 RP-9
def test_the_number_of_restarts_of_a_crew_never_falls() -> None:
    """A counter that vanishes at scale 0 would make a rate of restarts wrong."""
    world = started(2)
    assert world.fleet.restarts() == {"tag": 0}
    world.crash(TWO)
    world.again(TWO)
    assert world.fleet.restarts() == {"tag": 1}
    world.scale(0)
    for name in (ONE, TWO):
        world.exit(name, code=0)
    assert (world.fleet.places, world.fleet.restarts()) == ({}, {"tag": 1})
    world.scale(2)
    assert world.fleet.restarts() == {"tag": 1}


# spec: SV-10
@pytest.mark.parametrize("how", ["crashed", "failed", "stopped", "in line"])
def test_who_is_not_there_is_gone_at_once(how: str) -> None:
    starts = StartPolicy(stagger=0.0, most_loading=2)
    world = started(2, starts=starts)
    match how:
        case "crashed":
            world.crash(TWO)
        case "failed":
            world.give_up(TWO)
        case "stopped":
            world.tell(StopAsked())
            world.exit(TWO, code=0)
        case _:
            world.scale(4)
            world.scale(5)
    last = "worker:tag:4" if how == "in line" else TWO
    actions, answers = world.scale(4 if how == "in line" else 1)
    assert actions == [*([Forgiven(TWO)] if how == "failed" else []), Removed(last)]
    assert answers == ["is removed"]
    assert last not in world.fleet.places


# spec: SV-10
@pytest.mark.parametrize("busy", [True, False])
def test_up_again_while_somebody_is_going_has_it_come_back(busy: bool) -> None:
    world = started(2)
    if busy:
        world.work(component=TWO)
    world.scale(1)
    assert world.scale(2) == ([], ["was being removed; restarts"])
    assert world.scale(2)[0] == []
    if busy:
        assert world.finish(TWO) == [Ask(TWO)]
    assert world.exit(TWO, code=0) == [Spawn(TWO, 2)]


# spec: SV-10
def test_down_up_down_ends_as_the_last_order_says() -> None:
    world = started(2)
    for count in (1, 2, 1, 2, 1):
        world.scale(count)
    assert world.exit(TWO, code=0) == [Removed(TWO)]


# spec: SV-10, RP-7
def test_one_that_crashes_while_it_goes_is_gone() -> None:
    world = started(2)
    world.work(component=TWO)
    world.scale(1)
    actions = world.crash(TWO, had_job=True)
    assert Removed(TWO) in actions
    assert not any(isinstance(action, Replace) for action in actions)
    assert TWO not in world.fleet.places


# spec: SV-10, PD-1
def test_who_comes_new_into_a_paused_crew_is_paused() -> None:
    world = started()
    world.tell(PausesChanged(["tag"]))
    world.scale(2)
    assert world.fleet.places[TWO].paused


# spec: SV-10, PD-3
def test_a_crew_can_shrink_while_everything_stops() -> None:
    world = started(2)
    world.tell(StopAsked())
    assert world.scale(1)[0] == []
    assert world.exit(TWO, code=0) == [Removed(TWO)]
    world.exit(ONE, code=0)
    assert (world.fleet.all_gone(), world.fleet.next_due()) == (True, None)


# spec: SV-10, PD-3
def test_a_crew_does_not_grow_while_everything_stops() -> None:
    world = started()
    world.tell(StopAsked())
    assert world.scale(3)[0] == []
    assert world.exit(code=0) == []
    assert (world.fleet.all_gone(), world.fleet.next_due()) == (True, None)


# spec: SV-10
@pytest.mark.parametrize("crew", [None, "nobody", "*", ONE])
def test_only_a_crew_can_be_scaled(crew: str | None) -> None:
    with pytest.raises(UnknownCrew, match="there are: tag"):
        started().scale(2, crew)


# spec: SV-10
@pytest.mark.parametrize("count", [None, -1, MOST_WORKERS + 1])
def test_only_a_sensible_count_is_taken(count: int | None) -> None:
    world = started()
    with pytest.raises(ConfigurationError, match="must be 0 to"):
        world.scale(count)
    assert world.statuses == ["healthy"]
