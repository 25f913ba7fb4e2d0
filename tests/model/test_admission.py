"""Who may start now, with a virtual clock: staggered, few at a time, and no more than fit into memory."""

from typing import Any

import pytest
from fleet_world import AT_ONCE, ONE, THREE, TWO, World

from chargehand.model.fleet.death import Death
from chargehand.model.fleet.lifecycle import Exited, Spawn, Status
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.place import Shortage
from chargehand.model.fleet.policy import StartPolicy, Terms
from chargehand.model.health import will_work

GIB = 2**30


def room(**bytes_: Any) -> StartPolicy:
    return StartPolicy(stagger=0.0, most_loading=1000, **bytes_)


# spec: SV-9
def test_starts_are_staggered() -> None:
    world = World(3, starts=StartPolicy(stagger=0.5))
    assert world.begun == [Spawn(ONE, 1)]
    assert world.fleet.next_due() == world.now + 0.5
    assert world.after(0.49) == []
    assert world.after(0.01) == [Spawn(TWO, 1)]
    assert world.until_due() == [Spawn(THREE, 1)]
    assert world.now == 1001.0


# spec: SV-9
def test_after_a_while_nobody_waits_for_the_stagger() -> None:
    world = World(1, starts=StartPolicy(stagger=0.5))
    world.ready()
    world.now += 10
    assert world.scale(2)[0] == [Spawn(TWO, 1)]


# spec: SV-9
def test_few_load_at_the_same_time_and_whoever_is_ready_lets_another_in() -> None:
    world = World(4, starts=StartPolicy(stagger=0.0, most_loading=2))
    assert world.begun == [Spawn(ONE, 1), Spawn(TWO, 1)]
    assert world.statuses == ["starting", "starting", "stopped", "stopped"]
    assert world.fleet.places[THREE].in_line
    world.frame("starting")
    assert world.frame("healthy") == [Spawn(THREE, 1)]
    assert world.crash(TWO)[-1] == Spawn("worker:tag:3", 1)
    assert world.statuses == ["healthy", "crashed", "starting", "starting"]


# spec: SV-9
def test_who_waits_in_line_makes_nobody_spin() -> None:
    world = World(3, starts=StartPolicy(stagger=0.0, most_loading=1))
    due = world.fleet.next_due()
    assert due is not None
    assert due > world.now


# spec: SV-9
def test_one_that_comes_up_paused_has_loaded_too() -> None:
    world = World(2, starts=StartPolicy(stagger=0.0, most_loading=1))
    assert world.frame("paused") == [Spawn(TWO, 1)]


# spec: SV-9, SV-10
def test_one_that_is_stopped_while_it_loads_makes_room_when_it_is_gone() -> None:
    world = World(2, starts=StartPolicy(stagger=0.0, most_loading=1))
    world.order(Verb.STOP)
    assert world.exit(code=0) == [Spawn(TWO, 1)]


# spec: SV-9, SV-10
def test_who_is_stopped_in_the_line_leaves_it() -> None:
    world = World(3, starts=StartPolicy(stagger=0.0, most_loading=1))
    assert world.order(Verb.STOP, TWO) == ([], ["is stopped"])
    assert world.frame("healthy") == [Spawn(THREE, 1)]
    assert world.order(Verb.START, TWO) == ([], ["starts"])
    assert world.frame("healthy", THREE) == [Spawn(TWO, 1)]


# spec: SV-9, RP-1
def test_restarts_stand_in_the_same_line() -> None:
    world = World(3, starts=StartPolicy(stagger=0.0, most_loading=2))
    world.ready(ONE, TWO)
    world.ready(THREE)
    world.exit(ONE, signal=11, had_job=True)
    world.exit(TWO, signal=11, had_job=True)
    world.exit(THREE, signal=11, had_job=True)
    assert world.after(1.0) == [Spawn(ONE, 2), Spawn(TWO, 2)]
    assert world.frame("healthy") == [Spawn(THREE, 2)]


# memory


# spec: SV-9
@pytest.mark.parametrize(("what", "name"), [("memory", "memory"), ("gpu_memory", "GPU memory")])
def test_no_more_are_started_than_fit_and_the_state_says_why(what: str, name: str) -> None:
    terms: dict[str, Any] = {what: 4 * GIB}
    world = World(3, starts=room(**{what: 10 * GIB}), **terms)
    assert world.begun == [Spawn(ONE, 1), Spawn(TWO, 1)]
    place = world.fleet.places[THREE]
    assert place.shortage is Shortage.TEMPORARY
    assert place.text == f"waits for {name}: needs 4.0 GiB; 2.0 GiB of 10.0 GiB are free"
    world.ready(ONE, TWO)
    world.order(Verb.STOP)
    assert world.statuses[2] == "stopped", "what stops still has its memory"
    assert world.exit(code=0) == [Spawn(THREE, 1)]
    world.ready(THREE)
    assert (place.shortage, place.text) == (None, None)


# spec: SV-9
def test_exactly_as_much_as_there_is_fits() -> None:
    assert len(World(3, starts=room(memory=8), memory=4).begun) == 2
    assert len(World(3, starts=room(memory=12), memory=4).begun) == 3


# spec: SV-9
def test_who_needs_more_than_there_is_waits_for_ever_and_stops_nobody() -> None:
    crews = {"huge": Terms(memory=100), "tag": Terms(workers=2, memory=4)}
    world = World(crews=crews, starts=room(memory=10))
    assert world.begun == [Spawn(ONE, 1), Spawn(TWO, 1)]
    world.ready(ONE, TWO)
    assert world.statuses == ["stopped", "healthy", "healthy"]
    place = world.fleet.places["worker:huge:0"]
    assert place.shortage is Shortage.PERMANENT
    assert place.text == "needs 100.0 B of memory; the limit is 10.0 B"
    assert not will_work(world.fleet.places["worker:huge:0"])


# spec: SV-9
def test_who_declares_nothing_is_let_in() -> None:
    crews = {"tag": Terms(workers=2, memory=10), "light": Terms(workers=2)}
    world = World(crews=crews, starts=room(memory=10))
    assert world.begun == [Spawn(ONE, 1), Spawn("worker:light:0", 1), Spawn("worker:light:1", 1)]


# spec: SV-9
def test_without_a_known_total_everybody_is_let_in() -> None:
    assert len(World(3, starts=AT_ONCE, memory=2**60).begun) == 3


# spec: SV-9
def test_both_kinds_must_fit() -> None:
    crews = {"tag": Terms(workers=3, memory=1, gpu_memory=5)}
    assert len(World(crews=crews, starts=room(memory=100, gpu_memory=10)).begun) == 2
    assert len(World(crews=crews, starts=room(memory=1, gpu_memory=100)).begun) == 1


# spec: SV-9, RP-2
def test_the_memory_of_one_that_was_given_up_is_free() -> None:
    world = World(2, starts=room(memory=5), memory=5)
    world.ready()
    actions = world.tell(Exited(component=ONE, death=Death(exit_code=2, said="x"), crew_done=0))
    assert actions[-1] == Spawn(TWO, 1)
    assert world.place.status is Status.FAILED
