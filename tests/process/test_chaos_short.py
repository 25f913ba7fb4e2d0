"""A short run of the chaos campaign, with every kind of kill, and what its judge makes of a log."""

import json
from pathlib import Path
from typing import Any

import pytest
from chaos import judge
from chaos.campaign import Campaign
from chaos.flows import Flows
from chaos.killer import Numbers
from chaos.tiny import Tiny

from chargehand.log import Event

SEED = 1
SHORT = Numbers(jobs=300, seconds=5.0, workers=10, nodes=3, enqueuers=1)
"""One kill each of node, host and both; 6 workers get SIGKILL, 4 SIGSTOP."""


def test_no_job_is_lost_or_done_twice_whatever_is_killed(  # spec: SV-3 WK-4
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHARGEHAND_URL", raising=False)
    verdict = Campaign(tmp_path, SHORT, SEED).run()
    assert (verdict.lost, verdict.twice, verdict.unexpected, verdict.orphans) == ([], [], [], [])
    assert verdict.completed >= verdict.acknowledged >= SHORT.jobs
    killed = {kind: verdict.struck[f"{kind} killed"] for kind in ("workers", "node", "host", "both")}
    assert killed == {"workers": 6, "node": 1, "host": 1, "both": 1}
    assert verdict.struck["workers stopped"] == 4


def test_the_death_of_a_worker_is_charged_to_one_of_its_tiny_jobs_at_most(  # spec: WK-18
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHARGEHAND_URL", raising=False)
    found = Tiny(tmp_path, 4000, 8, SEED).run()
    assert (found.lost, found.twice, found.not_begun, found.wrong) == ([], [], [], [])
    assert (found.jobs, found.kills) == (4000, 8)


def test_no_flow_is_lost_or_hangs_whatever_is_killed(  # spec: FL-2 FL-3 FL-4
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHARGEHAND_URL", raising=False)
    found = Flows(tmp_path, 60, 6, 3, SEED).run()
    assert (found.lost, found.twice, found.hung, found.wrong) == ([], [], [], [])
    assert (found.flows, dict(found.struck)) == (60, {"worker": 6, "node": 1, "host": 1, "both": 1})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"level": "info", "event": Event.WORKER_READY}, True),
        ({"level": "warning", "event": Event.NODE_EXITED, "exit_code": None, "signal": 9}, True),
        ({"level": "warning", "event": Event.NODE_EXITED, "exit_code": 1, "signal": None}, False),
        ({"level": "warning", "event": Event.NODE_EXITED, "exit_code": None, "signal": 11}, False),
        ({"level": "error", "event": Event.JOB_FAILED, "reason": "poison"}, True),
        ({"level": "error", "event": Event.JOB_FAILED, "reason": "error"}, False),
        ({"level": "error", "message": "the store cannot be used"}, False),
        ({"level": "warning", "exception": "Traceback (most recent call last):"}, False),
        ("Traceback (most recent call last):", False),
        ("[1]", False),
    ],
)
def test_a_log_line_that_no_kill_explains_is_unexpected(line: dict[str, Any] | str, expected: bool) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    assert (list(judge.in_the_logs([judge.fields_of(text)])) == []) is expected
