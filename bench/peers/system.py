"""One system while it is measured: its client, its workers, and the log of its jobs."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.environment import python_of
from bench.peers.catalogue import Peer
from bench.processes import cpu, pss
from bench.scene import PATIENCE, ended
from chargehand.processes import proc
from chargehand.testing import eventually

SYSTEMS = Path(__file__).with_name("systems")
LAUNCH = SYSTEMS / "launch.py"


class System:
    """A system on an empty server. `close` ends all its processes."""

    def __init__(self, peer: Peer, url: str, folder: Path) -> None:
        self.peer, self.log = peer, folder / "log"
        self._python = (
            str(python_of(f"peer-{peer.program}", peer.packages, peer.python)) if peer.packages else sys.executable
        )
        self._environment = {**os.environ, "PEERS_URL": url, "PEERS_LOG": str(self.log), "PYTHONPATH": str(SYSTEMS)}
        # Chargehand finds its node by a folder of the user; each measurement has its own.
        self._environment["XDG_STATE_HOME"] = str(folder)
        self._noise = (folder / "output").open("ab")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count()
        self.log.touch()
        done = subprocess.run(
            self._words("setup"), env=self._environment, check=False, stdout=self._noise, stderr=self._noise
        )
        if done.returncode != 0:
            raise RuntimeError(f"setup failed: {self.output()}")
        self._client = subprocess.Popen(
            self._words("client"), env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._noise,
        )  # fmt: skip
        self._answer()

    def _words(self, *words: str) -> list[str]:
        return [self._python, str(LAUNCH), self.peer.program, *words]

    def _answer(self) -> dict[str, Any]:
        assert self._client.stdout is not None
        line = self._client.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.peer.name}: the client has ended; its output: {self.output()}")
        return json.loads(line)

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._client.stdin is not None
        self._client.stdin.write(json.dumps(request).encode() + b"\n")
        self._client.stdin.flush()
        return self._answer()

    def output(self) -> str:
        """Returns the end of what the processes have printed."""
        return Path(self._noise.name).read_text(errors="replace")[-2000:]

    # jobs

    def tags(self, count: int) -> list[str]:
        """Returns names for new jobs."""
        return [str(next(self._numbers)) for _ in range(count)]

    def enqueue(self, kind: str, tags: Sequence[str], *, bulk: bool = False) -> tuple[int, int]:
        """Enqueues jobs; returns when this began and ended, in nanoseconds of the monotonic clock."""
        answer = self._ask(do="enqueue", kind=kind, tags=list(tags), bulk=bulk)
        return answer["began"], answer["ended"]

    def unfinished(self) -> int:
        """Returns how many jobs have not ended."""
        return self._ask(do="unfinished")["count"]

    def failed(self) -> int:
        """Returns how many jobs have failed for good."""
        return self._ask(do="failed")["count"]

    def lines(self, word: str) -> list[tuple[str, int, int]]:
        """Returns what the jobs have said with this word: tag, time and process."""
        found = [line.split() for line in self.log.read_text().splitlines() if line.startswith(f"{word} ")]
        return [(tag, int(at), int(pid)) for _, tag, at, pid in found]

    def starts_of(self, tag: str) -> list[tuple[int, int]]:
        """Returns the times and processes of the attempts of a job."""
        return [(at, pid) for each, at, pid in self.lines("start") if each == tag]

    # workers

    def start(self, mode: str) -> None:
        """Starts the workers: two processes, by one or two commands."""
        for _ in range(self.peer.commands):
            worker = subprocess.Popen(
                self._words("work", mode), env=self._environment, stdin=subprocess.DEVNULL, stdout=self._noise,
                stderr=self._noise, start_new_session=True,
            )  # fmt: skip
            self._workers.append(worker)

    def ready(self) -> None:
        """Waits until every worker has started: a job has run, and the system is idle again."""
        (tag,) = self.tags(1)
        self.enqueue("note", [tag])
        eventually(lambda: self.starts_of(tag), PATIENCE, what=f"{self.peer.name} performs a job: {self.output()}")
        eventually(lambda: self.unfinished() == 0, PATIENCE, what=f"{self.peer.name} has ended it")

    def processes(self) -> list[int]:
        """Returns the worker commands and all processes below them."""
        every = [worker.pid for worker in self._workers if worker.poll() is None]
        return [*every, *(pid for worker in every for pid in proc.descendants(worker))]

    def kill(self) -> None:
        """Kills all worker processes at once."""
        for pid in reversed(self.processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """Lets the workers stop as the system documents it."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(PATIENCE / 2)
        self.kill()

    def _reap(self) -> None:
        for worker in self._workers:
            worker.wait()
        self._workers.clear()

    def usage(self) -> tuple[float, float]:
        """Returns the CPU seconds that the worker processes have used, and their memory in MiB."""
        pids = self.processes()
        return sum(sum(cpu(pid)) for pid in pids), pss(pids)

    def close(self) -> None:
        """Ends all processes."""
        self.kill()
        ended(self._client)
        self._noise.close()
