"""What a node counts for those who watch it."""

from ledger_builders import claims

from chargehand.model.job import Crashed, Done, Raised, Settled
from chargehand.model.spread import COARSE
from chargehand.model.status import HistogramStatus
from chargehand.model.tally import STORE_BOUNDS, Histogram, Tally


def filled(view: HistogramStatus) -> dict[float, int]:
    bounds = [*view.bounds, float("inf")]
    return {bound: count for bound, count in zip(bounds, view.counts, strict=True) if count}


def test_a_length_falls_under_the_first_bound_that_it_does_not_pass() -> None:  # spec: HT-5
    found = Histogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.11, 1.0, 1.01):
        found.observe(seconds)
    assert found.view() == HistogramStatus(bounds=(0.1, 1.0), counts=(2, 2, 1), total=2.22)


def test_jobs_are_counted_by_queue_and_end() -> None:  # spec: HT-5
    tally = Tally({"q", "other"})
    for claim in (*claims(1), *claims(2, waited_ms=700)):
        tally.started("q", claim)
    for outcome in (Done(), Settled(), Raised("x"), Crashed("y")):
        tally.ended("q", outcome, 2.0)
    tally.crashed("crew", "oom")
    view = tally.view(0)
    assert filled(view.wait["q"]) == {COARSE[0]: 1, 1.0: 1}
    assert filled(view.run["q"]) == {5.0: 4}
    assert filled(view.run["other"]) == {}
    assert view.ended == (("q", "done", 2), ("q", "raised", 1), ("q", "crashed", 1))
    assert view.crashes == (("crew", "oom", 1),)


def test_the_store_is_timed_from_the_first_outcome_to_the_commit() -> None:  # spec: HT-5
    tally = Tally({"q"})
    tally.pending(10.0)
    tally.pending(10.5)
    tally.sent(11.0)
    tally.committed(11.02, settled=True, claimed=True)
    assert filled(tally.view(0).claim) == {0.025: 1}
    assert filled(tally.view(0).settle) == {5.0: 1}


def test_what_was_not_committed_is_timed_from_its_first_try() -> None:
    tally = Tally({"q"})
    tally.pending(10.0)
    tally.sent(10.0)
    tally.pending(10.1)
    tally.failed()
    tally.sent(12.0)
    tally.committed(12.0, settled=True, claimed=False)
    assert filled(tally.view(0).settle) == {5.0: 1}
    assert filled(tally.view(0).claim) == {}
    assert STORE_BOUNDS[-1] == 30.0
