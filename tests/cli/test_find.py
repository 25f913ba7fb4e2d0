"""How a command finds the application that it is given as module:object."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from chargehand import Chargehand, ConfigurationError, JobFilter
from chargehand.cli import find
from chargehand.cli.main import app


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with one Chargehand object."""
    hand = Chargehand(tmp_path / "chargehand.db")
    module = SimpleNamespace(hand=hand, tag=hand.crew("tag", "a:B"), apps=SimpleNamespace(hand=hand), nothing=None)
    monkeypatch.setitem(sys.modules, "found_jobs", module)  # type: ignore[arg-type]
    return module


@pytest.mark.parametrize("name", ["found_jobs", "found_jobs:", "found_jobs:hand", "found_jobs:apps.hand"])
def test_an_application_is_found(jobs: Any, name: str) -> None:
    assert find.application(name) is jobs.hand


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("found_jobs:hnad", "module 'found_jobs' has no name 'hnad'"),
        ("found_jobs:apps.hnad", "module 'found_jobs' has no name 'apps.hnad'"),
        ("found_jobs:hnad.apps", "module 'found_jobs' has no name 'hnad.apps'"),
        ("found_jobs:tag", "'found_jobs:tag' is of type Crew, not a Chargehand object"),
        ("found_jobs:nothing", "'found_jobs:nothing' is of type NoneType, not a Chargehand object"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(jobs: Any, name: str, text: str) -> None:  # spec: CL-6
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}; its Chargehand objects: found_jobs:hand$"):
        find.application(name)


def test_a_module_with_two_is_answered_with_both(jobs: Any, tmp_path: Path) -> None:
    jobs.second = Chargehand(tmp_path / "second.db")
    with pytest.raises(ConfigurationError, match=r"exactly one .*: found_jobs:hand, found_jobs:second$"):
        find.application("found_jobs")


def test_a_store_on_the_command_line_precedes_the_application_of_the_environment(
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remedies name the store: they can be pasted where CHARGEHAND_APP is set."""
    with pytest.raises(ConfigurationError, match="give --app or --store, not both"):
        find.service("found_jobs:hand", hand.url)
    monkeypatch.setenv("CHARGEHAND_APP", "found_jobs:hand")
    assert find.service("found_jobs:hand", hand.url).jobs(JobFilter()) == []


def test_a_server_on_the_command_line_precedes_the_application_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orders went to the application of this machine, where CHARGEHAND_APP was set."""
    monkeypatch.setenv("CHARGEHAND_APP", "found_jobs:hand")
    monkeypatch.setattr(find, "remote_url", "http://studio")
    assert find.server_meant(None, None) == "http://studio"  # of the environment, as the application is
    assert find.server_meant("found_jobs:hand", None) is None
    assert find.server_meant(None, "x.db") is None
    monkeypatch.setattr(find, "url_given", True)
    assert find.server_meant("found_jobs:hand", None) == "http://studio"
    for given, store in ((None, "x.db"), ("other:hand", None)):
        with pytest.raises(ConfigurationError, match="give --url, --store or --app, only one of them"):
            find.server_meant(given, store)


@pytest.mark.parametrize("words", [["status"], ["jobs", "list"], ["doctor"], ["pause"]])
def test_url_and_store_on_one_command_line_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "remote_url", None)
    monkeypatch.setattr(find, "url_given", False)
    with pytest.raises(ConfigurationError, match="only one of them"):
        CliRunner().invoke(app, ["--url", "http://studio", *words, "--store", "x.db"], catch_exceptions=False)
