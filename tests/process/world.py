"""A small world for the process tests: a store in a folder, gates that hold jobs, ledgers that jobs write."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripted_app import chargehand

from chargehand.crew import Crew, Ref
from chargehand.processes import proc
from chargehand.testing import eventually
from paths import python_path

WORK = "from chargehand.cli.work import work; work({!r})"
"""What `chargehand work` does."""


class World:
    """One store and what tests do to it."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.folder = folder
        self.store = folder / "chargehand.db"
        self.address = address or str(self.store)
        """Where the store is; by default it is the file `store`."""
        self.ledger = str(folder / "ledger")
        self._gates = 0

    def gate(self) -> Path:
        self._gates += 1
        return self.folder / f"gate-{self._gates}"

    def lines(self, kind: str) -> list[list[str]]:
        """The ledger's lines of one kind, split."""
        path = Path(self.ledger)
        text = path.read_text() if path.exists() else ""
        return [words[1:] for words in (line.split() for line in text.splitlines()) if words[0] == kind]

    def starts(self, ref: Ref[Any]) -> list[int]:
        """The pids in which the job was started, in order."""
        return [int(pid) for job_id, pid in self.lines("start") if job_id == ref.id]

    def ends(self, ref: Ref[Any]) -> list[int]:
        return [int(pid) for job_id, pid in self.lines("end") if job_id == ref.id]

    def put(self, crew: Crew[Any, Any], gate: Path | None = None, **payload: Any) -> Ref[Any]:
        """Enqueue a job that keeps the ledger, and waits for the gate if there is one."""
        options = payload.pop("options", {})
        payload["ledger"] = self.ledger
        if gate is not None:
            payload["gate"] = str(gate)
        return crew.enqueue(payload, **options)

    def started(self, ref: Ref[Any], times: int = 1) -> int:
        """Wait until the job has been started so often; the pid of the newest start."""
        return eventually(lambda: len(self.starts(ref)) >= times and self.starts(ref)[-1], what=f"{ref} started")

    def children_of(self, count: int) -> list[int]:
        """Wait until jobs have started so many processes of their own; their pids."""
        eventually(lambda: len(self.children()) == count, what=f"{count} children of jobs")
        return self.children()

    def children(self) -> list[int]:
        return [int(pid) for _, pid in self.lines("child")]


class Started:
    """`chargehand work`, as an operator starts it."""

    def __init__(self, world: World, *, typed: bool = False, **environment: str) -> None:
        """Typed, or called: reading a command line takes longer than all the rest of a start."""
        env = {**os.environ, "CHARGEHAND_URL": world.address, "PYTHONPATH": python_path(), **environment}
        self.log = world.folder / f"log-{os.urandom(4).hex()}"
        with open(self.log, "wb") as log:
            words = (
                ["-m", "chargehand", "work", "scripted_app:hand"] if typed else ["-c", WORK.format("scripted_app:hand")]
            )
            self.process = subprocess.Popen([sys.executable, *words], env=env, stderr=log, stdout=log)
        self.hand = chargehand(world.address)

    def view(self) -> dict[str, Any] | None:
        return self.hand.status()

    def ready(self) -> dict[str, Any]:
        """Wait until every worker is healthy; the node's view."""

        def healthy() -> dict[str, Any] | None:
            view = self.view()
            return view if view and all(w["status"] == "healthy" for w in view["workers"]) else None

        return eventually(healthy, what=f"all healthy; log:\n{self.log.read_text()}")  # type: ignore[return-value]

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> int:
        return self.process.wait(30)


def gone(pid: int) -> bool:
    """Whether nothing of the process runs any more; its corpse may lie there."""
    seen = proc.stat(pid)
    return seen is None or seen.dead
