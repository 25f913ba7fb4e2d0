"""Runs the main part: enqueue, kill, wait until all jobs are done, stop, and evaluate."""

import os
import random
import subprocess
from pathlib import Path
from typing import Any

from chaos import judge
from chaos.hosts import World
from chaos.judge import Verdict
from chaos.killer import ENQUEUED_BY, Killer, Numbers
from chargehand import Conflict, StoreError, clock
from chargehand.model.job import State
from chargehand.model.records import JobFilter

TURN = 0.02
PROGRESS, RELEASE = 5.0, 1.0
"""Seconds between two progress lines, and between two checks for quarantined jobs."""
PATIENCE = 120.0
"""Seconds that the last jobs may take after the kills, and a share of the duration of the kills."""
TABLES = "CREATE TABLE chaos_row (job TEXT, pid INTEGER); CREATE TABLE chaos_deal (job TEXT)"


class Campaign:
    """One run with lifted limits."""

    def __init__(self, folder: Path, numbers: Numbers, seed: int, world: World | None = None) -> None:
        self._numbers, self._seed = numbers, seed
        self._world = world or World(folder, "lifted")
        self._killer = Killer(self._world, numbers, random.Random(seed))
        self._enqueuer: subprocess.Popen[bytes] | None = None
        self._parts = 0
        self._released = 0
        self._wrong: list[str] = []

    def run(self) -> Verdict:
        """Runs all steps."""
        with self._world as world:
            with world.hand.transaction() as tx:
                tx.execute(TABLES)
            world.start_host()
            self._began = self._told = self._looked = clock.monotonic()
            self._start_enqueuer()
            self._kill()
            print("  kills finished; waiting for the remaining jobs", flush=True)
            self._finish()
            self._tell()
            world.stop()
            world.hand.close()
            world.look_for_orphans()
        return self._judge()

    # steps of the loop

    def _kill(self) -> None:
        limit = 3 * self._numbers.seconds + PATIENCE
        while not (self._killer.finished and self._enqueuer is None):
            elapsed = clock.monotonic() - self._began
            if elapsed > limit:
                self._wrong.append(f"the plan was not completed within {limit:.0f} s")
                return
            view = self._turn()
            self._killer.act(elapsed, view, self._enqueuer)
            self._see_to_the_enqueuer()

    def _finish(self) -> None:
        until = clock.monotonic() + PATIENCE + self._numbers.seconds / 2
        while clock.monotonic() < until:
            view = self._turn() or {"workers": []}
            ready = bool(view["workers"]) and all(worker["status"] == "healthy" for worker in view["workers"])
            if ready and all(c.queued == c.running == c.failed == 0 for c in self._world.hand.counts()):
                return
        self._wrong.append("jobs were left, or workers not healthy, long after the kills")

    def _turn(self) -> dict[str, Any] | None:
        clock.sleep(TURN)
        now = clock.monotonic()
        self._world.watch_host()
        view = self._world.view()
        self._world.look_for_ghosts(view)
        if now - self._looked >= RELEASE:
            self._looked = now
            self._release()
        if now - self._told >= PROGRESS:
            self._told = now
            self._tell()
        return view

    # work in addition to the kills

    def _start_enqueuer(self) -> None:
        self._parts += 1
        seconds = ENQUEUED_BY * self._numbers.seconds
        words = (
            os.getpid(),
            self._world.folder,
            self._numbers.jobs,
            self._began,
            seconds,
            f"{self._seed}-{self._parts}",
        )
        self._enqueuer = self._world.start("-m", "chaos.enqueuer", *map(str, words), log="enqueuer")

    def _see_to_the_enqueuer(self) -> None:
        if self._enqueuer is None or self._enqueuer.poll() is None:
            return
        code, self._enqueuer = self._enqueuer.returncode, None
        if code == 0:
            return
        if code != -9:
            self._wrong.append(f"the enqueuer exited with {code}")
        self._start_enqueuer()

    def _release(self) -> None:
        """Queues jobs again that were quarantined because of random kills, which are not the fault of the job."""
        failed = self._world.hand.jobs(JobFilter(state=State.FAILED, limit=1000))
        for job in failed:
            if job.reason != "poison":
                continue
            try:
                with self._world.hand.transaction() as tx:
                    self._released += len(tx.jobs.retry([job.id]))
            except Conflict:
                continue  # another job has its key; try again when that one is done
            except StoreError as error:
                self._wrong.append(f"{job.id} could not be released: {error}")

    # output

    def _tell(self) -> None:
        states = self._world.hand.counts()
        waiting, done = sum(c.queued + c.running for c in states), sum(c.done for c in states)
        hit = self._killer.counts
        print(
            f"  {clock.monotonic() - self._began:4.0f} s  jobs: {done:,} done, {waiting:,} waiting  "
            f"workers: {hit['kill']} killed, {hit['stop']} stopped  "
            f"kill -9: {hit['node']} node, {hit['host']} host, {hit['both']} both  released: {self._released}",
            flush=True,
        )

    def _judge(self) -> Verdict:
        verdict = judge.judge(self._world.folder, self._world.kept())
        verdict.unexpected += [*self._wrong, *self._killer.wrong, *self._world.wrong]
        verdict.orphans += self._world.orphans
        hit = self._killer.counts
        verdict.struck = {
            "workers killed": hit["kill"],
            "workers stopped": hit["stop"],
            "of them continued": hit["continued"],
            "with a job in hand": hit["with a job in hand"],
            "stopped until they were gone": hit["found"],
            "node killed": hit["node"],
            "host killed": hit["host"],
            "both killed": hit["both"],
            "enqueuer killed": hit["enqueuer"],
            "kills aimed at an enqueue under way": hit["under way"],
            "quarantined and released by hand": self._released,
        }
        return verdict
