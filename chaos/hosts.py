"""Starts, restarts and stops `chargehand work` as an operator does."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Self

from chaos import app, judge, ledger, processes
from chaos.judge import Kept
from chargehand import Chargehand
from chargehand.host import nodelock
from chargehand.processes import proc
from chargehand.processes.prctl import die_with_parent
from chargehand.stores.location import locate

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
"""Seconds that a host may take to stop."""


class World:
    """The folder and the processes of one run. All its processes are killed when the block ends."""

    stopped_codes: ClassVar[tuple[int, ...]] = (0,)
    """Exit codes of a host that was stopped gracefully."""

    def __init__(self, folder: Path, limits: str, hand: Chargehand | None = None) -> None:
        """`hand` is the application; by default the one of the chaos test with these limits."""
        self.folder, self._limits = folder, limits
        self.run = os.urandom(8).hex()
        self.hand = hand or app.hand_of(folder, limits)
        self.store = self.hand.url
        self.host: subprocess.Popen[bytes] | None = None
        self.wrong: list[str] = []
        """Unexpected behaviour of hosts."""
        self.orphans: list[str] = []
        """Processes that outlived the node that started them."""
        self._node: int | None = None
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
        pid = (nodelock.holder(locate(self.store)) or {}).get("pid")
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
        if code not in self.stopped_codes:
            self.wrong.append(f"host {host.pid} was stopped gracefully but exited with {code}")

    def look_for_ghosts(self, view: dict[str, Any] | None) -> None:
        """Checks that no process of an earlier node is alive when a new node has its first worker."""
        if view is None or view["pid"] == self._node:
            return
        marks = [proc.mark_of(worker["pid"]) for worker in view["workers"] if worker["pid"]]
        lives = {_life_of(mark) for mark in marks} - {None}
        if not lives:
            return
        self._node = view["pid"]
        for pid in processes.all_of(self.run):
            life = _life_of(proc.mark_of(pid))
            if life is not None and life not in lives:
                self.orphans.append(f"process {pid} of node life {life} was alive next to node {self._node}")

    def look_for_orphans(self) -> None:
        """Checks that no process of the run is left at the end, and kills those that are."""
        children = [(int(pid), int(start)) for _, pid, start in ledger.read(self.folder / "children")]
        left = {*processes.all_of(self.run), *(pid for pid, start in children if proc.alive(pid, start))}
        self.orphans += [f"process {pid} was left at the end: {processes.command_of(pid)}" for pid in sorted(left)]
        stubborn = processes.end_all(self.run, children)
        self.orphans += [f"process {pid} cannot be killed" for pid in stubborn]


def _life_of(mark: str | None) -> str | None:
    """Returns the node life in a worker's marker; hosts and nodes have none."""
    parts = (mark or "").split("/")
    return parts[1] if len(parts) > 2 else None
