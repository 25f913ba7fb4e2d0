"""A worker with several jobs in hand, as the fleet sees it: busy until the last of them has ended."""

from fleet_world import ONE, World, condemned, started

from chargehand.model.fleet.lifecycle import Ask, CancelJob
from chargehand.model.fleet.orders import Verb

CANCEL = 10.0


def busy(timeout: float | None = 3600.0, **terms: int) -> World:
    """One worker with job-1, job-2 and job-3."""
    world = started(**terms)
    world.fleet.began(ONE, "job-1", timeout, world.now, ["job-2", "job-3"])
    return world


def cancel(world: World, job: str) -> object:
    return world.fleet.cancel(ONE, job, world.now)


def later(world: World, seconds: float) -> object:
    """So much later; it beats."""
    world.now += seconds
    world.frame()
    return world.tick()


def test_it_is_busy_until_the_last_has_ended() -> None:  # spec: WP-9
    world = busy(recycle_jobs=2)
    world.fleet.one_ended(ONE, "job-1", world.now)
    assert world.place.job in ("job-2", "job-3")
    world.fleet.one_ended(ONE, "job-3", world.now)
    assert (world.place.job, world.place.jobs, world.place.others) == ("job-2", 2, set())
    assert later(world, 1) == [], "recycled between jobs only"
    assert world.finish() == [Ask(ONE)]
    assert world.place.jobs == 3


def test_people_are_told_how_many_it_has() -> None:  # spec: SV-10
    world = busy()
    assert world.order(Verb.DRAIN)[1] == ["finishes job-1 and 2 more, then stops"]


def test_the_whole_batch_has_one_timeout() -> None:  # spec: WK-7
    world = busy(5.0)
    world.now += 4.9
    world.fleet.one_ended(ONE, "job-1", world.now)
    assert later(world, 0.1) == condemned("job timeout")


def test_each_cancelled_job_is_told_of_once() -> None:  # spec: WK-8
    world = busy()
    assert cancel(world, "job-2") == [CancelJob(ONE, "job-2")]
    assert cancel(world, "job-1") == [CancelJob(ONE, "job-1")]
    assert [cancel(world, job) for job in ("job-1", "job-2", "nobody")] == [[], [], []]
    assert world.place.recalled == {"job-1", "job-2"}


def test_a_cancelled_job_that_ends_spares_its_worker() -> None:  # spec: WK-8
    world = busy()
    cancel(world, "job-2")
    world.fleet.one_ended(ONE, "job-2", world.now)
    assert later(world, 2 * CANCEL) == []
    assert world.place.recalled == set()


def test_the_end_of_another_job_does_not_spare_it() -> None:  # spec: WK-8
    world = busy()
    cancel(world, "job-2")
    world.fleet.one_ended(ONE, "job-1", world.now)
    assert later(world, CANCEL) == condemned("cancelled")
    assert world.place.recalled == {"job-2"}, "who is meant is still known when it is buried"


def test_one_cancelled_later_has_its_own_time() -> None:  # spec: WK-8
    world = busy()
    cancel(world, "job-2")
    assert later(world, CANCEL - 1) == []
    cancel(world, "job-3")
    world.fleet.one_ended(ONE, "job-2", world.now)
    assert later(world, CANCEL - 1) == []
    assert later(world, 1) == condemned("cancelled")


def test_nothing_of_a_batch_outlives_its_worker() -> None:  # spec: WK-8
    world = busy()
    cancel(world, "job-2")
    world.crash(had_job=True)
    world.again()
    assert (world.place.job, world.place.others, world.place.recalled) == (None, set(), set())
    assert cancel(world, "job-3") == []
    world.work("job-4")
    assert later(world, CANCEL) == []
