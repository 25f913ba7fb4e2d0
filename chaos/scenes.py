"""The nine scenes of the chaos test on PostgreSQL: what happens to the server, its clients and the network."""

import signal
import threading
from bisect import bisect
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import psycopg

from chaos import app, ledger
from chaos.app import FLOWS
from chaos.campaign import Campaign
from chaos.flows import Flows
from chaos.judge import Asked, Verdict, ends_of, fields_of
from chaos.killer import Numbers
from chaos.networks import Network
from chaos.nodes import Nodes
from chaos.scene import HUNG, NAMES, Scene, new_server, through_pooler
from chaos.servers import Site
from chargehand import clock
from chargehand.log import Event
from chargehand.testing import eventually


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
        self.times.pop("work goes on before")
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
    """A caller keeps a transaction open that has enqueued a job with a key; another keeps a snapshot. Meanwhile tens of
    thousands of jobs leave dead rows behind, which the server cannot remove: the effect of minutes."""

    title = "a caller keeps its transaction open"
    limits = app.CHURN
    workers: ClassVar[dict[str, int]] = {"work": 2, "settle": 1, "churn": 1}
    settings: ClassVar[dict[str, str]] = {"autovacuum_naptime": "1s"}
    churned: ClassVar[int] = 30_000
    slower: ClassVar[float] = 2.0
    """How many times slower the last jobs may be than the first."""

    def play(self) -> None:
        work = self.world.hand.find_crew("work")
        with psycopg.connect(self.server.url) as caller, psycopg.connect(self.server.url) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM chargehand_job")
            ref = work.enqueue({"ms": 0.0, "do": "nothing"}, key="key-1", within=caller)
            ledger.append(self.folder / "ledger", [("try", ref.id, "one")])
            self.during("at first", 1.0)
            self._churn()
            self.during("at the end", 1.0)
            caller.commit()
            ledger.append(self.folder / "ledger", [("ack", ref.id, ref.id)])

    def _churn(self) -> None:
        """Runs thousands of jobs in parts, for IDLE_SECONDS at least, and checks that the last are not slower."""
        until, size = clock.monotonic() + self.number("IDLE_SECONDS", 0.0), self.churned // 10
        rates: list[float] = []
        while len(rates) < 10 or clock.monotonic() < until:
            began = clock.monotonic()  # before the enqueue, during which many are done
            self.enqueue([self.new_job("churn", {"do": "churn"}) for _ in range(size)])
            self.goes_on("meanwhile")
            eventually(self._has_churned, HUNG, what="the jobs done while the transaction is open")
            rates.append(size / (clock.monotonic() - began))
        self.counts["jobs done meanwhile"] = size * len(rates)
        dead = "SELECT sum(n_dead_tup)::int FROM pg_stat_user_tables WHERE relname LIKE 'chargehand%'"
        ((self.counts["dead rows that cannot be removed"],),) = self.server.execute(dead)
        first, last = max(rates[:3]), max(rates[-3:])
        self.counts |= {"jobs/s at first": round(first), "jobs/s at the end": round(last)}
        if last * self.slower < first:
            self.wrong.append(f"{last:.0f} jobs/s at the end, {first:.0f} at first")

    def _has_churned(self) -> bool:
        return not any(each.queued + each.running for each in self.world.hand.counts() if each.queue == "churn")


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
        self.enqueue(jobs)
        self.goes_on("for an urgent job")
        eventually(self.is_done, HUNG, what="all jobs of the burst done")
        self.times["work goes on for all of them"] = clock.monotonic() - began


class Partition(Scene):
    """One node is cut off from the server for longer than its lease, and connected again."""

    title = "a node is cut off from the network"
    seconds = 12.0
    network: ClassVar[Network] = Network(1)
    settings: ClassVar[dict[str, str]] = {"listen_addresses": network.addresses}
    access: ClassVar[tuple[str, ...]] = network.access

    @classmethod
    def impossible(cls) -> str | None:
        return cls.network.impossible()

    def run(self) -> Verdict:
        with self.network:
            return super().run()

    def move_away(self, stack: ExitStack) -> None:
        self.world.elsewhere["b"] = self.network.place(0)

    def _holders(self) -> set[str]:
        return {claim.node for claim in self.world.hand.claims()}

    def play(self) -> None:
        eventually(lambda: "b" in self._holders(), HUNG, what="the node has a job")
        with self.network.cut(0):
            began = clock.monotonic()
            self.goes_on("on the other node", began)
            eventually(lambda: "b" not in self._holders(), HUNG, what="the jobs of the node were taken back")
            self.times["its jobs were taken back after"] = clock.monotonic() - began
            clock.sleep(1.0)
        began = clock.monotonic()
        self.enqueue([self.new_job() for _ in range(200)])
        eventually(self.all_healthy, HUNG, what="the node is back")
        self.times["the node was back after"] = clock.monotonic() - began


class Kills:
    """Workers, nodes and hosts are killed and stopped at random."""

    title = "workers, nodes and hosts are killed and stopped at random"

    def __init__(self, site: Site, folder: Path, seed: int, numbers: Numbers) -> None:
        self._site, self._folder, self._seed, self._numbers = site, folder, seed, numbers
        self.times: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def run(self) -> Verdict:
        """Runs the campaign on two nodes."""
        with ExitStack() as stack:
            server = new_server(self._site, self._folder, {})
            stack.callback(server.stop)
            url = through_pooler(stack, self._site, server, server.url)
            world = Nodes(self._folder, url, NAMES, {"work": 3, "settle": 1}, self._seed, own_url=server.url)
            campaign = _Killing(self._folder, self._numbers, self._seed, world)
            verdict = campaign.run()
        self.times["work goes on after a kill of a node or host, at most"] = campaign.longest_pause()
        self.counts = verdict.struck
        return verdict


class InFlows:
    """Flows of one job, many that it spawns, and one that adds them up, while workers, nodes and hosts are killed."""

    title = "flows of 1 → n → 1, while workers, nodes and hosts are killed"
    workers: ClassVar[dict[str, int]] = {"split": 1, "part": 2, "add": 1, "told": 1}

    def __init__(self, site: Site, folder: Path, seed: int, numbers: Numbers) -> None:
        self._site, self._folder, self._seed, self._numbers = site, folder, seed, numbers
        self.times: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def run(self) -> Verdict:
        """Runs the flows on two nodes, with a tenth of the jobs and a fifth of the kills of the campaign."""
        with ExitStack() as stack:
            server = new_server(self._site, self._folder, {})
            stack.callback(server.stop)
            url = through_pooler(stack, self._site, server, server.url)
            world = Nodes(self._folder, url, NAMES, self.workers, self._seed, limits=FLOWS, own_url=server.url)
            flows, kills, nodes = self._numbers.jobs // 10, self._numbers.workers // 5, self._numbers.nodes // 2
            found = Flows(self._folder, flows, kills, nodes, self._seed, world).run()
        self.counts = {**found.struck, "flows": found.flows, "released": found.released}
        return Verdict(
            executed=found.jobs, acknowledged=found.jobs, completed=found.jobs, lost=found.lost + found.hung,
            twice=found.twice, unexpected=found.wrong,
        )  # fmt: skip


class _Killing(Campaign):
    """The campaign on several nodes."""

    def longest_pause(self) -> float:
        """Returns the longest time from a kill of a node or host to the next end of a job."""
        ends = sorted(ends_of(self._world.folder))
        return max((ends[bisect(ends, at)] - at for at in self._killer.killed_at if at < ends[-1]), default=0.0)


NINE: dict[str, type[Scene]] = {
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
