"""The environment of a measurement: a new directory on the real disk, a running node, and reports of its workers.

All processes and files are removed when the block ends, also after an exception.
"""

import itertools
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import IO, Any, NamedTuple

import msgspec

from bench.hosting import CrewSpec, Spec, hand_of
from chargehand import Chargehand, Crew
from chargehand.log import Event
from chargehand.processes import proc
from chargehand.stores.sqlite.files import filesystem_of
from chargehand.testing import eventually

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PATIENCE = 60.0
"""Seconds after which an expected event counts as failed."""
_numbers = itertools.count()


@contextmanager
def folder() -> Generator[Path]:
    """Creates a new directory on the disk of the repository; a memory file system would be neither durable nor slow."""
    BUILD.mkdir(exist_ok=True)
    kind = filesystem_of(BUILD, Path("/proc/self/mountinfo").read_text())
    if kind in ("tmpfs", "ramfs"):
        raise RuntimeError(f"{BUILD} is on a {kind}: cannot measure durable writes there")
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=BUILD))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if not any(BUILD.iterdir()):
            BUILD.rmdir()


def interpreter(
    *arguments: str, pass_fds: Sequence[int] = (), stderr: IO[bytes] | int | None = None
) -> "subprocess.Popen[bytes]":
    """A separate interpreter with pipes; it exits when its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT,
        pass_fds=pass_fds,
    )  # fmt: skip


def ended(process: "subprocess.Popen[bytes]", patience: float = PATIENCE) -> None:
    """Lets a process that we started exit, or kills it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


class Log:
    """Reads the node's log from a pipe and records when each line arrives."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream.fileno()
        self._rest = b""
        self._lines: list[tuple[str, int]] = []
        self.kept: deque[str] = deque(maxlen=20)
        self._poller = select.poll()
        self._poller.register(self._stream, select.POLLIN)

    def arrival(self, event: Event) -> int:
        """Waits for the next line with this event code and returns its arrival in ns; skips earlier lines."""
        while True:
            while self._lines:
                line, at = self._lines.pop(0)
                if f"event={event}" in line:
                    return at
            if not self._poller.poll(PATIENCE * 1000):
                raise TimeoutError(f"the node did not log {event}")
            data = os.read(self._stream, 1 << 16)
            at = monotonic_ns()
            if not data:
                raise EOFError(f"the node's log ended before {event}")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += [(line.decode(), at) for line in lines]
            self.kept += [line.decode() for line in lines]


class Said(NamedTuple):
    """A worker has started a job: the worker, and the time (ns)."""

    pid: int
    began: int


class Ear:
    """Receives the reports of handlers that have started."""

    def __init__(self) -> None:
        self.name = f"chargehand-bench-{os.getpid()}-{next(_numbers)}"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(f"\0{self.name}")
        self._sock.settimeout(PATIENCE)

    def hear(self) -> Said:
        """Returns the next report."""
        pid, began = self._sock.recv(100).split()
        return Said(int(pid), int(began))

    def close(self) -> None:
        self._sock.close()


class Stage:
    """A node with its host and workers, all in other processes."""

    def __init__(self, path: Path, spec: Spec, piped: bool) -> None:
        self.folder = path
        self.spec = spec
        self.hand: Chargehand = hand_of(self.spec)
        self.ear = Ear()
        self._piped = piped
        self._host: subprocess.Popen[bytes] | None = None
        self._log: Log | None = None
        self._log_file = path / "log"

    @property
    def log(self) -> Log:
        assert self._log is not None
        return self._log

    @property
    def crew(self) -> Crew[Any, Any]:
        """Returns the first crew."""
        return self.hand.find_crew(self.spec.crews[0].name)

    def start(self) -> None:
        """Starts host and node; returns when the node is ready, before its workers are."""
        with open(self._log_file, "ab") as log:
            self._host = interpreter(
                "-m", "bench.hosting", msgspec.json.encode(self.spec).decode(),
                stderr=subprocess.PIPE if self._piped else log,
            )  # fmt: skip
        if self._host.stderr is not None:
            self._log = Log(self._host.stderr)
        assert self._host.stdout is not None
        if self._host.stdout.readline() != b"ready\n":
            raise RuntimeError("the node did not start")

    def workers(self) -> list[dict[str, Any]]:
        """Returns the workers as reported by the node."""
        return (self.hand.status() or {"workers": []})["workers"]

    def healthy(self) -> None:
        """Waits until every worker is ready."""
        count = sum(crew.workers for crew in self.spec.crews)
        eventually(
            lambda: sum(w["status"] == "healthy" for w in self.workers()) == count, PATIENCE, what="all workers healthy"
        )

    def pids(self) -> tuple[int, list[int]]:
        """Returns the pids of the node and its workers."""
        status = self.hand.status()
        assert status is not None
        return status["pid"], [worker["pid"] for worker in status["workers"] if worker["pid"]]

    def stop(self) -> float:
        """Stops everything gracefully through the host; returns the seconds it took."""
        host = self._host
        assert host is not None
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(b"stop\n")
        host.stdin.flush()
        return float(host.stdout.readline())

    def kill(self) -> None:
        """Sends SIGKILL to host, node and workers at once; returns when none of them is left."""
        assert self._host is not None
        node, workers = self.pids()
        for pid in (self._host.pid, node, *workers):
            os.kill(pid, signal.SIGKILL)
        ended(self._host)
        eventually(lambda: not any(proc.stat(pid) for pid in (node, *workers)), PATIENCE, what="all processes gone")

    def end(self) -> None:
        """Stops all processes and deletes all files."""
        lives = self._read_lives()
        self.hand.close()
        self.ear.close()
        if self._host is not None:
            ended(self._host)
        for pid, start in lives:
            if proc.alive(pid, start):
                os.kill(pid, signal.SIGKILL)
                eventually(lambda pid=pid, start=start: not proc.alive(pid, start), PATIENCE, what="a clean shutdown")

    def _read_lives(self) -> list[tuple[int, int]]:
        try:
            node, workers = self.pids()
        except AssertionError:
            return []
        seen = [(pid, proc.stat(pid)) for pid in (*workers, node)]
        return [(pid, stat.start) for pid, stat in seen if stat is not None]

    def last_words(self) -> str:
        """Returns the end of the log, for error reports."""
        kept = "" if self._log is None else "\n".join(self._log.kept)
        return kept or self._log_file.read_text(errors="replace")[-2000:]


@contextmanager
def stage(
    *crews: CrewSpec,
    pause: float | None = None,
    piped: bool = False,
    healthy: bool = True,
    store: str | None = None,
    node: str | None = None,
    most_in_hand: int | None = None,
) -> Generator[Stage]:
    """A running node with these crews and all workers ready; removes everything afterwards, except what is on a server.

    `store` is the URL of a store on a server; by default a new SQLite file is made.
    """
    with folder() as path:
        where = str(path / "bench.db") if store is None else store
        spec = Spec(
            store=where, crews=crews, pause=pause, most_in_hand=most_in_hand, node=node, state=str(path / "state")
        )
        made = Stage(path, spec, piped)
        try:
            made.start()
            if healthy:
                made.healthy()
            yield made
        except BaseException as error:
            error.add_note(f"the end of the node's log:\n{made.last_words()}")
            raise
        finally:
            made.end()
