"""Several nodes on one PostgreSQL store, each with its own host, as if on machines of their own."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
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

    def __init__(
        self,
        folder: Path,
        url: str,
        names: Sequence[str],
        workers: Mapping[str, int],
        seed: int,
        *,
        limits: str = "lifted",
        own_url: str | None = None,
    ) -> None:
        """`url` is the store for the nodes, `own_url` for this process. `workers` are the numbers of workers on each
        node."""
        own_url = own_url or url
        os.environ |= {app.SERVER: own_url, "XDG_STATE_HOME": str(folder / f"state-{names[0]}")}
        super().__init__(folder, limits)
        self._url, self._names, self._chance = url, tuple(names), random.Random(seed)
        self._workers = dict(workers)
        self._hosts: dict[str, subprocess.Popen[bytes]] = {}
        self.elsewhere: dict[str, tuple[tuple[str, ...], str]] = {}
        """By node: a command that runs a program on another network, and the URL of the store there."""
        self.environments: dict[str, dict[str, str]] = {}
        """By node: variables of its environment."""

    def _crews(self, name: str) -> dict[str, int]:
        """Returns the crews of a node, and their numbers of workers."""
        limits = self.environments.get(name, {}).get(app.LIMITS, self._limits)
        return {crew: count for crew, count in self._workers.items() if crew != "careful" or limits == app.CAREFUL}

    @property
    def count(self) -> int:
        """The number of workers of all nodes."""
        return sum(sum(self._crews(name).values()) for name in self._names)

    def kept(self) -> Kept:
        with psycopg.connect(self.store, autocommit=True) as connection:
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

    def start(
        self, *arguments: str, log: str, program: tuple[str, ...] = (sys.executable,), **environment: str
    ) -> "subprocess.Popen[bytes]":
        """Starts a process of this run, on the store of the nodes."""
        return super().start(*arguments, log=log, program=program, **{app.SERVER: self._url, **environment})

    def start_host(self) -> None:
        """Starts the hosts of all nodes."""
        for name in self._names:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """Starts the host of a node."""
        prefix, url = self.elsewhere.get(name, ((), self._url))
        crews = {f"CHARGEHAND_CREW_{crew.upper()}_WORKERS": str(count) for crew, count in self._crews(name).items()}
        own = {"CHARGEHAND_NODE": name, "XDG_STATE_HOME": str(self.folder / f"state-{name}"), app.SERVER: url}
        self._hosts[name] = self.start(
            "-m", "chargehand", "work", "chaos.app:hand", log=f"host-{name}-{len(self._started)}",
            program=(*prefix, sys.executable), **own, **crews, **self.environments.get(name, {}),
        )  # fmt: skip

    def watch_host(self) -> None:
        """Records hosts that exited on their own, and starts others."""
        for name, host in list(self._hosts.items()):
            if host.poll() is not None:
                self.wrong.append(f"host {name} exited on its own with {host.returncode}")
                self.start_node(name)

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
            self.start_node(name)
            host.wait()
        return struck

    def kill_for_good(self, name: str) -> None:
        """Kills a node and its host at once with SIGKILL, and starts no other."""
        node, host = self.pid_of(name), self._hosts.pop(name)
        host.kill()
        if node is None or not processes.send(node, signal.SIGKILL, self.run):
            self.wrong.append(f"node {name} was not there to be killed")
        host.wait()

    def look_for_ghosts(self, view: dict[str, Any] | None) -> None:
        """Does nothing: processes of an earlier life run beside those of other nodes."""

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
