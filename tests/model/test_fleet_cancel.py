"""A cancelled job and its worker, with a virtual clock: told, given time, replaced, and nothing charged."""

import pytest
from fleet_world import ONE, TWO, condemned, killed, pause_of, started, told

from chargehand.model.fleet.death import Death, Reason, last_outcome
from chargehand.model.fleet.lifecycle import CancelJob, Replace, Report, Spawn, Status, StopAsked
from chargehand.model.job import Interrupted, Stopped

CANCEL = 10.0


# spec: WK-8
def test_whoever_has_the_job_is_told_once() -> None:
    world = started(2)
    world.work("job-1")
    assert world.fleet.cancel(ONE, "job-1", world.now) == [CancelJob(ONE, "job-1")]
    assert world.fleet.cancel(ONE, "job-1", world.now + 5) == [], "and the time that it has is not longer for that"
    assert world.place.cancel_at == world.now + CANCEL
    assert world.fleet.places[TWO].cancel_at is None


# spec: WK-8
@pytest.mark.parametrize("when", ["idle", "another job", "starting", "condemned"])
def test_whoever_has_it_not_or_is_ending_is_told_nothing(when: str) -> None:
    world = started()
    match when:
        case "another job":
            world.work("job-2")
        case "starting":
            world.crash()
            world.until_due()
        case "condemned":
            world.work("job-1", timeout=1.0)
            world.after(1)
        case _:
            pass
    assert world.fleet.cancel(ONE, "job-1", world.now) == []
    assert world.place.cancel_at is None


# spec: WK-8
def test_a_job_that_ends_in_time_costs_nothing() -> None:
    world = started()
    world.work("job-1")
    world.fleet.cancel(ONE, "job-1", world.now)
    world.now += CANCEL - 0.01
    world.frame()
    assert world.finish() == []
    assert world.place.cancel_at is None
    world.work("job-2")
    world.now += CANCEL
    world.frame()
    assert world.tick() == [], "the next job is not meant"


# spec: WK-8
def test_a_worker_that_does_not_hear_is_replaced_at_once_and_nothing_is_charged() -> None:
    world = started()
    for life in range(2, 40):
        world.work("job-1")
        world.fleet.cancel(ONE, "job-1", world.now)
        world.now += CANCEL - 0.01
        world.frame()
        assert world.tick() == []
        assert world.after(0.01) == condemned("cancelled")
        assert world.after(0.25) == killed("cancelled")
        actions = world.exit(signal=9, had_job=True)
        assert (told(actions), pause_of(actions)) == ([Replace(ONE, "cancelled (signal 9, SIGKILL)", 0.0)], 0.0)
        assert Spawn(ONE, life) in actions
        (report,) = [action for action in actions if isinstance(action, Report)]
        assert (report.reason, report.charged) == (Reason.CANCELLED, False)
        assert (world.place.history.charged, world.place.history.streak) == ([], 0)
        assert (world.place.cancel_at, world.place.job) == (None, None)
        world.ready()


# spec: WK-8 SV-6
def test_one_in_c_code_that_says_nothing_is_replaced_too() -> None:
    world = started()
    world.work("job-1", timeout=None)
    world.fleet.cancel(ONE, "job-1", world.now)
    assert world.after(CANCEL) == condemned("cancelled")


# spec: WK-8 WK-7
def test_the_jobs_timeout_rules_if_it_comes_first() -> None:
    world = started()
    world.work("job-1", timeout=5.0)
    world.fleet.cancel(ONE, "job-1", world.now)
    assert world.after(5) == condemned("job timeout")


# spec: WK-8 WK-6
def test_a_worker_that_crashes_meanwhile_has_crashed() -> None:
    world = started()
    world.work("job-1")
    world.fleet.cancel(ONE, "job-1", world.now)
    assert pause_of(world.crash(had_job=True)) == 1.0
    assert world.place.cancel_at is None
    world.again()
    assert world.place.status is Status.HEALTHY


# spec: WK-8 SV-3
def test_a_supervisor_that_is_late_holds_nothing_against_the_worker() -> None:
    world = started()
    world.work("job-1")
    world.fleet.cancel(ONE, "job-1", world.now)
    world.now += 100
    world.frame()
    assert world.tick(late=99.0) == []
    world.frame()
    assert world.after(CANCEL - 1) == condemned("cancelled")


# spec: WK-8 PD-3
def test_a_stop_takes_the_place_of_the_cancel() -> None:
    world = started()
    world.work("job-1")
    world.fleet.cancel(ONE, "job-1", world.now)
    world.tell(StopAsked())
    assert (world.place.cancel_at, world.place.status) == (None, Status.STOPPING)


# spec: WK-8
def test_what_its_death_means_for_the_job() -> None:
    killed = Death(signal=9, had_job=True)
    outcome = last_outcome(killed, Reason.CANCELLED, "worker:tag:0 (pid 7)", asked=False, stacks="x")
    assert outcome == Stopped("the job did not end after it was cancelled, and worker:tag:0 (pid 7) was replaced")
    assert isinstance(last_outcome(killed, None, "w", asked=True), Interrupted)
