"""The supervisor's mind, with a virtual clock: places, the table of statuses, starting, pauses, odd frames."""

import pytest
from fleet_world import AT_ONCE, ONE, TWO, World, condemned, killed, pause_of, started, told, used

from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import (
    ALIVE,
    TRANSITIONS,
    Action,
    Examined,
    GivenUp,
    MoreTime,
    NotStarted,
    Occupied,
    PausesChanged,
    Replace,
    Report,
    SetPaused,
    Spawn,
    Started,
    Status,
    StopAsked,
    Tick,
)
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, Terms

# the table

ALLOWED = {
    "starting": "healthy paused stopping crashed",
    "healthy": "paused stopping crashed asleep",
    "paused": "healthy stopping crashed asleep",
    "asleep": "starting stopped",
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
    place = World().place
    place.status = before
    if allowed or before is after:
        place.move(after)
        assert place.status is after
    else:
        with pytest.raises(AssertionError, match=f"{before} → {after} is not in the table"):
            place.move(after)
        assert place.status is before


# spec: SV-4
def test_alive_are_the_states_in_which_there_is_a_process() -> None:
    assert {status.value for status in ALIVE} == {"starting", "healthy", "paused", "stopping"}


# starting


# spec: SV-1
def test_every_place_has_a_name_and_is_filled_at_once() -> None:
    crews = {"tag": Terms(workers=2), "scan": Terms(), "none": Terms(workers=0)}
    fleet = Fleet(crews, RestartPolicy(), LivenessPolicy(), AT_ONCE, lambda: 0.0)
    assert list(fleet.places) == ["worker:tag:0", "worker:tag:1", "worker:scan:0"]
    assert fleet.all_gone()
    assert fleet.begin(5.0) == [Spawn(name, 1) for name in fleet.places]
    assert fleet.handle(Tick(), 5.0) == []
    assert not fleet.all_gone()


# spec: SV-1
def test_nobody_is_started_before_the_beginning() -> None:
    world = World(begin=False)
    assert (world.fleet.next_due(), world.after(1e6)) == (None, [])
    assert world.fleet.begin(world.now) == [Spawn(ONE, 1)]


# spec: SV-1
def test_a_fleet_without_workers_has_nothing_to_do() -> None:
    world = World(0)
    assert (world.begun, world.fleet.next_due(), world.tick(), world.tell(StopAsked())) == ([], None, [], [])
    assert world.fleet.all_gone()


# spec: SV-4
def test_a_worker_goes_from_starting_to_healthy() -> None:
    world = World()
    assert world.place.status is Status.STARTING
    world.tell(Started(ONE, 77))
    assert (world.place.status, world.place.pid) == (Status.STARTING, 77)
    world.frame("starting")
    assert world.place.status is Status.STARTING
    world.frame("healthy")
    assert (world.place.status, world.place.ready_at) == (Status.HEALTHY, world.now)


# spec: SV-5
def test_no_first_frame_within_30_s_is_a_start_timeout() -> None:
    world = World()
    assert world.after(29.9) == []
    assert world.after(0.1) == condemned("start timeout")
    assert world.after(0.24) == []
    assert world.after(0.01) == killed("start timeout")
    assert told(world.exit(signal=9)) == [Replace(ONE, "start timeout (signal 9, SIGKILL)", 1.0)]
    assert world.place.reason is Reason.START_TIMEOUT


# spec: SV-5
def test_a_model_may_load_for_300_s_while_frames_come() -> None:
    world = World()
    assert world.beat(295) == []
    assert world.beat(5) == condemned("start timeout")


# spec: SV-5, WP-5
def test_a_slow_load_can_ask_for_more_time() -> None:
    world = World()
    world.beat(290)
    world.tell(MoreTime(ONE, 600.0))
    assert world.beat(595) == []
    assert world.beat(5) == condemned("start timeout")


# spec: SV-5, WP-5
def test_asking_for_less_time_takes_none_away() -> None:
    world = World()
    world.tell(MoreTime(ONE, 1.0))
    assert world.beat(295) == []


# spec: SV-5, SV-8
def test_nobody_may_load_for_more_than_a_day() -> None:
    world = World()
    world.frame("starting")
    world.tell(MoreTime(ONE, 1e12))
    world.now += 86_400
    world.frame("starting")
    assert world.tick() == condemned("start timeout")


# spec: SV-5
def test_a_worker_that_is_ready_in_time_is_not_asked_how_long_it_took() -> None:
    world = World()
    world.beat(295)
    world.frame("healthy")
    assert world.beat(60) == []
    assert world.place.status is Status.HEALTHY


# spec: SV-5, SV-6
def test_a_start_timeout_is_pressed_until_the_worker_is_gone() -> None:
    world = World()
    world.after(30)
    world.after(0.25)
    assert world.place.text is None
    assert world.after(2) == killed("start timeout")
    assert world.place.text is not None
    assert "unkillable" in world.place.text
    assert world.after(2) == killed("start timeout")


# spec: SV-4, RP-2
def test_a_process_that_cannot_be_made_is_tried_again_with_a_backoff() -> None:
    world = World()
    pauses: list[float] = []
    for _ in range(5):
        actions = world.tell(NotStarted(ONE, "no room"))
        assert isinstance(actions[0], Report)
        assert (actions[0].reason, actions[0].text, actions[0].charged) == (Reason.NOT_STARTED, "no room", True)
        pauses.append(pause_of(actions))
        assert isinstance(world.until_due()[0], Spawn)
    assert pauses == [1, 2, 4, 8, 16]
    (action,) = told(world.tell(NotStarted(ONE, "no room")))
    assert isinstance(action, GivenUp)
    assert "no room" in action.reason


# spec: RP-6
def test_who_was_given_up_on_in_an_earlier_life_of_the_node_stays_so() -> None:
    world = World(2, begin=False)
    assert world.fleet.begin(world.now, {ONE: "no such model", "worker:other:9": "x"}) == [Spawn(TWO, 1)]
    assert (world.place.status, world.place.text) == (Status.FAILED, "no such model")
    world.ready(TWO)
    assert world.tell(PausesChanged(["*"])) == [SetPaused(TWO, True)]
    assert world.tell(PausesChanged([])) == [SetPaused(TWO, False)]
    assert world.place.status is Status.FAILED


# unkillable earlier lives


# spec: WP-7
def test_a_place_whose_earlier_life_cannot_be_killed_waits_for_it() -> None:
    world = World(2, begin=False)
    assert world.tell(Occupied(ONE, 77)) == []
    assert world.tell(Occupied(TWO, None)) == []
    assert world.fleet.begin(world.now) == [Spawn(TWO, 1)]
    assert world.place.text is not None
    assert "unkillable" in world.place.text
    assert "77" in world.place.text
    world.ready(TWO)
    assert world.beat(600, component=TWO) == []
    assert world.tell(Occupied(ONE, None)) == [Spawn(ONE, 1)]
    assert world.tell(Occupied(ONE, None)) == []


# spec: WP-7
def test_what_is_known_of_an_earlier_life_does_not_touch_a_present_one() -> None:
    world = started()
    assert world.tell(Occupied(ONE, None)) == []
    assert world.tell(Occupied(ONE, 77)) == []
    assert world.place.status is Status.HEALTHY


# spec: WP-7, PD-3
def test_an_earlier_life_that_goes_while_everything_stops_starts_nobody() -> None:
    world = World(begin=False)
    world.tell(Occupied(ONE, 77))
    world.fleet.begin(world.now)
    world.tell(StopAsked())
    assert world.tell(Occupied(ONE, None)) == []
    assert world.fleet.all_gone()


# pauses


# spec: PD-1
@pytest.mark.parametrize("scope", ["*", "tag", ONE])
def test_a_pause_is_told_to_whom_it_concerns_and_so_is_its_end(scope: str) -> None:
    world = started()
    assert world.tell(PausesChanged(["other", "worker:other:0", scope])) == [SetPaused(ONE, True)]
    assert world.place.status is Status.HEALTHY, "the status is what the worker says"
    world.frame("paused")
    assert world.place.status is Status.PAUSED
    assert world.tell(PausesChanged(["other"])) == [SetPaused(ONE, False)]
    world.frame("healthy")
    assert world.place.status is Status.HEALTHY


# spec: PD-1, SV-10
def test_a_pause_twice_is_a_pause_once() -> None:
    world = started()
    assert world.tell(PausesChanged(["*"])) == [SetPaused(ONE, True)]
    assert world.tell(PausesChanged(["*"])) == []
    assert world.tell(PausesChanged(["tag", ONE])) == [], "another reason for the same"
    assert world.tell(PausesChanged([])) == [SetPaused(ONE, False)]
    assert world.tell(PausesChanged([])) == []


# spec: PD-1
def test_a_pause_of_one_is_not_a_pause_of_its_crew() -> None:
    world = started(2)
    assert world.tell(PausesChanged([TWO])) == [SetPaused(TWO, True)]


# spec: PD-1
def test_who_is_not_there_learns_of_its_pause_when_it_starts() -> None:
    world = World(begin=False)
    assert world.tell(PausesChanged(["tag"])) == []
    assert world.fleet.begin(world.now) == [Spawn(ONE, 1)]
    assert world.place.paused
    world.frame("starting")
    world.frame("paused")
    assert (world.place.status, world.place.ready_at) == (Status.PAUSED, world.now)


# spec: PD-1, SV-4
def test_who_is_loading_is_told_too() -> None:
    assert World().tell(PausesChanged(["*"])) == [SetPaused(ONE, True)]


# spec: SV-4, PD-1
def test_a_worker_may_come_up_paused_and_go_back_and_forth() -> None:
    world = World()
    for status in ("paused", "healthy", "paused", "healthy"):
        assert world.frame(status) == []
        assert world.place.status == status


# frames that should not be


# spec: SV-4, SV-8
@pytest.mark.parametrize("status", ["crashed", "failed", "stopped", "nonsense", "", "HEALTHY", "starting"])
def test_a_worker_cannot_say_what_only_the_supervisor_says(status: str) -> None:
    world = started()
    assert world.frame(status) == []
    assert world.place.status is Status.HEALTHY


# spec: SV-2
@pytest.mark.parametrize("status", ["healthy", "paused", "stopping"])
def test_a_frame_of_the_dead_is_not_heard(status: str) -> None:
    world = started()
    world.crash()
    assert world.frame(status) == []
    assert world.place.status is Status.CRASHED
    assert world.after(1.0) == [Spawn(ONE, 2)]


# spec: SV-2, RP-6
def test_a_failed_place_stays_failed_whatever_comes_late() -> None:
    world = started()
    world.give_up()
    late: list[Action] = [*world.frame("healthy"), *world.tell(Examined(ONE, used(1.0))), *world.tell(StopAsked())]
    assert late == []
    assert world.place.status is Status.FAILED
