"""What people can order of workers, with a virtual clock: each answers with what will happen, and twice is as once."""

import pytest
from fleet_world import ONE, TWO, World, killed, started, words

from chargehand.errors import UnknownCrew
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import (
    Ask,
    Dismiss,
    Forgiven,
    NotStarted,
    PausesChanged,
    Replace,
    Spawn,
    Status,
    Terminate,
    WorkWaits,
)
from chargehand.model.fleet.orders import Verb, carry_out, normal_scope, places_of, resumed
from chargehand.model.fleet.policy import History, Terms

CREWS = {"tag": Terms(workers=2), "scan": Terms()}
SCAN = "worker:scan:0"

# whom an order is about


# spec: SV-10
@pytest.mark.parametrize(
    ("scope", "whom", "normal"),
    [
        (None, [ONE, TWO, SCAN], "*"),
        ("*", [ONE, TWO, SCAN], "*"),
        ("tag", [ONE, TWO], "tag"),
        ("scan", [SCAN], "scan"),
        ("worker:tag:1", [TWO], TWO),
        ("tag:1", [TWO], TWO),
    ],
)
@pytest.mark.parametrize("verb", [Verb.START, Verb.STOP, Verb.DRAIN, Verb.RESTART, Verb.RESET])
def test_an_order_is_about_all_a_crew_or_a_worker(verb: Verb, scope: str | None, whom: list[str], normal: str) -> None:
    world = World(crews=CREWS)
    world.ready(*world.fleet.places)
    assert [place.component for place in places_of(world.fleet, scope)] == whom
    assert normal_scope(world.fleet, scope) == normal
    actions, answers = carry_out(world.fleet, verb, scope, world.now)
    assert [answer.component for answer in answers] == whom
    assert all(answer.text for answer in answers)
    stops = verb in (Verb.STOP, Verb.DRAIN, Verb.RESTART)
    assert actions == ([Ask(name) for name in whom] if stops else [])


# spec: SV-10
@pytest.mark.parametrize("scope", ["nobody", "worker:tag:7", "tag:7", "worker:", "", "worker:tag", "TAG", ":"])
def test_an_unknown_scope_is_refused_with_what_there_is(scope: str) -> None:
    world = World(crews=CREWS)
    for act in (places_of, normal_scope, resumed):
        with pytest.raises(UnknownCrew) as caught:
            act(world.fleet, scope)
        assert all(name in str(caught.value) for name in ("tag", "scan", ONE, TWO, SCAN, repr(scope)))


# start


# spec: SV-10
def test_start_starts_what_was_stopped() -> None:
    world = started()
    world.order(Verb.STOP)
    world.exit(code=0)
    assert world.order(Verb.START) == ([Spawn(ONE, 2)], ["starts"])
    assert world.order(Verb.START) == ([], ["is already running"])
    assert world.place.history.restarts == 0


# spec: SV-10
def test_start_of_one_that_stops_has_it_come_back() -> None:
    world = started()
    world.order(Verb.STOP)
    for _ in range(2):
        assert world.order(Verb.START) == ([], ["restarts when it has stopped"])
    assert world.exit(code=0) == [Spawn(ONE, 2)]


# spec: SV-10
def test_start_of_one_that_drains_has_it_come_back() -> None:
    world = started()
    world.work()
    world.order(Verb.DRAIN)
    assert world.order(Verb.START)[0] == []
    assert world.finish() == [Ask(ONE)]
    assert world.exit(code=0) == [Spawn(ONE, 2)]


# spec: SV-10, RP-1
def test_start_does_not_shorten_a_backoff() -> None:
    world = started()
    world.crash()
    assert world.order(Verb.START) == ([], ["restarts by itself"])
    assert world.after(0.9) == []
    assert world.after(0.1) == [Spawn(ONE, 2)]


# spec: SV-10, RP-6
def test_start_never_brings_back_what_was_given_up_and_says_how() -> None:
    world = started()
    world.give_up()
    actions, (text,) = world.order(Verb.START)
    assert actions == []
    assert "no such model" in text
    assert f"chargehand reset {ONE}" in text
    assert world.place.status is Status.FAILED


# spec: SV-10, WP-3
def test_start_wakes_a_sleeper() -> None:
    world = started(idle_exit=60.0)
    world.beat(60)
    world.exit(code=0)
    assert world.order(Verb.START) == ([Spawn(ONE, 2)], ["starts"])


# stop


# spec: SV-10, PD-3
def test_stop_gives_the_grace_and_says_so() -> None:
    world = started()
    world.work("job-7")
    actions, (text,) = world.order(Verb.STOP)
    assert actions == [Ask(ONE)]
    assert "job-7" in text
    world.now += 5
    assert world.order(Verb.STOP)[0] == []
    assert world.after(5) == [Terminate(ONE)]
    assert world.after(2) == killed("stopped")
    assert world.exit(signal=9, had_job=True) == []
    assert (world.place.status, world.place.reason) == (Status.STOPPED, Reason.STOPPED)
    assert world.order(Verb.STOP) == ([], ["is stopped"])
    assert world.after(1e6) == []


# spec: SV-10
def test_stop_of_one_that_waits_to_come_back_has_it_stay_away() -> None:
    world = started()
    world.crash()
    assert world.order(Verb.STOP) == ([], ["is stopped"])
    assert world.after(1e6) == []


# spec: SV-10, RP-6
@pytest.mark.parametrize("verb", [Verb.STOP, Verb.DRAIN])
def test_what_was_given_up_stays_so_when_it_is_stopped(verb: Verb) -> None:
    world = started()
    world.give_up()
    actions, (text,) = world.order(verb)
    assert (actions, world.place.status) == ([], Status.FAILED)
    assert "given up" in text


# spec: SV-10, WP-3
def test_who_was_stopped_in_its_sleep_does_not_wake() -> None:
    world = started(idle_exit=60.0)
    world.beat(60)
    world.exit(code=0)
    world.order(Verb.STOP)
    assert world.tell(WorkWaits("tag", 1)) == []


# drain


# spec: PD-2, SV-10
def test_drain_finishes_the_job_first_however_long_it_takes() -> None:
    world = started()
    world.work("job-7", timeout=None)
    for _ in range(2):
        assert world.order(Verb.DRAIN) == ([Dismiss(ONE)], ["finishes job-7, then stops"])
    assert world.beat(3600) == []
    assert world.place.status is Status.HEALTHY
    assert not world.fleet.ended(ONE, world.now), "it takes nothing more"
    assert world.fleet.let_go(ONE, world.now) == [Ask(ONE)]
    assert world.exit(code=0) == []
    assert (world.place.status, world.place.reason) == (Status.STOPPED, Reason.DRAINED)
    assert world.order(Verb.DRAIN) == ([], ["is stopped"])


# spec: PD-2
def test_drain_of_one_without_a_job_is_a_stop() -> None:
    world = started()
    assert world.order(Verb.DRAIN) == ([Ask(ONE)], ["stops"])
    world.exit(code=0)
    assert world.place.reason is Reason.DRAINED


# spec: PD-2, RP-7
def test_one_that_crashes_while_it_drains_stays_away() -> None:
    world = started()
    world.work()
    world.order(Verb.DRAIN)
    actions = world.crash(had_job=True)
    assert not any(isinstance(action, Replace) for action in actions)
    assert (world.place.status, world.place.reason) == (Status.STOPPED, Reason.CRASH)
    assert world.after(1e6) == []


# spec: PD-2, WK-7
def test_one_whose_job_takes_too_long_while_it_drains_stays_away() -> None:
    world = started()
    world.work(timeout=1.0)
    world.order(Verb.DRAIN)
    world.after(1)
    assert world.after(0.25) == killed("job timeout")
    world.exit(signal=9, had_job=True)
    assert world.place.status is Status.STOPPED


# restart


# spec: RP-6, RP-7, SV-10
def test_restart_is_a_new_life_and_charges_nothing() -> None:
    world = started()
    world.work("job-7")
    actions, (text,) = world.order(Verb.RESTART)
    assert actions == [Ask(ONE)]
    assert "job-7" in text
    assert world.order(Verb.RESTART)[0] == []
    assert world.exit(signal=9, had_job=True) == [Spawn(ONE, 2)]
    assert (world.place.history, world.place.reason) == (History(), Reason.RESTARTED)
    world.ready()
    assert world.beat(60) == []


# spec: RP-6, SV-10
@pytest.mark.parametrize("verb", [Verb.RESTART, Verb.RESET])
def test_restart_and_reset_clear_what_was_given_up(verb: Verb) -> None:
    world = started()
    world.give_up()
    actions, (text,) = world.order(verb)
    assert actions == [Forgiven(ONE), Spawn(ONE, 2)]
    assert "starts" in text
    assert (world.place.status, world.place.history) == (Status.STARTING, History())
    world.ready()
    assert world.place.status is Status.HEALTHY


# spec: RP-6, SV-10
@pytest.mark.parametrize("verb", [Verb.RESTART, Verb.RESET])
@pytest.mark.parametrize("how", ["stopped", "crashed"])
def test_restart_and_reset_start_what_is_not_there(verb: Verb, how: str) -> None:
    world = started()
    if how == "stopped":
        world.order(Verb.STOP)
        world.exit(code=0)
    else:
        world.crash()
    assert world.order(verb)[0] == [Spawn(ONE, 2)], "at once, without a backoff"


# reset


# spec: RP-6, RP-8
def test_reset_clears_the_past_of_one_that_runs_and_lets_it_run() -> None:
    world = World()
    for _ in range(5):
        world.again()
        world.crash()
    world.again()
    actions, (text,) = world.order(Verb.RESET)
    assert actions == []
    assert "cleared" in text
    assert world.place.history == History()
    assert world.place.status is Status.HEALTHY
    assert [action.pause for action in world.crash() if isinstance(action, Replace)] == [1]


# spec: RP-6
def test_reset_of_one_that_cannot_be_made_tries_at_once() -> None:
    world = World()
    world.tell(NotStarted(ONE, "no room"))
    assert world.order(Verb.RESET)[0] == [Spawn(ONE, 2)]


# pause and resume


# spec: RP-6, PD-1
def test_resume_names_the_failed_and_the_remedy_and_changes_nothing() -> None:
    world = started(3)
    world.give_up(TWO)
    world.crash("worker:tag:2")
    world.tell(PausesChanged(["*"]))
    world.tell(PausesChanged([]))
    alive, failed, crashed = words(resumed(world.fleet, None))
    assert alive == "accepts jobs again"
    assert "no such model" in failed
    assert f"chargehand reset {TWO}" in failed
    assert "crashed" in crashed
    assert world.statuses == ["healthy", "failed", "crashed"]


# spec: PD-1
@pytest.mark.parametrize(
    ("scopes", "commands"),
    [
        (["*"], "`chargehand resume`"),
        (["tag"], "`chargehand resume tag`"),
        ([ONE, "*"], f"`chargehand resume` and `chargehand resume {ONE.removeprefix('worker:')}`"),
    ],
)
def test_resume_names_what_lifts_the_pauses_that_still_hold(scopes: list[str], commands: str) -> None:
    world = started()
    world.tell(PausesChanged(scopes))
    assert words(resumed(world.fleet, ONE)) == [f"is still paused by another pause: {commands}"]


# spec: RP-6
def test_counts_survive_pause_and_resume() -> None:
    world = started()
    world.crash()
    world.again()
    for scopes in (["*"], []):
        world.tell(PausesChanged(scopes))
    assert (world.place.history.streak, len(world.place.history.charged)) == (1, 1)
