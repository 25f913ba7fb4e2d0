"""The package: what its metadata says is so, and it can be installed into empty environments."""

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import chargehand
from every_python import VERSIONS, Found, find
from paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMED = [name.removeprefix("Programming Language :: Python :: ") for name in PROJECT["classifiers"]]
PYTHONS = [name for name in NAMED if re.fullmatch(r"3\.\d+", name)]
NOTICES = "chargehand/web/dashboard/built/THIRD-PARTY-NOTICES.txt"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (found,) = folder.glob("*.whl")
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_versions_of_python_are_among_those_that_are_tested() -> None:
    assert PYTHONS
    assert set(PYTHONS) <= set(VERSIONS)
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_the_licences_of_all_that_the_dashboard_bundles_are_there() -> None:
    text = (ROOT / "src" / NOTICES).read_text()
    assert re.findall(r"^(\S+) \d[\d.]* \((\S+)\)$", text, re.MULTILINE) == [
        ("@preact/signals", "MIT"), ("@preact/signals-core", "MIT"), ("preact", "MIT"), ("uplot", "MIT"),
    ]  # fmt: skip
    assert text.count("Permission is hereby granted") == 4


@pytest.mark.full
def test_the_wheel_says_what_it_needs_and_contains_what_it_serves(wheel: Path) -> None:
    says = metadata(wheel)
    assert says["Version"] == chargehand.__version__
    assert says.get_all("Provides-Extra") == ["cli", "cron", "otel", "postgres", "standard", "web"]
    assert says.get_all("License-File") == ["LICENSE", f"src/{NOTICES}"]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"chargehand/py.typed", "chargehand/web/dashboard/built/index.html", NOTICES} <= names
    assert [name for name in names if "/source/" in name or "node_modules" in name] == []


@pytest.mark.full
def test_the_source_distribution_has_the_package_alone(wheel: Path) -> None:
    """The applications are not part of it: Tonearm has another license."""
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        roots = {name.split("/")[1] for name in archive.getnames()}
    texts = {"README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO"}
    assert roots == {"src", "pyproject.toml", ".gitignore", *texts}


class Environment:
    """An environment without pip, below a folder that also has a small application."""

    def __init__(self, folder: Path, found: Found) -> None:
        self.folder, self.home = folder, folder / "venv"
        subprocess.run([found.path, "-m", "venv", "--without-pip", self.home], check=True)
        (folder / "jobs.py").write_text(
            "from chargehand import Chargehand\nhand = Chargehand()\ncrew = hand.crew('add', 'adding:Add', workers=1)\n"
        )
        (folder / "adding.py").write_text(
            "from chargehand import Handler\n"
            "class Add(Handler):\n    def perform(self, job):\n        return sum(job.payload)\n"
        )

    def install(self, what: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.home / "bin" / "python"), "install", "--quiet"]
        options = ["--disable-pip-version-check", "--only-binary", ":all:", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *options, what], check=True)

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        words = [self.home / "bin" / command[0], *command[1:]]
        apart = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(words, cwd=self.folder, env=apart, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_works_in_an_empty_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    """With the two dependencies of the core; each extra adds what it is for, and its absence is told in words."""
    found = find(version)
    if found is None:
        pytest.skip(f"the wheel is NOT tested with Python {version}: it is not present")
    there = Environment(tmp_path, found)
    there.install(str(wheel))
    (tmp_path / "go.py").write_text(
        "import chargehand, jobs\n"
        "for name in chargehand.__all__: getattr(chargehand, name)\n"
        "with jobs.hand.running(): print(jobs.crew.enqueue([1, 2]).wait(20), chargehand.__file__)\n"
    )
    done = there.run("python", "go.py")
    assert done.stdout.startswith(f"3 {there.home}"), done.stderr
    bare = there.run("chargehand", "--version")
    assert (bare.returncode, bare.stdout) == (2, "")
    assert "pip install 'chargehand[cli]'" in bare.stderr

    there.install(f"{wheel}[cli]")
    assert there.run("chargehand", "--version").stdout == f"chargehand {chargehand.__version__}\n"
    performed = there.run("chargehand", "run", "jobs:hand", "add", "[3, 4]")
    assert (performed.returncode, performed.stdout) == (0, "7\n"), performed.stderr
    refused = there.run("chargehand", "serve", "jobs:hand")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "pip install 'chargehand[web]'" in refused.stderr


def test_the_version_is_in_one_place_and_released_in_the_changelog() -> None:
    """The newest section is this version's, or what comes next is collected above it. Each release begins with what it
    is, in ten lines at most."""
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased, *releases = re.findall(r"^## \[([^]]+)\](?: - \d{4}-\d\d-\d\d)?$", text, re.MULTILINE)
    assert unreleased == "Unreleased"
    assert releases[0] == chargehand.__version__
    summary = text.partition(f"## [{releases[0]}] - ")[2].partition("### ")[0].splitlines()
    assert 1 <= len([line for line in summary if line.startswith("- ")]) <= 10
    assert PROJECT["dynamic"] == ["version"]
    again = [path for path in (ROOT / "src").rglob("*.py") if f'"{chargehand.__version__}"' in path.read_text()]
    assert again == [ROOT / "src" / "chargehand" / "__init__.py"]


def test_the_lock_file_is_complete_and_names_the_licences_of_what_is_bundled() -> None:
    """Every package of it can be verified, and those that the dashboard bundles are in the notices."""
    lock = json.loads((ROOT / "src/chargehand/web/dashboard/source/package-lock.json").read_text())
    wanted = json.loads((ROOT / "src/chargehand/web/dashboard/source/package.json").read_text())
    packages = {name.removeprefix("node_modules/"): each for name, each in lock["packages"].items() if name}
    assert {**wanted.get("dependencies", {}), **wanted.get("devDependencies", {})}.keys() <= packages.keys()
    assert [name for name, each in packages.items() if "integrity" not in each] == []
    notices = (ROOT / "src" / NOTICES).read_text()
    bundled = {name: each["version"] for name, each in packages.items() if not each.get("dev") and not each.get("peer")}
    named = dict(re.findall(r"^(\S+) (\d[\d.]*) \(\S+\)$", notices, re.MULTILINE))
    assert named.items() <= {name: each["version"] for name, each in packages.items()}.items()
    assert bundled.keys() <= named.keys()
