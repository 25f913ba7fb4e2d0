"""`make test-all` tests every Python that is present, names those that are not, and fails if one failed."""

import subprocess
from pathlib import Path

import pytest

import every_python
from every_python import Found, Result, exit_status, find, run, summary
from paths import ROOT


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def command(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def python(path: Path, version: str) -> None:
    command(path, f"echo {path}; echo {version}")


def test_an_interpreter_on_the_path_is_found_if_it_runs(commands: Path) -> None:
    python(commands / "python3.12", "3.12.9")
    command(commands / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    python(commands / "python3.14", "3.11.2")
    assert find("3.12") == Found(str(commands / "python3.12"), "3.12.9")
    assert [find(version) for version in ("3.11", "3.13", "3.14")] == [None, None, None]


def test_the_newest_of_pyenv_is_found_though_its_command_does_not_run(commands: Path, tmp_path: Path) -> None:
    command(commands / "python3.13", "exit 127")
    listed = "3.1.3 3.13.2 3.13.10 3.13-dev 3.13.11t 3.12.1"
    command(commands / "pyenv", f'[ "$1" = prefix ] && echo {tmp_path}/versions/$2 || echo "{listed}"')
    for version in ("3.13.2", "3.13.10"):
        python(tmp_path / "versions" / version / "bin" / "python3", version)
    assert find("3.13") == Found(str(tmp_path / "versions/3.13.10/bin/python3"), "3.13.10")
    assert find("3.12") is None, "pyenv lists it, but it is not there"


def test_absent_versions_are_named_and_do_not_fail(commands: Path) -> None:
    python(commands / "python3.12", "3.12.9")
    python(commands / "python3.13", "3.13.0")
    results = run(every_python.VERSIONS, lambda found, version: Result(found.version, "passed", f"passed {version}"))
    assert summary(results).splitlines() == [
        "Python   result",
        "3.11     not present",
        "3.12.9   passed 3.12",
        "3.13.0   passed 3.13",
        "3.14     not present",
    ]
    assert exit_status(results) == 0
    for state in ("failed", "not installed"):
        assert exit_status([*results, Result("3.11.7", state, "")]) == 1
    assert exit_status([Result("3.11", "absent", "")]) == 1, "nothing was tested"


def test_each_version_is_installed_and_tested_in_its_own_environment(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("MAKE", str(commands / "make"))
    found = Found("/python3.13", "3.13.0")
    for fails, state in (("nothing", "passed"), ("test", "failed"), (".venvs/3.13/.ready", "not installed")):
        command(commands / "make", f'echo "$*" >> {log}; [ "$2" != {fails} ]')
        assert every_python.tested(found, "3.13").state == state
    install = "--no-print-directory .venvs/3.13/.ready VENV=.venvs/3.13 PYTHON=/python3.13"
    test = "--no-print-directory test test-full VENV=.venvs/3.13 PYTHON=/python3.13"
    assert log.read_text().splitlines() == [install, test, install, test, install]
    assert "Python 3.13.0 (/python3.13)" in capfd.readouterr().out


def test_the_makefile_has_a_rule_for_the_environment_that_the_script_names() -> None:
    # No environment has this name, also if this test itself runs in one that the script has made.
    words = ["make", "-n", ".venvs/3.x/.ready", "test", "VENV=.venvs/3.x", "PYTHON=/python3.x"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "/python3.x -m venv .venvs/3.x" in done.stdout
    assert ".venvs/3.x/bin/python -m pytest" in done.stdout
