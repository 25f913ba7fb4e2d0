"""Compares the turns of the simulated store for several nodes with those of the PostgreSQL store, step by step."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from cluster_client import Client
from cluster_line import Call, Open, Trip
from cluster_store import Server, Transaction

import pgserver
from chargehand.model.batch import Batch, Request, Result, Want
from chargehand.model.job import (
    Claim,
    Crashed,
    Done,
    Interrupted,
    NewJob,
    Outcome,
    RetryLater,
    Returned,
    Settlement,
    settle,
)
from chargehand.model.records import CrewRow, Holder, JobFilter, NodeAbout

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"the simulated store is NOT compared with PostgreSQL: pip install {packages}", allow_module_level=True)

from chargehand.stores.postgres.address import parse
from chargehand.stores.postgres.position import Positions
from chargehand.stores.postgres.store import PostgresStore

ABOUT = NodeAbout(lease=1000.0)
QUEUES = ("plain", "few", "rated")
RATES: dict[int, dict[str, Any]] = {
    1: {"rate": "4/s", "rate_per_key": "6/min"},
    3: {"rate": "40/min", "rate_per_key": "30/min", "limit_per_key": 2},
    5: {"rate": "2/s", "rate_per_key": "15/min"},
}
"""The rates that a node declares with each limit. The longest period is the same: older starts are deleted."""


class Pair:
    """One node on both stores."""

    def __init__(self, both: "Both", name: str) -> None:
        self._both, self.name = both, name
        self.store = PostgresStore(parse(both.url), node=True, now_ms=lambda: both.now_ms)
        line = SimpleNamespace(session=both.server.connect(), last_session=1, number=1)
        self.holder = self._holder = Holder(name, f"{name} 1")
        self.client = Client(cast(Any, both.world), cast(Any, line), self.holder, (), ABOUT)
        self.register(5)

    def register(self, limit: int) -> None:
        crews = [_crew("plain"), _crew("few", limit=limit, limit_per_key=1), _crew("rated", **RATES[limit])]
        with self.store.transaction() as tx:
            tx.fleet.register(self._holder, crews, msgspec.structs.asdict(ABOUT))
        client = cast(Any, self.client)
        client._crews, client._registered = crews, self.holder
        self._both.server.write(lambda tx: client._register(tx, self.holder, ()))

    def turn(self, real: Batch, simulated: Batch) -> tuple[Result, Result]:
        """Executes a batch on both; a new life must hold the same jobs."""
        self.store._turns._positions = Positions()  # it delays jobs that others have queued again, for a second at most
        results = self.store.turn(real, self._holder), self._both.drive(self.client.turn(simulated))
        life, told = self.store.new_life(), self.client.new_life
        self.client.new_life = None
        assert (life is None) == (told is None), "both begin a new life"
        if life is not None and told is not None:
            self._holder, self.holder = life.holder, told.holder
            self.client.holder = told.holder
            assert len(life.held) == len(told.held)
        return results


class Both:
    """Both stores, and the same things done to them."""

    def __init__(self, seed: int) -> None:
        self.url, self.now_ms, self.chance = pgserver.new_store(), 1_000_000_000, random.Random(seed)
        self.server = Server(lambda: self.now_ms / 1000)
        self.world = SimpleNamespace(
            now=0.0, server=self.server, note=lambda text: None, tally=Counter[str](), new_lives=0
        )  # fmt: skip
        self.nodes = [Pair(self, name) for name in "abc"]
        self.claims: list[tuple[Claim, Claim]] = []
        self._outcomes: dict[Claim, Outcome] = {}
        self._jobs = 0

    def drive(self, call: Call) -> Any:
        """Executes a store call without any trouble."""
        answer: Any = None
        while True:
            try:
                wanted = call.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(wanted, Trip):
                answer = self.server.write(wanted.act) if wanted.writes else self.server.read(wanted.act)
            else:
                assert isinstance(wanted, Open)
                answer = 1

    def _new(self) -> tuple[NewJob, ...]:
        new: list[NewJob] = []
        for _ in range(self.chance.choice([0, 1, 4])):
            self._jobs += 1
            new.append(
                NewJob(
                    id=f"j{self._jobs}", queue=self.chance.choice(QUEUES), priority=self.chance.choice([0, 0, 1]),
                    delay_ms=self.chance.choice([0, 0, 2000]), limit_key=self.chance.choice([None, "x", "y"]),
                )
            )  # fmt: skip
        return tuple(new)

    def _ends(self) -> tuple[list[Settlement], list[Settlement]]:
        found: tuple[list[Settlement], list[Settlement]] = ([], [])
        for pair in self.chance.sample(self.claims, min(len(self.claims), self.chance.choice([0, 1, 3]))):
            child = NewJob(id=f"{pair[0].id}+{pair[0].number}", queue="plain")
            outcomes = [
                Done("1"), Done("1", (child,)), RetryLater(1000, "x"), Crashed("x"), Interrupted("x"), Returned(),
            ]  # fmt: skip
            outcome = self._outcomes.setdefault(pair[0], self.chance.choice(outcomes))  # a claim has one
            for claim, into in zip(pair, found, strict=True):
                settlement = settle(claim, outcome)
                assert settlement is not None
                into.append(settlement)
        return found

    def turn(self) -> None:
        """A node settles, enqueues and claims."""
        node = self.chance.choice(self.nodes)
        requests = (Request(1, self._new()),)
        wants = tuple(
            Want(queue, queue, self.chance.choice([0, 1, 3]), self.chance.choice([0, 0, 2]), self.chance.choice([0, 2]))
            for queue in QUEUES
        )
        real, simulated = self._ends()
        one, other = node.turn(
            Batch(settlements=tuple(real), requests=requests, wants=wants),
            Batch(settlements=tuple(simulated), requests=requests, wants=wants),
        )
        refused = [
            [end.claim_name in lost for end in ends] for ends, lost in ((real, one.lost), (simulated, other.lost))
        ]
        assert refused[0] == refused[1]
        assert one.enqueued == other.enqueued
        for want, mine, its in zip(wants, one.grants, other.grants, strict=True):
            assert _seen(mine) == _seen(its), want
            self.claims += zip(mine.claims, its.claims, strict=True)

    def expire(self) -> None:
        """A node takes another for dead."""
        node, victim = self.chance.sample(self.nodes, 2)
        died = self.chance.random() < 0.5
        with node.store.transaction() as tx:
            rows = tx.execute("DELETE FROM chargehand_node WHERE name = %s RETURNING incarnation", (victim.name,))
            ended = tx.jobs.recover(node._holder, "gone", died=[life for (life,) in rows] if died else ())
            gone = [(each.id, each.outcome) for each in ended]

        def act(tx: Transaction) -> list[tuple[str, str | None]]:
            rows = tx.expire([each for each in tx.others(node.holder.life) if each.name == victim.name])
            ended = tx.recover(node.holder, "gone", [row.life for row in rows] if died else ())
            return [(each.id, each.outcome) for each in ended]

        assert gone == self.server.write(act)

    def compare(self) -> None:
        """Both have the same jobs in the same states."""
        found = self.nodes[0].store.jobs.find(JobFilter(limit=10_000))
        assert {
            job.id: (job.state, job.node, job.failures, job.crashes, job.interruptions) for job in found
        } == {
            row.new.id: (row.state, row.node, row.failures, row.crashes, row.interruptions)
            for row in self.server.tables.jobs.values()
        }  # fmt: skip

    def close(self) -> None:
        for node in self.nodes:
            node.store.close()


def _crew(name: str, **limits: Any) -> CrewRow:
    return CrewRow(name=name, queue=name, handler="", workers=1, max_attempts=3, timeout_ms=None, **limits)


def _seen(grant: Any) -> Sequence[Any]:
    claims = [(claim.id, claim.failures, claim.crashes, claim.first, claim.waited_ms) for claim in grant.claims]
    return claims, grant.waiting, grant.limited, grant.urgent, grant.next_in_ms


@pytest.fixture(params=range(2))
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    made = Both(request.param)
    yield made
    made.close()


# spec: WK-4, WK-12, MN-2
@pytest.mark.full
def test_the_simulated_store_and_postgresql_do_the_same(both: Both) -> None:
    for step in range(120):
        both.now_ms += both.chance.choice([0, 10, 100, 1000])
        what = both.chance.random()
        if what < 0.06:
            both.expire()
        elif what < 0.1:
            both.chance.choice(both.nodes).register(both.chance.choice([1, 3, 5]))
        else:
            both.turn()
        if step % 10 == 9:
            both.compare()
