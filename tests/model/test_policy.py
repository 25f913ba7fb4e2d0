"""The restart policy, with a virtual clock: how long to wait, and when to stop trying."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chargehand.model.fleet.policy import (
    GiveUpOn,
    History,
    LivenessPolicy,
    Restart,
    RestartPolicy,
    after_crash,
    restored,
)

steady = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

POLICY = RestartPolicy()
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def crash(history: History, now: float, *, charge: bool = True, jitter: float = 0.0) -> Restart | GiveUpOn:
    history.add(now, charge=charge)
    return after_crash(POLICY, history, now, jitter)


def pause(history: History, now: float, *, charge: bool = True, jitter: float = 0.0) -> float:
    decision = crash(history, now, charge=charge, jitter=jitter)
    assert isinstance(decision, Restart), decision
    return decision.at - now


def crashes(moments: list[float]) -> list[type]:
    history = History()
    return [type(crash(history, moment)) for moment in moments]


# spec: RP-1, RP-2, RP-3, RP-4, SV-5, SV-6, PD-3
def test_the_numbers_are_those_of_the_specification() -> None:
    assert (POLICY.first_pause, POLICY.longest_pause, POLICY.healthy_after) == (1, 60, 300)
    assert (POLICY.window, POLICY.rapid_limit, POLICY.lifetime_limit) == (300, 5, 20)
    live = LivenessPolicy()
    assert (live.beat, live.first_frame, live.set_up, live.silent) == (5, 30, 300, 30)
    assert (live.grace, live.terminate) == (10, 2)


# spec: RP-1
def test_the_backoff_is_1_2_4_8_16_32_60() -> None:
    history = History()
    assert [pause(history, n * DAY) for n in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


# spec: RP-1
def test_the_backoff_starts_at_the_crash() -> None:
    assert crash(History(), 1000.0) == Restart(1001.0)


# spec: RP-1
@steady
@given(streak=st.integers(0, 100_000), jitter=st.floats(0, 1), now=st.floats(0, 1e9))
def test_jitter_adds_at_most_a_tenth_and_never_goes_over_the_longest(streak: int, jitter: float, now: float) -> None:
    history = History(streak=streak)
    waited = pause(history, now, charge=False, jitter=jitter)
    exact = min(2 ** min(streak, 10), 60)
    assert exact - 1e-6 <= waited <= min(exact * 1.1, 60.0) + 1e-6


# spec: RP-1
def test_jitter_spreads_a_fleet() -> None:
    assert [round(pause(History(streak=3), 0.0, jitter=j), 6) for j in (0.0, 0.5, 1.0)] == [8, 8.4, 8.8]


# spec: RP-2
def test_the_sixth_crash_within_five_minutes_is_the_last() -> None:
    assert crashes([0, 1, 3, 7, 15, 31]) == [Restart] * 5 + [GiveUpOn]


# spec: RP-2
def test_the_reason_says_how_many_and_how_fast() -> None:
    history = History()
    for n in range(5):
        crash(history, n)
    assert crash(history, 5) == GiveUpOn("6 crashes within 300 s")


# spec: RP-2
@pytest.mark.parametrize(("last", "given_up"), [(299.0, True), (300.0, True), (300.5, False), (400.0, False)])
def test_the_window_slides(last: float, given_up: bool) -> None:
    """Five crashes at 0 to 4 s, the sixth so much later: only what is within 300 s of it counts."""
    assert (crashes([0, 1, 2, 3, 4, last])[-1] is GiveUpOn) is given_up


# spec: RP-2
def test_the_window_is_not_a_bucket() -> None:
    """Three before a full five minutes and three after: a counter that is reset would miss them."""
    assert crashes([290, 295, 299, 301, 305, 310])[-1] is GiveUpOn


# spec: RP-2
@pytest.mark.parametrize("apart", [61.0, 75.0, HOUR, DAY])
def test_crashes_far_apart_never_add_up_to_the_rapid_limit(apart: float) -> None:
    assert crashes([n * apart for n in range(20)]) == [Restart] * 20


# spec: RP-3
@pytest.mark.parametrize("apart", [61.0, HOUR, 30 * DAY])
def test_after_twenty_restarts_the_next_crash_is_the_last_whatever_the_timing(apart: float) -> None:
    assert crashes([n * apart for n in range(21)]) == [Restart] * 20 + [GiveUpOn]


# spec: RP-3
def test_the_reason_says_how_many_in_all() -> None:
    history = History(charged=[n * HOUR for n in range(20)])
    assert crash(history, 100 * HOUR) == GiveUpOn("21 crashes in total")


# spec: RP-4
def test_a_rest_resets_the_backoff() -> None:
    history = History()
    for n in range(4):
        crash(history, n)
    history.rest(400.0)
    assert pause(history, 400.0) == 1


# spec: RP-4
def test_a_rest_resets_the_rapid_window() -> None:
    history = History()
    for n in range(5):
        crash(history, n)
    history.rest(6.0)
    assert [type(crash(history, 6.0 + n)) for n in range(6)] == [Restart] * 5 + [GiveUpOn]


# spec: RP-4
def test_a_rest_does_not_reset_the_lifetime_count() -> None:
    history = History()
    for n in range(20):
        history.rest(n * HOUR)
        assert isinstance(crash(history, n * HOUR), Restart)
    history.rest(20 * HOUR)
    assert isinstance(crash(history, 20 * HOUR), GiveUpOn)


# spec: RP-7
def test_a_crash_that_is_not_charged_still_lengthens_the_backoff() -> None:
    history = History()
    assert [pause(history, n, charge=False) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert history.charged == []


# spec: RP-7
def test_crashes_that_are_not_charged_never_give_up() -> None:
    history = History()
    assert {type(crash(history, n, charge=False)) for n in range(1000)} == {Restart}


# spec: RP-1, RP-2, RP-3
@steady
@given(st.lists(st.tuples(st.floats(0.001, 4000), st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_giving_up_is_exactly_the_limits(steps: list[tuple[float, bool, bool]]) -> None:
    """Against the simplest possible restatement of RP-2 and RP-3."""
    history, now = History(), 0.0
    charged: list[float] = []
    recent: list[float] = []
    for gap, charge, rested in steps:
        now += gap
        if rested:
            history.rest(now)
            recent = []
        if charge:
            charged.append(now)
            recent.append(now)
        recent = [moment for moment in recent if moment >= now - 300.0]
        decision = crash(history, now, charge=charge)
        assert isinstance(decision, GiveUpOn) == (len(recent) > 5 or len(charged) > 20)


# what outlives the node


# spec: RP-9
@steady
@given(
    ages=st.lists(st.floats(0, 1e5), max_size=20),
    rested=st.none() | st.floats(0, 1e5),
    before=st.floats(0, 1e7),
    after=st.floats(0, 1e7),
    gap=st.floats(0, 1000),
)
def test_a_restored_history_counts_the_same(
    ages: list[float], rested: float | None, before: float, after: float, gap: float
) -> None:
    """The clocks of two boots have nothing to do with each other."""
    history = History([before - age for age in sorted(ages, reverse=True)], 3, restarts=2)
    if rested is not None:
        history.rested_at = before - rested
    note = history.note("worker:tag:0", "f", 9, before)
    later = restored(note, "f", after)
    assert (later.streak, later.restarts, note.restarts_total) == (3, 2, 9)
    for is_, was in zip((*later.charged, later.rested_at), (*history.charged, history.rested_at), strict=True):
        assert after - is_ == pytest.approx(before - was, abs=0.002)
    assert later.charged_since(after - gap - 0.01) >= history.charged_since(before - gap)


# spec: RP-9
def test_a_crash_at_the_moment_of_a_rest_still_counts_after_a_restart() -> None:
    history = History(rested_at=1000.0004)
    history.add(1000.0004, charge=True)
    later = restored(history.note("worker:tag:0", "f", 0, 1000.7777), "f", 5.0)
    assert later.charged_since(-HOUR) == 1


# spec: RP-6 RP-9
def test_the_history_of_other_code_does_not_count() -> None:
    history = History([1.0, 2.0], 2, restarts=2)
    assert restored(history.note("worker:tag:0", "old", 2, 3.0), "new", 3.0) == History()
    assert restored(history.note("worker:tag:0", "old", 2, 3.0), None, 3.0) == History()
