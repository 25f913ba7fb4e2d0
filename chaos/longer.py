"""The longer scenes of the chaos test on PostgreSQL, with the default leases."""

import os
import threading
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import psycopg

from chaos import app, ledger
from chaos.hosts import ROOT
from chaos.judge import Kept, Verdict
from chaos.networks import Network
from chaos.scene import HUNG, Scene
from chargehand import Chargehand, LivenessPolicy, StoreBusy, StoreError, clock
from chargehand.model.job import NewJob
from chargehand.testing import eventually

LEASE = LivenessPolicy().lease
LOOK_EVERY = 0.02
WRONG_CLOCK = ROOT / "chaos" / "wrong_clock"


class Execution(NamedTuple):
    """One execution of a job, by the lines that its handler wrote."""

    node: str
    began: float
    last: float
    """The time of the last line."""


def executions_of(path: Path) -> list[Execution]:
    """Returns the executions of a job, from its file."""
    found: list[Execution] = []
    by_pid: dict[str, int] = {}
    for kind, *words in ledger.read(path):
        match kind, words:
            case "start", [pid, _, at, node]:
                by_pid[pid] = len(found)
                found.append(Execution(node, float(at), float(at)))
            case "at" | "end", [pid, at]:
                found[by_pid[pid]] = found[by_pid[pid]]._replace(last=float(at))
            case _:
                continue
    return found


class Heartbeats(threading.Thread):
    """Watches the beats of all nodes in the store, until the server is gone or the block ends."""

    def __init__(self, url: str) -> None:
        super().__init__(name="heartbeats")
        self._url, self._over = url, threading.Event()
        self.seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """By node, for each beat: a time before it, and the time when it was seen."""

    def __enter__(self) -> "Heartbeats":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        known: dict[str, int] = {}
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as connection:
            looked = clock.monotonic()
            while not self._over.wait(LOOK_EVERY):
                now = clock.monotonic()
                for name, beat in connection.execute("SELECT name, beat FROM chargehand_node").fetchall():
                    if known.get(name) != beat:
                        known[name] = beat
                        self.seen[name].append((looked, clock.monotonic()))
                looked = now

    def longest_gap(self, name: str, since: float, until: float) -> float:
        """Returns the longest time without a beat of a node."""
        return longest_gap((seen for _, seen in self.seen[name]), since, until)


def longest_gap(moments: Iterable[float], since: float, until: float) -> float:
    """Returns the longest time between two of these moments, within a period."""
    inside = [since, *(moment for moment in sorted(moments) if since < moment < until), until]
    return max(later - earlier for earlier, later in pairwise(inside))


class Outage(Scene):
    """The server is stopped for longer than a lease, while long jobs run on all nodes."""

    title = "the server is away for longer than a lease"
    limits = app.CAREFUL
    workers: ClassVar[dict[str, int]] = {"work": 2, "settle": 1, "long": 2, "careful": 2}
    away: ClassVar[float] = 40.0

    def play(self) -> None:
        away = self.number("OUTAGE_SECONDS", self.away)
        ends_inside, ends_after, careful = away / 2, away + 3.0, LEASE + 5.0
        seconds = (ends_inside, ends_inside, ends_after, ends_after)
        self.long = [self.new_job("long", {"do": "stay", "seconds": each}) for each in seconds]
        ways = ("yield", "stay", "yield", "stay")
        self.careful = [self.new_job("careful", {"do": way, "seconds": careful}) for way in ways]
        self.enqueue([*self.long, *self.careful])
        eventually(self._all_run, HUNG, what="all long jobs run")
        with Heartbeats(self.server.url) as beats:
            clock.sleep(1.0)
        self._beats = {name: seen[-1][0] for name, seen in beats.seen.items()}
        self.stop_server()
        clock.sleep(away)
        began = clock.monotonic()
        self.start_server()
        self.goes_on("after the server is back", began)

    def stop_server(self) -> None:
        self.server.stop()

    def start_server(self) -> None:
        self.server.start()

    def _executions(self, job: NewJob) -> list[Execution]:
        return executions_of(self.folder / "jobs" / job.id)

    def _all_run(self) -> bool:
        return all(self._executions(job) for job in (*self.long, *self.careful))

    def check(self, kept: Kept) -> list[str]:
        wrong: list[str] = []
        for job in self.long:
            if len(self._executions(job)) != 1 or [outcome for _, outcome in kept.attempts[job.id]] != ["done"]:
                wrong.append(f"a job that goes on was not done by its first attempt: {kept.attempts[job.id]}")
        left = [LEASE]
        for job in self.careful:
            first, *others = self._executions(job)
            left.append(self._beats[first.node] + LEASE - first.last)
            if left[-1] <= 0 or not others:
                wrong.append(f"a job that stops ran until {-left[-1]:.1f} s after the lease, {len(others)} times again")
            if any(other.began < first.last for other in others):
                wrong.append(f"two executions of {job.id}, which must not overlap, do")
        self.times["the last job that stops had ended before the end of the lease by"] = min(left)
        return wrong


class HeldKey(Scene):
    """A caller keeps a transaction open that has enqueued a job with a key, which others enqueue all the time."""

    title = "a caller holds a key for a minute"
    limits = app.SHIPPED
    workers: ClassVar[dict[str, int]] = {"work": 2, "settle": 1, "long": 1}
    jobs, seconds = 40, 1.0
    held: ClassVar[float] = 60.0
    rate: ClassVar[int] = 40
    key: ClassVar[str] = "held"
    ratio: ClassVar[float] = 0.8
    """The least part of the throughput of the minute before."""
    longer: ClassVar[float] = 1.0
    """By how many seconds the longest gap may be longer than that of the minute before."""

    def play(self) -> None:
        self._even: set[str] = set()
        """Jobs that have nothing to do with the key."""
        held, work = self.number("HELD_SECONDS", self.held), self.world.hand.find_crew("work")
        with Heartbeats(self.server.url) as beats, self._load() as refused:
            clock.sleep(3.0)
            before = clock.monotonic()
            clock.sleep(held)
            with psycopg.connect(self.server.url) as caller:
                meanwhile = clock.monotonic()
                ref = work.enqueue({"ms": 0.0, "do": "nothing"}, key=self.key, within=caller)
                ledger.append(self.folder / "ledger", [("try", ref.id, "one")])
                clock.sleep(held)
                over = clock.monotonic()
                self.counts["enqueues of the key that were refused"] = len(refused)
                caller.commit()
            ledger.append(self.folder / "ledger", [("ack", ref.id, ref.id)])
            self.goes_on("with the key after the commit", over)
        self._compare(beats, before, meanwhile, over)

    @contextmanager
    def _load(self) -> Generator[list[str]]:
        """Enqueues jobs at an even rate, and the key in three ways: through a node, directly, and from a handler."""
        over, refused = threading.Event(), list[str]()
        direct = Chargehand(f"{self.server.url}&application_name=caller", folder=self.folder)  # finds no node beside it
        direct.crew("work", "chaos.handlers:Worker", max_attempts=app.MANY_ATTEMPTS)
        threads = [
            threading.Thread(target=self._enqueue_evenly, args=(over,)),
            *(
                threading.Thread(target=self._enqueue_key, args=(over, hand, refused))
                for hand in (self.world.hand, direct) * 2
            ),
        ]
        for thread in threads:
            thread.start()
        try:
            yield refused
        finally:
            over.set()
            for thread in threads:
                thread.join()
            direct.close()

    def _enqueue_evenly(self, over: threading.Event) -> None:
        began, made = clock.monotonic(), 0
        while not over.wait(max(0.0, began + made / self.rate - clock.monotonic())):
            made += 1
            if made % self.rate == 0:
                self.enqueue([self.new_job("work", {"ms": 1.0, "do": "follow held", "key": self.key})])
                continue
            job = self.new_job("work", {"ms": 1.0, "do": "nothing"})
            self._even.add(job.id)
            self.enqueue([job])

    def _enqueue_key(self, over: threading.Event, hand: Chargehand, refused: list[str]) -> None:
        while not over.wait(0.1):
            job = self.new_job(key=self.key)
            try:
                (got,) = hand.internal.enqueue([job])
            except StoreBusy:
                refused.append(job.id)
                ledger.append(self.folder / "ledger", [("void", job.id)])
            else:
                ledger.append(self.folder / "ledger", [("ack", job.id, got.id)])

    def _compare(self, beats: Heartbeats, before: float, meanwhile: float, over: float) -> None:
        offset = clock.now_ms() / 1000 - clock.monotonic()
        rows = self.server.execute("SELECT j.id, x.finished_ms FROM chargehand_end x JOIN chargehand_job j USING (seq)")
        ends = [finished_ms / 1000 - offset for job, finished_ms in rows if job in self._even]
        counts: list[float] = []
        gaps: list[dict[str, float]] = []
        for name, since, until in (("before", before, meanwhile), ("meanwhile", meanwhile, over)):
            counts.append(sum(since < end < until for end in ends) / (until - since))
            gap = {node: beats.longest_gap(node, since, until) for node in self.names}
            gap["completions"] = longest_gap(ends, since, until)
            gaps.append(gap)
            self.counts[f"jobs done a minute {name}"] = round(60 * counts[-1])
            self.times |= {f"longest gap {name}, {what}": took for what, took in gap.items()}
        if counts[1] < self.ratio * counts[0]:
            self.wrong.append(f"{counts[1]:.1f} jobs/s while the key is held, {counts[0]:.1f} before")
        for what, took in gaps[1].items():
            if took > gaps[0][what] + self.longer:
                self.wrong.append(f"a gap of {took:.2f} s while the key is held, {what}; {gaps[0][what]:.2f} s before")


class Three(Scene):
    """Three nodes, each on a network of its own; the clocks of one of them and of the server are wrong by an hour."""

    title = "three nodes: a partition, a kill, a restart of the server, and wrong clocks"
    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    limits = app.CAREFUL
    workers: ClassVar[dict[str, int]] = {"work": 2, "settle": 1, "long": 1, "careful": 1}
    jobs = 2000
    seconds = 100.0
    network: ClassVar[Network] = Network(3)
    settings: ClassVar[dict[str, str]] = {"listen_addresses": network.addresses}
    access: ClassVar[tuple[str, ...]] = network.access
    cut: ClassVar[float] = 60.0
    seen, unseen = 15.0, 35.0
    """Seconds within which the jobs of a node run elsewhere: if its session is seen to end, and otherwise."""
    library: ClassVar[Path] = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")

    @classmethod
    def impossible(cls) -> str | None:
        if not cls.library.exists():
            return f"{cls.library} is missing (Debian: apt-get install libfaketime)"
        return cls.network.impossible()

    def run(self) -> Verdict:
        with self.network:
            return super().run()

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.library), "FAKETIME_TIMESTAMP_FILE": str(self._set_clock("server", 0)),
            "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def _set_clock(self, name: str, hours: int) -> Path:
        path = self.site.folder / f"clock-{self.folder.name}-{name}"
        path.write_text(f"{3600 * hours:+d}\n")
        path.chmod(0o644)
        return path

    def _set_clocks(self, server: int, node: int) -> None:
        """Sets the clocks of the server and of a node wrong by these numbers of hours, while they run."""
        self._set_clock("server", server)
        self._set_clock("b", node)

    def move_away(self, stack: ExitStack) -> None:
        for number, name in enumerate(self.names):
            self.world.elsewhere[name] = self.network.place(number)
        # The library lets time.sleep of Python fail, so a node has a module for its clock.
        path = os.pathsep.join([str(WRONG_CLOCK), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        clock_of_b = {"PYTHONPATH": path, "CHAOS_CLOCK": str(self._set_clock("b", 0))}
        self.world.environments = {"b": clock_of_b, "c": {app.LIMITS: app.SHIPPED}}

    def play(self) -> None:
        self._set_clocks(1, -1)
        careful = self._long_jobs("a", 12.0, careful=LEASE - 5.0)
        with self.network.cut(0):
            began = clock.monotonic()
            self.goes_on("on the other nodes", began)
            held = self._held("a")
            self._elsewhere("jobs of a node that is cut off run elsewhere after", "a", held, began, self.unseen)
            clock.sleep(max(0.0, began + self.number("CUT_SECONDS", self.cut) - clock.monotonic()))
        began = clock.monotonic()
        eventually(self.all_healthy, HUNG, what="the node is back")
        self.times["the node that was cut off is back after"] = clock.monotonic() - began
        self._do_not_overlap(careful)
        self._set_clocks(-1, 1)
        self._long_jobs("c", 8.0)
        held, began = self._held("c"), clock.monotonic()
        self.world.kill_for_good("c")
        self.goes_on("after the kill of another", began)
        self._elsewhere("jobs of a node that was killed run elsewhere after", "c", held, began, self.seen)
        self.world.start_node("c")
        eventually(self.all_healthy, HUNG, what="the node that was killed is back")
        self.times["the node that was killed is back after"] = clock.monotonic() - began
        began = clock.monotonic()
        self.server.stop()
        self.server.start()
        self.goes_on("after the restart of the server", began)
        self._set_clocks(0, 0)
        self.during("after the clocks are right", 3.0)

    def _long_jobs(self, node: str, seconds: float, careful: float | None = None) -> list[NewJob]:
        """Enqueues long jobs for all nodes, waits until one has them, and returns those that must not overlap."""
        long = [self.new_job("long", {"do": "stay", "seconds": seconds}) for _ in self.names]
        stops = [self.new_job("careful", {"do": "stay", "seconds": careful}) for _ in "ab" if careful is not None]
        self.enqueue([*long, *stops])
        queues = {job.queue for job in (*long, *stops)}
        eventually(lambda: queues <= {claim.queue for claim in self.world.hand.claims() if claim.node == node}, HUNG)
        return stops

    def _held(self, node: str) -> set[str]:
        """Returns the jobs that a node holds."""
        until = clock.monotonic() + HUNG
        while clock.monotonic() < until:
            with suppress(StoreError):
                return {claim.id for claim in self.world.hand.claims() if claim.node == node}
        return set()

    def _elsewhere(self, what: str, node: str, jobs: set[str], since: float, within: float) -> None:
        """Waits until these jobs have been started on other nodes, and notes how long that took."""

        def first(job: str) -> float | None:
            others = [each for each in executions_of(self.folder / "jobs" / job) if each.node != node]
            return min((each.began for each in others if each.began > since), default=None)

        eventually(lambda: all(first(job) is not None for job in jobs), HUNG, what=f"{jobs} run elsewhere")
        took = max((first(job) or since for job in jobs), default=since) - since
        self.times[what] = took
        self.counts[f"jobs that {node} held"] = len(jobs)
        if took > within:
            self.wrong.append(f"{what} {took:.1f} s, more than {within:g} s")

    def _do_not_overlap(self, jobs: list[NewJob]) -> None:
        for job in jobs:
            done = sorted(executions_of(self.folder / "jobs" / job.id), key=lambda each: each.began)
            if any(later.began < earlier.last for earlier, later in pairwise(done)):
                self.wrong.append(f"executions of {job.id} overlap: {done}")


LONGER: dict[str, type[Scene]] = {"outage": Outage, "three": Three, "held-key": HeldKey}
