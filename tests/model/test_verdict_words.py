"""What the verdict says: whom it concerns, in one line, in words for people."""

import pytest

from chargehand.model.health import Member, held_up, judge, paused_on_purpose, unserved
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


def test_why_a_job_waits_names_the_crews_that_are_paused() -> None:  # spec: SV-12
    queues = {"tag": "songs", "late": "songs", "mail": "mail"}
    assert paused_on_purpose("songs", queues, ["tag", "mail"]) is None
    assert paused_on_purpose("mail", queues, ["mail"]) == "it is paused: chargehand resume mail"
    both = "it is paused: chargehand resume tag; chargehand resume late"
    assert paused_on_purpose("songs", queues, ["tag", "late"]) == both
    assert paused_on_purpose("songs", queues, ["tag", "*"]) == "it is paused: chargehand resume"
    assert paused_on_purpose("nobody", queues, ["tag"]) is None


def test_why_a_job_waits_while_all_workers_crash() -> None:  # spec: SV-12
    crashed, healthy = Member("tag", "crashed", TRACEBACK, True), Member("tag", "healthy", None, True)
    why = "all workers of tag crashed and wait to be restarted (RuntimeError: no GPU)"
    assert held_up("tag", {"tag": "tag"}, [crashed, crashed]) == why
    assert held_up("tag", {"tag": "tag"}, [crashed, healthy]) is None
    assert held_up("tag", {"tag": "tag"}, []) == "its crew tag has no workers: chargehand scale tag 1"
    assert held_up("mail", {"tag": "tag"}, [crashed]) == "no crew serves it"
