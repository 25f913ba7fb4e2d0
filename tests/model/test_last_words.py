"""What a death means: one word for the reason, and what becomes of the job in hand."""

import itertools

import pytest

from chargehand.model.fleet.death import MEANINGS, Death, Reason, last_outcome, reason_of
from chargehand.model.job import Claim, Crashed, Interrupted, State, TimedOut, settle

VERDICTS = [Reason.HEARTBEAT_TIMEOUT, Reason.HUNG, Reason.BAD_FRAME, Reason.START_TIMEOUT, Reason.JOB_TIMEOUT]

TABLE = {
    "a signal": (Death(signal=11), "crash"),
    "a kill that was not ours": (Death(signal=9), "crash"),
    "the kernel, for want of memory": (Death(signal=9, oom=True), "oom"),
    "0 by itself": (Death(exit_code=0), "exited"),
    "1": (Death(exit_code=1), "exited"),
    "2 with words": (Death(exit_code=2, said="x"), "configuration error"),
    "2 without": (Death(exit_code=2), "configuration error"),
    "2 with words in a job": (Death(exit_code=2, said="x", had_job=True), "configuration error"),
    "sys.exit(2) in a job": (Death(exit_code=2, had_job=True), "exited"),
    "3 with words": (Death(exit_code=3, said="x"), "unrecoverable error"),
    "3 with words in a job": (Death(exit_code=3, said="x", had_job=True), "unrecoverable error"),
    "sys.exit(3) in a job": (Death(exit_code=3, had_job=True), "exited"),
    "4": (Death(exit_code=4, said="x"), "exited"),
    "5 with words": (Death(exit_code=5, said="x"), "set-up failed"),
    "5 without": (Death(exit_code=5), "exited"),
    "a code of its own": (Death(exit_code=137), "exited"),
}


# spec: WP-8, WP-6, RP-5
@pytest.mark.parametrize("name", TABLE)
def test_the_reason_is_told_from_the_facts(name: str) -> None:
    death, reason = TABLE[name]
    assert reason_of(death, None).value == reason


# spec: WP-8
@pytest.mark.parametrize("verdict", [*VERDICTS, Reason.EXITED])
@pytest.mark.parametrize("name", TABLE)
def test_the_supervisors_own_verdict_goes_first(name: str, verdict: Reason) -> None:
    assert reason_of(TABLE[name][0], verdict) is verdict


# spec: RP-5
@pytest.mark.parametrize("code", range(8))
@pytest.mark.parametrize("said", [None, "x"])
@pytest.mark.parametrize("had_job", [True, False])
def test_only_2_and_3_are_final_and_not_if_a_job_just_called_exit(code: int, said: str | None, had_job: bool) -> None:
    meant = said is not None or not had_job
    assert Death(exit_code=code, said=said, had_job=had_job).fatal is (code in (2, 3) and meant)


# spec: RP-5, WP-8
def test_a_signal_is_never_taken_for_an_exit_code() -> None:
    for number in (2, 3):
        assert not Death(signal=number).fatal
        assert reason_of(Death(signal=number), None) is Reason.CRASH


# spec: WP-8
def test_every_reason_has_a_meaning_for_people() -> None:
    assert set(MEANINGS) == set(Reason)
    assert len(set(MEANINGS.values())) == len(MEANINGS)
    named = {"crash", "oom", "heartbeat timeout", "bad frame", "start timeout", "job timeout", "recycled", "stopped"}
    assert named | {"exited"} <= {reason.value for reason in Reason}


# the job in hand


# spec: WK-6
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("verdict", [None, *VERDICTS])
def test_a_death_that_we_wished_is_an_interruption(name: str, verdict: Reason | None) -> None:
    if verdict is not Reason.JOB_TIMEOUT:
        assert isinstance(last_outcome(TABLE[name][0], verdict, "w", asked=True), Interrupted)


# spec: WK-6, SV-6
@pytest.mark.parametrize("verdict", [None, Reason.HEARTBEAT_TIMEOUT, Reason.HUNG, Reason.BAD_FRAME, Reason.EXITED])
@pytest.mark.parametrize("death", [Death(signal=11), Death(signal=9, oom=True), Death(exit_code=0), Death(exit_code=5)])
def test_any_other_is_a_crash_of_the_job(death: Death, verdict: Reason | None) -> None:
    outcome = last_outcome(death, verdict, "worker:tag:0 (pid 7)", asked=False)
    assert isinstance(outcome, Crashed)
    assert "worker:tag:0 (pid 7)" in outcome.error
    assert death.how in outcome.error
    if verdict not in (None, Reason.EXITED):
        assert verdict.value in outcome.error


# spec: RP-5, WK-6
@pytest.mark.parametrize("code", [2, 3])
def test_a_worker_that_gave_up_itself_does_not_blame_its_job(code: int) -> None:
    outcome = last_outcome(Death(exit_code=code, said="no GPU", had_job=True), None, "w", asked=False)
    assert isinstance(outcome, Interrupted)
    assert "no GPU" in outcome.error
    assert isinstance(last_outcome(Death(exit_code=code, had_job=True), None, "w", asked=False), Crashed)


# spec: WK-7
@pytest.mark.parametrize("asked", [True, False])
def test_a_job_that_took_too_long_is_timed_out_however_its_worker_went(asked: bool) -> None:
    for name, stacks in itertools.product(TABLE, ("", "File x, line 3")):
        outcome = last_outcome(TABLE[name][0], Reason.JOB_TIMEOUT, "w", asked=asked, stacks=stacks)
        assert isinstance(outcome, TimedOut)
        assert stacks in outcome.error
        assert ("no stack traces" in outcome.error) is (not stacks)


# spec: SV-6, WP-10
def test_where_it_stood_is_kept_with_a_crash_too() -> None:
    outcome = last_outcome(Death(signal=9), Reason.HUNG, "w", asked=False, stacks="File x, line 3")
    assert isinstance(outcome, Crashed)
    assert "File x, line 3" in outcome.error


def claim(failures: int, max_attempts: int) -> Claim:
    return Claim(
        id="j", seq=1, number=1, queue="q", payload="null", label=None, priority=0, failures=failures,
        max_attempts=max_attempts, crashes=2, timeout_ms=1000,
    )  # fmt: skip


# spec: WK-7, WK-5
@pytest.mark.parametrize(("failures", "delay_ms"), [(0, 2000), (1, 4000), (2, 8000)])
def test_a_timed_out_attempt_is_tried_again_with_a_backoff(failures: int, delay_ms: int) -> None:
    found = settle(claim(failures, 4), TimedOut("it stood here"))
    assert found is not None
    assert (found.state, found.outcome, found.delay_ms) == (State.QUEUED, "timed out", delay_ms)
    assert (found.failures, found.crashes, found.interruptions) == (1, 0, 0)
    assert found.error == "it stood here"


# spec: WK-7, WK-5
def test_the_last_attempt_that_is_timed_out_fails_the_job() -> None:
    found = settle(claim(3, 4), TimedOut("it stood here"))
    assert found is not None
    assert (found.state, found.outcome, found.reason) == (State.FAILED, "timed out", "timed out")
    assert (found.failures, found.crashes) == (1, 0)
