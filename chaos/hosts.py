"""`chargehand work`, as an operator starts it, starts it again, and stops it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from chaos import app, processes
from chargehand.host import nodelock
from chargehand.processes.prctl import die_with_parent

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
"""Seconds after which a host that was asked to stop, and has not, is a failure."""


class World:
    """The folder and the processes of one run. Whatever it started is gone when its block ends, however it ends."""

    def __init__(self, folder: Path, limits: str) -> None:
        self.folder, self._limits = folder, limits
        self.store = app.store_of(folder)
        self.run = os.urandom(8).hex()
        self.hand = app.hand_of(folder, limits)
        self.host: subprocess.Popen[bytes] | None = None
        self.wrong: list[str] = []
        """What a host did that it must not do."""
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "World":
        (self.folder / "jobs").mkdir()
        (self.folder / "logs").mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self.hand.close()
        processes.end_all(self.run, [])
        for process in self._started:
            process.wait()

    def start(self, *arguments: str, log: str) -> "subprocess.Popen[bytes]":
        """A process of this run that is killed if this one is."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {
            **os.environ, "PYTHONPATH": path, "CHARGEHAND_LOG": "json",
            app.FOLDER: str(self.folder), app.LIMITS: self._limits, app.RUN: self.run,
        }  # fmt: skip
        me = os.getpid()
        with open(self.folder / "logs" / log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments], env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True, preexec_fn=lambda: die_with_parent(me),
            )  # fmt: skip
        self._started.append(process)
        return process

    def start_host(self) -> None:
        """Another host; if the node of the one before still serves, it waits for its turn."""
        self.host = self.start("-m", "chargehand", "work", "chaos.app:hand", log=f"host-{len(self._started)}")

    def watch_host(self) -> None:
        """A host never ends by itself; if it did, that is noted, and another one started."""
        if self.host is not None and self.host.poll() is not None:
            self.wrong.append(f"host {self.host.pid} ended by itself with {self.host.returncode}")
            self.start_host()

    def node_pid(self) -> int | None:
        """The node that has the store, ready or not."""
        pid = (nodelock.holder(self.store) or {}).get("pid")
        return pid if isinstance(pid, int) else None

    def kill(self, whom: str) -> bool:
        """`kill -9` of the node, of the host, or of both in one moment; whether they were there to be killed."""
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
        """Stop the host in order."""
        assert self.host is not None
        host, self.host = self.host, None
        host.send_signal(signal.SIGTERM)
        try:
            code = host.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"host {host.pid} did not stop within {PATIENCE:g} s")
            return
        if code:
            self.wrong.append(f"host {host.pid} was stopped in order and ended with {code}")
