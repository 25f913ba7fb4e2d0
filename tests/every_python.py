"""Runs `make test test-full` with every supported version of Python that is present, each in an environment of its own.

`make test-all` calls it. An interpreter is present if `python3.N` on the PATH runs, or if pyenv has that version. The
environments are `.venvs/3.N`, installed as `make test` installs `.venv`, but from wheels only: building a package from
its source takes long, and its failure hides that the version has no wheel.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ENVIRONMENTS = Path(".venvs")
ASK = "import sys; print(sys.executable, '.'.join(map(str, sys.version_info[:3])), sep='\\n')"


@dataclass(frozen=True)
class Found:
    """An interpreter that runs."""

    path: str
    version: str


@dataclass(frozen=True)
class Result:
    """What is known about one version: `state` for the exit status, `text` for people."""

    version: str
    state: str
    text: str


def find(version: str) -> Found | None:
    """Returns an interpreter of this version, `3.13`; None if there is none."""
    for path in (shutil.which(f"python{version}"), *_of_pyenv(version)):
        found = None if path is None else _ask(path)
        if found is not None and found.version.startswith(f"{version}."):
            return found
    return None


def _of_pyenv(version: str) -> list[str]:
    """Returns the interpreters of this version that pyenv has, the newest first; they need not be on the PATH."""
    listed = _output("pyenv", "versions", "--bare", "--skip-aliases")
    wanted = f"{version}."
    patches = [name.removeprefix(wanted) for name in listed.split() if name.startswith(wanted)]
    names = [
        f"{version}.{patch}" for patch in sorted((int(each) for each in patches if each.isdecimal()), reverse=True)
    ]
    folders = [_output("pyenv", "prefix", name).strip() for name in names]
    return [str(Path(folder) / "bin" / "python3") for folder in folders if folder]


def _ask(path: str) -> Found | None:
    answer = _output(path, "-c", ASK).split("\n")
    return Found(answer[0], answer[1]) if len(answer) > 1 else None


def _output(*command: str) -> str:
    """Returns what a command prints; an empty text if it cannot be started or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def tested(found: Found, version: str) -> Result:
    """Installs the environment of this version and runs the tests in it."""
    folder = ENVIRONMENTS / version
    values = [f"VENV={folder}", f"PYTHON={found.path}"]
    make = [os.environ.get("MAKE", "make"), "--no-print-directory"]
    environment = {**os.environ, "PIP_ONLY_BINARY": ":all:"}
    _say(f"Python {found.version} ({found.path}) in {folder}")
    if subprocess.run([*make, f"{folder}/.ready", *values], env=environment).returncode:
        text = "cannot be installed; see pip's message above: a pinned package may have no wheel for this version"
        return Result(found.version, "not installed", text)
    begun = time.monotonic()
    code = subprocess.run([*make, "test", "test-full", *values], env=environment).returncode
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    state = "failed" if code else "passed"
    return Result(found.version, state, f"{state} in {minutes} min {seconds} s")


def run(versions: Sequence[str], test: Callable[[Found, str], Result] = tested) -> list[Result]:
    """Tests each version that is present, one after the other."""
    results: list[Result] = []
    for version in versions:
        found = find(version)
        results.append(Result(version, "absent", "not present") if found is None else test(found, version))
    return results


def summary(results: Sequence[Result]) -> str:
    """Returns the table of results."""
    return "\n".join(["Python   result", *(f"{each.version:8} {each.text}" for each in results)])


def exit_status(results: Sequence[Result]) -> int:
    """Returns 0 if at least one version was tested and all that are present passed."""
    states = {each.state for each in results} - {"absent"}
    return 0 if states == {"passed"} else 1


def _say(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Tests the versions given as arguments; all supported ones if none is given."""
    chosen = sys.argv[1:] or list(VERSIONS)
    unknown = sorted(set(chosen) - set(VERSIONS))
    if unknown:
        _say(f"not supported: {', '.join(unknown)}; supported are {', '.join(VERSIONS)}")
        return 2
    results = run(chosen)
    _say(summary(results))
    return exit_status(results)


if __name__ == "__main__":
    sys.exit(main())
