"""Tests for the drain of a node: when it is drained, and what ends the drain."""

from fleet_world import ONE, TWO, World

from chargehand.model.drain import Drain, DrainState
from chargehand.model.fleet.orders import Verb


def is_drained(drain: Drain, world: World, *, settled: bool = True) -> bool:
    return drain.check(world.fleet.places.values(), settled=settled)


# spec: MN-1, PD-2
def test_a_node_is_drained_when_its_last_worker_is_gone_and_every_outcome_is_written() -> None:
    world, drain = World(2), Drain()
    world.ready(ONE, TWO)
    world.work(component=ONE)
    world.order(Verb.DRAIN, None)
    drain.order(end=False)
    assert (drain.state, is_drained(drain, world)) == (DrainState.DRAINING, False)
    world.exit(TWO, code=0)
    assert not is_drained(drain, world), "the first has a job"
    world.finish(ONE)
    world.exit(ONE, code=0)
    assert not is_drained(drain, world, settled=False), "the outcome is not written"
    assert is_drained(drain, world)
    assert (drain.state, is_drained(drain, world)) == (DrainState.DRAINED, False), "reported once"


# spec: MN-1
def test_a_worker_that_crashes_is_not_started_again_by_a_node_that_drains() -> None:
    world, drain = World(), Drain()
    world.ready(ONE)
    world.work()
    world.order(Verb.DRAIN, None)
    drain.order(end=False)
    world.crash(ONE)
    assert is_drained(drain, world)


# spec: MN-1
def test_a_drained_node_can_be_asked_to_end_later_and_goes_on_if_workers_are_started() -> None:
    world, drain = World(0), Drain()
    drain.order(end=False)
    assert (is_drained(drain, world), drain.ends) == (True, False)
    drain.order(end=False)
    assert not is_drained(drain, world), "nothing new"
    drain.order(end=True)
    assert (is_drained(drain, world), drain.ends) == (True, True)
    drain.order(end=False)
    assert (is_drained(drain, world), drain.ends) == (False, True), "the end was ordered"
    drain.lift()
    assert (drain.state, drain.ends, is_drained(drain, world)) == (None, False, False)
