"""Starts, restarts and stops `chargehand work` as an operator does."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from chaos import app, judge, processes
from chaos.judge import Kept
from chargehand.host import nodelock
from chargehand.processes.prctl import die_with_parent
from chargehand.stores.location import locate

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
"""Seconds that a host may take to stop."""


class World:
    """The folder and the processes of one run. All its processes are killed when the block ends."""

    def __init__(self, folder: Path, limits: str) -> None:
        self.folder, self._limits = folder, limits
        self.store = app.store_of(folder)
        self.run = os.urandom(8).hex()
        self.hand = app.hand_of(folder, limits)
        self.host: subprocess.Popen[bytes] | None = None
        self.wrong: list[str] = []
        """Unexpected behaviour of hosts."""
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        (self.folder / "jobs").mkdir()
        (self.folder / "logs").mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self.hand.close()
        processes.end_all(self.run, [])
        for process in self._started:
            process.wait()

    def kept(self) -> Kept:
        """Returns the content of the store, after all processes have exited."""
        return judge.in_file(Path(self.store))

    def view(self) -> dict[str, Any] | None:
        """Returns the state of the workers; None if nobody knows."""
        return self.hand.status()

    def start(
        self, *arguments: str, log: str, program: tuple[str, ...] = (sys.executable,), **environment: str
    ) -> "subprocess.Popen[bytes]":
        """Starts a process of this run that is killed if this process exits."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {
            **os.environ, "PYTHONPATH": path, "CHARGEHAND_LOG": "json",
            app.FOLDER: str(self.folder), app.LIMITS: self._limits, app.RUN: self.run, **environment,
        }  # fmt: skip
        me = os.getpid()
        with open(self.folder / "logs" / log, "ab") as file:
            process = subprocess.Popen(
                [*program, *arguments], env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True, preexec_fn=lambda: die_with_parent(me),
            )  # fmt: skip
        self._started.append(process)
        return process

    def start_host(self) -> None:
        """Starts another host; it waits if the node of the previous host still runs."""
        self.host = self.start("-m", "chargehand", "work", "chaos.app:hand", log=f"host-{len(self._started)}")

    def watch_host(self) -> None:
        """Records a host that exited on its own, and starts another one."""
        if self.host is not None and self.host.poll() is not None:
            self.wrong.append(f"host {self.host.pid} exited on its own with {self.host.returncode}")
            self.start_host()

    def node_pid(self) -> int | None:
        """Returns the pid of the node that holds the store, ready or not."""
        pid = (nodelock.holder(locate(str(self.store))) or {}).get("pid")
        return pid if isinstance(pid, int) else None

    def kill(self, whom: str) -> bool:
        """Kills the node, the host, or both at once with SIGKILL; returns whether they were running."""
        node = self.node_pid() if whom != "host" else None
        if whom != "host" and (node is None or not processes.ours(node, self.run)):
            return False
        host = self.host if whom != "node" else None
        if host is not None:
            host.kill()
        struck = node is None or processes.send(node, signal.SIGKILL, self.run)
        if host is not None:
            self.start_host()
            host.wait()
        return struck

    def stop(self) -> None:
        """Stops the host gracefully."""
        assert self.host is not None
        host, self.host = self.host, None
        host.send_signal(signal.SIGTERM)
        try:
            code = host.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"host {host.pid} did not stop within {PATIENCE:g} s")
            return
        if code:
            self.wrong.append(f"host {host.pid} was stopped gracefully but exited with {code}")
