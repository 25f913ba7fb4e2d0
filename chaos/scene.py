"""What all scenes of the chaos test on PostgreSQL have in common."""

import os
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar

from chaos import judge, ledger, processes
from chaos.campaign import TABLES
from chaos.judge import Excuses, Kept, Verdict
from chaos.nodes import Nodes
from chaos.servers import Pooler, Server, Site
from chargehand import StoreError, clock
from chargehand.model.job import NewJob, State
from chargehand.model.records import JobFilter
from chargehand.processes.prctl import die_with_parent
from chargehand.testing import eventually

DURABLE = {"synchronous_commit": "on", "max_connections": "100"}
READY = 30.0
HUNG = 60.0
"""Seconds after which a job that should be done, or a node that should work, counts as hung."""
AT_ONCE = 500
"""How many jobs are enqueued with one call."""
NAMES = ("a", "b")


def new_server(
    site: Site, folder: Path, settings: dict[str, str], *access: str, environment: dict[str, str] | None = None
) -> Server:
    """Returns a new server that runs, and ends with this process. Its log is in the folder."""
    me = os.getpid()
    with open(folder / "server-log", "wb") as log:
        output = os.dup(log.fileno())
    server = Server(site, f"-{folder.name}", before=lambda: die_with_parent(me), output=output, **(DURABLE | settings))
    server.environment |= environment or {}
    server.initialise(*access)
    server.start()
    return server


def through_pooler(stack: ExitStack, site: Site, server: Server, url: str) -> str:
    """Returns the URL of the store for the nodes: that of a new PgBouncer if POOLER names its program."""
    if not (program := os.environ.get("POOLER")):
        return url
    me = os.getpid()
    return stack.enter_context(Pooler(site, server, server.sockets.name, program, lambda: die_with_parent(me))).url


class Scene:
    """A server, some nodes, a process that enqueues, and something that goes wrong."""

    title: ClassVar[str] = ""
    jobs: ClassVar[int] = 400
    seconds: ClassVar[float] = 6.0
    """How long the jobs are enqueued; what goes wrong does so in this time."""
    names: ClassVar[tuple[str, ...]] = NAMES
    workers: ClassVar[dict[str, int]] = {"work": 2, "settle": 1}
    """Number of workers of each crew on each node."""
    limits: ClassVar[str] = "lifted"
    settings: ClassVar[dict[str, str]] = {}
    access: ClassVar[tuple[str, ...]] = ()

    def __init__(self, site: Site, folder: Path, seed: int, number: Callable[[str, float], float]) -> None:
        """`number` reads an environment variable."""
        self.site, self.folder, self.seed, self.number = site, folder, seed, number
        self.chance = random.Random(seed)
        self.times: dict[str, float] = {}
        """Seconds, by what they mean: until work went on, above all."""
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []
        self.excuses = Excuses(outages=True)

    @classmethod
    def impossible(cls) -> str | None:
        """Returns why this machine cannot run the scene; None if it can."""
        return None

    def run(self) -> Verdict:
        """Runs the scene, and accounts for every job."""
        with ExitStack() as stack:
            variables = self.environment()
            self.server = new_server(self.site, self.folder, self.settings, *self.access, environment=variables)
            stack.callback(lambda: self.server.process and self.server.stop())
            own_url = self.prepare(stack)
            url = through_pooler(stack, self.site, self.server, own_url)
            world = Nodes(self.folder, url, self.names, self.workers, self.seed, limits=self.limits, own_url=own_url)
            self.world = stack.enter_context(world)
            self.move_away(stack)
            try:
                self._act()
            except AssertionError as error:
                self.wrong.append(f"HUNG: {error}; {self._state()}")
                kept = self.world.kept()
            else:
                kept = self.world.kept()
                self.wrong += self.check(kept)
            verdict = judge.judge(self.folder, kept, self.excuses)
        verdict.unexpected += [*self.wrong, *self.world.wrong]
        verdict.orphans += [f"process {pid} was left at the end" for pid in self._left]
        return verdict

    def _act(self) -> None:
        world, self._left = self.world, list[int]()
        with world.hand.transaction() as tx:
            tx.execute(TABLES)
        world.start_host()
        eventually(self.all_healthy, READY, what="all workers healthy at the start")
        words = (os.getpid(), self.folder, self.jobs, clock.monotonic(), self.seconds, self.seed)
        enqueuer = world.start("-m", "chaos.enqueuer", *map(str, words), log="enqueuer")
        clock.sleep(min(self.seconds / 4, 2.0))
        self.play()
        eventually(lambda: enqueuer.poll() is not None, HUNG, what="the enqueuing process has ended")
        if enqueuer.returncode:
            self.wrong.append(f"the enqueuing process exited with {enqueuer.returncode}")
        eventually(self.is_done, HUNG, what="all jobs done")
        eventually(self.all_healthy, HUNG, what="all workers healthy at the end")
        world.watch_host()
        world.stop()
        world.hand.close()
        self._left = processes.all_of(world.run)

    def _state(self) -> str:
        """Returns what is not done, for people."""
        try:
            counts = [(each.queue, each.queued, each.running) for each in self.world.hand.counts()]
            return f"(queue, queued, running): {counts}; claims: {self.world.hand.claims()[:3]}"
        except StoreError as error:
            return str(error)

    def all_healthy(self) -> bool:
        """Returns whether all workers of all nodes are ready."""
        view = self.world.view() or {"workers": []}
        return sum(worker["status"] == "healthy" for worker in view["workers"]) == self.world.count

    def is_done(self) -> bool:
        """Returns whether no job waits or runs."""
        with suppress(StoreError):
            return all(count.queued == count.running == 0 for count in self.world.hand.counts())
        return False

    # what scenes define

    def environment(self) -> dict[str, str]:
        """Returns variables for the environment of the server."""
        return {}

    def prepare(self, stack: ExitStack) -> str:
        """Returns the URL of the store, after what must exist before the nodes."""
        return self.server.url

    def move_away(self, stack: ExitStack) -> None:
        """Moves nodes to other networks, before they start."""

    def play(self) -> None:
        """Does what goes wrong."""
        raise NotImplementedError

    def check(self, kept: Kept) -> list[str]:
        """Returns what is wrong in the end, apart from what all scenes must hold."""
        return []

    # what scenes use

    def new_job(self, crew: str = "work", payload: dict[str, Any] | None = None, **options: Any) -> NewJob:
        """Returns a job, by default one that does nothing, and notes it in the ledger as tried."""
        job = self.world.hand.find_crew(crew).new_job(payload or {"ms": 0.0, "do": "nothing"}, **options)
        ledger.append(self.folder / "ledger", [("try", job.id, "one")])
        return job

    def accepted(self, *jobs: NewJob) -> None:
        """Notes in the ledger that these jobs were enqueued."""
        ledger.append(self.folder / "ledger", [("ack", job.id, job.id) for job in jobs])

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Enqueues jobs, and notes them as accepted."""
        for start in range(0, len(jobs), AT_ONCE):
            part = jobs[start : start + AT_ONCE]
            self.world.hand.internal.enqueue(part)
            self.accepted(*part)

    def goes_on(self, what: str, since: float | None = None, crew: str = "work") -> None:
        """Waits until a new job is done, and notes how long that took; the longest time counts."""
        began = clock.monotonic() if since is None else since
        what = f"work goes on {what}"
        job, made = self.new_job(crew, priority=9), False
        until = clock.monotonic() + HUNG
        while clock.monotonic() < until:
            with suppress(StoreError):
                if not made:
                    self.world.hand.internal.enqueue([job])
                    made = True
                    self.accepted(job)
                if self.world.hand.jobs(JobFilter(ids=(job.id,), state=State.DONE)):
                    self.times[what] = max(self.times.get(what, 0.0), clock.monotonic() - began)
                    return
            clock.sleep(0.01)
        self.wrong.append(f"HUNG: {what}: no work within {HUNG:g} s")

    def during(self, what: str, seconds: float) -> None:
        """Watches for some seconds that work goes on meanwhile."""
        until = clock.monotonic() + seconds
        while clock.monotonic() < until:
            self.goes_on(what)
            clock.sleep(0.2)
