"""The supervisor's mind, with a virtual clock: what is done when workers start, speak, fall silent, die and stop."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chargehand.model.fleet import Fleet, Place
from chargehand.model.lifecycle import (
    ALIVE,
    TRANSITIONS,
    Action,
    Ask,
    Event,
    Examine,
    Examined,
    Exited,
    Framed,
    GivenUp,
    Kill,
    NotStarted,
    Replace,
    Spawn,
    Started,
    Status,
    StopAsked,
    Terminate,
    Tick,
)
from chargehand.model.policy import LivenessPolicy, RestartPolicy

steady = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ONE = "worker:tag:0"


class World:
    """A fleet and a clock that only the test moves."""

    def __init__(self, workers: int = 1, *, jitter: float = 0.0, now: float = 1000.0) -> None:
        self.now = now
        self.fleet = Fleet([("tag", workers)], RestartPolicy(), LivenessPolicy(), lambda: jitter, now)

    @property
    def place(self) -> Place:
        return self.fleet.places[ONE]

    def tell(self, event: Event) -> list[Action]:
        return self.fleet.handle(event, self.now)

    def tick(self, late: float = 0.0) -> list[Action]:
        return self.tell(Tick(late))

    def after(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.tick()

    def until_due(self) -> list[Action]:
        """Let exactly so much time pass that something is due."""
        due = self.fleet.next_due()
        assert due is not None, "nothing will ever be due"
        assert due >= self.now - 1e-9, "time stands still"
        self.now = max(due, self.now)
        return self.tick()

    def frame(self, status: str = "healthy", component: str = ONE) -> list[Action]:
        return self.tell(Framed(component, status))

    def start(self) -> None:
        """Through to a worker that is ready."""
        assert self.until_due() == [Spawn(ONE, self.place.life)]
        self.tell(Started(ONE, 100 + self.place.life))
        self.frame("starting")
        self.frame("healthy")
        assert self.place.status is Status.HEALTHY

    def exit(
        self,
        *,
        code: int | None = None,
        signal: int | None = None,
        said: str | None = None,
        had_job: bool = False,
        crew_done: int = 0,
    ) -> list[Action]:
        return self.tell(
            Exited(component=ONE, exit_code=code, signal=signal, said=said, had_job=had_job, crew_done=crew_done)
        )

    def crash(self, *, had_job: bool = False, crew_done: int = 0) -> list[Action]:
        return self.exit(signal=11, had_job=had_job, crew_done=crew_done)


def started() -> World:
    world = World()
    world.start()
    return world


# the table

ALLOWED = {
    "starting": "healthy paused stopping crashed",
    "healthy": "paused stopping crashed",
    "paused": "healthy stopping crashed",
    "stopping": "stopped crashed",
    "crashed": "starting failed stopped",
    "stopped": "starting",
    "failed": "starting",
}


# spec: SV-4
@pytest.mark.parametrize("before", list(Status))
@pytest.mark.parametrize("after", list(Status))
def test_the_only_transitions_are_those_of_the_specification(before: Status, after: Status) -> None:
    allowed = after.value in ALLOWED[before.value].split()
    assert (after in TRANSITIONS[before]) is allowed
    world = World()
    world.place.status = before
    if allowed or before is after:
        world.fleet._move(world.place, after)
        assert world.place.status is after
    else:
        with pytest.raises(AssertionError, match=f"{before} → {after} is not in the table"):
            world.fleet._move(world.place, after)
        assert world.place.status is before


# spec: SV-4
def test_alive_are_the_states_in_which_there_is_a_process() -> None:
    assert {status.value for status in ALIVE} == {"starting", "healthy", "paused", "stopping"}


# starting


# spec: SV-1
def test_every_place_has_a_name_and_is_to_be_filled_at_once() -> None:
    fleet = Fleet([("tag", 2), ("scan", 1), ("none", 0)], RestartPolicy(), LivenessPolicy(), lambda: 0.0, 5.0)
    assert list(fleet.places) == ["worker:tag:0", "worker:tag:1", "worker:scan:0"]
    assert fleet.next_due() == 5.0
    assert fleet.all_gone()
    assert fleet.handle(Tick(), 5.0) == [Spawn(name, 1) for name in fleet.places]
    assert fleet.handle(Tick(), 5.0) == []
    assert not fleet.all_gone()


# spec: SV-1
def test_a_fleet_without_workers_has_nothing_to_do() -> None:
    fleet = Fleet([], RestartPolicy(), LivenessPolicy(), lambda: 0.0, 0.0)
    assert (fleet.next_due(), fleet.handle(Tick(), 1.0), fleet.handle(StopAsked(), 1.0)) == (None, [], [])
    assert fleet.all_gone()


# spec: SV-4
def test_a_worker_goes_from_starting_to_healthy() -> None:
    world = World()
    world.tick()
    assert world.place.status is Status.STARTING
    world.tell(Started(ONE, 77))
    assert (world.place.status, world.place.pid) == (Status.STARTING, 77)
    world.frame("starting")
    assert world.place.status is Status.STARTING
    world.frame("healthy")
    assert (world.place.status, world.place.ready_at) == (Status.HEALTHY, world.now)


# spec: SV-4, PD-1
def test_a_worker_may_come_up_paused_and_go_back_and_forth() -> None:
    world = World()
    world.tick()
    for status in ("paused", "healthy", "paused", "healthy"):
        assert world.frame(status) == []
        assert world.place.status == status


# spec: SV-5
def test_no_first_frame_within_30_s_is_a_start_timeout() -> None:
    world = World()
    world.tick()
    assert world.after(29.9) == []
    assert world.after(0.1) == [Kill(ONE, "start timeout")]
    assert world.exit(signal=9) == [Replace(ONE, "start timeout (signal 9)", 1.0)]


# spec: SV-5
def test_a_model_may_load_for_300_s_while_frames_come() -> None:
    world = World()
    world.tick()
    for _ in range(59):
        world.now += 5
        world.frame("starting")
        assert world.tick() == []
    world.now += 5
    world.frame("starting")
    assert world.tick() == [Kill(ONE, "start timeout")]


# spec: SV-5
def test_a_worker_that_is_ready_in_time_is_not_asked_how_long_it_took() -> None:
    world = World()
    world.tick()
    for _ in range(59):
        world.now += 5
        world.frame("starting")
    world.frame("healthy")
    world.now += 5
    world.frame("healthy")
    assert world.tick() == []
    assert world.place.status is Status.HEALTHY


# spec: SV-5, SV-6
def test_a_start_timeout_is_pressed_until_the_worker_is_gone() -> None:
    world = World()
    world.tick()
    world.after(30)
    assert world.after(2) == [Kill(ONE, "start timeout")]


# spec: SV-4
def test_a_process_that_cannot_be_made_is_tried_again_with_a_backoff() -> None:
    world = World()
    pauses: list[float] = []
    for _ in range(5):
        assert isinstance(world.until_due()[0], Spawn)
        (action,) = world.tell(NotStarted(ONE, "no room"))
        assert isinstance(action, Replace)
        assert action.reason == "no room"
        pauses.append(action.pause)
    assert pauses == [1, 2, 4, 8, 16]
    world.until_due()
    (action,) = world.tell(NotStarted(ONE, "no room"))
    assert isinstance(action, GivenUp)
    assert "no room" in action.reason


# crashes


# spec: RP-1, SV-2
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_crash_is_replaced_after_a_second(status: str) -> None:
    world = World()
    world.tick()
    world.frame(status)
    assert world.crash() == [Replace(ONE, "crash (signal 11)", 1.0)]
    assert (world.place.status, world.place.pid) == (Status.CRASHED, None)
    assert world.after(0.99) == []
    assert world.after(0.01) == [Spawn(ONE, 2)]
    assert (world.place.status, world.place.restarts) == (Status.STARTING, 1)


# spec: RP-1
def test_the_backoff_grows_with_the_streak() -> None:
    world, pauses = World(), list[float]()
    for done in range(1, 9):
        world.start()
        (action,) = world.crash(had_job=True, crew_done=done)  # charged to the job: the limits stay out of it
        assert isinstance(action, Replace)
        pauses.append(action.pause)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


# spec: RP-1
def test_the_backoff_has_its_jitter() -> None:
    world = World(jitter=1.0)
    world.start()
    (action,) = world.crash()
    assert isinstance(action, Replace)
    assert action.pause == pytest.approx(1.1)


# spec: RP-2, SV-4
def test_the_sixth_rapid_crash_is_given_up_with_the_reason() -> None:
    world = World()
    for _ in range(5):
        world.start()
        assert isinstance(world.crash()[0], Replace)
    world.start()
    assert world.crash() == [GivenUp(ONE, "6 crashes within 300 s; the last: crash (signal 11)")]
    assert (world.place.status, world.place.due) == (Status.FAILED, None)
    assert world.after(1e9) == []
    assert world.fleet.all_gone()


# spec: RP-3
def test_the_twenty_first_crash_is_given_up_whatever_the_timing() -> None:
    world = World()
    for _ in range(20):
        world.start()
        world.now += 1800
        world.frame()
        assert isinstance(world.crash()[0], Replace)
    world.start()
    world.now += 1800
    world.frame()
    (action,) = world.crash()
    assert isinstance(action, GivenUp)
    assert "21 crashes in all" in action.reason


# spec: RP-4
def test_the_lifetime_count_falls_after_six_healthy_hours() -> None:
    world = World()
    for _ in range(20):
        world.start()
        world.now += 1800
        world.frame()
        world.crash()
    world.start()
    world.now += 6 * 3600 + 1
    world.frame()
    assert isinstance(world.crash()[0], Replace)


# spec: RP-4
@pytest.mark.parametrize(("healthy", "pause"), [(299.9, 16.0), (300.0, 1.0), (5000.0, 1.0)])
def test_five_healthy_minutes_from_ready_reset_the_backoff(healthy: float, pause: float) -> None:
    world = World()
    for _ in range(4):
        world.start()
        world.crash(had_job=True, crew_done=world.place.restarts + 1)
    world.start()
    world.now += healthy
    (action,) = world.crash(had_job=True, crew_done=99)
    assert isinstance(action, Replace)
    assert action.pause == pause


# spec: RP-4
def test_the_time_that_a_model_loads_does_not_count_as_healthy() -> None:
    world = World()
    for _ in range(3):
        world.start()
        world.crash(had_job=True, crew_done=world.place.restarts + 1)
    world.until_due()
    for _ in range(29):
        world.now += 10
        world.frame("starting")
    world.frame("healthy")
    world.now += 20
    (action,) = world.crash()
    assert isinstance(action, Replace)
    assert action.pause == 8


# spec: RP-4
def test_five_healthy_minutes_reset_the_rapid_window() -> None:
    world = World()
    for _ in range(5):
        world.start()
        world.crash()
    world.start()
    world.now += 300
    assert world.crash() == [Replace(ONE, "crash (signal 11)", 1.0)]


# spec: RP-5, WP-8
@pytest.mark.parametrize("code", [2, 3])
@pytest.mark.parametrize("status", ["starting", "healthy"])
def test_exit_codes_2_and_3_are_given_up_at_once(code: int, status: str) -> None:
    world = World()
    world.tick()
    world.frame(status)
    (action,) = world.exit(code=code, said="no such model")
    assert action == GivenUp(ONE, "no such model")
    assert (world.place.status, world.place.reason) == (Status.FAILED, "no such model")
    assert world.after(1e9) == []


# spec: RP-5, WP-8
@pytest.mark.parametrize("code", [1, 4, 5, 127])
def test_other_exit_codes_are_restarted(code: int) -> None:
    world = started()
    assert world.exit(code=code) == [Replace(ONE, f"crash (exit code {code})", 1.0)]


# spec: WP-6, WP-8
def test_an_exit_with_0_that_nobody_asked_for_is_exited_and_replaced() -> None:
    world = started()
    assert world.exit(code=0) == [Replace(ONE, "exited (exit code 0)", 1.0)]
    assert world.after(1.0) == [Spawn(ONE, 2)]


# spec: WP-8
def test_what_the_worker_said_is_in_the_reason() -> None:
    world = started()
    assert world.exit(code=5, said="set-up failed: no GPU") == [Replace(ONE, "set-up failed: no GPU", 1.0)]


# spec: RP-6
def test_a_failed_place_stays_failed_whatever_comes_late() -> None:
    world = started()
    world.exit(code=2, said="x")
    assert world.frame("healthy") == []
    assert world.tell(Examined(ONE, 1.0)) == []
    assert world.tell(StopAsked()) == []
    assert world.place.status is Status.FAILED


# spec: RP-1
def test_each_place_has_a_history_of_its_own() -> None:
    world = World(2)
    world.tick()
    for name in world.fleet.places:
        world.frame("healthy", name)
    world.crash()
    assert [p.status for p in world.fleet.places.values()] == [Status.CRASHED, Status.HEALTHY]
    assert [p.history.streak for p in world.fleet.places.values()] == [1, 0]


# what is charged


# spec: RP-7
def test_a_crash_with_a_job_is_charged_to_the_job_if_the_crew_gets_on() -> None:
    world = World()
    for done in range(1, 60):
        world.start()
        assert isinstance(world.crash(had_job=True, crew_done=done)[0], Replace)
    assert world.place.history.charged == []


# spec: RP-7
def test_a_crash_with_a_job_is_charged_to_the_worker_if_the_crew_has_done_nothing_since_its_last() -> None:
    world = World()
    actions: list[Action] = []
    for _ in range(6):
        world.start()
        actions += world.crash(had_job=True, crew_done=0)
    assert [type(action) for action in actions] == [Replace] * 5 + [GivenUp]


# spec: RP-7
@pytest.mark.parametrize(
    ("had_job", "done", "charged"),
    [(False, 7, 1), (False, 8, 1), (True, 7, 1), (True, 8, 0), (True, 100, 0)],
)
def test_what_is_charged_depends_on_the_job_and_on_the_crew(had_job: bool, done: int, charged: int) -> None:
    world = started()
    world.crash(had_job=True, crew_done=7)
    before = len(world.place.history.charged)
    world.start()
    world.crash(had_job=had_job, crew_done=done)
    assert len(world.place.history.charged) - before == charged


# spec: RP-7
def test_a_crash_that_is_not_charged_still_lengthens_the_backoff() -> None:
    world = started()
    world.crash(had_job=True, crew_done=1)
    world.start()
    assert world.crash(had_job=True, crew_done=2)[0] == Replace(ONE, "crash (signal 11)", 2.0)


# silence


# spec: SV-6
def test_silence_without_cpu_for_30_s_is_hung_and_killed() -> None:
    world = started()
    assert world.after(14.9) == []
    assert world.after(0.1) == [Examine(ONE)]
    assert world.tell(Examined(ONE, 3.5)) == []
    assert world.after(14.9) == []
    assert world.after(0.1) == [Examine(ONE)]
    assert world.tell(Examined(ONE, 3.5)) == [Kill(ONE, "heartbeat timeout")]
    assert world.exit(signal=9) == [Replace(ONE, "heartbeat timeout (signal 9)", 1.0)]


# spec: SV-6
def test_silent_but_burning_cpu_is_never_killed() -> None:
    world = started()
    for cpu in range(500):
        assert world.until_due() == [Examine(ONE)]
        assert world.tell(Examined(ONE, float(cpu))) == []
    assert world.place.status is Status.HEALTHY


# spec: SV-6
def test_silent_and_burning_that_then_stands_still_is_hung() -> None:
    world = started()
    for cpu in (1.0, 2.0, 3.0):
        world.until_due()
        assert world.tell(Examined(ONE, cpu)) == []
    world.until_due()
    assert world.tell(Examined(ONE, 3.0)) == [Kill(ONE, "heartbeat timeout")]


# spec: SV-6
@pytest.mark.parametrize("status", ["healthy", "paused", "starting"])
def test_a_frame_ends_the_silence(status: str) -> None:
    world = World()
    world.tick()
    world.frame(status)
    world.now += 15
    assert world.tick() == [Examine(ONE)]
    world.tell(Examined(ONE, 3.5))
    world.now += 14
    world.frame(status)
    world.now += 14
    assert world.tick() == []
    world.now += 1
    assert world.tick() == [Examine(ONE)]
    assert world.tell(Examined(ONE, 3.5)) == []


# spec: SV-6
def test_a_worker_that_beats_is_never_looked_at() -> None:
    world = started()
    for _ in range(10_000):
        world.now += 5
        assert world.frame() == []
        assert world.tick() == []


# spec: SV-6
def test_a_frame_that_comes_while_the_reading_is_under_way_saves_the_worker() -> None:
    world = started()
    world.until_due()
    world.tell(Examined(ONE, 3.5))
    assert world.until_due() == [Examine(ONE)]
    world.frame()
    assert world.tell(Examined(ONE, 3.5)) == []


# spec: SV-6
def test_a_hung_worker_is_killed_again_until_it_is_gone() -> None:
    world = started()
    world.until_due()
    world.tell(Examined(ONE, 3.5))
    world.until_due()
    assert world.tell(Examined(ONE, 3.5)) == [Kill(ONE, "heartbeat timeout")]
    again = [action for _ in range(4) for action in (*world.until_due(), *world.tell(Examined(ONE, 3.5)))]
    assert Kill(ONE, "heartbeat timeout") in again
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
    world.tick()
    world.frame("starting")
    assert world.after(15) == [Examine(ONE)]
    world.tell(Examined(ONE, 1.0))
    assert world.after(15) == [Examine(ONE)]
    assert world.tell(Examined(ONE, 1.0)) == [Kill(ONE, "heartbeat timeout")]


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
    world.tick()
    world.now += 1000
    assert world.tick(late=1000) == []
    assert world.after(29.9) == []
    assert world.after(0.1) == [Kill(ONE, "start timeout")]


# spec: SV-3
def test_a_stall_shifts_the_limit_of_the_set_up() -> None:
    world = World()
    world.tick()
    world.frame("starting")
    world.now += 1000
    world.tick(late=1000)
    world.frame("starting")
    assert world.place.status is Status.STARTING
    for _ in range(59):
        world.now += 5
        world.frame("starting")
        assert world.tick() == []
    world.now += 5
    world.frame("starting")
    assert world.tick() == [Kill(ONE, "start timeout")]


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
    world.now += 14
    assert world.tick() == []
    world.now += 100
    assert world.tick(late=100) == []
    assert world.after(1) == [Examine(ONE)]


# spec: SV-3, SV-6
def test_time_that_was_lost_is_not_silence_when_a_reading_is_judged() -> None:
    world = started()
    assert world.until_due() == [Examine(ONE)]
    world.tell(Examined(ONE, 3.5))
    world.now += 101
    assert world.tick(late=100) == []
    assert world.tell(Examined(ONE, 3.5)) == []  # silent for 16 s, as far as anybody was there to hear


# stopping


# spec: PD-3
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_stop_asks_then_terminates_then_kills(status: str) -> None:
    world = World()
    world.tick()
    world.frame(status)
    assert world.tell(StopAsked()) == [Ask(ONE)]
    assert world.place.status is Status.STOPPING
    assert world.after(9.99) == []
    assert world.after(0.01) == [Terminate(ONE)]
    assert world.after(1.99) == []
    assert world.after(0.01) == [Kill(ONE, "grace over")]
    assert world.after(2) == [Kill(ONE, "grace over")]
    assert world.exit(signal=9) == []
    assert (world.place.status, world.place.reason) == (Status.STOPPED, "stopped")
    assert world.fleet.all_gone()
    assert world.fleet.next_due() is None


# spec: PD-3
def test_all_workers_are_stopped_at_the_same_time() -> None:
    world = World(20)
    world.tick()
    names = list(world.fleet.places)
    assert world.tell(StopAsked()) == [Ask(name) for name in names]
    assert world.after(10) == [Terminate(name) for name in names]
    assert world.after(2) == [Kill(name, "grace over") for name in names]


# spec: PD-3, SV-10
def test_stopping_twice_is_stopping_once() -> None:
    world = started()
    world.tell(StopAsked())
    world.now += 5
    assert world.tell(StopAsked()) == []
    assert world.after(5) == [Terminate(ONE)]


# spec: WP-6
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
def test_a_stop_before_the_first_start_starts_nothing() -> None:
    world = World()
    assert world.tell(StopAsked()) == []
    assert world.after(10) == []
    assert world.fleet.all_gone()


# spec: PD-3
def test_a_process_that_could_not_be_made_while_stopping_is_not_tried_again() -> None:
    world = World()
    world.tick()
    world.tell(StopAsked())
    assert world.tell(NotStarted(ONE, "no room")) == []
    assert world.fleet.all_gone()
    assert world.after(1e9) == []


# spec: WP-6
def test_frames_of_a_stopping_worker_change_nothing() -> None:
    world = started()
    world.tell(StopAsked())
    for status in ("healthy", "paused", "stopping", "starting", "nonsense"):
        assert world.frame(status) == []
        assert world.place.status is Status.STOPPING
    assert world.after(10) == [Terminate(ONE)]


# spec: WP-6
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_sigterm_by_somebody_is_asked_then_exited_and_replaced(status: str) -> None:
    world = World()
    world.tick()
    world.frame(status)
    assert world.frame("stopping") == [Ask(ONE)]
    assert world.place.status is Status.STOPPING
    assert world.exit(code=0) == [Replace(ONE, "exited (exit code 0)", 1.0)]
    assert world.after(1.0) == [Spawn(ONE, 2)]
    world.frame("healthy")
    assert world.place.status is Status.HEALTHY


# spec: WP-6
def test_a_worker_that_said_it_stops_and_does_not_is_pressed() -> None:
    world = started()
    world.frame("stopping")
    assert world.after(10) == [Terminate(ONE)]
    assert world.after(2) == [Kill(ONE, "grace over")]
    assert isinstance(world.exit(signal=9)[0], Replace)


# spec: WP-6, PD-3
def test_a_stop_that_follows_a_sigterm_by_somebody_replaces_nothing() -> None:
    world = started()
    world.frame("stopping")
    assert world.tell(StopAsked()) == []
    assert world.exit(code=0) == []
    assert world.place.status is Status.STOPPED
    assert world.after(1e9) == []


# spec: PD-3, SV-6
def test_a_stop_while_a_hung_worker_is_being_killed_ends_stopped() -> None:
    world = started()
    for _ in range(2):
        world.until_due()
        world.tell(Examined(ONE, 1.0))
    world.tell(StopAsked())
    assert world.exit(signal=9) == []
    assert world.place.status is Status.STOPPED


# spec: WP-6
def test_a_new_life_has_forgotten_the_stop_of_the_old_one() -> None:
    world = started()
    world.frame("stopping")
    world.after(10)
    world.exit(code=0)
    world.start()
    assert (world.place.verdict, world.place.stage, world.place.life) == (None, 0, 2)
    assert world.crash()[0] == Replace(ONE, "crash (signal 11)", 2.0)


# frames that should not be


# spec: SV-4, SV-8
@pytest.mark.parametrize("status", ["crashed", "failed", "stopped", "nonsense", "", "HEALTHY"])
def test_a_worker_cannot_say_what_only_the_supervisor_says(status: str) -> None:
    world = started()
    assert world.frame(status) == []
    assert world.place.status is Status.HEALTHY


# spec: SV-4
def test_a_healthy_worker_cannot_go_back_to_starting() -> None:
    world = started()
    world.frame("starting")
    assert world.place.status is Status.HEALTHY


# spec: SV-2
@pytest.mark.parametrize("status", ["healthy", "paused", "stopping"])
def test_a_frame_of_the_dead_is_not_heard(status: str) -> None:
    world = started()
    world.crash()
    assert world.frame(status) == []
    assert world.place.status is Status.CRASHED
    assert world.after(1.0) == [Spawn(ONE, 2)]


# histories by chance


# spec: SV-4, SV-6
@steady
@given(data=st.data())
def test_no_history_leaves_the_table_or_overlaps_two_lives(data: st.DataObject) -> None:
    """Whatever happens in whatever order, a place has one process at most, and a stop ends with none."""
    world = World(2)
    alive: dict[str, bool] = dict.fromkeys(world.fleet.places, False)

    def act(actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Spawn):
                assert not alive[action.component], "an old life overlaps its successor"
                alive[action.component] = True
            elif isinstance(action, Ask | Terminate | Kill | Examine):
                assert alive[action.component], f"{action} for nobody"

    steps = ["tick", "tick", "frame", "frame", "examined", "exit", "not started", "stop", "late"]
    for _ in range(data.draw(st.integers(1, 60))):
        name = data.draw(st.sampled_from(list(alive)))
        match data.draw(st.sampled_from(steps)):
            case "tick":
                world.now += data.draw(st.sampled_from([0.0, 0.5, 2.0, 16.0, 31.0, 301.0]))
                act(world.tick())
            case "late":
                world.now += 500
                act(world.tick(late=500))
            case "frame" if alive[name]:
                status = data.draw(st.sampled_from(["starting", "healthy", "paused", "stopping"]))
                act(world.frame(status, name))
            case "examined" if alive[name]:
                act(world.tell(Examined(name, data.draw(st.sampled_from([1.0, 2.0])))))
            case "exit" if alive[name]:
                alive[name] = False
                code = data.draw(st.sampled_from([0, 1, 2, 5, None]))
                signal = 9 if code is None else None
                done = data.draw(st.integers(0, 3))
                act(
                    world.tell(
                        Exited(
                            component=name, exit_code=code, signal=signal, said=None, had_job=bool(done), crew_done=done
                        )
                    )
                )
            case "not started" if alive[name] and world.fleet.places[name].pid is None:
                if world.fleet.places[name].status is Status.STARTING:
                    alive[name] = False
                    act(world.tell(NotStarted(name, "no room")))
            case "stop":
                act(world.tell(StopAsked()))
            case _:
                pass  # it cannot happen now
        for component, place in world.fleet.places.items():
            assert (place.status in ALIVE) == alive[component]
    act(world.tell(StopAsked()))
    for _ in itertools.repeat(None, 5):
        world.now += 10
        act(world.tick())
    for name in [name for name in alive if alive[name]]:
        alive[name] = False
        act(world.tell(Exited(component=name, exit_code=None, signal=9, said=None, had_job=False, crew_done=0)))
    assert world.fleet.all_gone()
    assert world.fleet.next_due() is None
