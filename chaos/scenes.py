"""The scenes of the chaos test on PostgreSQL: what happens to the server, its clients and the network."""

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from chaos import judge, ledger, processes
from chaos.campaign import TABLES, Campaign
from chaos.judge import Asked, Excuses, Verdict, fields_of
from chaos.killer import Numbers
from chaos.nodes import Nodes
from chaos.servers import Server, Site
from chargehand import StoreError, clock
from chargehand.log import Event
from chargehand.model.job import NewJob, State
from chargehand.model.records import JobFilter
from chargehand.processes.prctl import die_with_parent
from chargehand.testing import eventually

DURABLE = {"synchronous_commit": "on", "max_connections": "100"}
READY = 30.0
HUNG = 60.0
"""Seconds after which a job that should be done, or a node that should work, counts as hung."""
ENDED = 30.0
NAMES = ("a", "b")


def new_server(site: Site, folder: Path, settings: dict[str, str], *access: str) -> Server:
    """Returns a new server that runs, and ends with this process. Its log is in the folder."""
    me = os.getpid()
    with open(folder / "server-log", "wb") as log:
        output = os.dup(log.fileno())
    server = Server(site, f"-{folder.name}", before=lambda: die_with_parent(me), output=output, **(DURABLE | settings))
    server.initialise(*access)
    server.start()
    return server


class Scene:
    """A server, two nodes, a process that enqueues, and something that goes wrong."""

    title: ClassVar[str] = ""
    jobs: ClassVar[int] = 400
    seconds: ClassVar[float] = 6.0
    """How long the jobs are enqueued; what goes wrong does so in this time."""
    settings: ClassVar[dict[str, str]] = {}
    access: ClassVar[tuple[str, ...]] = ()

    def __init__(self, site: Site, folder: Path, seed: int) -> None:
        self.site, self.folder, self.seed = site, folder, seed
        self.chance = random.Random(seed)
        self.times: dict[str, float] = {}
        """Seconds until work went on, by what had happened."""
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []
        self.excuses = Excuses(outages=True)

    @classmethod
    def impossible(cls) -> str | None:
        """Returns why this machine cannot run the scene; None if it can."""
        return None

    def run(self) -> Verdict:
        """Runs the scene, and accounts for every job."""
        self.server = new_server(self.site, self.folder, self.settings, *self.access)
        with ExitStack() as stack:
            stack.callback(lambda: self.server.process and self.server.stop())
            url = self.prepare(stack)
            self.world = stack.enter_context(Nodes(self.folder, url, NAMES, (2, 1), self.seed))
            self.move_away(stack)
            try:
                self._act()
            except AssertionError as error:
                self.wrong.append(f"HUNG: {error}; {self._state()}")
            verdict = judge.judge(self.folder, self.world.kept(), self.excuses)
        verdict.unexpected += [*self.wrong, *self.world.wrong]
        verdict.orphans += [f"process {pid} was left at the end" for pid in self._left]
        return verdict

    def _act(self) -> None:
        world, self._left = self.world, list[int]()
        with world.hand.transaction() as tx:
            tx.execute(TABLES)
        world.start_host()
        eventually(lambda: self._ready() == 3 * len(NAMES), READY, what="all workers healthy at the start")
        words = (os.getpid(), self.folder, self.jobs, clock.monotonic(), self.seconds, self.seed)
        enqueuer = world.start("-m", "chaos.enqueuer", *map(str, words), log="enqueuer")
        clock.sleep(self.seconds / 4)
        self.play()
        eventually(lambda: enqueuer.poll() is not None, HUNG, what="the enqueuing process has ended")
        if enqueuer.returncode:
            self.wrong.append(f"the enqueuing process exited with {enqueuer.returncode}")
        eventually(self._is_done, HUNG, what="all jobs done")
        eventually(lambda: self._ready() == 3 * len(NAMES), HUNG, what="all workers healthy at the end")
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

    def _ready(self) -> int:
        view = self.world.view() or {"workers": []}
        return sum(worker["status"] == "healthy" for worker in view["workers"])

    def _is_done(self) -> bool:
        with suppress(StoreError):
            return all(count.queued == count.running == 0 for count in self.world.hand.counts())
        return False

    # what scenes define

    def prepare(self, stack: ExitStack) -> str:
        """Returns the URL of the store, after what must exist before the nodes."""
        return self.server.url

    def move_away(self, stack: ExitStack) -> None:
        """Moves nodes to other networks, before they start."""

    def play(self) -> None:
        """Does what goes wrong."""
        raise NotImplementedError

    # what scenes use

    def new_job(self, **options: Any) -> NewJob:
        """Returns a job that does nothing, and notes it in the ledger as tried."""
        job = self.world.hand.find_crew("work").new_job({"ms": 0.0, "do": "nothing"}, **options)
        ledger.append(self.folder / "ledger", [("try", job.id, "one")])
        return job

    def accepted(self, *jobs: NewJob) -> None:
        """Notes in the ledger that these jobs were enqueued."""
        ledger.append(self.folder / "ledger", [("ack", job.id, job.id) for job in jobs])

    def goes_on(self, what: str, since: float | None = None) -> None:
        """Waits until a new job is done, and notes how long that took; the longest time counts."""
        began = clock.monotonic() if since is None else since
        job, made = self.new_job(priority=9), False
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


class Restart(Scene):
    """The server is restarted: `fast` ends all sessions, `immediate` is a crash."""

    title = "the server is restarted, fast and immediately"
    seconds = 8.0

    def play(self) -> None:
        for _ in range(2):
            for name, how in (("fast", signal.SIGINT), ("immediate", signal.SIGQUIT)):
                began = clock.monotonic()
                self.server.stop(how)
                self.server.start()
                self.goes_on(f"after the stop ({name})", began)


class Terminated(Scene):
    """Server processes of Chargehand are terminated at random."""

    title = "server processes are terminated at random"

    def play(self) -> None:
        until = clock.monotonic() + self.seconds / 2
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            while clock.monotonic() < until:
                ended = connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'chargehand%' ORDER BY random() LIMIT 1"
                ).fetchall()
                self.counts["processes terminated"] = self.counts.get("processes terminated", 0) + len(ended)
                clock.sleep(self.chance.uniform(0.01, 0.1))
        self.goes_on("after the last one")


class Exhausted(Scene):
    """Others take all connections of the server."""

    title = "others take all connections of the server"
    settings: ClassVar[dict[str, str]] = {"max_connections": "30", "superuser_reserved_connections": "0"}

    def play(self) -> None:
        hogs = [psycopg.connect(self.server.url, autocommit=True)]
        until = clock.monotonic() + 4.0
        while clock.monotonic() < until:
            try:
                hogs.append(psycopg.connect(self.server.url, autocommit=True))
            except psycopg.OperationalError:
                hogs[0].execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'chargehand%' ORDER BY random() LIMIT 1"
                )
        self.counts["connections taken"] = len(hogs)
        for hog in hogs:
            hog.close()
        self.goes_on("after they were free")


class ReadOnly(Scene):
    """The server accepts no writes for a while, as a primary that is replaced or whose disk fills up."""

    title = "the server becomes read-only, and writable again"

    def play(self) -> None:
        self.server.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        clock.sleep(4.0)
        self.server.execute("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
        self.goes_on("after it was writable")


class Promotion(Scene):
    """The primary is lost, and a standby that lags behind takes its place."""

    title = "a standby that lags behind is promoted"
    jobs = 600
    seconds = 8.0

    def prepare(self, stack: ExitStack) -> str:
        self.standby = self.server.standby(f"-{self.folder.name}-standby")
        stack.callback(lambda: self.standby.process and self.standby.stop())
        return f"postgresql://postgres@/postgres?host={self.server.sockets},{self.standby.sockets}"

    def play(self) -> None:
        self.standby.unfollow()
        clock.sleep(1.5)
        self.goes_on("before")
        began = clock.monotonic()
        self.server.stop(signal.SIGQUIT)
        clock.sleep(0.5)  # what was acknowledged is in the ledger now
        known = {str(job) for (job,) in self.standby.execute("SELECT id FROM chargehand_job")}
        acknowledged = set(Asked(self.folder / "ledger").answered.values())
        self.excuses.failover, self.excuses.gone = True, acknowledged - known
        self.standby.promote()
        self.counts["jobs that the standby never had"] = len(self.excuses.gone)
        self.goes_on("after the loss of the primary", began)
        self.times.pop("before")
        eventually(self._noticed, HUNG, what="both nodes have compared their claims")

    def _noticed(self) -> bool:
        """Counts what the nodes have repeated; returns whether all of them have."""
        lines = [
            fields
            for path in (self.folder / "logs").glob("host-*")
            for line in path.read_text().splitlines()
            if (fields := fields_of(line)).get("event") == Event.STORE_REPLACED
        ]
        for name in ("outcomes_repeated", "outcomes_unknown", "jobs_queued_again", "jobs_cancelled"):
            self.counts[name.replace("_", " ")] = sum(int(line.get(name, 0)) for line in lines)
        return len({line.get("node") for line in lines}) == len(NAMES)


class IdleInTransaction(Scene):
    """A caller keeps a transaction open that has enqueued a job with a key; another keeps a snapshot."""

    title = "a caller keeps its transaction open"

    def play(self) -> None:
        work = self.world.hand.find_crew("work")
        with psycopg.connect(self.server.url) as caller, psycopg.connect(self.server.url) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM chargehand_job")
            ref = work.enqueue({"ms": 0.0, "do": "nothing"}, key="key-1", within=caller)
            ledger.append(self.folder / "ledger", [("try", ref.id, "one")])
            self.during("meanwhile", 8.0)
            caller.commit()
            ledger.append(self.folder / "ledger", [("ack", ref.id, ref.id)])


class Readers(Scene):
    """Readers keep old snapshots that overlap, so that no dead row can be removed."""

    title = "readers keep overlapping snapshots"
    jobs = 1500

    def play(self) -> None:
        over = threading.Event()
        readers = [threading.Thread(target=self._read, args=(over, number)) for number in range(4)]
        for reader in readers:
            reader.start()
        try:
            self.during("meanwhile", 8.0)
        finally:
            over.set()
            for reader in readers:
                reader.join()

    def _read(self, over: threading.Event, number: int) -> None:
        with psycopg.connect(self.server.url) as connection:
            over.wait(number * 0.5)
            while not over.is_set():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                for _ in range(4):
                    connection.execute(
                        "SELECT j.queue, x.state, count(*) FROM chargehand_job j "
                        "LEFT JOIN chargehand_end x ON x.seq = j.seq GROUP BY 1, 2"
                    ).fetchall()
                    over.wait(0.5)
                connection.rollback()


class Burst(Scene):
    """Thousands of jobs are enqueued at once."""

    title = "thousands of jobs are enqueued at once"
    many: ClassVar[int] = 3000

    def play(self) -> None:
        jobs = [self.new_job() for _ in range(self.many)]
        began = clock.monotonic()
        for start in range(0, len(jobs), 500):
            part = jobs[start : start + 500]
            self.world.hand.internal.enqueue(part)
            self.accepted(*part)
        self.goes_on("for an urgent job")
        eventually(self._is_done, HUNG, what="all jobs of the burst done")
        self.times["for all of them"] = clock.monotonic() - began


class Partition(Scene):
    """One node is cut off from the server for longer than its lease, and connected again."""

    title = "a node is cut off from the network"
    seconds = 12.0
    here, there = "10.99.77.1", "10.99.77.2"
    settings: ClassVar[dict[str, str]] = {"listen_addresses": here}
    access: ClassVar[tuple[str, ...]] = (f"host all all {there}/32 trust",)

    @classmethod
    def impossible(cls) -> str | None:
        if os.geteuid() != 0:
            return "only root can make network namespaces"
        missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
        return f"these programs are missing: {missing}" if missing else None

    def run(self) -> Verdict:
        with self._network():
            return super().run()

    @contextmanager
    def _network(self) -> Generator[None]:
        """Makes a network namespace with a line to it."""
        self.space = f"chaos{os.getpid()}"
        self._line = f"ch{os.getpid()}"
        _ip("netns", "add", self.space)
        try:
            _ip("link", "add", self._line, "type", "veth", "peer", "name", "v", "netns", self.space)
            _ip("addr", "add", f"{self.here}/24", "dev", self._line)
            _ip("link", "set", self._line, "up")
            _ip("-n", self.space, "addr", "add", f"{self.there}/24", "dev", "v")
            _ip("-n", self.space, "link", "set", "v", "up")
            _ip("-n", self.space, "link", "set", "lo", "up")
            yield
        finally:
            _ip("link", "delete", self._line)
            _ip("netns", "delete", self.space)

    def move_away(self, stack: ExitStack) -> None:
        prefix = ("nsenter", f"--net=/run/netns/{self.space}")
        self.world.elsewhere["b"] = (prefix, f"postgresql://postgres@{self.here}/postgres")

    @contextmanager
    def _cut(self) -> Generator[None]:
        """Drops all packets in both directions, without a word to either side."""
        routes = (("route", "{}", "blackhole", self.there), ("-n", self.space, "route", "{}", "blackhole", self.here))
        for words in routes:
            _ip(*(word.format("add") for word in words))
        try:
            yield
        finally:
            for words in routes:
                _ip(*(word.format("delete") for word in words))

    def _holders(self) -> set[str]:
        return {claim.node for claim in self.world.hand.claims()}

    def play(self) -> None:
        eventually(lambda: "b" in self._holders(), HUNG, what="the node has a job")
        with self._cut():
            began = clock.monotonic()
            self.goes_on("on the other node", began)
            eventually(lambda: "b" not in self._holders(), HUNG, what="the jobs of the node were taken back")
            self.times["until its jobs were taken back"] = clock.monotonic() - began
            clock.sleep(1.0)
        began = clock.monotonic()
        late = [self.new_job() for _ in range(200)]
        self.world.hand.internal.enqueue(late)
        self.accepted(*late)
        eventually(lambda: self._ready() == 3 * len(NAMES), HUNG, what="the node is back")
        self.times["until the node was back"] = clock.monotonic() - began


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Kills:
    """Workers, nodes and hosts are killed and stopped at random."""

    title = "workers, nodes and hosts are killed and stopped at random"

    def __init__(self, site: Site, folder: Path, seed: int, numbers: Numbers) -> None:
        self._site, self._folder, self._seed, self._numbers = site, folder, seed, numbers
        self.times: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def run(self) -> Verdict:
        """Runs the campaign on two nodes."""
        server = new_server(self._site, self._folder, {})
        try:
            world = Nodes(self._folder, server.url, NAMES, (3, 1), self._seed)
            verdict = _Killing(self._folder, self._numbers, self._seed, world).run()
        finally:
            server.stop()
        self.counts = verdict.struck
        return verdict


class _Killing(Campaign):
    """The campaign on several nodes: workers of an earlier life run beside those of other nodes."""

    def _look_for_ghosts(self, view: dict[str, Any] | None) -> None:
        pass


SCENES: dict[str, type[Scene]] = {
    "restart": Restart,
    "terminated": Terminated,
    "exhausted": Exhausted,
    "read-only": ReadOnly,
    "promotion": Promotion,
    "idle": IdleInTransaction,
    "readers": Readers,
    "burst": Burst,
    "partition": Partition,
}
