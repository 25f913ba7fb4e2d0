"""The third run: tiny jobs, several in the hand of each worker, while workers are killed.

A worker performs one job at a time, so its death may be charged to one job at most. Each process keeps a file of what
it has begun and ended.
"""

import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos import judge, ledger, processes
from chaos.app import TINY
from chaos.campaign import TABLES
from chaos.hosts import World
from chargehand import clock
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.testing import eventually

WORKERS = 4
BURST = 2000
"""How many jobs are enqueued with one call; between two calls, workers run out of jobs."""
SPACING = 0.1
"""Seconds between two kills, so that there are workers to kill."""
PATIENCE = 120.0
SHOWN = 20


@dataclass
class Found:
    """The result of the run."""

    jobs: int = 0
    kills: int = 0
    with_a_job: int = 0
    """Kills that were charged to a job."""
    executed: int = 0
    lost: list[str] = field(default_factory=list[str])
    twice: list[str] = field(default_factory=list[str])
    not_begun: list[str] = field(default_factory=list[str])
    """Jobs that were charged although their worker had not begun them."""
    wrong: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.not_begun or self.wrong)


class Tiny:
    """Runs one crew of tiny jobs."""

    def __init__(self, folder: Path, jobs: int, kills: int, seed: int) -> None:
        self._world = World(folder, TINY)
        self._jobs, self._kills = jobs, kills
        self._chance = random.Random(seed)
        self._acknowledged: list[str] = []

    def run(self) -> Found:
        """Enqueues, kills, waits until all jobs are done, stops, and accounts for every job."""
        found = Found()
        with self._world as world:
            with world.hand.transaction() as tx:
                tx.execute(TABLES)
            world.start_host()
            eventually(self._healthy, PATIENCE, what="all workers healthy at the start")
            crew = world.hand.find_crew("tiny")
            while len(self._acknowledged) < self._jobs or found.kills < self._kills:
                behind = len(self._acknowledged) / self._jobs <= found.kills / max(1, self._kills)
                if behind and len(self._acknowledged) < self._jobs:
                    count = min(BURST, self._jobs - len(self._acknowledged))
                    self._acknowledged += [ref.id for ref in crew.enqueue_many([{"do": "tiny"}] * count)]
                if found.kills < self._kills:
                    found.kills += self._strike()
                world.watch_host()
                clock.sleep(self._chance.uniform(0.2, 1.0) * SPACING)
            eventually(self._done, PATIENCE, what="all jobs done")
            world.stop()
            world.hand.close()
            found.wrong += [f"process {pid} was left at the end" for pid in processes.all_of(world.run)]
        found.wrong += world.wrong
        self._judge(found)
        return found

    def _healthy(self) -> bool:
        workers = (self._world.view() or {"workers": []})["workers"]
        return len(workers) == WORKERS and all(worker["status"] == "healthy" for worker in workers)

    def _done(self) -> bool:
        hand = self._world.hand
        for job in hand.jobs(JobFilter(state=State.FAILED, limit=1000)):
            if job.reason == "poison":  # three kills are not the fault of the job
                hand.retry(job.id)
        return all(counts.queued == counts.running == counts.failed == 0 for counts in hand.counts())

    def _strike(self) -> bool:
        workers = (self._world.view() or {"workers": []})["workers"]
        pids = [worker["pid"] for worker in workers if worker["pid"] and worker["status"] == "healthy"]
        return bool(pids) and processes.send(self._chance.choice(pids), signal.SIGKILL, self._world.run)

    def _judge(self, found: Found) -> None:
        kept = self._world.kept()
        begun: dict[str, Counter[int]] = defaultdict(Counter)
        for path in (self._world.folder / "jobs").iterdir():
            for job in ledger.read(path):
                begun[job[0]][int(path.name)] += 1
        found.jobs = len(self._acknowledged)
        found.executed = sum(sum(pids.values()) for pids in begun.values())
        found.lost = [
            f"{job} was acknowledged and is {kept.state.get(job, 'not there')}"
            for job in self._acknowledged
            if kept.state.get(job) != "done"
        ]
        found.twice = [f"{job} was done {len(kept.done(job))} times" for job in kept.state if len(kept.done(job)) != 1]
        charged: dict[int | None, list[str]] = defaultdict(list)
        for job, attempts in kept.attempts.items():
            if sum(begun[job].values()) > len(attempts):
                found.wrong.append(f"{job} was begun {sum(begun[job].values())} times, attempts: {attempts}")
            for pid, outcome in attempts:
                if outcome != "done":
                    charged[pid].append(f"{job} ({outcome})")
        found.with_a_job = len(charged)
        for pid, jobs in charged.items():
            # At most one: the worker takes a permit before it calls the handler, so a kill in between is charged, too.
            if len(jobs) > 1:
                found.not_begun.append(f"the death of {pid} was charged to {len(jobs)} jobs: {jobs[:5]}")
        logs = [judge.fields_of(line) for line in self._lines()]
        found.wrong += judge.in_the_logs(logs)

    def _lines(self) -> Iterator[str]:
        for path in sorted((self._world.folder / "logs").iterdir()):
            yield from path.read_text(errors="replace").splitlines()
