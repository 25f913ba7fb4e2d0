"""One history of several nodes on one store: trouble for a while, then calm until everything is done.

The shipped ledger, fleet, leases, beat counters and limits, on a virtual clock, with simulated workers, lines and a
server that goes down, or forgets its last commits. A seed decides everything: `python tests/simulation --cluster N`.
"""

import random
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from clockwork import Broken, Clockwork
from cluster_node import Crew, Node
from cluster_store import Server
from oracle_cluster import Oracle

from chargehand import ids
from chargehand.model import ledger
from chargehand.model.fleet.policy import LivenessPolicy
from chargehand.model.job import FINISHED, Claim, NewJob
from chargehand.model.wakeups import Debounce, Wakeup

EPOCH_MS = 1_700_000_000_000
LONGEST_CALM = 900.0
MOST_FORGOTTEN = 30.0
"""A standby lags behind by at most so many seconds: outcomes of a minute are repeated."""
NO_FRAMES = 1e7
SLOWEST = 12.0
"""Seconds that a request or an answer takes at most."""
USUAL_POLL = ledger.POLL

GO = Crew(name="go", workers=2)
STOP = Crew(name="stop", stops=True)
FEW = Crew(name="few", workers=2, limit=3, limit_per_key=1)
PACED = Crew(name="paced", workers=2, rate="12/min", rate_per_key="5/min")
KEYED = ("few", "paced")
"""The crews whose jobs have keys."""
WEIGHTS = {
    "enqueue": 8, "cut": 3, "deaf": 2, "kill": 2, "elsewhere": 0.5, "outage": 1.5, "failover": 3, "slow": 1,
}  # fmt: skip


class Fate(msgspec.Struct, frozen=True):
    """What happens to an attempt: after how many seconds it ends, and how; and how soon it yields if cancelled."""

    seconds: float
    how: str = "done"
    yields: float | None = None


class Moment:
    """Stands in for the clock in `ids`."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._world.now * 1000)


class Dice:
    """Stands in for the operating system in `ids`."""

    def __init__(self, seed: int) -> None:
        self.urandom = random.Random(seed).randbytes


class World(Clockwork):
    """Everything of one history."""

    def __init__(self, seed: int, lease: float, cancel: float, watch_every: float, stacks: float = 0.25) -> None:
        super().__init__()
        self.seed, self.watch_every = seed, watch_every
        self.chance, self.jitter = random.Random(seed), random.Random(seed + 1)
        self._luck = random.Random(seed + 2)
        """Of notifications."""
        self.liveness = LivenessPolicy(
            lease=lease, cancel=cancel, stacks=stacks, first_frame=NO_FRAMES, set_up=NO_FRAMES, silent=NO_FRAMES,
            idle=NO_FRAMES, still=NO_FRAMES,
        )  # fmt: skip
        self.history: list[tuple[float, str]] = []
        self.tally: Counter[str] = Counter()
        self.server = Server(lambda: self.now)
        self.oracle = Oracle(self)
        self.server.committed = self.oracle.committed
        self.cut: set[str] = set()
        """Nodes that nothing comes to, and nothing from."""
        self.deaf: set[str] = set()
        """Nodes that no answer comes to."""
        self.troubled_at: dict[str, float] = {}
        """When a node was last cut off, deaf, slow or dead."""
        self.slow_until = 0.0
        self.noticed = (4.0, 10.0)
        """Seconds after which a client notices that nothing comes through any more, at least and at most."""
        self.debounce = Debounce()
        """Of the application."""
        self.lost_notifications = 0.3
        """How many of the notifications are lost."""
        self.notified_after: Sequence[float] = (0.0005, 0.002, 0.01)
        """After how many seconds the others arrive."""
        self.calm = False
        self.nodes: dict[str, Node] = {}
        self._served_elsewhere: dict[str, frozenset[str]] = {}
        """The queues that other nodes serve, of each node that has asked since one has started."""
        self._plans: dict[str, tuple[str, Sequence[Crew]]] = {}
        """The machine and the crews of each node."""
        self._pids, self._jobs, self.new_lives = 100, 0, 0
        self.enqueued: set[str] = set()
        self.fates: dict[tuple[str, int], Fate] = {}
        self.planned_fates: list[Fate] = []
        """Scenarios: the fates of the next attempts."""

    def note(self, text: str) -> None:
        self.history.append((self.now, text))

    def new_pid(self) -> int:
        self._pids += 1
        return self._pids

    def is_alive(self, pid: int, _: int) -> bool:
        return any(node.alive and node.pid == pid for node in self.nodes.values())

    def latency(self) -> float:
        if self.now < self.slow_until and self.chance.random() < 0.2:
            self.tally["slow trip"] += 1
            for name in self.nodes:
                self.troubled_at[name] = self.now + 2 * SLOWEST
            return self.chance.uniform(0.5, SLOWEST)
        return self.chance.choice([0.0005, 0.002, 0.01])

    def fate(self, claim: Claim) -> Fate:
        key = (claim.id, claim.number)
        if key not in self.fates:
            self.fates[key] = self.planned_fates.pop(0) if self.planned_fates else self._draw(claim)
        return self.fates[key]

    def _draw(self, claim: Claim) -> Fate:
        chance = self.chance
        how = chance.choice(["done"] * 12 + ["child", "child", "retry", "crash"])
        if self.calm or (how == "child" and claim.id.endswith("+")):
            how = "done"
        seconds = chance.choice([0.02, 0.5, 3.0, 15.0, 50.0]) * chance.uniform(0.5, 1.5)
        yields = chance.choice([0.05, 0.5, self.liveness.cancel * 0.9, None])
        return Fate(min(seconds, 3.0) if self.calm else seconds, how, yields)

    def run(self, until: float) -> None:
        """Lets everything happen that happens until then."""
        while self.next_at() <= until:
            self.happen()
        self.now = until

    # what happens to the cluster

    def start(self, name: str, crews: Sequence[Crew] | None = None, machine: str | None = None) -> None:
        """A node process starts, on its machine or on another one."""
        old = self._plans.get(name, (name, ()))
        plan = self._plans[name] = (machine or old[0], crews or old[1])
        self.note(f"{name} starts on {plan[0]}")
        self._served_elsewhere.clear()
        self.nodes[name] = Node(self, name, plan[0], plan[1], self.liveness)

    def kill(self, name: str, again: float, elsewhere: bool = False) -> None:
        """A node process ends unasked, with its workers; after so many seconds there is another one."""
        node = self.nodes[name]
        if not node.alive:
            return
        self.note(f"{name} is killed")
        self.troubled_at[name] = self.now + again
        node.kill()
        machine = f"{name} elsewhere {self.now}" if elsewhere else None
        self.after(again, lambda: self.start(name, machine=machine))

    def isolate(self, name: str, seconds: float, deaf: bool = False) -> None:
        """Nothing comes through to a node and from it; or only no answers to it."""
        lines = self.deaf if deaf else self.cut
        if name in self.deaf or name in self.cut:
            return
        self.note(f"{name} is {'deaf' if deaf else 'cut off'} for {seconds:.1f} s")
        lines.add(name)
        self.troubled_at[name] = self.now + seconds

        def mend() -> None:
            if name in lines:
                self.note(f"the line of {name} is mended")
                lines.discard(name)
                self.troubled_at[name] = self.now
                self.nodes[name].line.mended()

        self.after(seconds, mend)

    def outage(self, seconds: float, lag: float = 0.0) -> None:
        """The server is away; a standby that lags behind by so many seconds may take its place."""
        if not self.server.up:
            return
        self.note(f"the server is down for {seconds:.1f} s; lag {lag:.1f} s")
        self.server.stop()
        forget = sum(state.at > self.now - lag for state in self.server.past)

        def back() -> None:
            before, after = self.server.start(forget)
            if before is not after:
                self.tally["failover that forgets"] += 1
                self.oracle.failed_over(before, after)
            self.note("the server is up")

        self.after(seconds, back)

    def enqueue(self, crew: str, count: int, limit_keys: Sequence[str | None] = (None,)) -> list[str]:
        """An application enqueues jobs, if it can."""
        if not self.server.up:
            return []
        new: list[NewJob] = []
        for nr in range(count):
            self._jobs += 1
            key = limit_keys[nr % len(limit_keys)]
            new.append(NewJob(id=f"j{self._jobs}", queue=crew, timeout_ms=None, limit_key=key, max_attempts=5))
        self.server.write(lambda tx: tx.enqueue(new))
        if self.debounce.begin(self.now):
            self.notify(Wakeup.JOBS)
        self.enqueued.update(job.id for job in new)
        self.tally["jobs"] += count
        return [job.id for job in new]

    def notify(self, what: Wakeup, but: str = "") -> None:
        """The server notifies all nodes but one, which reaches some of them."""
        for name, node in self.nodes.items():
            if name == but or node.line.deaf or self._luck.random() < self.lost_notifications:
                self.tally["notification lost"] += name != but
                continue
            self.tally["notification"] += 1
            self.after(self._luck.choice(self.notified_after), lambda node=node: node.notified(what))

    def served_elsewhere(self, name: str) -> frozenset[str]:
        """The queues that other nodes serve."""
        found = self._served_elsewhere.get(name)
        if found is None:
            found = frozenset(crew for other, node in self.nodes.items() if other != name for crew in node.crews)
            self._served_elsewhere[name] = found
        return found

    def disturb(self) -> None:
        """Something happens."""
        chance = self.chance
        (what,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        name = chance.choice(list(self.nodes))
        self.tally[f"deed: {what}"] += 1
        span = self.liveness.lease * chance.choice([0.05, 0.3, 0.6, 0.9, 1.1, 2.0]) * chance.uniform(0.8, 1.2)
        match what:
            case "enqueue":
                crew = chance.choice(["go", "stop", "few", "paced"])
                self.enqueue(crew, chance.choice([1, 2, 5]), ["x", "y", None] if crew in KEYED else [None])
            case "cut" | "deaf":
                self.isolate(name, span, deaf=what == "deaf")
            case "kill" | "elsewhere":
                self.kill(name, span, elsewhere=what == "elsewhere")
            case "outage":
                self.outage(span)
            case "failover":
                self.outage(chance.choice([0.1, 1.0, 8.0]), lag=chance.choice([0.0, 0.1, 1.0, 5.0, MOST_FORGOTTEN]))
            case _:
                self.slow_until = self.now + span

    def settle_down(self) -> None:
        """No more trouble: everything must end."""
        self.note("calm from here on")
        self.calm, self.slow_until = True, 0.0
        until = self.now + LONGEST_CALM
        while True:
            left = [row.new.id for row in self.server.tables.jobs.values() if row.state not in FINISHED]
            busy = not self.server.up or self.cut or self.deaf or not all(node.alive for node in self.nodes.values())
            if not left and not busy:
                break
            if self.now > until:
                raise Broken(f"something is stuck: {left[:5]}")
            self.run(self.now + 5)
        self.run(self.now + 2)
        self.oracle.final()


@contextmanager
def virtual(world: World) -> Generator[World]:
    """The shipped modules use the clock and the chance of this world."""
    shipped: Any = ids
    usual = shipped.clock, shipped.os, ledger.POLL
    shipped.clock, shipped.os, ledger.POLL = Moment(world), Dice(world.seed), USUAL_POLL
    try:
        yield world
    finally:
        shipped.clock, shipped.os, ledger.POLL = usual


LEASES = ((30.0, 10.0, 0.25), (30.0, 2.0, 0.25), (6.0, 2.0, 1.0), (3.0, 0.5, 0.25))
"""The lease, the time that a cancelled job has, and the time for stack traces."""


def simulate_cluster(seed: int, told: int = 80) -> World:
    """One history. Raises Broken, with the last lines of the story so far."""
    lease, cancel, stacks = LEASES[seed % len(LEASES)]
    world = World(seed, lease, cancel, watch_every=max(1.0, lease / 6), stacks=stacks)
    with virtual(world):
        try:
            chance = world.chance
            for number in range(chance.choice([2, 3, 3])):
                crews = [crew for crew in (GO, STOP, FEW, PACED) if number == 0 or chance.random() < 0.8]
                world.start("abc"[number], crews)
            world.run(2.0)
            for crew in ("go", "stop", "few", "paced"):
                world.enqueue(crew, chance.choice([1, 3, 6]), ["x", "y", None] if crew in KEYED else [None])
            for _ in range(chance.randint(4, 14)):
                world.disturb()
                world.run(world.now + lease * chance.choice([0.01, 0.05, 0.2, 0.5, 1.0]) * chance.uniform(0.5, 1.5))
            world.settle_down()
        except Broken as broken:
            raise Broken(f"seed {seed} (cluster) at {world.now:.3f}: {broken}\n{tell(world, told)}") from broken
        except Exception as error:  # that the shipped code raises is a broken promise, too
            trace = "".join(traceback.format_exception(error))
            raise Broken(f"seed {seed} (cluster): {error!r}\n{tell(world, told)}\n{trace}") from error
    return world


def tell(world: World, last: int = 80) -> str:
    """The story, readable."""
    return "\n".join(f"{when:12.3f}  {text}" for when, text in world.history[-last:])
