"""Several nodes on one PostgreSQL store, each with its own host, as if on machines of their own."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from chaos import app, processes
from chaos.hosts import PATIENCE, World
from chaos.judge import Kept, Questions
from chargehand import StoreError

ON_SERVER = Questions(
    jobs="""
        SELECT j.id, coalesce(x.state, CASE WHEN t.seq IS NULL THEN 'nowhere' WHEN t.claim IS NULL THEN 'queued'
          ELSE 'running' END), x.reason, j.payload
        FROM chargehand_job j LEFT JOIN chargehand_end x ON x.seq = j.seq LEFT JOIN chargehand_live t ON t.seq = j.seq
    """,
    attempts="""
        SELECT j.id, a.pid, a.outcome FROM chargehand_attempt a JOIN chargehand_job j ON j.seq = a.job
        UNION ALL SELECT j.id, x.pid, 'done' FROM chargehand_end x JOIN chargehand_job j ON j.seq = x.seq
        WHERE x.state = 'done'
    """,
    expired="""
        SELECT j.id, x.claim FROM chargehand_end x JOIN chargehand_attempt a ON a.job = x.seq AND a.claim = x.claim
        JOIN chargehand_job j ON j.seq = x.seq WHERE a.outcome = 'interrupted' AND x.state = 'done'
    """,
)


class Nodes(World):
    """The nodes, their hosts and their folders."""

    def __init__(self, folder: Path, url: str, names: Sequence[str], workers: tuple[int, int], seed: int) -> None:
        """`url` is the store. `workers` are the numbers of workers of the two crews on each node."""
        os.environ |= {app.SERVER: url, "XDG_STATE_HOME": str(folder / f"state-{names[0]}")}
        super().__init__(folder, "lifted")
        self._names, self._chance = tuple(names), random.Random(seed)
        crews = zip(("WORK", "SETTLE"), workers, strict=True)
        self._workers = {f"CHARGEHAND_CREW_{crew}_WORKERS": str(count) for crew, count in crews}
        self._hosts: dict[str, subprocess.Popen[bytes]] = {}
        self.elsewhere: dict[str, tuple[tuple[str, ...], str]] = {}
        """By node: a command that runs a program on another network, and the URL of the store there."""

    def kept(self) -> Kept:
        with psycopg.connect(str(self.store), autocommit=True) as connection:
            return Kept(lambda sql: connection.execute(sql.encode()).fetchall(), ON_SERVER)

    def view(self) -> dict[str, Any] | None:
        try:
            rows = self.hand.health()
        except StoreError:
            return None
        workers = [
            {"pid": row.pid, "status": row.status, "current_job": row.current_job}
            for row in rows
            if row.component != "app"
        ]
        return {"workers": workers}

    def start_host(self) -> None:
        """Starts the hosts of all nodes."""
        for name in self._names:
            self._start(name)

    def _start(self, name: str) -> None:
        prefix, url = self.elsewhere.get(name, ((), str(self.store)))
        own = {"CHARGEHAND_NODE": name, "XDG_STATE_HOME": str(self.folder / f"state-{name}"), app.SERVER: url}
        self._hosts[name] = self.start(
            "-m", "chargehand", "work", "chaos.app:hand", log=f"host-{name}-{len(self._started)}",
            program=(*prefix, sys.executable), **own, **self._workers,
        )  # fmt: skip

    def watch_host(self) -> None:
        """Records hosts that exited on their own, and starts others."""
        for name, host in list(self._hosts.items()):
            if host.poll() is not None:
                self.wrong.append(f"host {name} exited on its own with {host.returncode}")
                self._start(name)

    def pid_of(self, name: str) -> int | None:
        """Returns the pid of a node, if its health row names one."""
        try:
            rows = self.hand.health()
        except StoreError:
            return None
        return next((row.pid for row in rows if row.component == "app" and row.node == name), None)

    def kill(self, whom: str) -> bool:
        """Kills a node, its host, or both at once with SIGKILL; returns whether they were running."""
        name = self._chance.choice(self._names)
        node = self.pid_of(name) if whom != "host" else None
        if whom != "host" and (node is None or not processes.ours(node, self.run)):
            return False
        host = self._hosts[name] if whom != "node" else None
        if host is not None:
            host.kill()
        struck = node is None or processes.send(node, signal.SIGKILL, self.run)
        if host is not None:
            self._start(name)
            host.wait()
        return struck

    def stop(self) -> None:
        """Stops all hosts gracefully."""
        hosts, self._hosts = self._hosts, {}
        for host in hosts.values():
            host.send_signal(signal.SIGTERM)
        for name, host in hosts.items():
            try:
                code = host.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"host {name} did not stop within {PATIENCE:g} s")
                continue
            if code:
                self.wrong.append(f"host {name} was stopped gracefully but exited with {code}")
