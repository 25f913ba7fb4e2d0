"""Who may start now, with a virtual clock: staggered, few at a time, and no more than fit into memory."""

from typing import Any

import pytest
from fleet_world import AT_ONCE, ONE, THREE, TWO, World

from chargehand.model.fleet.death import Death, Reason
from chargehand.model.fleet.lifecycle import Action, Exited, Spawn, Status, WorkWaits
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


# Making room: a worker that can be started again with its next job exits for one that waits for its memory.

READ, SORT = "worker:read:0", "worker:sort:0"


def sharing(idle_exit: float | None = 60.0, gib: int = 3) -> World:
    """Two crews, of whose workers only one fits at a time; that of `read` runs, and that of `sort` waits."""
    crews = {name: Terms(memory=gib * GIB, idle_exit=idle_exit) for name in ("read", "sort")}
    world = World(crews=crews, starts=room(memory=4 * GIB))
    assert world.begun == [Spawn(READ, 1)]
    world.ready(READ)
    assert world.fleet.places[SORT].shortage is Shortage.TEMPORARY
    return world


# spec: SV-9
def test_an_idle_worker_exits_soon_for_one_that_waits_for_its_memory() -> None:
    world = sharing()
    assert world.fleet.next_due() == world.now + 1.0, "it stays long enough to receive the job it was started for"
    assert world.until_due()
    assert world.fleet.places[READ].resting
    assert world.exit(READ, code=0) == [Spawn(SORT, 1)]
    assert world.fleet.places[READ].status is Status.ASLEEP


# spec: SV-9
def test_two_crews_take_turns_in_the_memory_for_one() -> None:
    world = sharing()
    for first, second, crew in ((READ, SORT, "read"), (SORT, READ, "sort")) * 3:
        world.until_due()
        assert [type(action) for action in world.exit(first, code=0)] == [Spawn]
        world.ready(second)
        world.tell(WorkWaits(crew, 1))  # a job for the one that has just made room
        assert world.fleet.places[first].in_line
        world.fleet.began(second, "job", None, world.now)
        assert world.after(5) == [], "a worker with a job is left alone"
        world.fleet.ended(second, world.now)
        world.fleet.let_go(second, world.now)
        assert world.fleet.next_due() == world.now + 1.0


# spec: SV-9
def test_a_worker_that_is_always_busy_gives_way_between_two_jobs() -> None:
    world = sharing()
    world.fleet.began(READ, "first", 3600.0, world.now)
    world.beat(25, component=READ)
    assert world.fleet.ended(READ, world.now), "it may receive another job"
    world.fleet.began(READ, "second", 3600.0, world.now)
    world.beat(10, component=READ)
    assert world.fleet.places[READ].job == "second", "its job is not interrupted"
    assert not world.fleet.ended(READ, world.now)
    assert world.fleet.let_go(READ, world.now)
    assert world.exit(READ, code=0) == [Spawn(SORT, 1)]
    assert (world.fleet.places[READ].reason, world.fleet.places[READ].in_line) == (Reason.GAVE_WAY, True)
    assert world.fleet.places[READ].history.restarts == 0


# spec: SV-9
def test_what_becomes_free_is_kept_for_a_large_worker_that_has_waited_for_long() -> None:
    small = {name: Terms(memory=2 * GIB, idle_exit=60.0) for name in ("a", "b")}
    world = World(crews={**small, "large": Terms(memory=4 * GIB, idle_exit=60.0)}, starts=room(memory=4 * GIB))
    for crew in small:
        world.ready(f"worker:{crew}:0")
        world.fleet.began(f"worker:{crew}:0", crew, 3600.0, world.now)
    world.beat(35, component="worker:a:0")
    gone = [place for place in world.fleet.places.values() if place.why_leave is Reason.GAVE_WAY]
    assert len(gone) == 1, "one at a time"
    started: list[Action] = []
    for place in (gone[0], *(world.fleet.places[f"worker:{crew}:0"] for crew in small if crew != gone[0].crew)):
        world.beat(5, component=place.component)
        assert not world.fleet.ended(place.component, world.now)
        world.fleet.let_go(place.component, world.now)
        started = world.exit(place.component, code=0)
    assert started == [Spawn("worker:large:0", 1)]


# spec: SV-9
def test_a_worker_that_cannot_be_started_by_a_job_keeps_its_memory() -> None:
    world = sharing(idle_exit=None)
    world.beat(120, component=READ)
    assert world.fleet.places[READ].status is Status.HEALTHY
    assert world.fleet.places[SORT].shortage is Shortage.TEMPORARY
