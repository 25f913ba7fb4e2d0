"""The applications stand on what every user has: they import Chargehand's public names, and nothing else of it."""

import ast
from pathlib import Path

import pytest

import chargehand
from chargehand import testing
from chargehand.testing import faults

APPS = Path(__file__).parents[2] / "apps"
PUBLIC = {
    "chargehand": set(chargehand.__all__),
    "chargehand.testing": set(testing.__all__),
    "chargehand.testing.faults": {faults.Faulty.__name__},
}


def private(text: str) -> list[str]:
    """What a module imports of Chargehand that is not public."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                found += [name.name for name in names if name.name.partition(".")[0] == "chargehand"]
            case ast.ImportFrom(module, names) if module and module.partition(".")[0] == "chargehand":
                known = PUBLIC.get(module, set())
                found += [f"{module}.{name.name}" for name in names if name.name not in known]
            case _:
                pass
    return [name for name in found if name != "chargehand"]


@pytest.mark.parametrize("app", sorted(path.name for path in APPS.iterdir() if (path / "src").is_dir()))
def test_an_application_imports_public_names_only(app: str) -> None:
    files = sorted((APPS / app / "src").rglob("*.py"))
    assert files
    assert {str(file): found for file in files if (found := private(file.read_text("utf-8")))} == {}


def test_what_is_private_is_seen() -> None:
    text = "import chargehand.clock\nfrom chargehand import Crew, log\nfrom chargehand.model.job import State"
    assert private(text) == ["chargehand.clock", "chargehand.log", "chargehand.model.job.State"]
