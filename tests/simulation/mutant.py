"""What a mutant is: a patch of one file, and where it should show."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from scenarios import SCENARIOS

import chargehand

HERE = Path(__file__).parent
SOURCE = Path(chargehand.__file__).parent


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One patch."""

    name: str
    file: str
    old: str
    new: str
    profile: str
    """The kind of history in which it shows; or a scenario."""
    first: int | None = None
    """A seed that shows it, and quickly. (`python tests/simulation/tune.py` finds one.)"""
    seeds: int = 60
    """How many other histories of that kind are tried before the mutant counts as unseen."""
    simulator: bool = False
    """It is a mutant of the simulated hands, not of the shipped source."""

    @property
    def path(self) -> Path:
        return (HERE if self.simulator else SOURCE) / self.file

    def text(self) -> str:
        """The patched file."""
        text = self.path.read_text()
        found = text.count(self.old)
        assert found == 1, f"{self.name}: out of date, {found} places in {self.file}"
        return text.replace(self.old, self.new)

    def histories(self) -> list[str]:
        """The histories in which the mutant should show: seeds, or a scenario."""
        if self.profile in SCENARIOS:
            return [self.profile]
        seeds = [*([] if self.first is None else [self.first]), *range(self.seeds)]
        return [f"{self.profile}:{seed}" for seed in seeds]


class Hunter(Protocol):
    """Says which of these histories breaks a promise if this mutant lives, and which promise; nothing if none does."""

    def __call__(self, mutant: Mutant | None, histories: list[str]) -> list[str]: ...


@contextmanager
def hunting() -> Generator[Hunter]:
    """A process in which mutants can be let loose."""
    environment = {"SOURCE": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(HERE / "hunt.py")]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asking, answering = process.stdin, process.stdout

        def hunt(mutant: Mutant | None, histories: list[str]) -> list[str]:
            file, text = (None, "") if mutant is None else (str(mutant.path), mutant.text())
            asking.write(json.dumps({"file": file, "text": text, "histories": histories}) + "\n")
            asking.flush()
            found = json.loads(answering.readline())
            assert found is not None, f"{mutant and mutant.name}: the process ended, or took too long"
            return found

        yield hunt
