"""Every code of an error has an entry in the registry, and a section of the documentation."""

import re
from pathlib import Path

import chargehand.cli.streams
import chargehand.client
import chargehand.web.threads
from chargehand import errors
from chargehand.model.doctor.causes import CAUSES
from chargehand.model.error_codes import CODES
from chargehand.web.problems import KINDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "chargehand"


def _classes() -> set[type[errors.ChargehandError]]:
    modules = (errors, chargehand.client, chargehand.web.threads, chargehand.cli.streams)
    every = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {each for each in every if issubclass(each, errors.ChargehandError)}


def test_every_exception_has_a_code_that_is_registered() -> None:
    assert len(_classes()) > 25
    assert {each.code for each in _classes()} <= CODES.keys() | CAUSES.keys()
    own = [each.__name__ for each in _classes() if "code" not in vars(each)]
    assert own == [], "without a code of its own, an error has that of its base class"


def test_every_problem_of_the_http_api_is_registered() -> None:
    sources = [path.read_text() for path in (SOURCE / "web").rglob("*.py")]
    raised = {kind for text in sources for kind in re.findall(r'Problem\(\s*\d{3},\s*"([a-z-]+)"', text)}
    framework = set(re.findall(r'\d{3}: "([a-z-]+)"', (SOURCE / "web" / "problems.py").read_text()))
    assert len(raised) > 15
    assert len(framework) == 3
    assert raised | framework | {kind for _, kind in KINDS.values()} <= CODES.keys() | CAUSES.keys()


def test_no_code_has_two_meanings() -> None:
    assert CODES.keys() & CAUSES.keys() == set()


def test_every_code_has_a_section_of_the_documentation() -> None:
    sections = set(re.findall(r"^### `([a-z-]+)`$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert sections == CODES.keys() | CAUSES.keys()


def test_every_registered_code_is_used() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "error_codes.py")
    assert [code for code in CODES if f'"{code}"' not in text] == []
