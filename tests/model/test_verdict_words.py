"""What the verdict says: whom it concerns, in one line, in words for people."""

import pytest

from chargehand.model.health import Member, judge, unserved
from chargehand.model.status import NodeWorker

TRACEBACK = 'Traceback (most recent call last):\n  File "h.py", line 3, in set_up\n    load()\nRuntimeError: no GPU'


# spec: HP-8
@pytest.mark.parametrize(
    ("status", "said"),
    [("crashed", "worker:tag:0 crashed: RuntimeError"), ("failed", "crew tag: 1 of 1 given up: R")],
)
def test_a_reason_names_whom_it_concerns_also_if_a_traceback_is_known(status: str, said: str) -> None:
    worker = NodeWorker(component="worker:tag:0", crew="tag", status=status, text=TRACEBACK)
    (reason,) = judge([worker], {}).reasons
    assert reason.startswith(said)
    assert "\n" not in reason


# spec: HP-8
@pytest.mark.parametrize(
    ("member", "said"),
    [
        (Member("tag", "failed", TRACEBACK, False), "are given up (RuntimeError: no GPU): chargehand reset tag"),
        (Member("tag", "failed", None, False), "are given up: chargehand reset tag"),
        (Member("tag", "stopped", "stopped", False), "are stopped: chargehand start tag"),
    ],
)
def test_why_nobody_serves_a_queue_is_said_once_and_in_words(member: Member, said: str) -> None:
    assert unserved([("tag", 5)], {"tag": "tag"}, [member]) == {"tag": f"all workers of tag {said}"}
