"""Workers at work, with a virtual clock: jobs that take too long, counters that stand still, recycling, sleep."""

import pytest
from fleet_world import ONE, THREE, TWO, World, condemned, killed, started, used

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.fleet import AFTER_A_LOOK
from chargehand.model.fleet.lifecycle import (
    Action,
    Ask,
    Broken,
    Examine,
    Examined,
    PausesChanged,
    Replace,
    Report,
    Spawn,
    Status,
    StopAsked,
    Terminate,
    WorkWaits,
)
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import Terms
from chargehand.model.health import will_work

GIB = 2**30

# job timeouts


# spec: WK-7, RP-7
def test_a_job_that_takes_too_long_has_its_worker_replaced_at_once() -> None:
    world = started()
    world.work(timeout=12.0)
    assert world.beat(10) == []
    assert world.after(2) == condemned("job timeout")
    assert world.after(0.25) == killed("job timeout")
    text = "job timeout (signal 9, SIGKILL)"
    assert world.exit(signal=9, had_job=True) == [
        Report(component=ONE, reason=Reason.JOB_TIMEOUT, text=text, charged=False, follows="restarted at once"),
        Replace(ONE, text, 0.0),
        Spawn(ONE, 2),
    ]
    assert world.place.history.charged == []
    assert world.place.history.streak == 0


# spec: WK-7, RP-7
def test_a_hundred_timeouts_are_charged_to_nobody() -> None:
    world = started()
    for life in range(2, 102):
        world.work(timeout=1.0)
        world.after(1)
        world.after(0.25)
        assert world.exit(signal=9, had_job=True)[-1] == Spawn(ONE, life)
        world.ready()
    world.crash()
    assert world.place.start_at == world.now + 1


# spec: WK-7
def test_a_job_that_ends_in_time_leaves_no_deadline() -> None:
    world = started()
    world.work(timeout=12.0)
    world.now += 11
    assert world.fleet.ended(ONE, world.now)
    assert world.fleet.let_go(ONE, world.now) == []
    assert world.beat(60) == []


# spec: WK-7
def test_each_job_has_its_own_time() -> None:
    world = started()
    for _ in range(5):
        world.work(timeout=7.0)
        assert world.beat(5) == []
        world.fleet.ended(ONE, world.now)
    world.work(timeout=None)
    world.frame()
    assert world.beat(7200) == []


# spec: WK-7, PD-3
def test_a_stop_while_the_stacks_are_written_replaces_nobody() -> None:
    world = started()
    world.work(timeout=1.0)
    world.after(1)
    assert world.tell(StopAsked()) == []
    assert world.after(0.25) == killed("job timeout")
    (report,) = world.exit(signal=9, had_job=True)
    assert isinstance(report, Report)
    assert (report.reason, report.charged) == (Reason.JOB_TIMEOUT, False)
    assert world.place.status is Status.STOPPED
    assert world.fleet.next_due() is None


# spec: WK-7
def test_one_that_is_done_while_its_stacks_are_written_is_handed_nothing_more() -> None:
    world = started()
    world.work(timeout=1.0)
    world.after(1)
    assert not world.fleet.ended(ONE, world.now)
    assert world.fleet.let_go(ONE, world.now) == []
    assert world.after(0.25) == killed("job timeout")


# a counter that stands still


# spec: SV-7
@pytest.mark.parametrize("status", ["healthy", "paused"])
def test_an_idle_worker_whose_counter_stands_still_for_30_s_is_hung(status: str) -> None:
    world = started()
    world.frame(status, turns=7)
    assert world.beat(25, turns=7) == []
    assert world.beat(5, turns=7) == condemned("hung")
    assert world.after(0.25) == killed("hung")
    world.exit(signal=9)
    assert world.place.reason is Reason.HUNG


# spec: SV-7
def test_after_a_job_the_counter_has_its_30_s_anew() -> None:
    world = started()
    world.work()
    world.frame(turns=7)
    assert world.beat(300, turns=7) == []
    world.finish()
    assert world.beat(25, turns=7) == []
    assert world.beat(5, turns=7) == condemned("hung")


# spec: SV-7, WK-7
def test_in_a_job_with_a_timeout_the_counter_says_nothing() -> None:
    world = started()
    world.work(timeout=50_000.0)
    world.frame(turns=7)
    assert world.beat(49_000, turns=7) == []
    assert world.place.flags == ()


# spec: SV-7, SV-6
@pytest.mark.parametrize("spent", [0.0, 0.3])
def test_in_a_job_without_a_timeout_300_s_still_and_without_cpu_is_hung(spent: float) -> None:
    """What only passes the time uses a little."""
    world = started()
    world.work(timeout=None)
    world.frame(turns=7)
    assert world.beat(5, turns=7) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(1.0))) == []
    assert world.beat(295, turns=7) == []
    assert world.beat(5, turns=7) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(1.0 + spent))) == condemned("hung")


# spec: SV-7
def test_a_job_that_waits_until_its_output_is_read_does_not_stand_still() -> None:
    world = started()
    world.work(timeout=None)
    world.frame(turns=7)
    for behind in (False, True, True, False):
        assert world.beat(5, turns=7) == [Examine(ONE)]
        last = world.tell(Examined(ONE, used(1.0), behind=behind))
        if last:
            break
        assert world.beat(295, turns=7) == []
        assert world.place.flags == ()
    assert last == condemned("hung"), "300 s after its output was read"


def stand_still(world: World, *, seconds: int, share: float) -> list[float]:
    """Frames without a turn, with CPU time used: when it was flagged."""
    flagged: list[float] = []
    began, cpu = world.now, 5.0
    for _ in range(seconds // 5):
        world.now += 5
        cpu += 5 * share
        for action in [*world.frame(turns=7), *world.tick()]:
            assert action == Examine(ONE)
            assert world.tell(Examined(ONE, used(cpu))) == []
        if world.place.stalled:
            flagged.append(world.now - began)
    return flagged


# spec: SV-7, SV-4
def test_in_a_job_without_a_timeout_still_but_busy_is_flagged_after_600_s_and_left_alone() -> None:
    world = started()
    world.work(timeout=None)
    world.frame(turns=7)
    flagged = stand_still(world, seconds=40_000, share=0.5)
    assert 600 <= flagged[0] <= 610
    assert world.place.flags == ("stalled",)
    assert world.place.status is Status.HEALTHY
    world.frame(turns=8)
    assert world.place.flags == ()


# spec: SV-7
def test_a_flag_goes_with_its_job() -> None:
    world = started()
    world.work(timeout=None)
    world.frame(turns=7)
    stand_still(world, seconds=700, share=1.0)
    assert world.place.stalled
    world.finish()
    assert world.place.flags == ()


# spec: SV-7
def test_a_job_that_was_busy_and_then_stands_still_is_hung() -> None:
    world = started()
    world.work(timeout=None)
    world.frame(turns=7)
    stand_still(world, seconds=320, share=1.0)
    world.beat(280, turns=7)
    assert world.beat(5, turns=7) == [Examine(ONE)]
    assert world.tell(Examined(ONE, used(5 + 305.0))) == condemned("hung")


# spec: SV-7
def test_a_job_that_moves_now_and_then_is_left_alone() -> None:
    world = started()
    world.work(timeout=None)
    for turn in range(1, 30):
        world.frame(turns=turn)
        for action in world.beat(290, turns=turn):
            assert action == Examine(ONE)
            assert world.tell(Examined(ONE, used(1.0))) == []


# recycling


# spec: WP-9, RP-7
def test_a_worker_is_replaced_after_its_number_of_jobs() -> None:
    world = started(recycle_jobs=2)
    world.work()
    assert world.fleet.ended(ONE, world.now)
    world.work("job-2")
    assert not world.fleet.ended(ONE, world.now), "it may be handed nothing more"
    assert world.fleet.let_go(ONE, world.now) == [Ask(ONE)]
    assert world.exit(code=0) == [Spawn(ONE, 2)]
    assert (world.place.reason, world.place.history.restarts) == (Reason.RECYCLED, 0)
    assert (world.place.history.charged, world.place.history.streak) == ([], 0)
    world.ready()
    world.work()
    assert world.fleet.ended(ONE, world.now), "a new life counts anew"


# spec: WP-9
def test_a_worker_that_grew_too_large_is_replaced_between_jobs() -> None:
    world = started(recycle_memory=GIB)
    world.work()
    assert world.frame(memory=2 * GIB) == [], "not in the middle of a job"
    assert not world.fleet.ended(ONE, world.now)
    assert world.fleet.let_go(ONE, world.now) == [Ask(ONE)]
    assert world.exit(code=0) == [Spawn(ONE, 2)]
    assert world.place.reason is Reason.RECYCLED


# spec: WP-9
def test_growth_that_is_seen_after_the_job_counts_too() -> None:
    world = started(recycle_memory=GIB)
    world.work()
    assert world.finish() == []
    assert world.frame(memory=GIB) == [], "passes means more than the limit"
    assert world.frame(memory=GIB + 1) == [Ask(ONE)]


# spec: WP-9
def test_a_fresh_worker_that_is_too_large_already_is_not_replaced_for_ever() -> None:
    world = World(recycle_memory=GIB)
    world.frame("starting", memory=2 * GIB)
    for _ in range(100):
        world.now += 5
        assert world.frame("healthy", memory=2 * GIB) == []
    world.work()
    assert world.finish() == [Ask(ONE)], "it has done something at least"


# spec: WP-9, WP-6
def test_one_that_is_to_be_replaced_and_does_not_go_is_pressed() -> None:
    world = started(recycle_jobs=1)
    world.work()
    world.finish()
    world.after(10)
    assert world.after(2) == killed("recycled")
    assert world.exit(signal=9) == [Spawn(ONE, 2)]
    assert world.place.history.charged == []


# sleep


# spec: WP-3
def test_an_idle_worker_ends_after_a_while_and_comes_back_with_the_next_job() -> None:
    world = started(idle_exit=60.0)
    assert world.beat(55) == []
    assert world.beat(5) == [Ask(ONE)]
    assert world.exit(code=0) == []
    assert (world.place.status, world.place.reason, world.place.asleep) == (Status.ASLEEP, Reason.IDLE, True)
    assert world.fleet.next_due() is None
    assert world.tell(WorkWaits("tag", 1)) == [Spawn(ONE, 2)]
    assert not world.place.asleep
    assert world.tell(WorkWaits("tag", 1)) == []
    assert (world.place.history.restarts, world.place.history.charged) == (0, [])


# spec: WP-3
def test_a_paused_worker_ends_after_a_while_too() -> None:
    world = started(idle_exit=60.0)
    world.tell(PausesChanged(["*"]))
    world.frame("paused")
    assert world.beat(60) == [Ask(ONE)]


# spec: WP-3
def test_a_job_ends_the_idleness_and_its_end_begins_it_anew() -> None:
    world = started(idle_exit=60.0)
    world.beat(55)
    world.work()
    assert world.beat(600) == []
    world.finish()
    assert world.beat(55) == []
    assert world.beat(5) == [Ask(ONE)]


# spec: WP-3 WK-10
def test_to_look_for_work_is_no_work_but_what_was_found_may_come_yet() -> None:
    world = started(idle_exit=60.0)
    for _ in range(5):
        assert world.look(5) == []
        assert world.beat(5) == []
    assert world.look(20) == [], "it does not leave while it looks"
    world.now += AFTER_A_LOOK / 2
    assert world.tick() == []
    world.now += AFTER_A_LOOK / 2
    assert world.tick() == [Ask(ONE)]


# spec: WP-3 WK-10
def test_a_job_after_a_look_begins_the_idleness_anew() -> None:
    world = started(idle_exit=60.0)
    world.beat(50)
    world.look(5)
    world.work()
    world.beat(5)
    world.finish()
    world.look(5)
    assert world.beat(50) == []
    assert world.beat(5) == [Ask(ONE)]


# spec: WP-3 WK-10
def test_a_look_right_after_a_job_does_not_delay_the_idleness() -> None:
    world = started(idle_exit=60.0)
    world.work()
    world.fleet.ended(ONE, world.now)  # and a look follows at once, without a moment of rest
    ended_at = world.now
    world.fleet.began(ONE, "a/?", 30.0, world.now)
    world.now += 20
    world.fleet.ended(ONE, world.now, job=False)
    world.fleet.let_go(ONE, world.now)
    assert world.place.sleep_at == ended_at + 60.0


# spec: SV-4, WP-3
def test_a_worker_is_asleep_only_when_its_process_has_exited() -> None:
    world = started(idle_exit=60.0)
    world.beat(60)
    assert (world.place.status, world.place.resting, world.place.asleep) == (Status.HEALTHY, True, False)
    assert world.frame("stopping") == [], "it was asked to: that is no SIGTERM from outside"
    assert world.fleet.let_go(ONE, world.now) == [], "it is asked once"
    assert world.tell(WorkWaits("tag", 1)) == [], "its process has not exited yet"
    assert world.after(10) == [Terminate(ONE)]
    assert world.after(2) == killed("idle")
    assert world.place.status is Status.HEALTHY
    world.exit(signal=9)
    assert (world.place.status, world.place.resting, world.place.asleep) == (Status.ASLEEP, False, True)
    assert will_work(world.place)


# spec: SV-4
def test_a_worker_that_crashes_while_it_exits_is_not_asleep() -> None:
    world = started(idle_exit=60.0)
    world.beat(60)
    world.tell(Broken(ONE))
    world.exit(signal=9)
    assert (world.place.status, world.place.asleep) == (Status.CRASHED, False)
    assert world.after(2) == [Spawn(ONE, 2)]


# spec: SV-4, SV-10
@pytest.mark.parametrize(
    ("verb", "status", "follows"),
    [
        (Verb.STOP, "stopped", []),
        (Verb.DRAIN, "stopped", []),
        (Verb.START, "starting", [Spawn(ONE, 2)]),
        (Verb.RESTART, "starting", [Spawn(ONE, 2)]),
    ],
)
def test_an_order_overrides_the_sleep_of_a_worker_that_is_about_to_exit(
    verb: Verb, status: str, follows: list[Action]
) -> None:
    world = started(idle_exit=60.0)
    world.beat(60)
    assert world.order(verb)[0] == [], "it was already asked to exit"
    assert world.place.status is Status.STOPPING
    assert world.exit(code=0) == follows
    assert (world.place.status, world.place.asleep) == (Status(status), False)


# spec: SV-4
def test_a_sleeping_worker_stops_with_its_node_and_starts_without_a_charge() -> None:
    world = started(idle_exit=60.0)
    world.beat(60)
    world.exit(code=0)
    world.tell(StopAsked())
    assert (world.place.status, world.fleet.all_gone()) == (Status.STOPPED, True)
    assert world.tell(WorkWaits("tag", 1)) == []


# spec: WP-3
def test_without_the_setting_nobody_sleeps() -> None:
    assert started().beat(50_000) == []


# spec: WP-3
@pytest.mark.parametrize(("count", "woken"), [(0, []), (1, [ONE]), (2, [ONE, TWO]), (9, [ONE, TWO, THREE])])
def test_as_many_are_woken_as_there_is_work_for(count: int, woken: list[str]) -> None:
    world = started(3, idle_exit=60.0)
    world.now += 5
    for name in (ONE, TWO, THREE):
        world.frame(component=name)
    world.now += 10
    for name in (ONE, TWO, THREE):
        world.frame(component=name)
    for _ in range(10):
        world.now += 5
        for name in (ONE, TWO, THREE):
            world.frame(component=name)
        world.tick()
    for name in (ONE, TWO, THREE):
        world.exit(name, code=0)
    assert world.statuses == ["asleep"] * 3
    assert world.tell(WorkWaits("tag", count)) == [Spawn(name, 2) for name in woken]
    assert world.tell(WorkWaits("nobody", 5)) == []


# spec: WP-3
def test_work_of_another_crew_wakes_nobody() -> None:
    world = World(crews={"tag": Terms(idle_exit=60.0), "scan": Terms(workers=0)})
    world.ready()
    world.beat(60)
    world.exit(code=0)
    assert world.tell(WorkWaits("scan", 1)) == []


# spec: WP-3
def test_who_was_stopped_by_a_person_is_not_woken() -> None:
    world = started(idle_exit=60.0)
    world.tell(StopAsked())
    world.exit(code=0)
    assert world.tell(WorkWaits("tag", 1)) == []
