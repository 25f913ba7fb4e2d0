"""The ledger with a real store: every job ends exactly once, whatever dies."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from ledger_builders import T, ledger, named, request, serve

from chargehand.ids import new_id
from chargehand.model import chores
from chargehand.model.batch import Batch, Result, Want
from chargehand.model.job import (
    Crashed,
    Done,
    Enqueued,
    Found,
    GaveUp,
    Interrupted,
    NewJob,
    Outcome,
    Raised,
    RetryLater,
    State,
    settle,
)
from chargehand.model.ledger import POLL, Ledger
from chargehand.model.records import Discovered, Discovery, Holder, JobFilter
from chargehand.stores.sqlite.store import SqliteStore

MORNING = 1_700_000_000_000

# with a real store


class Node:
    """A ledger and a store, with workers that a random number generator plays."""

    def __init__(self, store: SqliteStore, chance: random.Random, workers: dict[str, str]) -> None:
        self.store, self.chance, self.workers = store, chance, workers
        self.now = T
        self.lives = 0
        self.accepted: list[str] = []
        self.begin()

    def begin(self) -> None:
        """A new life: what the old one held is taken back, what it had not written is lost."""
        self.lives += 1
        self.holder = Holder("node", f"life-{self.lives}")
        self.ledger = Ledger(
            [(crew, f"queue-{crew}") for crew in sorted(set(self.workers.values()))], self.chance.random, self.now
        )
        self.up: set[str] = set()
        with self.store.transaction() as tx:
            tx.jobs.recover(self.holder, "the node died")

    def write(self, *, fail: bool = False) -> None:
        """One batch; backoffs are made to nothing, because the store's clock is the real one."""
        due = self.ledger.batch_due(self.now)
        if due is None:
            return
        self.now = max(self.now, due)
        batch = self.ledger.next_batch(self.now)
        if fail:
            for request in self.ledger.failed(self.now, 0.05):
                self.ledger.enqueue(request, self.now)
            return
        at_once = tuple(msgspec.structs.replace(s, delay_ms=0) for s in batch.settlements)
        result = self.store.turn(msgspec.structs.replace(batch, settlements=at_once), self.holder)
        lost = set(result.lost)
        assert not lost, "this node's own claims always hold"
        self.accepted += [s.id for s in batch.settlements if s.state is State.DONE]
        self.ledger.confirm(result, self.now)

    def outcome(self) -> Outcome:
        kinds: list[Outcome] = [Done(), Done(), Done(), Raised("x"), RetryLater(20, "x"), GaveUp("x")]
        return self.chance.choice(kinds)

    def step(self) -> None:
        self.now += self.chance.choice([0.0, 0.001, 0.03])
        worker = self.chance.choice(sorted(self.workers))
        match self.chance.randrange(12):
            case 0 if worker in self.up:
                self.up.discard(worker)
                self.ledger.gone(worker, Crashed("signal 11"), self.now, 1)
            case 1 if worker in self.up:
                self.ledger.dismiss(worker)
                self.up.discard(worker)
                self.ledger.gone(worker, Interrupted("stopped"), self.now, 1)
            case 2 | 3 | 4:
                self.write()
            case 5:
                self.write(fail=True)
            case 6 if self.chance.random() < 0.15:
                self.begin()
            case _ if worker not in self.up:
                self.up.add(worker)
                self.ledger.welcome(worker, self.workers[worker], self.now)
            case _ if worker in self.ledger.held:
                self.ledger.finished(worker, self.outcome(), self.now, 1)
            case _:
                self.write()

    def finish(self) -> None:
        """No more accidents: everybody works until there is nothing left."""
        for worker in set(self.workers) - self.up:
            self.ledger.welcome(worker, self.workers[worker], self.now)
        for _ in range(10_000):
            for worker in list(self.ledger.held):
                self.ledger.finished(worker, Done(), self.now, 1)
            for distrust in self.ledger.take_distrusted():
                self.ledger.gone(distrust.worker, Interrupted("replaced"), self.now, 1)
                self.ledger.welcome(distrust.worker, self.workers[distrust.worker], self.now, f"{self.now}")
            self.write()
            if not self.ledger.held and not any(c.queued or c.running for c in self.store.jobs.counts()):
                break
        self.ledger.close(self.now)
        while not self.ledger.settled:
            self.write()


# spec: WK-3, WK-4, WK-5, WK-6
@pytest.mark.parametrize("seed", range(25))
def test_every_job_ends_exactly_once_whatever_dies(seed: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        store = SqliteStore(Path(folder) / "store.db")
        node = Node(store, chance, {"a0": "a", "a1": "a", "b0": "b"})
        wanted: list[str] = []
        for _ in range(120):
            if chance.random() < 0.25:
                new = tuple(NewJob(id=new_id(), queue=f"queue-{chance.choice('ab')}") for _ in range(4))
                with store.transaction() as tx:
                    tx.jobs.enqueue(new)
                node.ledger.hint()
                wanted += [job.id for job in new]
            node.step()
        node.finish()
        found = {job.id: job for job in store.jobs.find(JobFilter(limit=10_000))}
        assert found.keys() == set(wanted), "none is lost and none invented"
        assert {job.state for job in found.values()} <= {State.DONE, State.FAILED}
        done = sorted(job.id for job in found.values() if job.state is State.DONE)
        assert sorted(node.accepted) == done, "every completion was accepted exactly once"
        for job in found.values():
            history = [attempt.outcome for attempt in store.jobs.attempts(job.id)]
            assert history.count("done") == (job.state is State.DONE)
            assert history.count("crashed") == job.crashes
            assert history.count("interrupted") == job.interruptions
            assert job.reason != "poison" or job.crashes == 3
            assert job.node is None
        store.close()


# spec: WK-3
def test_a_job_that_came_while_a_crew_had_nobody_is_found_by_a_later_poll(tmp_path: Path) -> None:
    """Nobody hints. Another crew's poll notices the write, and must not use up the notice for all."""
    store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    made, holder, now = ledger("a", "b"), Holder("node", "life"), T

    def turn(batch: Batch) -> list[str]:
        return [named(todo) for _, todo in made.confirm(store.turn(batch, holder), now)]

    serve(made, "a0", crew="a")
    serve(made, "b0", crew="b")
    assert turn(made.next_batch(now)) == []
    made.gone("a0", Crashed("x"), now, None)
    with other.transaction() as tx:
        tx.jobs.enqueue([NewJob(id="one", queue="queue-a")])
    now += POLL
    assert turn(made.next_batch(now)) == []
    serve(made, "a0", crew="a", now=now)
    handed: list[str] = []
    for _ in range(5):
        now += POLL
        handed += turn(made.next_batch(now))
    assert handed == ["one"]
    store.close()
    other.close()


# spec: WK-3
def test_a_poll_without_a_stir_asks_the_store_for_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.changed()
    poll = Batch(wants=(Want("a", "queue-a", 1),), poll=True)
    with store.transaction() as tx:
        tx.jobs.enqueue([NewJob(id="own", queue="queue-a")])
    assert store.turn(poll, Holder("n", "l")) == Result()
    asked = store.turn(msgspec.structs.replace(poll, poll=False), Holder("n", "l"))
    assert [claim.id for claim in asked.grants[0].claims] == ["own"]
    store.close()


# spec: WK-3 WK-8
def test_a_poll_with_a_hint_claims_and_hears_what_others_have_written(tmp_path: Path) -> None:
    store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    holder, batch = Holder("n", "l"), Batch(wants=(Want("a", "queue-a", 1),), poll=True, hinted=True)
    with store.transaction() as tx:
        tx.jobs.enqueue([NewJob(id="one", queue="queue-a"), NewJob(id="two", queue="queue-a")])
    assert [claim.id for claim in store.turn(batch, holder).grants[0].claims] == ["one"]
    with other.transaction() as tx:
        tx.jobs.cancel(["one"])
    heard = store.turn(batch, holder)
    assert (heard.cancelling, [claim.id for claim in heard.grants[0].claims]) == (("one",), ["two"])
    store.close()
    other.close()


# spec: WK-10
def test_a_page_is_as_old_as_its_look_whenever_it_is_stored(tmp_path: Path) -> None:
    """What was done since the look is not found again, also if the store was slow or failed for a while."""
    wall = [MORNING]
    store, holder = SqliteStore(tmp_path / "store.db", now_ms=lambda: wall[0]), Holder("n", "l")
    page = Discovery(queue="queue-a", found=(Found(item="x"),), priority=0, max_attempts=3, timeout_ms=None)
    first = Batch(chores=(chores.QueueFound("a", page, 0.0),), wants=(Want("a", "queue-a", 1),))
    (claim,) = store.turn(first, holder, lambda: 0.0).grants[0].claims
    looked_at = 5.0
    wall[0] = MORNING + 6000
    settlement = settle(claim, Done())
    assert settlement is not None
    store.turn(Batch(settlements=(settlement,)), holder)
    wall[0] = MORNING + 60_000
    late = Batch(chores=(chores.QueueFound("a", page, looked_at),))
    assert store.turn(late, holder, lambda: 60.0).done == (Discovered(held=1),)
    afterwards = Batch(chores=(chores.QueueFound("a", page, 59.0),))
    assert store.turn(afterwards, holder, lambda: 60.0).done == (Discovered(queued=1),)
    store.close()


# spec: WK-2, WK-3, WK-4
def test_a_batch_settles_enqueues_and_claims_in_one_transaction(tmp_path: Path) -> None:
    store, holder = SqliteStore(tmp_path / "store.db"), Holder("n", "l")
    want = (Want("a", "queue-a", 5),)
    first = store.turn(Batch(requests=(request("x", "y", token=1), request("z", token=2)), wants=want), holder)
    assert first.enqueued == ((1, (Enqueued("x", True), Enqueued("y", True))), (2, (Enqueued("z", True),)))
    assert [claim.id for claim in first.grants[0].claims] == ["x", "y", "z"]
    store.close()
