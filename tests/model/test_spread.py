"""p50 and p95 of the last minutes, from counts that only grow."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.live.bodies import QueueBody
from chargehand.model.figures import Figures, Share, together
from chargehand.model.records import Counts
from chargehand.model.spread import COARSE, FINE, MARK, WINDOW, Recent, coarser, packed, quantile
from chargehand.model.tally import Histogram

seconds = st.floats(0.0, 20_000.0)


def counted(*observed: float) -> list[int]:
    histogram = Histogram(FINE)
    for each in observed:
        histogram.observe(each)
    return histogram.now()


@given(st.lists(st.floats(0.002, 10_000.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_exact_to_a_fifth(observed: list[float], part: float) -> None:
    found = quantile(packed(counted(*observed)), part)
    true = sorted(observed)[max(0, -(-len(observed) * int(part * 100) // 100) - 1)]
    assert found is not None
    assert true / 1.2 <= found <= true * 1.2


@given(st.lists(seconds, max_size=100))
def test_the_histograms_of_metrics_are_as_exact_as_before(observed: list[float]) -> None:
    coarse = Histogram(COARSE)
    for each in observed:
        coarse.observe(each)
    assert coarser(counted(*observed)) == tuple(coarse.now())


def test_what_is_long_ago_does_not_count() -> None:
    recent, slow = Recent(), [60.0] * 100
    assert quantile(recent.look(counted(), 0.0), 0.5) is None
    now = 0.0
    while now < WINDOW:
        now += MARK / 2
        assert quantile(recent.look(counted(*slow), now), 0.5) == pytest.approx(60, rel=0.2)
    fast = counted(*slow, *[0.1] * 3)
    now += MARK
    assert quantile(recent.look(fast, now), 0.5) == pytest.approx(0.1, rel=0.2)
    later = [recent.look(fast, now + step * MARK) for step in range(1, 30)]
    assert later[-1] == ()
    assert len(recent._marks) <= WINDOW / MARK + 3  # pyright: ignore[reportPrivateUsage]


def test_the_nodes_are_one() -> None:
    a = Share(1.0, 0.1, packed(counted(*[0.1] * 90)), packed(counted(5.0)))
    b = Share(0.0, None, packed(counted(*[60.0] * 10)), ())
    both = together([a, b])
    assert (both.rate, sum(both.waits[1:]), both.runs) == (1.0, 100, a.runs)
    queue = QueueBody.of(Counts(queue="tag"), None, both)
    assert queue.wait_p50_s == pytest.approx(0.1, rel=0.2)
    assert queue.wait_p95_s == pytest.approx(60, rel=0.2)
    assert queue.run_p50_s == queue.run_p95_s or queue.run_p50_s == pytest.approx(5, rel=0.2)
    assert QueueBody.of(Counts(queue="new"), None, Share()).wait_p95_s is None


def test_counts_of_another_version_do_no_harm() -> None:
    assert together([Share(1.0, 0.1, (len(FINE) - 1, 1, 2, 9, 9)), Share(0.0, None, (-4, 1))]).waits[1:] == (1, 2)


def test_figures_remember_both() -> None:
    figures, waits = Figures(), counted(0.1)
    share = figures.share(10.0, (waits, counted()))
    assert (Counter(share.waits[1:]), share.runs) == (Counter([1]), ())
