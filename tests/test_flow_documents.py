"""The examples of docs/flows.md run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "flows.md"


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _written(folder: Path) -> None:
    """Writes the modules of the page, which begin with their names, and its test."""
    for block in _blocks():
        named = re.match(r"# (\w+\.py)", block)
        name = named[1] if named else "test_films.py" if "def test_" in block else None
        if name is not None:
            (folder / name).write_text(block)


def _run(folder: Path, code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


# spec: FL-1 FL-3 FL-4
def test_the_pipeline_of_the_page_classifies_a_film(tmp_path: Path) -> None:
    _written(tmp_path)
    code = """
from jobs import analyse, classify, hand
from chargehand import JobFilter
from chargehand.testing import run_all

flow = hand.find_flow(analyse("summer.mp4"))
run_all(hand)
(last,) = hand.jobs(JobFilter(queue="classify"))
print(flow.status().state, flow.status().counts.done, classify.ref(last.id).wait(1))
"""
    said = _run(tmp_path, code).splitlines()
    assert said[-1] == "done 5 Category(name='advertisement', words=12)"
    assert said[0].startswith("summer.mp4 done FlowCounts(")


@pytest.mark.full
def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    _written(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_films.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


# spec: FL-5
def test_the_checkpoint_of_the_page_is_found_by_the_next_attempt(tmp_path: Path) -> None:
    (block,) = [block for block in _blocks() if "job.keep" in block]
    (tmp_path / "importing.py").write_text(block)
    code = """
from importing import Import
from chargehand.testing import perform

print(perform(Import, "rows.csv"))
"""
    assert _run(tmp_path, code) == "1000\n"
