"""A worker that performs several jobs at the same time, as the fleet sees it: each job has its own deadlines."""

import pytest
from fleet_world import ONE, World, condemned, started

from chargehand.model.fleet.lifecycle import Ask, CancelJob, ExpireJob

CANCEL, LAG = 10.0, 3.0


def busy(*timeouts: float | None, **terms: int) -> World:
    """One worker with job-1, job-2 and so on, each with its own timeout."""
    world = started(concurrency=100, **terms)
    for number, timeout in enumerate(timeouts, 1):
        world.fleet.began(ONE, f"job-{number}", timeout, world.now)
    return world


def later(world: World, seconds: float) -> object:
    """So much later; its loop runs."""
    world.now += seconds
    world.frame()
    return world.tick()


def test_a_job_that_has_had_its_time_is_told_first() -> None:  # spec: WP-15 WK-7
    world = busy(60.0, 5.0)
    assert later(world, 4.9) == []
    assert later(world, 0.1) == [ExpireJob(ONE, "job-2")]
    assert later(world, CANCEL - 0.1) == []
    assert world.fleet.slot_ended(ONE, "job-2", world.now)
    assert later(world, 1) == [], "it has ended, and the worker goes on"
    assert (world.place.job, world.place.jobs) == ("job-1", 1)


def test_a_job_that_does_not_end_has_its_worker_replaced_and_is_the_only_one_to_blame() -> None:  # spec: WP-15 WK-7
    world = busy(60.0, 5.0)
    later(world, 5.0)
    assert later(world, CANCEL) == condemned("job timeout")
    assert world.place.blamed == {"job-2"}


@pytest.mark.parametrize("frames", [True, False], ids=["the loop is blocked", "C code holds the interpreter"])
def test_if_a_blocked_loop_makes_several_late_any_of_them_may_be_to_blame(frames: bool) -> None:  # spec: WP-15 WK-7
    world = busy(60.0, 5.0, 5.0)
    for _ in range(15):
        assert world.tick() in ([], [ExpireJob(ONE, "job-2"), ExpireJob(ONE, "job-3")])
        world.now += 1.0
        if frames:
            world.frame(turns=7)
    assert world.tick() == condemned("job timeout")
    assert world.place.blamed is None, "all of them are performed alone, until the guilty one is known"


def test_late_jobs_that_do_not_end_are_to_blame_if_the_loop_runs() -> None:  # spec: WP-15 WK-7
    world = busy(60.0, 5.0, 5.0)
    later(world, 5.0)
    assert later(world, CANCEL) == condemned("job timeout")
    assert world.place.blamed == {"job-2", "job-3"}


def test_each_cancelled_job_has_its_own_grace() -> None:  # spec: WP-15 WK-8
    world = busy(3600.0, 3600.0)
    assert world.fleet.cancel(ONE, "job-1", world.now) == [CancelJob(ONE, "job-1")]
    later(world, 6)
    assert world.fleet.cancel(ONE, "job-2", world.now) == [CancelJob(ONE, "job-2")]
    world.fleet.slot_ended(ONE, "job-1", world.now)
    assert later(world, CANCEL - 0.1) == []
    assert later(world, 0.1) == condemned("cancelled")
    assert world.place.blamed == {"job-2"}


def test_a_cancelled_job_is_not_told_of_its_timeout_as_well() -> None:  # spec: WK-8
    world = busy(5.0)
    world.fleet.cancel(ONE, "job-1", world.now)
    assert later(world, 6) == []


def test_a_delay_of_the_node_is_not_held_against_them() -> None:  # spec: SV-3
    world = busy(5.0)
    world.now += 8.0
    assert world.tick(late=6.0) == []


def test_a_blocked_loop_is_flagged_and_not_killed() -> None:  # spec: WP-15 SV-6
    world = busy(3600.0, 3600.0)
    for _ in range(5):
        world.now += 1.0
        world.frame(turns=7)
    assert world.place.flags == ("stalled",)
    world.fleet.began(ONE, "job-3", 60.0, world.now)
    assert world.place.flags == ("stalled",), "that it is handed a job is no sign of its loop"
    world.frame()
    assert world.place.flags == ()


def test_it_is_recycled_with_an_empty_hand() -> None:  # spec: WP-9
    world = busy(60.0, 60.0, recycle_jobs=1)
    assert not world.fleet.slot_ended(ONE, "job-1", world.now), "it gets no more"
    assert later(world, 1) == []
    world.fleet.slot_ended(ONE, "job-2", world.now)
    assert world.fleet.let_go(ONE, world.now) == [Ask(ONE)]
