"""A short run of the chaos campaign, with every kind of kill, and what its judge makes of a log."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from chaos import account, judge
from chaos.adreel import Adreel, planned
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


@pytest.mark.full
def test_each_film_ends_right_once_and_leaves_nothing_whatever_is_killed(  # spec: AR-1 AR-8 SV-3
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHARGEHAND_URL", raising=False)
    found = Adreel(tmp_path, 2, 6, SEED).run()
    assert (found.lost, found.twice, found.left, found.unexpected, found.orphans) == ([], [], [], [], [])
    assert (found.films, found.struck.total()) == (6, 6)


def test_the_signals_of_adreels_run_hit_every_stage_and_every_kind_of_process() -> None:
    plan = planned(200, random.Random(SEED))
    assert len(plan) == 200
    assert {"ingest", "frames", "ocr", "classify", "persist", "upkeep", "stop", "node", "host", "both"} <= set(plan)
    assert len(planned(1, random.Random(SEED))) == 1


def test_what_a_killed_analysis_leaves_is_compared_whole(tmp_path: Path) -> None:
    for name, result in (("right", "7"), ("wrong", "8")):
        (tmp_path / name / "frames").mkdir(parents=True)
        (tmp_path / name / "result.json").write_text(
            f'{{"id": "{name}", "scenes": [{{"took": {result}, "text": [7]}}]}}'
        )
    right, wrong = account.left_by(tmp_path / "right"), account.left_by(tmp_path / "wrong")
    assert list(account.differences(wrong, right)) == []  # ids and durations may differ
    (tmp_path / "wrong" / "result.json").write_text('{"scenes": [{"text": [8]}]}')
    (tmp_path / "wrong" / "draft").touch()
    (tmp_path / "wrong" / "frames").rmdir()
    said = list(account.differences(account.left_by(tmp_path / "wrong"), right))
    assert said[-1] == "the file result.json differs / scenes / 0 / text / 0: 8, not 7"
    assert said[:-1] == ["the file draft is too many", "the file frames is missing"]


def test_files_that_belong_to_no_film_are_found(tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for folder in (home / "films" / "1", home / "films" / "2", home / "uploads", home / "adreel.db-files", temporary):
        folder.mkdir(parents=True)
    (home / "adreel.db-wal").touch()
    assert list(account.strangers(home, temporary, {"1", "2"})) == []
    for path in ("films/3", "uploads/a.part", "adreel.db-files/scratch/x", "other"):
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).touch()
    (temporary / "t").touch()
    assert len(list(account.strangers(home, temporary, {"1"}))) == 6


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
