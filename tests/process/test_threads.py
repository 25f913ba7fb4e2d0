"""Thread pools of numeric libraries are capped before they are made."""

import os

import pytest

from chargehand import Chargehand


@pytest.mark.parametrize("count", [1, 3])
def test_numpy_and_onnxruntime_make_as_many_threads_as_they_may(hand: Chargehand, count: int) -> None:  # spec: WP-11
    numeric = hand.crew("numeric", "numeric_handlers:Numeric", workers=1, threads=count)
    with hand.running():
        possible = min(count, len(os.sched_getaffinity(0)))  # OpenBLAS makes no more than there are cores
        assert numeric.enqueue("numpy").wait(60) == {"result": 64.0, "added": possible - 1, "own": count}
        assert numeric.enqueue("onnxruntime").wait(60) == {"result": 1.0, "added": count - 1, "own": count}
