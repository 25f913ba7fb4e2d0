"""That the simulator sees: every mutant of the shipped source is caught, by a seed that the shipped source survives."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hunt import tell
from mutant import Mutant, histories_of
from mutants import MUTANTS
from stage import Stage

import chargehand

HERE = Path(__file__).parent
SOURCE = Path(chargehand.__file__).parent


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def copy(folder: Path) -> dict[str, Path]:
    """The shipped package and the simulator, to be changed at will."""
    roots = {"src/chargehand": folder / "src" / "chargehand", "tests/simulation": folder / "simulation"}
    leave_out = shutil.ignore_patterns("__pycache__", "cli", "test_*.py")
    shutil.copytree(SOURCE, roots["src/chargehand"], ignore=leave_out)
    shutil.copytree(HERE, roots["tests/simulation"], ignore=leave_out)
    return roots


def patch(mutant: Mutant, file: Path) -> None:
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.name}: out of date, {text.count(mutant.old)} places in {mutant.file}"
    file.write_text(text.replace(mutant.old, mutant.new))


def hunt(folder: Path, roots: dict[str, Path], histories: list[str]) -> list[str]:
    """The history that breaks a promise in this copy, and which promise; or nothing."""
    command = [sys.executable, str(roots["tests/simulation"] / "hunt.py"), *histories]
    environment = {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert not ended.returncode, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_mutant_is_seen(mutant: Mutant, tmp_path: Path, stage: Stage) -> None:
    roots = copy(tmp_path)
    patch(mutant, roots[mutant.folder] / mutant.file)
    found = hunt(tmp_path, roots, histories_of(mutant))
    assert found, f"nobody sees that {mutant.name}"
    assert not re.search(r"(Type|Name|Attribute|Import|Syntax)Error\(", found[1]), f"no mutant, only nonsense: {found}"
    tell(found[0], stage)  # it was the mutation, and nothing else


def test_a_copy_that_was_not_changed_keeps_all_promises(tmp_path: Path) -> None:
    assert not hunt(tmp_path, copy(tmp_path), [str(seed) for seed in range(24)])


def test_no_two_mutants_are_the_same() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
