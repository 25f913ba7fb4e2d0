"""Jobs: the table of states, what each outcome makes of a claim, and what may enter a store."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chargehand.errors import PayloadError
from chargehand.model.job import (
    DEFAULT_POLICY,
    FINISHED,
    LONGEST_DELAY_MS,
    PAYLOAD_LIMIT,
    PRIORITY_LIMIT,
    TEXT_LIMIT,
    TRANSITIONS,
    Claim,
    Crashed,
    Done,
    GaveUp,
    Interrupted,
    JobPolicy,
    NewJob,
    Outcome,
    Raised,
    RetryLater,
    Returned,
    Settled,
    Settlement,
    State,
    check,
    cut,
    retry_delay_ms,
    settle,
)

steady = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def claim(failures: int = 0, crashes: int = 0, max_attempts: int = 3) -> Claim:
    return Claim(
        id="one", seq=7, number=4, queue="q", payload="null", label=None, priority=0, failures=failures,
        max_attempts=max_attempts, crashes=crashes, timeout_ms=None,
    )  # fmt: skip


def settled(of: Claim, outcome: Outcome, **more: Any) -> Settlement:
    made = settle(of, outcome, **more)
    assert made is not None
    return made


def new(**options: Any) -> NewJob:
    given: dict[str, Any] = {"id": "one", "queue": "q", **options}
    return NewJob(**given)


FAILURES: list[Outcome] = [Raised("e"), RetryLater(5, "e"), GaveUp("e"), Crashed("e"), Interrupted("e")]

# the table

ALLOWED = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("queued", "failed"),  # by a predecessor
    ("running", "done"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "queued"),
    ("failed", "queued"),
    ("cancelled", "queued"),
}


# spec: WK-1
@pytest.mark.parametrize("before", list(State))
@pytest.mark.parametrize("after", list(State))
def test_the_only_transitions_are_those_of_the_specification(before: State, after: State) -> None:
    assert (after in TRANSITIONS[before]) == ((before.value, after.value) in ALLOWED)


# spec: WK-1
def test_a_finished_job_is_one_that_no_worker_will_move() -> None:
    assert {State.DONE, State.FAILED, State.CANCELLED} == FINISHED
    assert all(TRANSITIONS[state] <= {State.QUEUED} for state in FINISHED)


# what an outcome makes of a job


# spec: WK-5
def test_done_keeps_the_result_and_the_follow_up_jobs() -> None:
    follow = (new(id="two"),)
    made = settled(claim(failures=2, crashes=2), Done("[1]", follow))
    assert (made.state, made.outcome, made.result, made.follow) == (State.DONE, "done", "[1]", follow)
    assert (made.failures, made.crashes, made.interruptions) == (0, 0, 0)
    assert (made.error, made.reason, made.delay_ms) == (None, None, 0)


# spec: WK-10
def test_a_job_that_its_handler_settled_needs_no_settlement() -> None:
    assert settle(claim(), Settled()) is None


# spec: WK-4
@pytest.mark.parametrize("outcome", [Done(), Returned(), *FAILURES])
def test_a_settlement_is_of_the_very_claim(outcome: Outcome) -> None:
    made = settled(claim(), outcome, worker="worker:q:0", pid=11, duration_ms=5)
    assert (made.id, made.seq, made.claim, made.queue) == ("one", 7, 4, "q")
    assert (made.worker, made.pid, made.duration_ms) == ("worker:q:0", 11, 5)


# spec: WK-1
@pytest.mark.parametrize("outcome", [Done(), Returned(), *FAILURES])
@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("crashes", [0, 2])
def test_no_outcome_leads_out_of_the_table(outcome: Outcome, failures: int, crashes: int) -> None:
    assert settled(claim(failures, crashes), outcome).state in TRANSITIONS[State.RUNNING]


# spec: WK-5
@pytest.mark.parametrize(
    ("failures", "max_attempts", "state", "delay"),
    [
        (0, 3, State.QUEUED, 2_000),
        (1, 3, State.QUEUED, 4_000),
        (2, 3, State.FAILED, 0),
        (3, 3, State.FAILED, 0),
        (0, 1, State.FAILED, 0),
        (0, 2, State.QUEUED, 2_000),
        (9, 100, State.QUEUED, 600_000),
    ],
)
def test_a_raise_is_retried_until_the_attempts_are_used_up(
    failures: int, max_attempts: int, state: State, delay: int
) -> None:
    made = settled(claim(failures, max_attempts=max_attempts), Raised("Traceback"))
    assert (made.state, made.delay_ms, made.failures, made.crashes) == (state, delay, 1, 0)
    assert (made.outcome, made.error) == ("raised", "Traceback")
    assert made.reason == ("raised" if state is State.FAILED else None)


# spec: WK-5
@pytest.mark.parametrize(
    ("failures", "state", "delay"), [(0, State.QUEUED, 1234), (1, State.QUEUED, 1234), (2, State.FAILED, 0)]
)
def test_a_retry_waits_as_long_as_it_was_asked_to(failures: int, state: State, delay: int) -> None:
    made = settled(claim(failures), RetryLater(1234, "not yet"))
    assert (made.state, made.delay_ms, made.failures, made.outcome) == (state, delay, 1, "retry")
    assert made.reason == ("retries used up" if state is State.FAILED else None)


# spec: WK-5
@pytest.mark.parametrize(("after", "delay"), [(0, 0), (-5, 0), (1, 1)])
def test_a_retry_is_never_in_the_past(after: int, delay: int) -> None:
    assert settled(claim(), RetryLater(after, "x")).delay_ms == delay


# spec: WK-5, SV-3
def test_a_retry_is_never_so_far_away_that_no_store_can_write_it_down() -> None:
    """Such a settlement would make every batch fail that it is part of, for good."""
    assert settled(claim(), RetryLater(10**30, "x")).delay_ms <= LONGEST_DELAY_MS


# spec: WK-5
@pytest.mark.parametrize("failures", [0, 1, 2])
def test_giving_up_is_for_good_at_any_attempt(failures: int) -> None:
    made = settled(claim(failures), GaveUp("not a video"))
    assert (made.state, made.reason, made.error, made.failures) == (State.FAILED, "gave up", "not a video", 1)


# spec: WK-6
@pytest.mark.parametrize(
    ("crashes", "state", "delay", "reason"),
    [(0, State.QUEUED, 0, None), (1, State.QUEUED, 2_000, None), (2, State.FAILED, 0, "poison")],
)
def test_a_crash_is_forgiven_at_once_then_later_then_never(
    crashes: int, state: State, delay: int, reason: str | None
) -> None:
    made = settled(claim(crashes=crashes), Crashed("signal 11"))
    assert (made.state, made.delay_ms, made.reason, made.error) == (state, delay, reason, "signal 11")
    assert (made.crashes, made.failures, made.interruptions, made.outcome) == (1, 0, 0, "crashed")


# spec: WK-6
def test_three_crashes_are_poison() -> None:
    assert DEFAULT_POLICY.poison_crashes == 3


# spec: WK-6
def test_crashes_are_not_attempts() -> None:
    assert settled(claim(failures=2, crashes=0), Crashed("x")).state is State.QUEUED
    assert settled(claim(failures=0, crashes=2), Raised("x")).state is State.QUEUED


# spec: WK-6
@pytest.mark.parametrize("failures", [0, 2, 99])
def test_an_interruption_costs_nothing(failures: int) -> None:
    made = settled(claim(failures, crashes=2, max_attempts=1), Interrupted("stop"))
    assert (made.state, made.delay_ms, made.failures, made.crashes) == (State.QUEUED, 0, 0, 0)
    assert (made.interruptions, made.outcome, made.error) == (1, "interrupted", "stop")


# spec: WK-6
def test_a_job_that_was_never_handed_out_goes_back_without_a_trace() -> None:
    made = settled(claim(), Returned())
    assert (made.state, made.outcome, made.delay_ms, made.error) == (State.QUEUED, None, 0, None)
    assert (made.failures, made.crashes, made.interruptions) == (0, 0, 0)


# spec: SE-3
@pytest.mark.parametrize("outcome", [Raised, GaveUp, Crashed, Interrupted, lambda error: RetryLater(1, error)])
def test_an_error_is_cut_before_it_is_kept(outcome: Any) -> None:
    made = settled(claim(), outcome("x" * (10 * TEXT_LIMIT)))
    assert made.error is not None
    assert len(made.error) < TEXT_LIMIT + 100


# backoff


# spec: WK-5
def test_the_backoff_doubles_up_to_ten_minutes() -> None:
    delays = [retry_delay_ms(n, 0.0) // 1000 for n in range(1, 12)]
    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


# spec: WK-5
@steady
@given(failures=st.integers(1, 100_000), jitter=st.floats(0, 1))
def test_the_jitter_adds_at_most_a_tenth(failures: int, jitter: float) -> None:
    plain = retry_delay_ms(failures, 0.0)
    assert plain <= retry_delay_ms(failures, jitter) <= plain * 1.1 + 1
    assert plain <= 600_000


# spec: WK-5
def test_jitter_spreads_the_retries() -> None:
    assert retry_delay_ms(3, 0.5) == 8400
    assert settled(claim(), Raised("x"), jitter=1.0).delay_ms == 2200
    assert settled(claim(crashes=1), Crashed("x"), jitter=0.5).delay_ms == 2100


# cutting


# spec: SE-3
@steady
@given(text=st.text(max_size=300), limit=st.integers(1, 200))
def test_a_cut_text_keeps_its_beginning_and_its_end(text: str, limit: int) -> None:
    short = cut(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit // 2])
        assert short.endswith(text[-(limit // 2) :] if limit > 1 else "")
        assert f"… {len(text) - limit} characters left out …" in short
        assert len(short) <= limit + 60


# spec: SE-3
@pytest.mark.parametrize(("length", "whole"), [(TEXT_LIMIT, True), (TEXT_LIMIT + 1, False)])
def test_a_text_is_cut_only_above_the_limit(length: int, whole: bool) -> None:
    assert (cut("x" * length) == "x" * length) is whole


# what may enter a store


# spec: WK-1, SE-3
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"payload": '"' + "x" * (PAYLOAD_LIMIT - 2) + '"'},
        {"queue": "x" * 200, "label": "x" * 200, "key": "x" * 200, "id": "x" * 200},
        {"queue": "ü", "label": "日本 💥", "key": "a/b:c d"},
        {"priority": PRIORITY_LIMIT},
        {"priority": -PRIORITY_LIMIT},
        {"delay_ms": LONGEST_DELAY_MS},
        {"max_attempts": 1},
        {"max_attempts": 1_000_000},
        {"timeout_ms": None},
        {"timeout_ms": 1},
        {"timeout_ms": LONGEST_DELAY_MS},
        {"run_at_ms": 0},
        {"run_at_ms": 4_102_444_800_000},
    ],
)
def test_a_job_within_the_limits_may_enter(options: dict[str, Any]) -> None:
    job = new(**options)
    assert check(job) is job


@pytest.mark.parametrize(
    "text",
    [
        "Screenshot 5.00.00\u202fPM.png",  # as macOS names them
        "a\u00a0b\u3000c.flac",
        "می\u200cخواهم.mp3",
        "👩\u200d🚀",
        "\u200eIMG\u2068-7\u2069.jpg",  # as messengers name them
        "\U0001fae8 \ue000",  # newer than some versions of Python; private
    ],
)
def test_texts_of_a_job_may_have_what_names_of_files_have(text: str) -> None:
    job = new(label=text, key=text, tags=(text,), limit_key=text, sequence=text)
    assert check(job) == job


# spec: WK-1, SE-3
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payload": '"' + "x" * (PAYLOAD_LIMIT - 1) + '"'}, "payload has 1,048,577 bytes.*1,048,576"),
        ({"payload": '"' + "ü" * (PAYLOAD_LIMIT // 2) + '"'}, "payload has 1,048,578 bytes"),
        ({"queue": ""}, "queue has 0 characters; must have 1 to 200"),
        ({"queue": "x" * 201}, "queue has 201 characters"),
        ({"label": ""}, "label has 0"),
        ({"label": "x" * 201}, "label has 201"),
        ({"key": ""}, "key has 0"),
        ({"key": "x" * 201}, "key has 201"),
        ({"id": ""}, "id has 0"),
        ({"id": "x" * 201}, "id has 201"),
        ({"queue": "a\nb"}, "queue.*control characters"),
        ({"label": "a\x1b[31m"}, "label.*control characters"),
        ({"key": "a\0b"}, "key.*control characters"),
        ({"label": "a\x9bb"}, "label.*control characters"),
        ({"label": "a\u2028b"}, "label.*control characters"),
        ({"id": "a\tb"}, "id.*control characters"),
        ({"label": "\ud800"}, "label"),
        ({"priority": PRIORITY_LIMIT + 1}, "priority is 1000001; must be -1000000 to 1000000"),
        ({"priority": -PRIORITY_LIMIT - 1}, "priority is -1000001"),
        ({"delay_ms": -1}, "delay is -1"),
        ({"delay_ms": LONGEST_DELAY_MS + 1}, "delay is"),
        ({"max_attempts": 0}, "max_attempts is 0; must be 1"),
        ({"max_attempts": -1}, "max_attempts is -1"),
        ({"max_attempts": 1_000_001}, "max_attempts is"),
        ({"timeout_ms": 0}, "timeout is 0"),
        ({"timeout_ms": -1}, "timeout is -1"),
        ({"timeout_ms": LONGEST_DELAY_MS + 1}, "timeout is"),
        ({"run_at_ms": 10**30}, "run_at"),
        ({"run_at_ms": -(10**30)}, "run_at"),
        ({"payload": '"\ud800"'}, "payload"),
    ],
)
def test_a_job_over_a_limit_is_refused_with_what_is_allowed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PayloadError, match=words):
        check(new(**options))


def test_a_policy_decides_about_poison_and_backoff() -> None:  # spec: CF-4 WK-6
    policy = JobPolicy(poison_crashes=2, first_retry=0.5, longest_retry=3.0)
    assert settled(claim(crashes=0), Crashed("x"), policy=policy).state is State.QUEUED
    assert settled(claim(crashes=1), Crashed("x"), policy=policy).reason == "poison"
    assert [retry_delay_ms(n, 0.0, policy) for n in (1, 2, 3, 4, 1000)] == [500, 1000, 2000, 3000, 3000]
    assert settled(claim(), Raised("x"), policy=policy).delay_ms == 500
