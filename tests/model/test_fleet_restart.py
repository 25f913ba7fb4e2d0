"""Deaths that nobody asked for, with a virtual clock: backoff, limits, what is charged, and to whom."""

import pytest
from fleet_world import ONE, World, pause_of, started, told

from chargehand.errors import EXIT_SET_UP
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import GivenUp, Replace, Report, Spawn, Status
from chargehand.model.fleet.policy import Budget, RestartPolicy, StartPolicy, budget

# backoff


# spec: WP-6, RP-1, SV-9
@pytest.mark.parametrize("death", [{"code": 0}, {"code": 1}, {"code": EXIT_SET_UP}, {"signal": 9}, {"signal": 11}])
@pytest.mark.parametrize("had_job", [True, False])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_worker_is_back_within_2_s_of_its_first_death(workers: int, had_job: bool, death: dict[str, int]) -> None:
    """With the default settings, the greatest jitter, and all workers dead at the same time (no breaker opens)."""
    world = World(workers, jitter=1.0, starts=StartPolicy())
    for component, place in world.fleet.places.items():
        while place.status is not Status.STARTING:
            world.until_due()
        world.ready(component)
    died_at = world.now
    for number, component in enumerate(world.fleet.places):
        world.exit(component, had_job=had_job or number > 0, **death)
    back: list[str] = []
    while len(back) < workers:
        back += [action.component for action in world.until_due() if isinstance(action, Spawn)]
        assert world.now - died_at <= 2.0
    assert sorted(back) == sorted(world.fleet.places)


# spec: RP-1, SV-2
@pytest.mark.parametrize("status", ["starting", "healthy", "paused"])
def test_a_crash_is_reported_and_replaced_after_a_second(status: str) -> None:
    world = World()
    world.frame(status)
    text = "crash (signal 11, SIGSEGV)"
    assert world.crash() == [
        Report(component=ONE, reason=Reason.CRASH, text=text, charged=True, follows="restarted in 1.0 s"),
        Replace(ONE, text, 1.0),
    ]
    assert (world.place.status, world.place.pid, world.place.signal) == (Status.CRASHED, None, 11)
    assert world.after(0.99) == []
    assert world.after(0.01) == [Spawn(ONE, 2)]
    assert (world.place.status, world.place.restarted_at) == (Status.STARTING, world.now)
    assert (world.place.history.restarts, world.place.restarts_total) == (1, 1)


# spec: RP-1
def test_the_backoff_grows_with_the_streak() -> None:
    world, pauses = World(), list[float]()
    for done in range(1, 9):
        world.again()
        pauses.append(pause_of(world.crash(had_job=True, crew_done=done)))  # charged to the job
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


# spec: RP-1
def test_the_backoff_has_its_jitter() -> None:
    assert pause_of(started(jitter=1.0).crash()) == pytest.approx(1.1)


# spec: RP-1
def test_each_place_has_a_history_of_its_own() -> None:
    world = started(2)
    world.crash()
    assert world.statuses == ["crashed", "healthy"]
    assert [place.history.streak for place in world.fleet.places.values()] == [1, 0]


# limits


# spec: RP-2, SV-4
def test_the_sixth_rapid_crash_is_given_up_with_the_reason() -> None:
    world = World()
    for _ in range(5):
        world.again()
        assert pause_of(world.crash()) > 0
    world.again()
    why = "6 crashes within 300 s; the last: crash (signal 11, SIGSEGV)"
    report, given_up = world.crash()
    assert isinstance(report, Report)
    assert report.follows == f"given up: {why}"
    assert given_up == GivenUp(ONE, why)
    assert (world.place.status, world.place.text, world.place.due()) == (Status.FAILED, why, None)
    assert world.after(1e9) == []
    assert world.fleet.all_gone()


def every_half_hour(world: World, times: int) -> None:
    for _ in range(times):
        world.again()
        world.now += 1800
        world.frame()
        assert pause_of(world.crash()) == 1


# spec: RP-3
def test_the_twenty_first_crash_is_given_up_whatever_the_timing() -> None:
    world = World()
    every_half_hour(world, 20)
    world.again()
    world.now += 1800
    world.frame()
    (action,) = told(world.crash())
    assert isinstance(action, GivenUp)
    assert "21 crashes in total" in action.reason


# spec: RP-4
def test_the_lifetime_count_falls_after_six_healthy_hours() -> None:
    world = World()
    every_half_hour(world, 20)
    world.again()
    world.now += 6 * 3600 + 1
    world.frame()
    assert pause_of(world.crash()) == 1
    assert len(world.place.history.charged) == 1


# spec: RP-4
@pytest.mark.parametrize(("healthy", "pause"), [(299.9, 16.0), (300.0, 1.0), (5000.0, 1.0)])
def test_five_healthy_minutes_from_ready_reset_the_backoff(healthy: float, pause: float) -> None:
    world = World()
    for done in range(4):
        world.again()
        world.crash(had_job=True, crew_done=done)
    world.again()
    world.now += healthy
    assert pause_of(world.crash(had_job=True, crew_done=99)) == pause


# spec: RP-4
def test_the_time_that_a_model_loads_does_not_count_as_healthy() -> None:
    world = World()
    for done in range(3):
        world.again()
        world.crash(had_job=True, crew_done=done)
    world.until_due()
    world.beat(290)
    world.frame("healthy")
    world.now += 20
    assert pause_of(world.crash()) == 8


# spec: RP-4
def test_five_healthy_minutes_reset_the_rapid_window() -> None:
    world = World()
    for _ in range(5):
        world.again()
        world.crash()
    world.again()
    world.now += 300
    assert pause_of(world.crash()) == 1


# spec: RP-4, WK-7
def test_a_healthy_run_that_ends_with_a_job_timeout_counts() -> None:
    world = World()
    for done in range(4):
        world.again()
        world.crash(had_job=True, crew_done=done)
    world.again()
    world.work(timeout=400.0)
    world.beat(400)
    world.after(0.25)
    world.exit(signal=9, had_job=True)
    world.ready()
    assert pause_of(world.crash()) == 1


# exit codes


# spec: RP-5, WP-8
@pytest.mark.parametrize(("code", "reason"), [(2, "configuration error"), (3, "unrecoverable error")])
@pytest.mark.parametrize("status", ["starting", "healthy"])
@pytest.mark.parametrize("had_job", [False, True])
def test_exit_codes_2_and_3_are_given_up_at_once(code: int, reason: str, status: str, had_job: bool) -> None:
    world = World()
    world.frame(status)
    (action,) = told(world.exit(code=code, said="no such model", had_job=had_job))
    assert isinstance(action, GivenUp)
    assert "no such model" in action.reason
    assert (world.place.status, world.place.reason, world.place.exit_code) == (Status.FAILED, reason, code)
    assert world.after(1e9) == []


# spec: RP-5, WK-6
@pytest.mark.parametrize("code", [2, 3])
def test_a_job_that_calls_exit_by_itself_does_not_end_its_worker_for_good(code: int) -> None:
    world = started()
    assert told(world.exit(code=code, had_job=True)) == [Replace(ONE, f"exited (exit code {code})", 1.0)]


# spec: RP-5, WP-6, WP-8
@pytest.mark.parametrize("code", [0, 1, 4, 5, 127])
def test_other_exit_codes_are_exited_and_restarted(code: int) -> None:
    world = started()
    assert told(world.exit(code=code)) == [Replace(ONE, f"exited (exit code {code})", 1.0)]
    assert (world.place.reason, world.place.exit_code, world.place.signal) == (Reason.EXITED, code, None)
    assert world.after(1.0) == [Spawn(ONE, 2)]


# spec: WP-8, RP-5
def test_what_the_worker_said_is_in_the_text_and_never_in_the_reason() -> None:
    world = World()
    (action,) = told(world.exit(code=EXIT_SET_UP, said="no GPU"))
    assert isinstance(action, Replace)
    assert "no GPU" in action.reason
    assert "exit code 5" in action.reason
    assert world.place.reason is Reason.SET_UP_FAILED


# spec: WP-8
def test_memory_that_ran_out_is_told_apart_from_other_kills() -> None:
    world = started()
    world.exit(signal=9, oom=True)
    assert (world.place.reason, world.place.signal) == (Reason.OOM, 9)


# what is charged


# spec: RP-7
def test_the_first_crash_with_a_job_in_hand_is_not_charged() -> None:
    world = started()
    report = world.crash(had_job=True, crew_done=0)[0]
    assert isinstance(report, Report)
    assert not report.charged
    assert world.place.history.charged == []


# spec: RP-7, WK-6
def test_a_crash_with_a_job_is_charged_to_the_job_if_the_crew_gets_on() -> None:
    world = World()
    for done in range(1, 60):
        world.again()
        assert pause_of(world.crash(had_job=True, crew_done=done)) > 0
    assert world.place.history.charged == []


# spec: RP-7
def test_a_crash_with_a_job_is_charged_to_the_worker_if_the_crew_has_done_nothing_since_its_last() -> None:
    world, ends = World(), list[type]()
    for _ in range(7):
        world.again()
        ends += [type(action) for action in told(world.crash(had_job=True, crew_done=3))]
    assert ends == [Replace] * 6 + [GivenUp], "the first was not charged"


# spec: RP-7
@pytest.mark.parametrize(
    ("had_job", "done", "charged"),
    [(False, 7, 1), (False, 8, 1), (True, 7, 1), (True, 8, 0), (True, 100, 0)],
)
@pytest.mark.parametrize("first_had_job", [True, False])
def test_what_is_charged_depends_on_the_job_and_on_the_crew(
    first_had_job: bool, had_job: bool, done: int, charged: int
) -> None:
    world = started()
    world.crash(had_job=first_had_job, crew_done=7)
    before = len(world.place.history.charged)
    world.again()
    report = world.crash(had_job=had_job, crew_done=done)[0]
    assert isinstance(report, Report)
    assert report.charged is bool(charged)
    assert len(world.place.history.charged) - before == charged


# spec: RP-7
def test_a_crash_that_is_not_charged_still_lengthens_the_backoff() -> None:
    world = started()
    world.crash(had_job=True, crew_done=1)
    world.again()
    assert pause_of(world.crash(had_job=True, crew_done=2)) == 2


# spec: RP-7
def test_hung_workers_are_charged_as_crashed_ones_are() -> None:
    world = started()
    world.frame(turns=7)
    world.beat(30, turns=7)
    world.exit(signal=9)
    assert len(world.place.history.charged) == 1


# what is left


# spec: RP-8
def test_what_is_left_of_the_budget_can_be_seen() -> None:
    world, policy = started(), RestartPolicy()

    def left() -> Budget:
        return budget(policy, world.place.history, world.place.ready_at, world.now)

    assert left() == Budget(5, 20)
    world.crash()
    assert left() == Budget(4, 19)
    world.again()
    world.crash(had_job=True, crew_done=9)
    assert left() == Budget(4, 19), "that one was charged to its job"
    world.again()
    world.now += 290
    assert left() == Budget(4, 19)
    world.now += 10
    assert left() == Budget(5, 19)
    world.now += 6 * 3600
    assert left() == Budget(5, 20), "the present run counts before it has ended"
    assert len(world.place.history.charged) == 1, "looking changes nothing"


# spec: RP-8
def test_the_budget_of_one_that_was_given_up_is_nothing() -> None:
    world = World()
    for _ in range(6):
        world.again()
        world.crash()
    assert world.place.status is Status.FAILED
    assert budget(RestartPolicy(), world.place.history, None, world.now) == Budget(0, 14)
