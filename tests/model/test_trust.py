"""Which failures are a job's own, and which process is replaced because it fails what others can do."""

from typing import Any

from ledger_builders import claims

from chargehand.model.job import Claim, Raised, State, TimedOut, settle
from chargehand.model.trust import Distrust, Trust


def crew(*workers: str) -> Trust:
    made = Trust()
    for worker in workers:
        made.ready(worker, f"{worker} first")
    return made


def job(number: int = 1, failed_in: str | None = None, **about: Any) -> Claim:
    return claims(number, failed_in=failed_in, **about)[0]


def fails(trust: Trust, worker: str, *names: str) -> Distrust | None:
    """The worker fails these jobs in a row; what follows the last."""
    for name in names:
        trust.failed(worker, name)
    return trust.suspect(worker)


# credible failures (WP-13)


def test_a_failure_in_one_process_proves_nothing() -> None:  # spec: WP-13
    trust = crew("w0", "w1")
    first = trust.judge("w0", job())
    assert not first.credible
    again = trust.judge("w0", job(failed_in=first.failed_in))
    assert not again.credible


def test_a_failure_in_a_second_process_is_credible_for_ever() -> None:  # spec: WP-13
    trust = crew("w0", "w1")
    first = trust.judge("w0", job())
    second = trust.judge("w1", job(failed_in=first.failed_in))
    assert second.credible
    assert second.jobs_own
    assert trust.judge("w0", job(failed_in=second.failed_in)).credible


def test_a_failure_is_credible_if_the_process_has_done_another_job_since() -> None:  # spec: WP-13
    trust = crew("w0")
    trust.succeeded("w0")
    first = trust.judge("w0", job())
    assert not first.credible, "the success came before the failure"
    trust.succeeded("w0")
    assert trust.judge("w0", job(failed_in=first.failed_in)).credible


def test_a_failure_in_the_process_of_an_earlier_node_counts() -> None:  # spec: WP-13
    first = crew("w0").judge("w0", job())
    later = Trust()
    later.ready("w0", "w0 of the next node")
    assert later.judge("w0", job(failed_in=first.failed_in)).credible


def test_a_failure_in_a_broken_process_proves_nothing() -> None:  # spec: WP-12 WP-13
    trust = crew("w0", "w1")
    first = trust.judge("w0", job())
    trust.broke("w0")
    second = trust.judge("w1", job(failed_in=first.failed_in))
    assert not second.credible
    assert trust.judge("w0", job(failed_in=second.failed_in)).credible


# suspects


def test_three_jobs_that_others_can_do() -> None:  # spec: WP-13
    trust = crew("w0", "w1")
    trust.succeeded("w1")
    first = trust.judge("w0", job())
    assert fails(trust, "w0", "a", "b", "a") is None, "two different jobs"
    found = fails(trust, "w0", "c")
    assert found == Distrust("w0", "it failed 3 jobs in a row that others can do")
    assert not trust.judge("w1", job(failed_in=first.failed_in)).credible, "the first process was broken"


def test_a_success_in_between_clears_the_suspicion() -> None:  # spec: WP-13
    trust = crew("w0", "w1")
    trust.succeeded("w1")
    fails(trust, "w0", "a", "b")
    trust.succeeded("w0")
    assert fails(trust, "w0", "c", "d") is None
    trust.succeeded("w1")
    assert fails(trust, "w0", "e") is not None


def test_with_a_dead_upstream_one_process_is_replaced_and_no_other() -> None:  # spec: WP-13
    trust = crew("w0", "w1", "w2")
    assert fails(trust, "w1", "a", "b", "c") is not None
    assert fails(trust, "w0", "d", "e", "f") is None
    trust.gone("w1")
    trust.ready("w1", "w1 second")
    assert fails(trust, "w1", "a", "b", "c", "d", "e", "f") is None
    assert fails(trust, "w2", *"abcdefghij") is None
    assert trust.judge("w1", job()).credible, "a fresh process fails, too"
    trust.succeeded("w0")
    assert fails(trust, "w2", "k") is not None, "now others can do it"


def test_a_success_after_the_probe_proves_that_the_replaced_process_was_broken() -> None:  # spec: WP-13
    trust = crew("w0")
    before = trust.judge("w0", job())
    fails(trust, "w0", "a", "b", "c")
    trust.gone("w0")
    trust.ready("w0", "w0 second")
    trust.succeeded("w0")
    assert not trust.judge("w0", job(failed_in=before.failed_in)).credible


def test_a_worker_that_is_replaced_in_vain_is_replaced_less_often() -> None:
    trust = crew("w0", "w1")
    trust.succeeded("w1")
    assert fails(trust, "w0", "a", "b", "c") is not None
    for life, patience in enumerate((6, 12)):
        trust.gone("w0")
        trust.ready("w0", f"w0 {life}")
        trust.succeeded("w1")
        names = [f"{life} {number}" for number in range(patience)]
        assert fails(trust, "w0", *names[:-1]) is None
        assert fails(trust, "w0", names[-1]) is not None
    trust.gone("w0")
    trust.ready("w0", "w0 last")
    trust.succeeded("w0")
    trust.succeeded("w1")
    assert fails(trust, "w0", "x", "y", "z") is not None


# what a job makes of it


def test_without_a_credible_failure_a_job_gets_one_more_attempt() -> None:  # spec: WP-13
    last = job(failures=2)
    found = settle(last, Raised("x"), credible=False, failed_in="here")
    assert found is not None
    assert (found.state, found.failed_in, found.delay_ms > 0) == (State.QUEUED, "here", True)
    extra = settle(job(failures=3), Raised("x"), credible=False)
    assert extra is not None
    assert extra.state is State.FAILED
    credible = settle(last, Raised("x"), credible=True)
    assert credible is not None
    assert credible.state is State.FAILED


def test_a_job_with_one_attempt_gets_one() -> None:  # spec: WP-13
    found = settle(job(max_attempts=1), Raised("x"), credible=False)
    assert found is not None
    assert found.state is State.FAILED


def test_a_timeout_is_credible() -> None:  # spec: WP-13
    found = settle(job(failures=2), TimedOut("x"))
    assert found is not None
    assert found.state is State.FAILED
