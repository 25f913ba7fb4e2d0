"""The fourth run: flows of one job, many that it spawns, and one that adds up their results, while workers, nodes and
hosts are killed.

Every flow must end with the right sum: no part is lost, none counts twice, and none waits for ever.
"""

import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import judge, processes
from chaos.app import FLOWS
from chaos.campaign import TABLES
from chaos.hosts import World
from chargehand import ChargehandError, clock
from chargehand.model.flows import FlowFilter
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.testing import eventually

BURST = 20
"""How many flows are begun before the next kill."""
MOST_PARTS = 8
SPACING = 0.1
"""Seconds between two kills, so that there are workers to kill."""
PATIENCE = 240.0
WHOLE = ("node", "host", "both")


@dataclass
class Found:
    """The result of the run."""

    flows: int = 0
    jobs: int = 0
    struck: Counter[str] = field(default_factory=Counter[str])
    released: int = 0
    """Jobs that failed as poison because of the kills, and were retried."""
    ends: int = 0
    lost: list[str] = field(default_factory=list[str])
    twice: list[str] = field(default_factory=list[str])
    hung: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.hung or self.wrong)


class Flows:
    """Runs flows of 1 → n → 1; the parts of each are known from its number."""

    def __init__(self, folder: Path, flows: int, kills: int, nodes: int, seed: int, world: World | None = None) -> None:
        self._world = world or World(folder, FLOWS)
        self._flows, self._chance = flows, random.Random(seed)
        self._plan = ["worker"] * kills + [WHOLE[number % len(WHOLE)] for number in range(nodes)]
        self._chance.shuffle(self._plan)
        self._kills = len(self._plan)
        self._begun: dict[str, tuple[int, str]] = {}
        """By flow: how many parts it has, and the job that adds them up."""
        self._found = Found()

    def run(self) -> Found:
        """Begins flows, kills, waits until all have ended, stops, and accounts for every flow and job."""
        found = self._found
        with self._world as world:
            with world.hand.transaction() as tx:
                tx.execute(TABLES)
            world.start_host()
            eventually(self._healthy, PATIENCE, what="all workers healthy at the start")
            while len(self._begun) < self._flows or self._plan:
                struck = self._kills - len(self._plan)
                if len(self._begun) / self._flows <= struck / max(1, self._kills) or not self._plan:
                    for _ in range(min(BURST, self._flows - len(self._begun))):
                        self._begin()
                if self._plan and self._strike(self._plan[-1]):
                    found.struck[self._plan.pop()] += 1
                world.watch_host()
                clock.sleep(self._chance.uniform(0.2, 1.0) * SPACING)
            self._wait()
            self._look()
            world.stop()
            world.hand.close()
            found.wrong += [f"process {pid} was left at the end" for pid in processes.all_of(world.run)]
        found.wrong += world.wrong
        self._judge()
        return found

    def _begin(self) -> None:
        hand, parts = self._world.hand, self._chance.randint(0, MOST_PARTS)
        split, add = hand.find_crew("split"), hand.find_crew("add")
        with hand.flow(f"flow {len(self._begun)}", on_end=hand.find_crew("told")) as flow:
            first = flow.enqueue(split, {"parts": parts})
            last = flow.enqueue(add, {"do": "add"}, after=first)
        self._begun[flow.id] = (parts, last.id)

    def _healthy(self) -> bool:
        workers = (self._world.view() or {"workers": []})["workers"]
        return bool(workers) and all(worker["status"] == "healthy" for worker in workers)

    def _strike(self, whom: str) -> bool:
        if whom != "worker":
            return self._world.kill(whom)
        workers = (self._world.view() or {"workers": []})["workers"]
        pids = [worker["pid"] for worker in workers if worker["pid"] and worker["status"] == "healthy"]
        return bool(pids) and processes.send(self._chance.choice(pids), signal.SIGKILL, self._world.run)

    def _release(self) -> None:
        """Retries what failed as poison: three kills are not the fault of the job. Its followers are revived."""
        for job in self._world.hand.jobs(JobFilter(state=State.FAILED, limit=1000)):
            if job.reason == "poison":
                self._found.released += len(self._world.hand.internal.retry(job.id))

    def _over(self) -> bool:
        self._release()
        self._world.watch_host()
        return all(counts.queued == counts.running == counts.failed == 0 for counts in self._world.hand.counts())

    def _wait(self) -> None:
        try:
            eventually(self._over, PATIENCE, what="all flows over")
        except (AssertionError, ChargehandError) as error:
            self._found.hung.append(f"jobs were left long after the kills: {error}")

    def _look(self) -> None:
        """Compares what each flow is with what it must be."""
        hand, before = self._world.hand, None
        records: dict[str, Any] = {}
        while page := hand.flows(FlowFilter(limit=500, before=before)):
            records |= {flow.id: flow for flow in page}
            before = page[-1].id
        self._found.flows = len(self._begun)
        for flow, (parts, last) in self._begun.items():
            record = records.get(flow)
            if record is None:
                self._found.lost.append(f"flow {flow} is not there")
                continue
            self._found.ends += record.ends
            if record.ended_ms is None:
                self._found.hung.append(f"flow {flow} has not ended: {record.counts}")
            elif (record.state, record.counts.done) != ("done", parts + 2):
                self._found.lost.append(f"flow {flow} of {parts} parts is {record.state}: {record.counts}")
            else:
                result = hand.job(last).result
                total = None if result is None else int(bytes(result))
                if total != sum(range(parts)):
                    self._found.lost.append(f"flow {flow} of {parts} parts adds up to {total}")

    def _judge(self) -> None:
        found, kept = self._found, self._world.kept()
        found.jobs = len(kept.state)
        found.twice = [f"{job} was done {len(kept.done(job))} times" for job in kept.state if len(kept.done(job)) != 1]
        told = Counter(payload["flow"] for payload in kept.payload.values() if "flow" in payload)
        if sum(told.values()) != found.ends:
            found.wrong.append(f"{found.ends} ends of flows, {sum(told.values())} jobs for them")
        missing = [flow for flow in self._begun if not told[flow]]
        found.wrong += [f"nobody was told of the end of flow {flow}" for flow in missing]
        lines = (path.read_text(errors="replace").splitlines() for path in (self._world.folder / "logs").iterdir())
        found.wrong += judge.in_the_logs([judge.fields_of(line) for part in lines for line in part])
