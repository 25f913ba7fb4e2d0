"""The comparison with other systems: what is told of a run, and that the page has the run that is stored."""

import json
import re
from typing import Any

import pytest
from bench.peers import __main__ as program
from bench.peers import table
from bench.peers.catalogue import PEERS
from bench.peers.measures import Figures

OURS = Figures(
    "Chargehand, SQLite", "1", "defaults", jobs_per_second=20_000, bulk_per_second=100_000, one_by_one_per_second=2000,
    start_p50_ms=1.0, start_p99_ms=2.0, child_s=0.004, tree_s=0.25, wrongly_failed=0, idle_cpu_percent=0.05,
    memory_mib=30,
)  # fmt: skip
OTHER = Figures("Other", "7", "fast", jobs_per_second=500, start_p50_ms=4.0, wrongly_failed=75, notes=["tree: never"])
RESULTS: dict[str, Any] = {
    "date": "2026-11-19", "machine": "2 cores, Linux", "limit_s": 15.0, "rounds": 1,
    "systems": [OURS.as_json(), OTHER.as_json()],
}  # fmt: skip


def test_ratios_are_in_front_and_what_was_not_measured_is_not_zero() -> None:
    text = table.section(RESULTS)
    ratios, figures = (part for part in text.split("\n\n") if part.startswith("|"))
    assert ratios.splitlines()[-1] == "| Other | × 0.025 | – | – | × 4 | > 3,750 | > 60 | – | – |"
    assert figures.splitlines()[-1] == "| Other | 500 | – | – | 4 | – | > 15 | > 15 | 75 | – | – |"
    assert "2026-11-19, one round, on 2 cores, Linux" in text
    assert "- **Other** 7: fast; tree: never" in text


def test_the_page_has_the_results_that_are_stored() -> None:
    """`make bench-peers` writes both."""
    page = table.PAGE.read_text()
    _, _, rest = page.partition(table.BEGIN)
    shown, end, _ = rest.partition(table.END)
    assert end
    if not program.LATEST.exists():
        assert shown == table.NO_RUN
        return
    stored = json.loads(program.LATEST.read_text())
    assert shown == table.section(stored)
    assert {each["name"] for each in stored["systems"]} == {peer.name for peer in PEERS}
    for name in re.findall(r"\(images/([\w-]+\.png)#", shown):
        assert (table.IMAGES / name).exists()


def test_a_part_does_not_replace_a_whole_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(program, "LATEST", tmp_path / "latest.json")
    assert program.stored_limit() == 0
    (tmp_path / "latest.json").write_text(json.dumps({"limit_s": 180.0}))
    assert program.stored_limit() == 180


def test_the_machine_is_described_without_its_name() -> None:
    assert re.fullmatch(r"\d+ cores( \(.+\))?, \d+ GiB, Linux \d+\.[\d.]+", program.machine_words())
