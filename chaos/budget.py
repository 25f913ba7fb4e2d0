"""The second, short run: kills idle workers repeatedly with default limits, until the crew is given up."""

import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import processes
from chaos.hosts import World
from chargehand import RestartPolicy, clock
from chargehand.model.job import State
from chargehand.testing import eventually

LIMIT = 60.0
"""Seconds within which a crew of two must reach its restart limit."""


@dataclass
class GivenUp:
    """The result of the run."""

    kills: int = 0
    failed: int = 0
    workers: int = 0
    reasons: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not self.wrong


class Budget:
    """Runs one crew of two workers and kills them repeatedly."""

    def __init__(self, folder: Path) -> None:
        self._world = World(folder, "default")
        self._killed: dict[int, str] = {}
        """The worker of each pid."""

    def run(self) -> GivenUp:
        """Kills workers, checks the result, and stops the host."""
        found = GivenUp()
        with self._world as world:
            world.start_host()
            view = self._kill_until_given_up()
            found.kills = len(self._killed)
            self._look(view, found)
            world.stop()
            found.wrong += [f"process {pid} was left at the end" for pid in processes.all_of(world.run)]
        found.wrong += world.wrong
        return found

    def _kill_until_given_up(self) -> dict[str, Any]:
        until = clock.monotonic() + LIMIT
        while True:
            view = self._world.hand.status() or {"workers": []}
            workers: list[dict[str, Any]] = view["workers"]
            over = bool(workers) and all(worker["status"] == "failed" for worker in workers)
            if over or clock.monotonic() > until:
                return view
            for worker in workers:
                pid = worker["pid"] or 0
                healthy = worker["status"] == "healthy" and pid and pid not in self._killed
                if healthy and processes.send(pid, signal.SIGKILL, self._world.run):
                    self._killed[pid] = worker["component"]
            clock.sleep(0.01)

    def _look(self, view: dict[str, Any], found: GivenUp) -> None:
        """Checks that all workers are given up with a reason, host and node run, and an enqueued job keeps waiting."""
        world = self._world
        for worker in view["workers"]:
            found.workers += 1
            found.failed += worker["status"] == "failed"
            found.reasons.append(f"{worker['component']}: {worker['text']}")
            if (worker["status"], worker["signal"]) != ("failed", signal.SIGKILL) or not worker["text"]:
                found.wrong.append(f"{worker['component']} is {worker['status']}: {worker['text']}")
        if not found.workers:
            found.wrong.append("no node answered")
        # Only one of the workers that crash together is restarted as the probe, and it must reach its own limit.
        if all(worker["budget"]["rapid_left"] for worker in view["workers"]):
            found.wrong.append("no worker has used its budget up")
        (_, most), *_ = Counter(self._killed.values()).most_common(1) or [("", 0)]
        if most != RestartPolicy().rapid_limit + 1:
            found.wrong.append(f"given up after {most} kills of one worker; allowed are {RestartPolicy().rapid_limit}")
        ref = world.hand.find_crew("idle").enqueue({"do": "nothing", "ms": 0.0})
        if ref.job().state is not State.QUEUED:
            found.wrong.append(f"a job of a crew that is given up is {ref.job().state}")
        if world.host is None or world.host.poll() is not None or not eventually(world.hand.status, 5.0):
            found.wrong.append("the host or its node is not up")
