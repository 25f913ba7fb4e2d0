"""Tests for connections that are lost, and for servers that replace others, in the PostgreSQL store.

Here one server plays all: rows are put back to what a standby would have had that lagged behind.
"""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import DIRECT, EARLIER_ME, ME, everything, job, put, register, state, take_one

import pgserver
from chargehand.errors import StoreError
from chargehand.model.batch import Batch, Note, Want
from chargehand.model.failover import Server
from chargehand.model.job import Claim, ClaimName, Done, Interrupted, Returned, Settlement, State, settle
from chargehand.model.records import Holder, NodeAbout
from chargehand.stores.postgres.address import parse
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"failover is NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

from chargehand.stores.postgres import beats, driver, errors, statements
from chargehand.stores.postgres.session import numbers
from chargehand.stores.postgres.store import PostgresStore

pytestmark = DIRECT

Opener = Callable[..., PostgresStore]
TABLES = ("job", "live", "end", "attempt", "node")


@pytest.fixture(autouse=True)
def alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setattr(beats, "LOOK_EVERY", 1000.0)  # a look at other nodes would reconnect first


@pytest.fixture
def open_one() -> Iterator[Opener]:
    url = pgserver.new_store()
    opened: list[PostgresStore] = []

    def make(**options: Any) -> PostgresStore:
        opened.append(PostgresStore(parse(url), **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def cut(store: PostgresStore) -> None:
    """Ends the session of this store, as an administrator can."""
    pgserver.admin(f"SELECT pg_terminate_backend({store.session.backend}, 5000)")


def lose(store: PostgresStore) -> None:
    """Ends the session of this store, and lets a turn find that out."""
    cut(store)
    with pytest.raises(StoreError, match=r"was lost|server was stopped"):
        store.turn(Batch(), ME)


def ended(claim: Claim, follow: str | None = None) -> Settlement:
    found = settle(claim, Done("1", (job(follow, queue="other"),) if follow else ()))
    assert found is not None
    return found


def claimed(store: PostgresStore, count: int, holder: Holder = ME) -> list[Claim]:
    return list(store.turn(Batch(wants=(Want("q", "q", count),)), holder).grants[0].claims)


class Lagging:
    """Brings the tables back to what they were when this was made, as the promotion of a standby does."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        with store.transaction() as tx:
            for name in TABLES:
                tx.execute(f"CREATE TABLE kept_{name} AS TABLE chargehand_{name}")

    def promote(self, node: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, timeline: int = 1) -> None:
        with self._store.transaction() as tx:
            for name in TABLES:
                tx.execute(f"DELETE FROM chargehand_{name}")
                ((columns,),) = tx.execute(
                    "SELECT string_agg(quote_ident(attname), ',') FROM pg_attribute "
                    f"WHERE attrelid = 'chargehand_{name}'::regclass AND attnum > 0 AND NOT attisdropped"
                )
                tx.execute(
                    f"INSERT INTO chargehand_{name} ({columns}) OVERRIDING SYSTEM VALUE "
                    f"SELECT {columns} FROM kept_{name}"
                )
        lose(node)
        real = node.session.server

        def server() -> Server | None:
            found = real()
            assert found is not None
            return msgspec.structs.replace(found, timeline=found.timeline + timeline)

        monkeypatch.setattr(node.session, "server", server)


# connections


# spec: MN-6
def test_if_one_connection_of_a_process_is_lost_all_are_replaced(open_one: Opener) -> None:
    """The others may lead to a server that is read-only now, and reads would go on there."""
    one, two, three = open_one(), open_one(), open_one()
    with three.transaction() as tx:
        cut(one)
        put(one, job("one"))
        assert two.session.number == 1
        assert state(two, "one") is State.QUEUED
        assert two.session.number == 2
        tx.jobs.enqueue([job("two")])
    assert three.session.number == 1, "a transaction that has begun goes on"
    assert state(three, "two") is State.QUEUED
    assert three.session.number == 2


# spec: MN-6
def test_a_server_that_became_read_only_is_left(open_one: Opener) -> None:
    store, reader = open_one(node=True), open_one()
    register(store)
    store.session.connection.execute(b"SET default_transaction_read_only = on")
    with pytest.raises(StoreError, match="read-only") as caught:
        put(store, job("one"))
    assert caught.value.code == "server-read-only"
    put(store, job("one"))
    assert state(reader, "one") is State.QUEUED
    assert (store.session.number, reader.session.number) == (2, 2)


# spec: MN-6
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("08006", True),
        ("08P01", True),
        ("57P01", True),
        ("57P05", True),
        ("25006", True),
        ("57014", False),
        ("23505", False),
    ],
)
def test_errors_after_which_a_connection_is_of_no_use(number: str, expected: bool) -> None:
    assert errors.unusable(psycopg.errors.lookup(number)("x"), connection_broken=False) is expected


# spec: MN-6
def test_a_server_that_says_nothing_is_given_up(open_one: Opener) -> None:
    store = open_one(node=True)
    register(store)
    put(store, job("one"))
    store.turn(Batch(), ME)
    backend = store.session.backend
    assert backend is not None
    store.session.connection.silence = 0.3
    os.kill(backend, signal.SIGSTOP)  # the line is good, and nobody answers
    try:
        with pytest.raises(StoreError, match="has not answered for") as caught:
            claimed(store, 1)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert caught.value.code == "server-gone"
    assert [claim.id for claim in claimed(store, 1)] == ["one"]


# spec: MN-6
def test_a_statement_of_the_application_may_take_its_time(open_one: Opener) -> None:
    store = open_one()
    store.session.connection.silence = 0.05
    with store.transaction() as tx:
        assert tx.execute("SELECT 1 FROM pg_sleep(0.4)") == [(1,)]
    with pytest.raises(StoreError, match="has not answered for"), store.transaction():
        store.session.send(b"SELECT 1 FROM pg_sleep(5)")


# servers that replace others


# spec: MN-5, MN-6
def test_outcomes_that_a_failover_has_lost_are_repeated_once(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    put(other, *(job(name) for name in ("kept", "lost", "running")))
    kept, lost, running = claimed(node, 3)
    assert node.turn(Batch(settlements=(ended(kept),)), ME).lost == ()
    standby = Lagging(other)
    put(other, job("late"), job("never replicated"))
    late, never = claimed(node, 2)
    node.turn(Batch(settlements=(ended(lost, follow="child"), ended(late), ended(never))), ME)
    standby.promote(node, monkeypatch)
    assert state(other, "lost") is State.RUNNING
    node.turn(Batch(), ME)
    found = node.comparison()
    assert found is not None
    assert found.replaced
    assert [end.id for end in found.repeat] == ["lost"]
    assert found.unknown == 2, "their claims are lost, too"
    assert {claim.id for claim in found.claims} == {"lost", "running"}
    assert node.comparison() is None
    batch = Batch(settlements=found.repeat)
    assert node.turn(batch, ME).lost == ()
    assert node.turn(batch, ME).lost == (batch.settlements[0].claim_name,), "a second time it changes nothing"
    assert {(each.id, each.state) for each in everything(other)} == {
        ("kept", State.DONE), ("lost", State.DONE), ("running", State.RUNNING), ("child", State.QUEUED)
    }  # fmt: skip
    assert node.turn(Batch(settlements=(ended(running),)), ME).lost == ()


# spec: MN-5
def test_an_outcome_never_ends_a_job_that_got_the_number_of_a_lost_one(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    standby = Lagging(other)
    put(other, job("lost"))
    (lost,) = claimed(node, 1)
    node.turn(Batch(settlements=(ended(lost),)), ME)
    standby.promote(node, monkeypatch)
    with other.transaction() as tx:
        tx.execute(f"ALTER TABLE chargehand_job ALTER COLUMN seq RESTART WITH {lost.seq}")
    put(other, job("stranger"))
    (stranger,) = claimed(node, 1)
    assert stranger.seq == lost.seq
    found = node.comparison()
    assert found is not None
    assert (found.repeat, found.unknown) == ((), 1)
    assert node.turn(Batch(settlements=(ended(lost),)), ME).lost == (ended(lost).claim_name,)
    assert state(other, "stranger") is State.RUNNING


# spec: MN-6
def test_after_a_mere_reconnect_nothing_is_repeated(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    put(other, job("one"), job("two"), job("three"))
    one, two, three = claimed(node, 3)
    back = settle(three, Returned())
    assert back is not None
    node.turn(Batch(settlements=(ended(one), back)), ME)
    assert node.comparison() is None, "nothing was compared so far"
    cut(node)
    with pytest.raises(StoreError):
        node.turn(Batch(settlements=(ended(two),)), ME)
    assert node.turn(Batch(settlements=(ended(two),)), ME).lost == ()
    found = node.comparison()
    assert found is not None
    assert (found.replaced, found.repeat, found.unknown) == (False, (), 0)
    assert [claim.id for claim in found.claims] == ["two"]


# spec: MN-6
def test_a_refused_outcome_makes_the_next_turn_compare(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    put(other, job("one"))
    (one,) = claimed(node, 1)
    with other.transaction() as tx:
        assert tx.jobs.release("one", str(one.number), "by hand")
    assert node.turn(Batch(settlements=(ended(one),)), ME).lost == (ended(one).claim_name,)
    assert node.comparison() is None
    node.turn(Batch(), ME)
    assert node.comparison() is not None


# spec: MN-6
# cause: former-primary
def test_a_former_primary_is_refused(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    node.turn(Batch(), ME)
    with pytest.MonkeyPatch.context() as patch:
        Lagging(other).promote(node, patch, timeline=-1)
        for _ in range(2):
            with pytest.raises(StoreError, match="former primary") as caught:
                node.turn(Batch(), ME)
            assert caught.value.code == "former-primary"
    node.turn(Batch(), ME)


# spec: MN-1, MN-6
@pytest.mark.parametrize("earlier", [None, EARLIER_ME])
def test_a_node_whose_registration_is_lost_registers_again(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch, earlier: Holder | None
) -> None:
    """With an earlier life, the server has the row of that one again, which has the name of the node."""
    node, other = open_one(node=True), open_one()
    put(other, job("one"), job("two"))
    if earlier is not None:
        register(other, holder=earlier)
        with other.transaction() as tx:
            tx.jobs.claim([Want("q", "q", 1)], earlier)
    standby = Lagging(other)
    with node.transaction() as tx:
        tx.fleet.register(ME, (), {}, after=earlier and earlier.life)
        tx.jobs.recover(ME, "the node ended")
    (one,) = claimed(node, 1)
    assert one.id == "one"
    standby.promote(node, monkeypatch)
    grants = node.turn(Batch(wants=(Want("q", "q", 1),)), ME).grants
    life, found = node.new_life(), node.comparison()
    assert life is not None
    assert life.holder != ME
    assert found is not None
    assert [claim.id for claim in found.claims] == ([] if earlier is None else ["one"])
    expected = "one" if earlier is None else "two"
    assert [claim.id for claim in grants[0].claims] == [expected], "the turn is one of the new life"
    with other.transaction() as tx:
        assert tx.execute("SELECT incarnation FROM chargehand_node") == [(life.holder.life,)]


# spec: MN-6
def test_a_registration_without_an_answer_is_repeated(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    put(other, job("one"))
    claimed(node, 1)
    with other.transaction() as tx:
        tx.execute("DELETE FROM chargehand_node")
    real = node.session.transaction

    @contextmanager
    def unacknowledged() -> Generator[None]:
        with real():
            yield
        monkeypatch.undo()
        raise StoreError("the connection was cut")

    monkeypatch.setattr(node.session, "transaction", unacknowledged)
    with pytest.raises(StoreError, match="was cut"):
        node.turn(Batch(), ME)
    assert node.new_life() is None
    node.turn(Batch(), ME)
    life = node.new_life()
    assert life is not None
    assert len(life.held) == 1
    with other.transaction() as tx:
        assert tx.execute("SELECT incarnation FROM chargehand_node") == [(life.holder.life,)]


# spec: MN-6
def test_the_process_of_a_session_on_another_server_is_left_alone(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number means another process there, which may be a session of another node."""
    node, other = open_one(node=True), open_one()
    register(node)
    node.turn(Batch(), ME)
    standby = Lagging(other)
    asked: list[bytes] = []
    rows = node.session.rows

    def watched(sql: bytes, args: Any = ()) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return rows(sql, args)

    monkeypatch.setattr(node.session, "rows", watched)
    terminate = statements.load("store")["terminate"]
    for promoted in (False, True):
        asked.clear()
        if promoted:
            standby.promote(node, monkeypatch)
        else:
            lose(node)
        claimed(node, 1)
        assert (terminate in asked) is not promoted


# spec: MN-6
def test_any_user_may_ask_which_server_it_is(open_one: Opener) -> None:
    store = open_one(node=True)
    register(store)
    name = f"weak_{os.urandom(4).hex()}"
    pgserver.admin(f"CREATE ROLE {name} LOGIN")
    try:
        with store.session.transaction():
            store.session.send(b"SET LOCAL ROLE " + name.encode())
            assert store.session.server() is not None
    finally:
        pgserver.admin(f"DROP ROLE {name}")


# writes at the same time


# spec: WK-4, WK-10
@pytest.mark.parametrize("outcome", [Done("1"), Interrupted("x")])
def test_a_claim_that_ends_while_others_write_to_its_row_has_ended(
    open_one: Opener, outcome: Done | Interrupted
) -> None:
    """A worker settles its job itself while the node notes the worker, or a person cancels the job."""
    node, worker = open_one(node=True), open_one()
    register(node)
    put(node, job("one"))
    (held,) = claimed(node, 1)
    settlement = settle(held, outcome)
    assert settlement is not None

    def end() -> list[ClaimName]:
        with worker.transaction() as tx:
            return tx.jobs.settle([settlement], ME)

    with ThreadPoolExecutor(1) as pool:
        with node.transaction() as tx:
            tx.jobs.note([Note(seq=held.seq, claim=held.number, worker="w", age_ms=0)])
            lost = pool.submit(end)
            eventually(lambda: waits(worker), what="the worker waits for the node")
        assert lost.result(10) == []
    assert node.jobs.claims() == []
    assert state(node, "one") is settlement.state
    assert sum(each.queued + each.running for each in node.jobs.counts()) == (settlement.state is State.QUEUED)


# spec: MN-2, ST-3
def test_a_node_that_is_cut_off_in_a_transaction_keeps_no_row_locked(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(driver.NODE_SETTINGS, "idle_in_transaction_session_timeout", "100ms")
    monkeypatch.setitem(driver.NODE_SETTINGS, "lock_timeout", "10s")
    cut_off, other = open_one(node=True), open_one(node=True)
    register(cut_off)
    put(cut_off, job("one"))
    (held,) = claimed(cut_off, 1)
    begun = cut_off.transaction()
    assert begun.__enter__().jobs.settle([ended(held)], ME) == []
    with other.transaction() as tx:  # it waits for the server to end the other session
        assert tx.jobs.release("one", str(held.number), "its node is gone")
    with pytest.raises(StoreError):
        begun.__exit__(None, None, None)
    assert state(other, "one") is State.QUEUED


# spec: MN-2, ST-3
def test_all_sessions_let_the_server_look_for_clients_that_are_gone(open_one: Opener) -> None:
    """Whether the server does: on a Unix socket it has no need to."""
    for store in (open_one(node=True), open_one()):
        ends_after = [int(store.session._settings[f"tcp_keepalives_{name}"]) for name in ("idle", "interval", "count")]
        idle, interval, count = ends_after
        assert idle + interval * count < NodeAbout().lease


# spec: WK-4
def test_a_worker_that_hangs_before_its_own_commit_does_not_hold_up_its_node(open_one: Opener) -> None:
    node, worker = open_one(node=True), open_one()
    register(node)
    put(node, job("hangs"), job("other"))
    hangs, other = claimed(node, 2)
    done = [settle(each, Done()) for each in (hangs, other)]
    assert done[0] is not None
    assert done[1] is not None
    with worker.transaction() as tx:
        assert tx.jobs.settle([done[0]], ME) == []
        notes = tuple(Note(seq=each.seq, claim=each.number, worker="w", age_ms=0) for each in (hangs, other))
        node.turn(Batch(notes=notes), ME)
        assert {claim.id: claim.worker for claim in node.jobs.claims()} == {hangs.id: None, other.id: "w"}
        assert node.turn(Batch(settlements=(done[1],), notes=notes[:1]), ME).lost == ()
    assert node.jobs.claims() == []


# spec: WK-8
def test_a_job_that_is_cancelled_while_it_is_claimed_is_not_forgotten(open_one: Opener) -> None:
    node, person = open_one(node=True), open_one()
    register(node)
    put(node, job("one"))

    def cancel() -> list[bool]:
        with person.transaction() as tx:
            return [each.at_once for each in tx.jobs.cancel(["one"])]

    with ThreadPoolExecutor(1) as pool:
        with node.transaction() as tx:
            tx.jobs.claim([Want("q", "q", 1)], ME)
            cancelled = pool.submit(cancel)
            eventually(lambda: waits(person), what="the person waits for the node")
        assert cancelled.result(10) == [False]
    assert [job_id for job_id, _ in node.jobs.cancelling()] == ["one"]


def waits(store: PostgresStore) -> bool:
    """Whether the session of this store waits for a lock."""
    asked = f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {store.session.backend}"
    return pgserver.admin(asked) == [(True,)]


# rows that others write to


# spec: ST-3
@pytest.mark.parametrize("by", ["delete", "prune"])
def test_a_job_that_is_deleted_while_it_is_retried_is_gone(open_one: Opener, by: str) -> None:
    store, person = open_one(), open_one()
    put(store, job("one"))
    with store.transaction() as tx:
        tx.jobs.cancel(["one"])

    def retry() -> list[str]:
        with person.transaction() as tx:
            return tx.jobs.retry(["one"])

    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as tx:
            if by == "delete":
                assert tx.jobs.delete(["one"]) == ["one"]
            else:
                (seq,) = store.session.rows(b"SELECT seq FROM chargehand_end")[0]
                store.session.send(statements.load("settle")["delete"], (numbers([seq]), False))
            retried = pool.submit(retry)
            eventually(lambda: waits(person), what="the retry waits for the deletion")
        assert retried.result(10) == []
    assert store.session.rows(b"SELECT seq FROM chargehand_live") == []
    assert store.jobs.counts() == []


# spec: MN-2
def test_a_job_that_another_node_has_claimed_meanwhile_is_not_released(open_one: Opener) -> None:
    """Two nodes release the jobs of a dead one, and a node that has just started claims one of them in between."""
    first, second, new = open_one(), open_one(), open_one()
    put(first, job("one"))
    take_one(first, holder=Holder("dead", "dead"))
    late = Holder("late", "late")

    def release() -> list[Settlement]:
        with second.transaction() as tx:
            return tx.jobs.recover(Holder("second", "second"), "gone")

    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as tx:
            assert len(tx.jobs.recover(Holder("first", "first"), "gone")) == 1
            released = pool.submit(release)
            eventually(lambda: waits(second), what="the second one waits for the first")
            register(new, holder=late)
            (grant,) = tx.jobs.claim([Want("q", "q", 1)], late)  # as if at once after the commit
            assert len(grant.claims) == 1
        assert released.result(10) == []
    assert [each.node for each in first.jobs.claims()] == ["late"]
