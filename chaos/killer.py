"""Plans signals at random from a seed, and sends them to the processes that run at that time."""

import os
import random
import signal
import subprocess
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import ledger, processes
from chaos.hosts import World
from chargehand import clock
from chargehand.processes import proc

STOPPED_SHARE = 0.4
"""The share of SIGSTOP among the signals to workers; the others are SIGKILL."""
CONTINUED_SHARE = 0.25
"""The share of stopped workers that are continued at about the time when the missing heartbeat is detected."""
CONTINUED_AFTER = (0.3, 1.6)
STARTING_SHARE = 0.04
"""How often starting workers may be hit too; otherwise no worker would ever become ready."""
SPACING, LEFT_ALONE = 0.1, 1
"""Delayed signals after the exit of a node are spread over time and workers; otherwise no job would finish."""
BUSY_WEIGHT = 4
"""How much more often a worker with a job is hit than an idle one."""
ENQUEUED_BY = 0.9
"""The share of the time in which all jobs are enqueued."""
CALL_SHARE, CALL_WAIT, CALL_LENGTH = 0.6, 0.3, 0.004
"""The share of node kills that wait for an enqueue in progress; how long they wait; the duration of an enqueue."""
FOUND_WITHIN = 20.0
"""Seconds after which a stopped worker must have been killed; the liveness check itself takes one."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The size of a run."""

    jobs: int
    seconds: float
    workers: int
    """Number of signals to workers."""
    nodes: int
    """Number of kills of host, node or both."""
    enqueuers: int


@dataclass
class Stopped:
    """A stopped worker, and whether it will be continued."""

    descriptor: int
    pid: int
    since: float
    continue_at: float | None


def planned(numbers: Numbers, chance: random.Random) -> deque[tuple[float, str]]:
    """Returns the planned times in seconds from the start, unevenly distributed, so that some lives are short."""
    stops = round(numbers.workers * STOPPED_SHARE)
    kinds = ["stop"] * stops + ["kill"] * (numbers.workers - stops)
    many: list[str] = []
    while len(many) < numbers.nodes:
        many += chance.sample(["node", "host", "both"], 3)
    moments = sorted(chance.uniform(1.0, numbers.seconds) for _ in range(numbers.nodes))
    whole = list(zip(moments, many, strict=False))
    whole += [(chance.uniform(0.5, numbers.seconds), kind) for kind in kinds]
    whole += [(chance.uniform(0.5, numbers.seconds * ENQUEUED_BY), "enqueuer") for _ in range(numbers.enqueuers)]
    return deque(sorted(whole))


class Stops:
    """The stopped processes of a run. Each is continued after a while, or must be killed by the liveness check."""

    def __init__(self, run: str, chance: random.Random, counts: Counter[str], found_within: float = FOUND_WITHIN):
        self._run, self._chance, self._counts, self._found_within = run, chance, counts, found_within
        self._stopped: dict[int, Stopped] = {}
        self.wrong: list[str] = []

    def __len__(self) -> int:
        return len(self._stopped)

    def __contains__(self, pid: int) -> bool:
        return pid in self._stopped

    def stop(self, pid: int) -> bool:
        """Stops a process; some are continued later. Returns whether it was running."""
        descriptor = processes.grab(pid, self._run)
        if descriptor is None:
            return False
        now = clock.monotonic()
        again = now + self._chance.uniform(*CONTINUED_AFTER) if self._chance.random() < CONTINUED_SHARE else None
        self._stopped[pid] = Stopped(descriptor, pid, now, again)
        return self._signal(self._stopped[pid], signal.SIGSTOP)

    def look(self) -> None:
        """Continues those whose time has come, and forgets those that were killed."""
        now = clock.monotonic()
        for stopped in list(self._stopped.values()):
            seen = proc.stat(stopped.pid)
            if seen is None or seen.dead:
                self._counts["found"] += 1
                self._forget(stopped)
            elif stopped.continue_at is not None and stopped.continue_at <= now:
                if self._signal(stopped, signal.SIGCONT):
                    self._counts["continued"] += 1
                    self._forget(stopped)
            elif now - stopped.since > self._found_within:
                self.wrong.append(f"stopped worker {stopped.pid} was not killed within {self._found_within:g} s")
                self._forget(stopped)

    def _signal(self, stopped: Stopped, number: int) -> bool:
        try:
            signal.pidfd_send_signal(stopped.descriptor, number)
        except ProcessLookupError:
            self._forget(stopped)
            return False
        return True

    def _forget(self, stopped: Stopped) -> None:
        os.close(stopped.descriptor)
        del self._stopped[stopped.pid]


def wait_for_a_call(folder: Path, chance: random.Random) -> bool:
    """Waits for a moment until the ledger has a call in progress, and for a part of its duration; returns whether one
    is."""
    until = clock.monotonic() + CALL_WAIT
    while clock.monotonic() < until:
        if ledger.last(folder / "ledger").startswith("try"):
            clock.sleep(chance.uniform(0, CALL_LENGTH))
            return True
        clock.sleep(0.0005)
    return False


class Killer:
    """Executes the plan; an action without a target waits until there is one."""

    def __init__(self, world: World, numbers: Numbers, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self._plan = planned(numbers, chance)
        self.counts: Counter[str] = Counter()
        self._stops = Stops(world.run, chance, self.counts)
        self.killed_at: list[float] = []
        """When nodes and hosts were killed."""
        self._struck_at = 0.0

    @property
    def finished(self) -> bool:
        """Returns whether the plan is complete and every stopped worker is handled."""
        return not self._plan and not self._stops

    @property
    def wrong(self) -> list[str]:
        """Returns the stopped workers that nothing killed."""
        return self._stops.wrong

    def act(self, elapsed: float, view: dict[str, Any] | None, enqueuer: "subprocess.Popen[bytes] | None") -> None:
        """Executes one due action."""
        self._stops.look()
        if not self._plan or self._plan[0][0] > elapsed:
            return
        kind = self._plan[0][1]
        if kind == "enqueuer" and enqueuer is None:
            self._plan.popleft()  # already finished
            return
        aimed = kind == "enqueuer" or (kind in ("node", "both") and self._chance.random() < CALL_SHARE)
        under_way = aimed and wait_for_a_call(self._world.folder, self._chance)
        if enqueuer is not None and kind == "enqueuer":
            enqueuer.kill()
            struck = True
        elif kind in ("node", "host", "both"):
            now, struck = clock.monotonic(), self._world.kill(kind)
            self.killed_at += [now] * struck
        else:
            struck = self._strike(kind, (view or {}).get("workers", []))
        if struck:
            self.counts[kind] += 1
            self.counts["under way"] += under_way
            self._plan.popleft()

    def _strike(self, kind: str, workers: list[dict[str, Any]]) -> bool:
        now = clock.monotonic()
        starting = self._chance.random() < STARTING_SHARE
        living = [
            w for w in workers
            if w["pid"] is not None and w["pid"] not in self._stops and (starting or w["status"] == "healthy")
        ]  # fmt: skip
        if len(living) < LEFT_ALONE + 1 or now < self._struck_at + SPACING:
            return False
        self._struck_at = now
        weights = [BUSY_WEIGHT if worker["current_job"] else 1 for worker in living]
        (worker,) = self._chance.choices(living, weights)
        pid = int(worker["pid"])
        if kind == "kill":
            struck = processes.send(pid, signal.SIGKILL, self._world.run)
        else:
            struck = self._stops.stop(pid)
        if struck and worker["current_job"]:
            self.counts["with a job in hand"] += 1
        return struck
