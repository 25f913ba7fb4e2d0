"""What a worker's past means for a new node, and how it is forgotten; with a virtual clock."""

from fleet_world import ONE, TWO, World

from chargehand.model.fleet.lifecycle import GivenUp, Spawn, Status
from chargehand.model.fleet.orders import Verb, scale
from chargehand.model.fleet.policy import Budget, History, RestartPolicy, budget

POLICY = RestartPolicy()


def after(crashes: int, *, now: float = 1000.0) -> World:
    """A node that starts after so many crashes in the last seconds of the one before."""
    world = World(begin=False, now=now)
    past = History([now - n for n in range(crashes, 0, -1)], crashes, restarts=crashes)
    world.begun = world.fleet.begin(now, None, {ONE: (past, crashes + 10)})
    return world


# spec: RP-9
def test_a_new_node_gives_no_new_budget() -> None:
    world = after(5)
    world.ready()
    assert budget(POLICY, world.place.history, world.place.ready_at, world.now) == Budget(0, 15)
    assert GivenUp(ONE, "6 crashes within 300 s; the last: crash (signal 11, SIGSEGV)") in world.crash()


# spec: RP-9
def test_a_new_node_does_not_serve_a_backoff_of_the_old_but_the_next_is_longer() -> None:
    world = after(3)
    assert world.begun == [Spawn(ONE, 1)]
    assert (world.place.history.restarts, world.place.restarts_total) == (3, 13)
    world.ready()
    world.crash()
    assert world.place.start_at == world.now + 8


# spec: RP-9
def test_the_restart_count_falls_after_five_healthy_minutes_and_the_total_does_not() -> None:
    world = after(2)
    world.ready()
    world.fleet.unsaved()
    world.beat(295)
    assert (world.place.history.restarts, world.fleet.unsaved()) == (2, set())
    world.beat(5)
    assert (world.place.history.restarts, world.place.history.streak, world.fleet.unsaved()) == (0, 0, {ONE})
    assert (len(world.place.history.charged), world.place.restarts_total) == (2, 12)
    world.beat(6 * 3600 - 300)
    assert (world.place.history.charged, world.fleet.unsaved()) == ([], {ONE})
    world.beat(600)
    assert world.fleet.unsaved() == set()  # there is nothing left to forget


# spec: RP-9
def test_a_crash_and_a_restart_are_to_be_kept() -> None:
    world = World()
    world.ready()
    assert world.fleet.unsaved() == set()
    world.crash()
    assert (world.fleet.unsaved(), world.fleet.unsaved()) == ({ONE}, set())
    world.after(1.0)
    assert world.fleet.unsaved() == {ONE}
    assert (world.place.history.restarts, world.place.restarts_total) == (1, 1)


# spec: RP-9 RP-6
def test_a_restart_by_a_person_clears_the_count_and_not_the_budget() -> None:
    world = after(2)
    world.ready()
    world.fleet.unsaved()
    world.order(Verb.RESTART)
    assert (world.place.history.restarts, len(world.place.history.charged)) == (0, 2)
    assert world.fleet.unsaved() == {ONE}


# spec: RP-9
def test_a_person_who_restarts_a_crashed_worker_is_not_counted_as_a_restart() -> None:
    for verb in (Verb.RESTART, Verb.RESET):
        world = after(2)
        world.ready()
        world.crash()
        assert world.order(verb)[0] == [Spawn(ONE, 2)]
        assert (world.place.status, world.place.history.restarts) == (Status.STARTING, 0)
        assert world.place.restarts_total == 12


# spec: RP-9 RP-6
def test_reset_clears_the_past_in_the_store_too() -> None:
    world = after(5)
    world.ready()
    world.fleet.unsaved()
    world.order(Verb.RESET)
    assert (world.place.history, world.fleet.unsaved()) == (History(), {ONE})


# spec: RP-9
def test_a_worker_that_a_person_adds_again_has_no_past_but_its_total() -> None:
    world = World(2, begin=False)
    world.fleet.begin(world.now, None, {TWO: (History([999.0], 1), 4)})
    for count in (1, 2):
        scale(world.fleet, "tag", count, world.now)
        if count == 1:
            world.exit(TWO, code=0)
    place = world.fleet.places[TWO]
    assert (place.history, place.restarts_total) == (History(), 4)
    assert TWO in world.fleet.unsaved()
