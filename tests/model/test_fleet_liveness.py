"""Alive, busy or hung, with a virtual clock: silence and CPU time, broken frames, and a supervisor that is late."""

import pytest
from fleet_world import ONE, World, condemned, killed, started, told, used

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import (
    Broken,
    Examine,
    Examined,
    Framed,
    Replace,
    Spawn,
    Status,
    StopAsked,
    Terminate,
)

# silence


# spec: SV-6
def test_silence_without_cpu_for_30_s_is_hung_and_killed_once_it_said_where_it_stands() -> None:
    world = started()
    assert world.after(14.9) == []
    assert world.after(0.1) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(3.5))) == []
    assert world.after(14.9) == []
    assert world.after(0.1) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(3.5))) == condemned("heartbeat timeout")
    assert world.after(0.25) == killed("heartbeat timeout")
    assert told(world.exit(signal=9)) == [Replace(ONE, "heartbeat timeout (signal 9, SIGKILL)", 1.0)]
    assert (world.place.reason, world.place.signal) == (Reason.HEARTBEAT_TIMEOUT, 9)


# spec: SV-6
def test_silent_but_burning_cpu_is_flagged_and_never_killed() -> None:
    world = started()
    for cpu in range(500):
        assert world.until_due() == [Examine(ONE)]
        assert world.tell(Examined(ONE, used(float(cpu)))) == []
        assert world.place.flags == (("unresponsive",) if cpu else ())
    assert world.place.status is Status.HEALTHY


# spec: SV-6, SV-4
def test_a_frame_takes_the_flag_away() -> None:
    world = started()
    for cpu in (1.0, 2.0):
        world.until_due()
        world.tell(Examined(ONE, used(cpu)))
    assert world.place.flags == ("unresponsive",)
    world.frame()
    assert world.place.flags == ()


# spec: SV-6, SV-4
def test_death_takes_the_flag_away() -> None:
    world = started()
    for cpu in (1.0, 2.0):
        world.until_due()
        world.tell(Examined(ONE, used(cpu)))
    world.crash()
    assert world.place.flags == ()


# spec: SV-6, WK-7
def test_of_one_that_is_silent_and_busy_the_jobs_timeout_rules() -> None:
    world = started()
    world.work(timeout=100.0)
    cpu = 0.0
    while (actions := world.until_due()) == [Examine(ONE)]:
        cpu += 1
        assert world.tell(Examined(ONE, used(cpu))) == []
    assert (world.now, actions) == (1100.0, condemned("job timeout"))


# spec: SV-6
def test_silent_and_burning_that_then_stands_still_is_hung() -> None:
    world = started()
    for cpu in (1.0, 2.0, 3.0):
        world.until_due()
        assert world.tell(Examined(ONE, used(cpu))) == []
    world.until_due()
    assert world.tell(Examined(ONE, used(3.0))) == condemned("heartbeat timeout")


# spec: SV-6
def test_a_silent_worker_whose_output_is_not_read_yet_is_not_hung() -> None:
    """C code that holds the interpreter may wait until there is room in the pipe."""
    world = started()
    for _ in range(5):
        assert world.until_due() == [Examine(ONE)]
        assert world.tell(Examined(ONE, used(3.0), behind=True)) == []
    world.until_due()
    assert world.tell(Examined(ONE, used(3.0))) == condemned("heartbeat timeout")


# spec: SV-6
@pytest.mark.parametrize("status", ["healthy", "paused", "starting"])
def test_a_frame_ends_the_silence(status: str) -> None:
    world = World()
    world.frame(status)
    assert world.after(15) == [Examine(ONE)]
    world.tell(Examined(ONE, used(3.5)))
    world.now += 14
    world.frame(status)
    assert world.after(14) == []
    assert world.after(1) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(3.5))) == []


# spec: SV-6
def test_a_worker_that_beats_is_never_looked_at() -> None:
    world = started()
    assert world.beat(50_000) == []


# spec: SV-6
def test_a_frame_that_comes_while_the_reading_is_under_way_saves_the_worker() -> None:
    world = started()
    world.until_due()
    world.tell(Examined(ONE, used(3.5)))
    assert world.until_due() == [Examine(ONE)]
    world.frame()
    assert world.tell(Examined(ONE, used(3.5))) == []


# spec: SV-6
def test_a_hung_worker_is_killed_again_until_it_is_gone() -> None:
    world = started()
    for _ in range(2):
        world.until_due()
        world.tell(Examined(ONE, used(3.5)))
    for _ in range(4):
        assert world.until_due() == killed("heartbeat timeout")
        assert world.frame("healthy") == []
        assert world.tell(Examined(ONE, used(3.5))) == []
    assert world.place.status is Status.HEALTHY


# spec: SV-2, SV-3
def test_a_reading_of_a_process_that_is_gone_does_not_make_the_loop_spin() -> None:
    """It is dead, but something that it started is not yet: the supervisor waits for that, and must not burn a core."""
    world = started()
    for _ in range(4):
        assert world.until_due() == [Examine(ONE)]
        assert world.tell(Examined(ONE, None)) == []
        due = world.fleet.next_due()
        assert due is None or due > world.now


# spec: SV-5, SV-6
def test_silence_while_loading_is_examined_too() -> None:
    world = World()
    world.frame("starting")
    assert world.after(15) == [Examine(ONE)]
    world.tell(Examined(ONE, used(1.0)))
    assert world.after(15) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(1.0))) == condemned("heartbeat timeout")


# spec: SV-5, SV-6
def test_silent_and_busy_while_loading_ends_with_the_time_for_loading() -> None:
    world = World()
    world.frame("starting")
    cpu = 0.0
    while (actions := world.until_due()) == [Examine(ONE)]:
        cpu += 1
        assert world.tell(Examined(ONE, used(cpu))) == []
    assert actions == condemned("start timeout")
    assert 1300 <= world.now <= 1315


# spec: SV-8
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_worker_that_cannot_be_trusted_is_killed_at_once_and_replaced(status: str) -> None:
    world = World()
    world.frame(status)
    assert world.tell(Broken(ONE))[-1:] == killed("bad frame")
    assert world.tell(Broken(ONE)) == [], "one verdict is enough"
    assert told(world.exit(signal=9)) == [Replace(ONE, "bad frame (signal 9, SIGKILL)", 1.0)]
    assert world.tell(Broken(ONE)) == [], "it is dead already"


# spec: SV-8, WP-6
def test_a_stopping_worker_that_cannot_be_trusted_is_given_no_grace() -> None:
    world = started()
    world.tell(StopAsked())
    assert world.tell(Broken(ONE))[-1:] == killed("bad frame")
    assert world.after(2) == killed("bad frame")
    assert told(world.exit(signal=9)) == []
    assert world.place.status is Status.STOPPED


# lateness


# spec: SV-3
@pytest.mark.parametrize("late", [31.0, 3600.0, 1e6])
def test_a_stall_of_our_own_never_kills_a_healthy_worker(late: float) -> None:
    world = started()
    world.now += late
    assert world.tick(late=late) == []
    assert world.after(14.9) == []
    assert world.place.status is Status.HEALTHY


# spec: SV-3
def test_a_stall_shifts_the_start_limits() -> None:
    world = World()
    world.now += 1000
    assert world.tick(late=1000) == []
    assert world.after(29.9) == []
    assert world.after(0.1) == condemned("start timeout")


# spec: SV-3
def test_a_stall_shifts_the_limit_of_the_set_up() -> None:
    world = World()
    world.frame("starting")
    world.now += 1000
    world.tick(late=1000)
    world.frame("starting")
    assert world.beat(295) == []
    assert world.beat(5) == condemned("start timeout")


# spec: SV-3, PD-3
def test_a_stall_shifts_the_grace() -> None:
    world = started()
    world.tell(StopAsked())
    world.now += 500
    assert world.tick(late=500) == []
    assert world.after(9.9) == []
    assert world.after(0.1) == [Terminate(ONE)]


# spec: SV-3
def test_a_stall_does_not_put_off_a_restart() -> None:
    world = started()
    world.crash()
    world.now += 100
    assert world.tick(late=100) == [Spawn(ONE, 2)]


# spec: SV-3
def test_after_a_stall_silence_counts_from_zero_only_for_the_lost_time() -> None:
    """14 s of silence, then a stall, then 1 s more: that is 15 s."""
    world = started()
    assert world.after(14) == []
    world.now += 100
    assert world.tick(late=100) == []
    assert world.after(1) == [Examine(ONE)]


# spec: SV-3, SV-6
def test_time_that_was_lost_is_not_silence_when_a_reading_is_judged() -> None:
    world = started()
    assert world.until_due() == [Examine(ONE)]
    world.tell(Examined(ONE, used(3.5)))
    world.now += 101
    assert world.tick(late=100) == []
    assert world.tell(Examined(ONE, used(3.5))) == []  # silent for 16 s, as far as anybody was there to hear


# spec: SV-3, WK-7
def test_a_stall_is_not_taken_from_the_jobs_time() -> None:
    world = started()
    world.work(timeout=10.0)
    world.now += 100
    assert world.tick(late=100) == []
    assert world.after(9.9) == []
    assert world.after(0.1) == condemned("job timeout")


# spec: SV-3, SV-7
def test_a_stall_is_not_time_in_which_an_idle_worker_stood_still() -> None:
    world = started()
    world.frame(turns=7)
    world.now += 100
    assert world.tick(late=100) == []
    assert world.tell(Framed(ONE, "healthy", 7)) == []
    assert world.beat(25, turns=7) == []
    assert world.beat(5, turns=7) == condemned("hung")


# spec: SV-3, SV-7
def test_a_stall_is_not_time_in_which_a_job_stood_still() -> None:
    world = started()
    world.work(timeout=None)
    world.frame(turns=7)
    assert world.beat(5, turns=7) == [Examine(ONE)]
    world.tell(Examined(ONE, used(1.0)))
    world.now += 1000
    assert world.tick(late=1000) == []
    assert world.frame(turns=7) == []
    assert world.beat(295, turns=7) == []
    assert world.beat(5, turns=7) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(1.0))) == condemned("hung")


# spec: SV-3, WP-3
def test_a_stall_is_not_idleness() -> None:
    world = started(idle_exit=60.0)
    world.now += 100
    assert world.tick(late=100) == []
    assert world.beat(55) == []
    assert world.place.status is Status.HEALTHY
