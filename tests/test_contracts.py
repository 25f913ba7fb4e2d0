"""The import contracts of pyproject.toml: kept by the sources, and each broken by a planted import."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINT = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]

LAYERS = "A package imports only what stands below it"
PURE = "The model is pure"
INDEPENDENT = "Host, node and worker know each other through sockets alone"
ENGINES = "Only the stores know a database engine"


def verdicts(folder: Path) -> dict[str, str]:
    """Run the linter over the package in this folder. Returns KEPT or BROKEN for each contract."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    done = subprocess.run(LINT, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", done.stdout, re.MULTILINE))
    assert found, done.stdout + done.stderr
    assert (done.returncode == 0) == (set(found.values()) == {"KEPT"})
    return found


def plant(folder: Path, *imports: tuple[str, str]) -> dict[str, str]:
    """Copy the package, plant these imports in these modules, and run the linter."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    ignored = shutil.ignore_patterns("dashboard", "__pycache__", "starter")
    shutil.copytree(ROOT / "src" / "chargehand", folder / "src" / "chargehand", ignore=ignored)
    for module, line in imports:
        file = folder / "src" / "chargehand" / module
        file.write_text(f"{file.read_text()}\n{line}\n")
    return verdicts(folder)


def test_an_import_of_a_higher_layer_and_an_impure_model_are_refused(tmp_path: Path) -> None:
    found = plant(
        tmp_path, ("settings/plan.py", "import chargehand.live.broker"), ("model/tally.py", "import threading")
    )
    assert found == {LAYERS: "BROKEN", PURE: "BROKEN", INDEPENDENT: "KEPT", ENGINES: "KEPT"}


def test_an_import_between_processes_and_of_an_engine_are_refused(tmp_path: Path) -> None:
    found = plant(tmp_path, ("worker/perform.py", "import chargehand.node.loop"), ("host/actor.py", "import apsw"))
    assert found == {LAYERS: "BROKEN", PURE: "KEPT", INDEPENDENT: "BROKEN", ENGINES: "BROKEN"}
