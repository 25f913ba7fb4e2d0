"""Tests for what only the PostgreSQL store has: addresses, errors, migrations, lost answers, nodes that expire."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders import DIRECT, ME, crew, everything, job, put, record, register, state, take, take_one

import pgserver
from chargehand.errors import ConfigurationError, NoDriver, StoreBusy, StoreError
from chargehand.host import nodelock
from chargehand.host.moving import move
from chargehand.model import chores
from chargehand.model.batch import Batch, Request, Want
from chargehand.model.job import Done, Enqueued, Found, Interrupted, NewJob, Settlement, State, settle
from chargehand.model.records import Discovered, Discovery, Firing, Holder, RecurringPlan
from chargehand.stores import open_store
from chargehand.stores.location import Location, locate, locate_unread
from chargehand.stores.postgres.address import parse
from chargehand.stores.sqlite.store import SqliteStore
from chargehand.testing import eventually
from chargehand.web.routes.probes import not_ready

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"the PostgreSQL store is NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

from chargehand.stores.postgres import beats, driver, keyed, schema, statements
from chargehand.stores.postgres.store import PostgresStore

SECRET = "p@ss/w:rd%"
QUOTED = "p%40ss%2Fw%3Ard%25"
WANT = (Want("q", "q", 1),)
PLAN = RecurringPlan(name="nightly", schedule="{}", job="{}", next_run_ms=1000)


@pytest.fixture(autouse=True)
def state_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder / "state"


@pytest.fixture
def url() -> str:
    return pgserver.new_store()


@pytest.fixture
def open_one(url: str) -> Any:
    opened: list[PostgresStore] = []

    def make(**options: Any) -> PostgresStore:
        opened.append(PostgresStore(parse(url), **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


Opener = Callable[..., PostgresStore]


# addresses


def test_an_address_is_shown_without_its_passwords() -> None:
    found = parse(f"postgres://anna:{QUOTED}@db:5433/app?sslpassword=hidden&sslmode=require&schema=jobs")
    assert found.shown == "postgresql://anna@db:5433/app?sslmode=require&schema=jobs"
    assert found.conninfo == f"postgresql://anna:{QUOTED}@db:5433/app?sslpassword=hidden&sslmode=require"
    assert found.schema == "jobs"
    for text in (repr(found), str(locate(found.url)), repr(found.digest)):
        assert "hidden" not in text
        assert QUOTED not in text
        assert SECRET not in text


def test_the_files_of_a_store_on_a_server_are_in_the_state_of_the_user(state_folder: Path) -> None:
    one, same = locate("postgresql://anna:a@db/app"), locate("postgresql://anna:b@db/app")
    assert one.node == same.node
    assert one.node.parent.parent == state_folder / "chargehand"
    assert one.node.parent.stat().st_mode & 0o777 == 0o700
    assert one.mark != locate("postgresql://anna@db/other").mark


# spec: MN-1, SV-11
def test_each_node_of_a_machine_has_files_of_its_own(state_folder: Path) -> None:
    url = "postgresql://anna@db/app"
    one, two, no_node = locate(url, "one"), locate(url, "two"), locate(url)
    for name in ("node", "lives", "socket", "mark"):
        assert len({getattr(each, name) for each in (one, two, no_node)}) == 3
    for name in ("token", "site", "url", "server"):
        assert len({getattr(each, name) for each in (one, two, no_node)}) == 1
    assert {each.path.parent.parent for each in (one, two, no_node)} == {state_folder / "chargehand"}
    assert all(each.in_state_folder for each in (one, two, no_node))
    assert locate_unread(url, "one").resolved() == locate(url, "one") == one
    assert nodelock.nearest(one) == one
    first = nodelock.take(one)
    assert first is not None
    assert nodelock.take(one) is None
    assert [nodelock.nearest(each) for each in (one, two, no_node)] == [one, one, one]
    second = nodelock.take(two)
    assert second is not None, "a node of another name does not wait"
    assert [nodelock.nearest(each) for each in (one, two)] == [one, two]
    nodelock.release(first)
    assert [nodelock.nearest(each) for each in (one, two, no_node)] == [two, two, two]
    assert no_node.of_other_nodes == sorted([one, two], key=lambda each: each.path)
    with pytest.raises(StoreError, match="cannot be moved while it is in use: a node"):
        move(_small_sqlite(state_folder), no_node, lambda *_: None)
    nodelock.release(second)
    assert nodelock.nearest(one) == one


def _small_sqlite(folder: Path) -> Location:
    found = locate(str(folder / "small.db"))
    SqliteStore(found.path).close()
    return found


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:app",
        "postgresql://u:secret/word@host/db",
        "postgresql://u:secret@host:port/db",
        "postgresql://u:secret@h/db?schema=No-Name",
        "mysql://u:secret@host/db",
    ],
)
def test_a_malformed_address_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        locate(url)
    assert "secret" not in str(caught.value)
    assert "postgresql://user@host" in str(caught.value) or "schema" in str(caught.value)


# errors in words


# spec: ST-2
@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        pytest.param(
            lambda url: url.replace("postgres@", f"nobody:{QUOTED}@"), "bad-login", "refuses this user", marks=DIRECT
        ),
        pytest.param(
            lambda url: url.replace("/postgres?", "/no_such_database?"),
            "no-database",
            "there is no such database",
            marks=DIRECT,
        ),
        (lambda url: f"postgresql://u:{QUOTED}@127.0.0.1:1/x", "server-gone", "no server answers there"),
        (lambda url: f"postgresql://u:{QUOTED}@/x?host=/nowhere", "server-gone", "no server answers there"),
        (lambda url: f"{url}&no_such_parameter=1", "bad-address", "the URL is malformed"),
    ],
)
def test_a_store_that_cannot_be_reached_says_why(url: str, change: Callable[[str], str], code: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        open_store(change(url))
    assert caught.value.code == code
    assert QUOTED not in str(caught.value)
    assert SECRET not in str(caught.value)


# spec: ST-2
@DIRECT
def test_a_user_without_rights_and_one_that_may_only_read(url: str) -> None:
    name = f"weak_{os.urandom(4).hex()}"
    pgserver.admin(f"CREATE ROLE {name} LOGIN")
    with pytest.raises(StoreError, match=r"no right to it.*\[42501\]"):
        open_store(url.replace("postgres@", f"{name}@"))
    pgserver.admin(f"ALTER ROLE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreError, match="the server is read-only"):
        open_store(url.replace("postgres@", f"{name}@"))
    pgserver.admin(f"DROP ROLE {name}")


# spec: ST-2
@DIRECT
def test_a_schema_that_the_user_may_not_use_is_not_taken_for_an_empty_one(url: str) -> None:
    open_store(url).close()
    name = f"weak_{os.urandom(4).hex()}"
    pgserver.admin(f"CREATE ROLE {name} LOGIN")
    for create in (True, False):
        with pytest.raises(StoreError, match=r"may not use the schema 'test_.*grant USAGE") as caught:
            open_store(url.replace("postgres@", f"{name}@"), create=create)
        assert caught.value.code == "no-rights"
    pgserver.admin(f"DROP ROLE {name}")


# spec: ST-2
def test_a_server_that_is_too_old_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "OLDEST_SERVER", 990000)
    with pytest.raises(StoreError, match="the oldest supported version is 99"):
        open_store(url)


# spec: ST-2
def test_a_store_that_must_exist_and_does_not(url: str) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(url, create=False)


def test_a_missing_driver_names_the_extra(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("chargehand.stores.postgres.store")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "chargehand.stores.postgres.driver", None)
    monkeypatch.delattr("chargehand.stores.postgres.driver")
    with pytest.raises(NoDriver, match=r"pip install 'chargehand\[postgres\]'") as caught:
        open_store(url)
    assert not_ready(caught.value) == "no-driver"


# the schema


# spec: ST-3
def test_several_that_start_at_once_make_one_schema(url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: PostgresStore(parse(url)), range(6)))
    assert sorted(store.migrated.before for store in stores) == [0, *[KNOWN] * 5]
    for store in stores:
        store.close()


# spec: ST-3
def test_a_newer_schema_is_refused_and_left_alone(open_one: Opener) -> None:
    with open_one().transaction() as tx:
        tx.execute("INSERT INTO chargehand_schema VALUES (99, '', 0, 99)")
    with pytest.raises(StoreError, match="newer Chargehand"):
        open_one()


KNOWN = len(schema.MIGRATIONS)
"""The schema version that this code knows."""
MORE = schema.Step("ALTER TABLE chargehand_job ADD COLUMN more text", "", KNOWN)
"""A step that code of the version before can ignore."""
LESS = schema.Step("ALTER TABLE chargehand_job ADD COLUMN less text", "", KNOWN + 1)
"""A step after which code of the present version must not use the store."""


@pytest.fixture
def knows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the code of this process that of another version, which knows these steps after the present ones."""
    present = schema.MIGRATIONS
    return lambda *more: monkeypatch.setattr(schema, "MIGRATIONS", [*present, *more])


class Beating:
    """A node that takes a turn whenever others look at it."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self._patch = store, monkeypatch
        register(store)
        self.live()

    def live(self) -> None:
        self._patch.setattr(schema, "clock", self)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, _: float) -> None:
        self.store.turn(Batch(), ME)


# spec: ST-4
def test_a_start_changes_nothing_under_a_node_of_the_version_before(
    open_one: Opener, knows: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    knows()
    node = open_one(node=True)
    Beating(node, monkeypatch)
    put(node, job("one"))
    knows(MORE)
    with pytest.raises(
        StoreError,
        match=rf"has schema {KNOWN}, this Chargehand needs {KNOWN + 1}.*\(node-a\): run `chargehand migrate`",
    ) as no:
        open_one()
    assert no.value.code == "schema-old"
    with pytest.raises(StoreError, match=f"this Chargehand needs {KNOWN + 1}") as no:
        node.probe()
    assert no.value.code == "schema-old"
    asked = open_one(asked=True)
    assert (asked.migrated.before, asked.migrated.after) == (KNOWN, KNOWN + 1)
    knows()
    assert [claim.id for claim in node.turn(Batch(wants=WANT), ME).grants[0].claims] == ["one"], "it goes on"
    old = open_one(node=True)
    assert (old.migrated.before, old.migrated.after) == (KNOWN + 1, KNOWN + 1), "it starts again, too"
    old.probe()
    register(old, holder=Holder("node-b", "life-b"))


# spec: ST-4
def test_a_schema_that_shuts_older_code_out_waits_for_the_end_of_older_nodes_and_then_refuses_them(
    open_one: Opener, knows: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    knows()
    node, caller = open_one(node=True), open_one()
    Beating(node, monkeypatch)
    knows(MORE, LESS)
    for asked in (False, True):
        with pytest.raises(StoreError, match=f"they cannot work with schema {KNOWN + 2}; stop them") as no:
            open_one(asked=asked)
        assert no.value.code == "schema-old"
    node.leave(ME)
    assert open_one().migrated.after == KNOWN + 2
    knows()
    refused: list[Callable[[], object]] = [open_one, caller.probe, node.join, lambda: register(node)]
    for use in refused:
        words = f"schema {KNOWN + 2}, for code that knows schema {KNOWN + 1} or newer; this one knows {KNOWN}"
        with pytest.raises(StoreError, match=words) as no:
            use()
        assert no.value.code == "schema-new"
    knows(MORE)
    open_one().probe()


# spec: ST-4
@DIRECT
def test_an_older_node_that_is_dead_does_not_keep_a_start_from_migrating(
    open_one: Opener, knows: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    knows()
    node = open_one(node=True)
    register(node, lease=0.2)
    backend = node.session.backend
    node.session.drop()
    sessions = f"SELECT 1 FROM pg_stat_activity WHERE pid = {backend}"
    eventually(lambda: not pgserver.admin(sessions), what="its session ended")
    knows(MORE)
    assert open_one().migrated.after == KNOWN + 1, "it has ended without leaving"
    knows()
    register(node, lease=0.2)
    knows(MORE, LESS)
    with pytest.raises(StoreError, match=rf"\(node-a\): they cannot work with schema {KNOWN + 2}"):
        open_one()  # it has a session: it may live
    assert open_one(asked=True).migrated.after == KNOWN + 2, "it does not beat"
    knows()
    with pytest.raises(StoreError, match=f"this one knows {KNOWN}"):
        node.turn(Batch(wants=WANT), ME)
    assert node.new_life() is None


# spec: ST-4
def test_a_migration_does_not_hold_up_nodes_while_it_waits_for_a_table(
    open_one: Opener, knows: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    knows()
    node, other = open_one(node=True), open_one()
    register(node, lease=0.2)
    monkeypatch.setattr(schema, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(schema, "PAUSE", 0.01)
    monkeypatch.setattr(schema, "PATIENCE", 0.1)
    knows(MORE)
    reading = other.transaction()
    reading.__enter__().execute("SELECT FROM chargehand_job")
    began = time.monotonic()
    with pytest.raises(StoreError, match="holds a lock for too long") as busy:
        open_one(asked=True)
    assert (busy.value.code, time.monotonic() - began < 20) == ("store-locked", True)
    reading.__exit__(None, None, None)
    assert open_one(asked=True).migrated.after == KNOWN + 1


# spec: ST-4, WK-19
def test_a_node_of_the_first_schema_goes_on_beside_rates(open_one: Opener) -> None:
    """Its statements know nothing of rates. It ignores them, and the next registration restores what it removes."""
    store = open_one()
    register(store, crew("q", rate="1/day", rate_per_key="1/day"))
    put(store, job("one"), job("two"))
    with store.transaction() as tx:  # as the first version registers
        tx.execute(
            "INSERT INTO chargehand_crew (node, name, queue, handler, workers, max_attempts, timeout_ms, priority, "
            "allowed, allowed_per_key, registered_ms) VALUES ('old', 'q', 'q', '', 1, 1, 1, 0, NULL, NULL, 1)"
        )
        tx.execute("DELETE FROM chargehand_limit WHERE queue = 'q'")
    assert len(take(store)) == 1
    register(store, crew("q", rate="1/day"))
    assert (len(take(store)), len(take(store))) == (1, 0)


# spec: ST-4
def test_a_step_names_the_oldest_code_that_may_use_it(folder: Path) -> None:
    for name, text in {"0001_a": "", "0002_b": "-- Adds.\n-- oldest: 1\nSELECT 1", "0003_c": "-- oldest: none"}.items():
        (folder / f"{name}.sql").write_text(text)
    assert [step.oldest for step in schema.steps(folder)] == [1, 1, 3]


def test_every_statement_is_valid(open_one: Opener) -> None:
    """A statement that is used seldom must not fail when it is needed."""
    store = open_one(node=True)
    with store.session.transaction():
        for topic in ("enqueue", "claim", "flows", "rates", "settle", "fleet", "access", "store", "doctor"):
            for name, sql in statements.load(topic).items():
                store.session.send(b"PREPARE p AS " + sql) if not name.startswith("make_") else None
                store.session.send(b"DEALLOCATE ALL")


# texts


# spec: WK-1
def test_long_keys_and_items_fail_no_batch(open_one: Opener) -> None:
    """A row of an index must be shorter than 2,700 bytes, and these cannot be compressed."""
    long = "".join(chr(0x4E00 + byte) for byte in os.urandom(1000))
    store = open_one()
    register(store, crew("q", limit_per_key=1))
    one, two = job("one", key=long, limit_key=long), job("two", key=long)
    assert [each.created for each in put(store, one, two)] == [True, False]
    put(store, job("three", limit_key=long))
    claim = take_one(store)
    assert take(store, 5) == []
    settlement = settle(claim, Done())
    assert settlement is not None
    with store.transaction() as tx:
        tx.jobs.settle([settlement], ME)
    assert record(store, "one").key == long
    assert take_one(store).id == "three"


# turns whose answer is lost


def lose_answers(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts the connection after the commit of the next turn."""

    def cut(*_: object) -> None:
        monkeypatch.undo()
        store.session.connection.close()
        raise psycopg.OperationalError("the connection was cut")

    monkeypatch.setattr(store.session.watch, "committed", cut)


# spec: WK-4, MN-6
def test_a_turn_whose_commit_was_not_acknowledged_loses_and_repeats_nothing(open_one: Opener) -> None:
    store = open_one(node=True)
    register(store)
    put(store, job("one"), job("two"))
    held = take_one(store)
    follow = job("follow", queue="other")
    settlement = settle(held, Done("1", (follow,)))
    assert settlement is not None
    batch = Batch(settlements=(settlement,), requests=(Request("t", (job("new"),)),), wants=WANT)
    with pytest.MonkeyPatch.context() as patch:
        lose_answers(store, patch)
        with pytest.raises(StoreError, match="was lost"):
            store.turn(batch, ME)
    assert state(store, "two") is State.RUNNING, "it did commit"
    result = store.turn(batch, ME)
    assert result.lost == ()
    assert [claim.id for claim in result.grants[0].claims] == ["two"], "what was claimed without an answer came back"
    assert [one.id for one in everything(store)] == ["new", "follow", "two", "one"]
    assert [attempt.outcome for attempt in store.jobs.attempts("one")] == ["done"]
    assert store.jobs.attempts("two") == []


# spec: WK-4, MN-6
def test_a_connection_that_is_lost_while_lost_answers_are_looked_up_loses_and_repeats_nothing(
    open_one: Opener,
) -> None:
    store = open_one(node=True)
    register(store)
    put(store, *(job(f"j{n}") for n in range(3)))
    (first, second) = (settle(take_one(store), Done("1")) for _ in range(2))
    assert first is not None
    assert second is not None
    with pytest.MonkeyPatch.context() as patch:
        lose_answers(store, patch)
        with pytest.raises(StoreError, match="was lost"):
            store.turn(Batch(settlements=(first,)), ME)
    again, asked = Batch(settlements=(first, second), wants=WANT), statements.load("settle")["before"]
    with pytest.MonkeyPatch.context() as patch:
        rows = store.session.rows

        def cut(sql: Any, *bindings: Any) -> Any:
            if sql == asked:  # the server is gone, so that the session cannot connect again
                store.session.connection.close()
                raise StoreError("no server answers there", "server-gone")
            return rows(sql, *bindings)

        patch.setattr(store.session, "rows", cut)
        with pytest.raises(StoreError):
            store.turn(again, ME)
    assert [state(store, f"j{n}") for n in range(3)] == [State.DONE, State.DONE, State.RUNNING], "it did commit"
    result = store.turn(again, ME)
    assert result.lost == (), "both outcomes count"
    assert [claim.id for claim in result.grants[0].claims] == ["j2"], "its claim reached no worker, and came back"


# spec: ST-3, MN-6
def test_a_beat_without_an_answer_does_not_hold_up_the_next_ones(open_one: Opener) -> None:
    store = open_one(node=True)
    register(store)
    store.turn(Batch(poll=True), ME)
    send, kept = store.session.send, list[int]()

    def cut(sql: bytes, args: Sequence[Any] = ()) -> Any:
        """Cuts the line before the commit; the server does not notice."""
        if sql != b"COMMIT":
            return send(sql, args)
        assert store.session._pipeline is not None
        store.session._pipeline.sync()
        line = store.session.connection.fileno()
        kept.append(os.dup(line))
        with Path(os.devnull).open() as nowhere:
            os.dup2(nowhere.fileno(), line, inheritable=False)
        store.session.connection.close()
        raise psycopg.OperationalError("the connection was cut")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.session, "send", cut)
        with pytest.raises(StoreError, match="was lost"):
            store.turn(Batch(poll=True), ME)
    before = beat_of(store)

    def beats() -> bool:
        """Returns whether the turn went well; behind a pooler the node does not know which session it would have to
        end, and the server ends it, because it is idle in a transaction."""
        try:
            store.turn(Batch(poll=True), ME)
        except StoreBusy:
            return False
        return True

    if pgserver.POOLER is None:
        assert beats()
    else:
        eventually(beats, 25, what="a beat before the lease is over")
    assert beat_of(store) > before
    os.close(kept[0])


# spec: WK-4, MN-6
def test_a_turn_that_fails_after_its_commit_keeps_no_claim(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_one(node=True)
    register(store)
    put(store, job("one"), job("two"))
    held = take_one(store)
    settlement = settle(held, Done("1"))
    assert settlement is not None

    def broken() -> None:
        monkeypatch.undo()
        raise StoreError("the connection was cut")

    monkeypatch.setattr(store.jobs, "cancelling", broken)
    batch = Batch(settlements=(settlement,), wants=WANT, poll=True)
    with pytest.raises(StoreError, match="was cut"):
        store.turn(batch, ME)
    result = store.turn(batch, ME)
    assert (result.lost, [claim.id for claim in result.grants[0].claims]) == ((), ["two"])


# spec: WK-4, MN-6
def test_a_claim_that_was_taken_away_stays_lost_after_a_broken_turn(open_one: Opener) -> None:
    store, other = open_one(node=True), open_one()
    register(store)
    put(store, job("one"))
    held = take_one(store)
    with other.transaction() as tx:
        tx.jobs.release(held.id, str(held.number), "by hand")
    settlement = settle(held, Done("1"))
    assert settlement is not None
    with pytest.MonkeyPatch.context() as patch:
        lose_answers(store, patch)
        with pytest.raises(StoreError):
            store.turn(Batch(settlements=(settlement,)), ME)
    assert store.turn(Batch(settlements=(settlement,)), ME).lost == (settlement.claim_name,)


# spec: MN-6
@DIRECT
def test_a_connection_that_the_server_ended_is_replaced(open_one: Opener) -> None:
    store, reader = open_one(node=True), open_one()
    register(store)
    put(store, job("one"))
    store.turn(Batch(), ME)  # it looks at other nodes, which it does not do again for a second
    for each in (store, reader):
        pgserver.admin(f"SELECT pg_terminate_backend({each.session.backend}, 5000)")
    with pytest.raises(StoreError):
        store.turn(Batch(wants=WANT), ME)
    assert [one.id for one in everything(reader)] == ["one"], "reading is repeated"
    assert [claim.id for claim in store.turn(Batch(wants=WANT), ME).grants[0].claims] == ["one"]
    pgserver.admin(f"SELECT pg_terminate_backend({store.session.backend}, 5000)")
    put(store, job("two"))
    assert state(store, "two") is State.QUEUED, "a transaction that had not begun is begun again"


def beat_of(store: PostgresStore) -> int:
    return store.session.rows(b"SELECT max(beat) FROM chargehand_node")[0][0]


class Held:
    """A caller whose transaction has enqueued a job with the key `k` and stays open."""

    def __init__(self, store: PostgresStore) -> None:
        self._open = store.transaction()
        self._open.__enter__().jobs.enqueue([job("theirs", key="k"), job("item", key="item:i")])

    def end(self, *error: Any) -> None:
        self._open.__exit__(*(error or (None, None, None)))


def held_and_settled(store: PostgresStore, *follow: NewJob) -> Settlement:
    """A claimed job that is done and enqueues these."""
    settlement = settle(take_one(store), Done(follow=follow))
    assert settlement is not None
    return settlement


# spec: WK-2, MN-2
def test_a_caller_that_holds_a_transaction_open_holds_no_turn_up(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_one(node=True)
    register(node)
    put(node, *(job(name) for name in "abcd"))
    alone, waiting = held_and_settled(node), held_and_settled(node, job("child", key="k"))
    free = held_and_settled(node, job("free child", key="another"))
    caller = Held(open_one())
    firing = Firing(name="nightly", due_ms=1000, next_run_ms=2000, job=job("fired", key="k"))
    page = Discovery(queue="q", found=(Found(item="i"),), priority=0, max_attempts=1, timeout_ms=None)
    fire, found = chores.Fire(firing), chores.QueueFound("q", page, 0.0)
    requests = Request(1, (job("x"),)), Request(2, (job("ours", key="k"),)), Request(3, (job("y", key="y"),))
    batch = Batch(
        settlements=(waiting, alone, free), requests=requests, chores=(chores.Recur((PLAN,)), fire, found), wants=WANT
    )
    before = beat_of(node)
    monkeypatch.setattr(
        keyed, "clock", Later(0)
    )  # it stands still: on a busy machine parts would be left out for lack of time
    result = node.turn(batch, ME)
    assert [claim.id for claim in result.grants[0].claims] == ["d"]
    assert (result.lost, [token for token, _ in result.enqueued], result.done) == ((), [1, 3], (None,))
    assert result.postponed == Batch(settlements=(waiting,), requests=requests[1:2], chores=(fire, found))
    assert [state(node, name) for name in "abc"] == [State.DONE, State.RUNNING, State.DONE]
    assert beat_of(node) == before + 1
    again = result.postponed
    assert node.turn(again, ME).postponed == again, "a key that is held is not tried again at once"
    caller.end()
    monkeypatch.setattr(keyed, "clock", Later(600))
    last = node.turn(again, ME)
    assert (last.lost, last.done, last.postponed) == ((), (True, Discovered(queued=0, held=1)), Batch())
    assert last.enqueued == ((2, (Enqueued("theirs", False),)),)
    assert (state(node, "b"), record(node, "child").id) == (State.DONE, "theirs"), "an alias of the job with the key"


class Later:
    """A clock that stands still, some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self._now = time.monotonic() + seconds

    def monotonic(self) -> float:
        return self._now


# spec: WK-2, MN-2
def test_a_caller_that_rolls_back_leaves_the_key_to_others(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    node = open_one(node=True)
    caller = Held(open_one())
    batch = Batch(requests=(Request(1, (job("ours", key="k"),)),))
    assert node.turn(batch, ME).postponed == batch
    caller.end(ZeroDivisionError, ZeroDivisionError(), None)
    monkeypatch.setattr(keyed, "clock", Later(600))
    assert node.turn(batch, ME).enqueued == ((1, (Enqueued("ours", True),)),)


# spec: MN-2
def test_a_turn_tries_no_more_parts_than_it_has_time_for(open_one: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    node, other = open_one(node=True), open_one()
    monkeypatch.setattr(keyed, "MOST", 0.0)
    caller = Held(open_one())
    requests = tuple(Request(name, (job(key=name),)) for name in ("k", "free"))
    assert node.turn(Batch(requests=requests), ME).postponed.requests == requests
    assert node.turn(Batch(requests=requests), ME).postponed.requests == requests
    monkeypatch.setattr(keyed, "MOST", 60.0)
    assert node.turn(Batch(requests=requests), ME).postponed.requests == requests[:1]
    caller.end()
    assert len(everything(other)) == 3


# nodes


# spec: MN-2
def test_a_node_that_expired_claims_nothing_until_it_has_joined_again(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    put(node, job("one"))
    with other.transaction() as tx:
        tx.execute("DELETE FROM chargehand_node")
    assert node.turn(Batch(wants=WANT), ME).grants[0].claims == ()
    life = node.new_life()
    assert life is not None
    assert [claim.id for claim in node.turn(Batch(wants=WANT), life.holder).grants[0].claims] == ["one"]


# spec: MN-2
def test_the_claims_of_a_living_node_are_not_recovered_and_those_of_a_dead_one_are(open_one: Opener) -> None:
    one, two = open_one(node=True), open_one(node=True)
    there = Holder("node-b", "life-b")
    register(one)
    register(two, crew("b", "b"), holder=there)
    put(one, job("theirs"))
    take_one(two, holder=there)
    with one.transaction() as tx:
        assert tx.jobs.recover(ME, "gone") == []
        tx.execute("DELETE FROM chargehand_node WHERE incarnation = 'life-b'")
    with one.transaction() as tx:
        assert [ended.id for ended in tx.jobs.recover(ME, "gone")] == ["theirs"]
    assert [row.name for row in one.fleet.crews()] == ["b"], "a registration leaves the crews of others alone"


# spec: MN-2
def test_a_node_that_beats_no_more_expires_and_its_jobs_are_queued_again(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_one(node=True), open_one(node=True)
    there = Holder("node-b", "life-b")
    register(one)
    register(two, holder=there, lease=0.0)
    put(one, job("theirs"))
    held = take_one(two, holder=there)
    monkeypatch.setattr(beats, "LOOK_EVERY", 0.0)
    assert one.turn(Batch(wants=WANT), ME).grants[0].claims == ()
    two.turn(Batch(), there)
    assert one.turn(Batch(wants=WANT), ME).grants[0].claims == (), "it has beaten in between"
    assert [claim.id for claim in one.turn(Batch(wants=WANT), ME).grants[0].claims] == ["theirs"]
    late = settle(held, Done())
    assert late is not None
    assert two.turn(Batch(settlements=(late,)), there).lost == (late.claim_name,)
    assert [attempt.node for attempt in one.jobs.attempts("theirs")] == ["node-b"]


# spec: MN-2
def test_a_node_is_dead_after_a_lease_by_the_clock_of_its_watcher_and_on_one_connection() -> None:
    watcher, lease = beats.Beats(), 30

    def dead(beat: int, now: float, connection: int = 1, gone: bool = False) -> bool:
        return bool(watcher.dead([beats.Seen("life", "node", beat, gone)], now, connection))

    assert not dead(1, 0)
    assert not dead(1, lease - 0.1)
    assert not dead(1, lease / 3 - 0.1, gone=True)
    assert dead(1, lease / 3, gone=True)
    assert dead(1, lease)
    assert not dead(2, lease), "it has beaten"
    assert not dead(2, 2 * lease, connection=2), "the server may have been away"
    assert not dead(2, 3 * lease - 0.1, connection=2)
    assert dead(2, 3 * lease, connection=2)
    assert not watcher.is_due(3 * lease)
    assert watcher.is_due(3 * lease + beats.LOOK_EVERY)


# the position of claims


# spec: WK-3
def test_what_comes_before_the_position_is_found(open_one: Opener) -> None:
    node, other = open_one(node=True), open_one()
    register(node)
    put(node, *(job(f"{number}") for number in range(50)))

    def claim(**more: Any) -> str:
        return node.turn(Batch(wants=WANT, **more), ME).grants[0].claims[0].id

    assert [claim() for _ in range(3)] == ["0", "1", "2"]
    assert claim(requests=(Request(1, (job("own", priority=5),)),)) == "own", "its own are found at once"
    put(other, job("urgent", priority=9))
    deadline, found = time.monotonic() + 5, ""
    while found != "urgent":
        assert time.monotonic() < deadline
        claims = node.turn(Batch(wants=WANT), ME).grants[0].claims  # none: all others are taken
        found = "".join(each.id for each in claims)
    put(node, job("more"))
    held = node.jobs.claims()[0]
    back = settle(take_one(node), Interrupted("x"))
    assert back is not None
    assert claim(settlements=(back,)) == back.id, "a job that is queued again is found at once"
    assert held.id == "0"


# forks


# spec: ST-4
@DIRECT
def test_a_forked_process_leaves_the_connection_of_its_parent_alone(open_one: Opener) -> None:
    store = open_one()
    put(store, job("before"))
    backend = store.session.backend
    pid = os.fork()
    if not pid:
        try:
            put(store, job("in the child"))
            os._exit(0 if store.session.backend != backend else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    put(store, job("after"))
    assert store.session.backend == backend
    assert [one.id for one in everything(store)] == ["after", "in the child", "before"]


def test_two_threads_with_a_store_each_write_at_once(open_one: Opener) -> None:
    stores = [open_one() for _ in range(4)]
    done = threading.Barrier(4)

    def write(store: PostgresStore) -> None:
        done.wait()
        put(store, *(job() for _ in range(50)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, stores))
    assert len(everything(stores[0])) == 200
