"""Type checkers tell wrong payloads of `enqueue`, `spawn`, `results` and `on_end`, and accept right ones."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent / "data" / "flow_types.py.txt"
SOURCE = Path(__file__).parent.parent / "src"
BIN = Path(sys.executable).parent


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    return Path(shutil.copy(EXAMPLES, tmp_path / "examples.py"))


def wrong(file: Path) -> list[int]:
    """Returns the lines that must be reported."""
    return [number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# wrong")]


# spec: FL-1 FL-3 FL-4
def test_pyright_reports_exactly_what_is_wrong(examples: Path) -> None:
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(SOURCE)]}
    (examples.parent / "pyrightconfig.json").write_text(json.dumps({"include": ["examples.py"], **settings}))
    command = [BIN / "basedpyright", "--outputjson", "-p", examples.parent, "--pythonpath", sys.executable]
    said = subprocess.run(command, capture_output=True, text=True, timeout=110)
    found = json.loads(said.stdout)["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert sorted(errors) == wrong(examples), said.stdout


@pytest.mark.full  # spec: FL-1 FL-3
def test_mypy_reports_exactly_what_is_wrong(examples: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-incremental", examples.name]
    command += ["--follow-imports=silent", "--hide-error-context", "--cache-dir", str(examples.parent / "cache")]
    env = {"MYPYPATH": str(SOURCE), "PATH": str(BIN)}
    said = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=examples.parent, env=env)
    lines = [line.split(":") for line in said.stdout.splitlines() if ": error:" in line]
    assert sorted({int(line[1]) for line in lines}) == wrong(examples), said.stdout + said.stderr
