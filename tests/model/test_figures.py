"""How fast a queue gets done."""

import pytest
from msgspec.structs import replace

from chargehand.live.bodies import QueueBody
from chargehand.model.figures import WINDOW, Figures, Share, eta, together
from chargehand.model.records import Counts


def test_nothing_is_known_before_anything_ended() -> None:  # spec: EV-3
    figures = Figures()
    figures.began(0.0)
    assert (figures.rate(5.0), figures.mean(5.0)) == (0.0, None)
    assert (eta(0, 0.0), eta(7, 0.0), eta(8, 2.0)) == (0.0, None, 4.0)


def test_the_rate_is_that_of_the_present_run_and_of_the_last_minute() -> None:  # spec: EV-3
    figures = Figures()
    figures.began(100.0)
    for second in range(1, 11):
        figures.ended(2, 1.0, 100.0 + second)
    assert figures.rate(110.0) == pytest.approx(2.0)
    assert figures.mean(110.0) == pytest.approx(0.5)
    for second in range(11, 200):
        figures.ended(4, 4.0, 100.0 + second)
    assert figures.rate(300.0) == pytest.approx(4.0, rel=0.1)
    assert figures.mean(300.0) == pytest.approx(1.0)


def test_they_fade_and_end() -> None:  # spec: EV-3
    figures = Figures()
    figures.began(0.0)
    figures.ended(30, 3.0, 10.0)
    assert figures.rate(30.0) == pytest.approx(1.0)
    assert figures.rate(60.0) == pytest.approx(0.5)
    assert not figures.moved(60.0)
    assert figures.moved(10.0 + WINDOW + 5.0)
    assert not figures.moved(200.0)
    assert (figures.rate(200.0), figures.mean(200.0)) == (0.0, None)
    figures.began(300.0)
    figures.ended(5, 1.0, 305.0)
    assert figures.rate(305.0) == pytest.approx(1.0)  # a new run: the quiet before it does not count


def test_all_queues_together() -> None:  # spec: EV-3
    one = QueueBody(
        name="one", queued=2, done=5, rate=1.0, mean_duration_s=2.0, eta_s=2.0, oldest_wait_s=1.5, last_done_ms=10
    )
    two = QueueBody(
        name="two", queued=1, failed=1, rate=3.0, mean_duration_s=0.4, eta_s=9.0, oldest_wait_s=0.5, last_done_ms=20
    )
    total = QueueBody.total([one, two])
    assert (total.name, total.queued, total.done, total.failed) == (None, 3, 5, 1)
    assert (total.rate, total.eta_s, total.oldest_wait_s, total.last_done_ms) == (4.0, 9.0, 1.5, 20)
    assert total.mean_duration_s == 0.8
    assert QueueBody.total([one, QueueBody(name="three", queued=1, eta_s=None)]).eta_s is None
    assert QueueBody.total([]).eta_s == 0.0


# spec: EV-3 WK-19
def test_no_time_is_promised_while_jobs_wait_for_a_rate() -> None:
    waiting = Counts(queue="call", queued=20)
    assert QueueBody.of(waiting, None, Share(2.0, 0.1)).eta_s == 10.0
    assert QueueBody.of(replace(waiting, rate_next_ms=9), None, Share(2.0, 0.1)).eta_s is None


# spec: MN-7
def test_the_throughput_of_several_nodes_is_their_sum_and_the_mean_is_weighted() -> None:
    assert together([]) == Share(0.0, None)
    assert together([Share(3.0, 1.0), Share(1.0, 5.0), Share(0.0, None)]) == Share(4.0, 2.0)
    assert together([Share(2.0, None), Share(1.0, 5.0)]) == Share(3.0, 5.0)
