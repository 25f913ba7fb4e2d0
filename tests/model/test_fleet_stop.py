"""Stopping, with a virtual clock: everything at once, in every status, and SIGTERMs that somebody sent."""

import pytest
from fleet_world import ONE, World, killed, pause_of, started, told, used

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import (
    Ask,
    Examined,
    NotStarted,
    Removed,
    Replace,
    Report,
    Spawn,
    Status,
    StopAsked,
    Terminate,
)
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import StartPolicy

# everything


# spec: PD-3
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_stop_asks_then_terminates_then_kills(status: str) -> None:
    world = World()
    world.frame(status)
    assert world.tell(StopAsked()) == [Ask(ONE)]
    assert world.place.status is Status.STOPPING
    assert world.after(9.99) == []
    assert world.after(0.01) == [Terminate(ONE)]
    assert world.after(1.99) == []
    assert world.after(0.01) == killed("stopped")
    assert world.after(2) == killed("stopped")
    assert world.exit(signal=9) == []
    assert (world.place.status, world.place.reason) == (Status.STOPPED, Reason.STOPPED)
    assert world.fleet.all_gone()
    assert world.fleet.next_due() is None


# spec: WP-7, PD-3
def test_one_that_does_not_die_of_a_kill_is_shown_as_unkillable() -> None:
    world = started()
    world.tell(StopAsked())
    for seconds in (10, 2, 2):
        world.after(seconds)
    assert world.place.text is not None
    assert world.place.text.startswith("unkillable")
    for _ in range(50):
        assert world.after(2) == killed("stopped"), "it is tried on, at leisure"


# spec: PD-3
def test_all_workers_are_stopped_at_the_same_time() -> None:
    world = World(20)
    names = list(world.fleet.places)
    assert world.tell(StopAsked()) == [Ask(name) for name in names]
    assert world.after(10) == [Terminate(name) for name in names]
    assert world.after(2) == [action for name in names for action in killed("stopped", name)]


# spec: PD-3, SV-10
def test_stopping_twice_is_stopping_once() -> None:
    world = started()
    world.tell(StopAsked())
    world.now += 5
    assert world.tell(StopAsked()) == []
    assert world.after(5) == [Terminate(ONE)]


# spec: WP-6, RP-7
@pytest.mark.parametrize(("code", "signal"), [(0, None), (1, None), (2, None), (None, 15), (None, 9)])
def test_a_worker_that_ends_when_asked_is_stopped_and_not_charged(code: int | None, signal: int | None) -> None:
    world = started()
    world.tell(StopAsked())
    assert world.exit(code=code, signal=signal, had_job=True) == []
    assert world.place.status is Status.STOPPED
    assert world.place.history.charged == []
    assert world.after(1e9) == []


# spec: PD-3
def test_a_stop_cancels_a_planned_restart() -> None:
    world = started()
    world.crash()
    assert world.tell(StopAsked()) == []
    assert world.place.status is Status.STOPPED
    assert world.fleet.all_gone()
    assert world.after(1e9) == []


# spec: PD-3
def test_a_stop_before_the_beginning_starts_nothing() -> None:
    world = World(begin=False)
    assert world.tell(StopAsked()) == []
    assert world.fleet.begin(world.now) == []
    assert world.after(10) == []
    assert world.fleet.all_gone()


# spec: PD-3, SV-9
def test_a_stop_while_others_wait_in_line_starts_none_of_them() -> None:
    world = World(3, starts=StartPolicy(most_loading=1))
    assert world.tell(StopAsked()) == [Ask(ONE)]
    assert world.statuses == ["stopping", "stopped", "stopped"]
    assert world.exit(code=0) == []
    assert world.fleet.next_due() is None
    assert world.after(1e6) == []


# spec: PD-3
def test_a_process_that_could_not_be_made_while_stopping_is_not_tried_again() -> None:
    world = World()
    world.tell(StopAsked())
    (report,) = world.tell(NotStarted(ONE, "no room"))
    assert isinstance(report, Report)
    assert world.fleet.all_gone()
    assert world.place.status is Status.STOPPED


# spec: PD-3, PD-2
def test_a_stop_overtakes_a_drain() -> None:
    world = started()
    world.work()
    world.order(Verb.DRAIN)
    assert world.place.status is Status.HEALTHY
    assert world.tell(StopAsked()) == [Ask(ONE)]
    assert world.exit(signal=9, had_job=True) == []
    assert world.place.status is Status.STOPPED


# spec: PD-3, SV-10
@pytest.mark.parametrize("verb", [Verb.RESTART, Verb.START])
def test_a_stop_overtakes_a_restart(verb: Verb) -> None:
    world = started()
    world.order(Verb.STOP)
    world.order(verb)
    assert world.tell(StopAsked()) == []
    assert world.exit(code=0) == []
    assert world.place.status is Status.STOPPED
    assert world.fleet.next_due() is None


# spec: PD-3, WP-9, WP-3
def test_a_stop_overtakes_recycling_and_sleep() -> None:
    world = started(recycle_jobs=1)
    world.work()
    world.finish()
    assert world.tell(StopAsked()) == []
    assert world.exit(code=0) == []
    assert world.place.status is Status.STOPPED


# spec: PD-3, SV-10
def test_a_place_that_was_to_go_goes_also_while_everything_stops() -> None:
    world = started(2)
    world.work(component="worker:tag:1")
    world.scale(1)
    assert world.tell(StopAsked()) == [Ask(ONE), Ask("worker:tag:1")]
    assert world.exit("worker:tag:1", code=0) == [Removed("worker:tag:1")]
    assert world.exit(code=0) == []
    assert list(world.fleet.places) == [ONE]
    assert world.fleet.all_gone()


# spec: PD-3, RP-6
def test_a_stop_leaves_the_failed_failed() -> None:
    world = started()
    world.give_up()
    assert world.tell(StopAsked()) == []
    assert (world.statuses, world.fleet.next_due()) == (["failed"], None)


# spec: PD-3, SV-6
def test_a_stop_while_a_hung_worker_is_being_killed_ends_stopped() -> None:
    world = started()
    for _ in range(2):
        world.until_due()
        world.tell(Examined(ONE, used(1.0)))
    assert world.tell(StopAsked()) == []
    assert world.after(0.25) == killed("heartbeat timeout")
    assert told(world.exit(signal=9)) == []
    assert (world.place.status, world.place.reason) == (Status.STOPPED, Reason.HEARTBEAT_TIMEOUT)


# spec: WP-6
def test_frames_of_a_stopping_worker_change_nothing() -> None:
    world = started()
    world.tell(StopAsked())
    for status in ("healthy", "paused", "stopping", "starting", "nonsense"):
        assert world.frame(status) == []
        assert world.place.status is Status.STOPPING
    assert world.after(10) == [Terminate(ONE)]


# spec: WP-6
def test_a_job_that_ends_within_the_grace_brings_no_other() -> None:
    world = started()
    world.work()
    world.tell(StopAsked())
    assert not world.fleet.ended(ONE, world.now)
    assert world.fleet.let_go(ONE, world.now) == []


# a SIGTERM by somebody


# spec: WP-6
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_sigterm_by_somebody_is_asked_then_exited_and_replaced(status: str) -> None:
    world = World()
    world.frame(status)
    assert world.frame("stopping") == [Ask(ONE)]
    assert world.place.status is Status.STOPPING
    assert told(world.exit(code=0)) == [Replace(ONE, "exited (exit code 0)", 1.0)]
    assert world.after(1.0) == [Spawn(ONE, 2)]
    world.frame("healthy")
    assert world.place.status is Status.HEALTHY


# spec: WP-6
def test_a_worker_that_said_it_stops_and_does_not_is_pressed() -> None:
    world = started()
    world.frame("stopping")
    assert world.after(10) == [Terminate(ONE)]
    assert world.after(2) == killed("exited")
    assert pause_of(world.exit(signal=9)) == 1


# spec: WP-6, PD-3
def test_a_stop_that_follows_a_sigterm_by_somebody_replaces_nothing() -> None:
    world = started()
    world.frame("stopping")
    assert world.tell(StopAsked()) == []
    assert told(world.exit(code=0)) == []
    assert world.place.status is Status.STOPPED
    assert world.after(1e9) == []


# spec: WP-6
def test_a_new_life_has_forgotten_the_stop_of_the_old_one() -> None:
    world = started()
    world.frame("stopping")
    world.after(10)
    world.exit(code=0)
    world.again()
    assert (world.place.verdict, world.place.stage, world.place.life) == (None, 0, 2)
    assert told(world.crash()) == [Replace(ONE, "crash (signal 11, SIGSEGV)", 2.0)]
