"""The rows of the benchmark: what counts as met, and what is said of a row that could not be measured."""

from pathlib import Path

import pytest
from bench import __main__ as bench
from bench import environment
from bench.row import Row, measures


@pytest.fixture(autouse=True)
def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    empty: dict[object, object] = {}
    for module in ("bench.__main__", "bench.row"):
        monkeypatch.setattr(f"{module}.register", empty)


def test_a_row_without_a_value_misses_its_goal_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("jobs per second against a peer", None, "×", None, 1.3, more_is_better=True, note="cannot install it")

    @measures(row.name)
    def measure() -> list[Row]:
        return [row]

    bench._measure(measure, [row.name])  # pyright: ignore[reportPrivateUsage]
    assert row.meets is False
    assert "NOT MEASURED: cannot install it" in capsys.readouterr().out
    assert row.as_json() == {
        "name": row.name, "value": None, "unit": "×", "limit": None, "goal": 1.3, "meets": False,
        "note": "cannot install it",
    }  # fmt: skip


def test_a_row_without_a_goal_is_neither_met_nor_missed() -> None:
    row = Row("jobs per second, 2 nodes", 5000.0, "jobs/s", 6000.0, None, more_is_better=True, note="two cores")
    assert row.meets is None
    assert row.as_json()["note"] == "two cores"


def test_a_system_that_cannot_be_installed_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(words: list[str], **options: object) -> object:
        return type("Made", (), {"returncode": int("pip" in words), "stderr": "WARNING: a\nERROR: no network\n"})

    monkeypatch.setattr("bench.environment.ROOT", tmp_path)
    monkeypatch.setattr("subprocess.run", refused)
    with pytest.raises(environment.Unavailable, match="ERROR: no network"):
        environment.python_of("nowhere", ["some==1.0"])
    with pytest.raises(environment.Unavailable, match=r"needs Python 3\.99"):
        environment.python_of("nowhere", ["some==1.0"], (3, 99))
