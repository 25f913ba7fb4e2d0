"""What `doctor` says of stores on a PostgreSQL server: each cause is created on a real server, or with a false one."""

import json
import socket
import struct
import sys
import tarfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from terminal import chargehand as terminal
from test_doctor_node import only

import pgserver
from chargehand import clock
from chargehand.doctor import server
from chargehand.doctor.examine import facts_from, find_and_examine
from chargehand.errors import StoreError
from chargehand.model.doctor import server as rules
from chargehand.model.doctor.diagnosis import Diagnosis, diagnose
from chargehand.stores import open_store
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"doctor on PostgreSQL is NOT tested: pip install {packages}", allow_module_level=True)

import psycopg

from chargehand.stores.postgres import driver, peek
from chargehand.stores.postgres.address import parse

pytestmark = pytest.mark.full

SECRET = "p@ss/w0rd"
USUAL = {"no-node", "not-durable"}
"""What is found of an empty store on the server of the tests, which has fsync off."""


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def url() -> str:
    """An empty store."""
    made = pgserver.new_store()
    open_store(made).close()
    return made


def schema_of(url: str) -> str:
    return str(parse(url).schema)


def examined(url: str) -> Diagnosis:
    """Examines the store in this process, which is faster than in a child process."""
    found: dict[str, Any] = {}
    for _, part in server.store(url):
        found |= msgspec.json.decode(msgspec.json.encode(part))
    return diagnose(facts_from(found, plain=True, others=()), clock.hour)


def causes(found: Diagnosis) -> set[str]:
    return {finding.cause for finding in found.findings}


def query(url: str, sql: str) -> "psycopg.Connection[Any]":
    """Returns a connection in whose transaction this statement has been executed."""
    connection = psycopg.connect(parse(url).conninfo, application_name="a long report")
    connection.execute(f"SET search_path = {schema_of(url)}; {sql}".encode())
    return connection


# connections that are refused


@contextmanager
def false_server(folder: Path, answer: Callable[[socket.socket], None]) -> Generator[str]:
    """Listens as a server does, and answers each connection in its own way. Yields the URL."""
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / ".s.PGSQL.5432"))
    listener.listen()
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            kept.append(connection)
            answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"postgresql://anna:{SECRET.replace('/', '%2F').replace('@', '%40')}@/x?host={folder}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in (listener, *kept):
            each.close()


def refusing(state: str, admits: bool) -> Callable[[socket.socket], None]:
    """Answers with an error as a server in another language does, before or after it has admitted the user."""
    fields = (b"SSCHWERWIEGEND", b"VFATAL", b"C" + state.encode(), b'Mes geht gerade nicht: C "00000"', b"")
    body = b"".join(field + b"\0" for field in fields)
    admitted = b"R" + struct.pack("!II", 8, 0) if admits else b""

    def answer(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(admitted + b"E" + struct.pack("!I", 4 + len(body)) + body)
        connection.shutdown(socket.SHUT_WR)

    return answer


# spec: CL-4 ST-2
@pytest.mark.parametrize(
    ("state", "admits", "cause"),
    [
        ("57P03", False, "server-starting"),  # cause: server-starting
        ("53300", False, "no-connections"),  # cause: no-connections
        ("53300", True, "no-connections"),
        ("28000", True, "bad-login"),  # cause: bad-login
        ("3D000", True, "no-database"),  # cause: no-database
        ("08P01", True, "server-refuses"),  # cause: server-refuses
        ("08P01", False, "server-refuses"),
    ],
)
def test_a_refusal_is_recognised_by_its_sqlstate(state: str, admits: bool, cause: str, tmp_path: Path) -> None:
    with false_server(tmp_path / "s", refusing(state, admits)) as url:
        found = examined(url)
        with pytest.raises(StoreError) as caught:
            open_store(url)
    assert causes(found) == {cause}
    assert caught.value.code == cause
    assert "es geht gerade nicht" in only(found, cause).text
    assert only(found, cause).text == str(caught.value)
    assert not found.well
    assert "p%40ss" not in json.dumps(msgspec.to_builtins(found))


# spec: CL-4 ST-2
def test_addresses_at_which_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = examined(f"postgresql://anna@/x?host={tmp_path}")  # cause: server-gone
    assert causes(nowhere) == {"server-gone"}
    assert causes(examined(f"{pgserver.url()}&no_such_parameter=1")) == {"bad-address"}  # cause: bad-address
    assert causes(examined(pgserver.url().replace("/postgres?", "/nothing?"))) == {"no-database"}
    assert causes(examined(pgserver.url().replace("postgres@", "nobody_of_that_name@"))) == {"bad-login"}
    assert only(examined(pgserver.new_store()), "no-store").text.endswith(": it has no tables")
    monkeypatch.setitem(sys.modules, "chargehand.stores.postgres.peek", None)
    missing = only(examined(pgserver.url()), "no-driver")  # cause: no-driver
    assert "psycopg" in missing.text


# spec: CL-4 ST-2
def test_a_password_that_is_wrong_or_missing() -> None:
    with pgserver.weak_role(password="right") as (name, url):
        for given in ("", ":wrong"):
            found = only(examined(url.replace(f"{name}@", f"{name}{given}@", 1)), "bad-login")
            assert "password" in found.text
            assert "wrong@" not in found.text
        right = url.replace(f"{name}@", f"{name}:right@", 1)
        open_store(right).close()
        assert causes(examined(right)) >= USUAL


# spec: CL-4 ST-2
def test_a_server_that_hangs_is_reported_in_time(tmp_path: Path) -> None:  # cause: store-hung
    with false_server(tmp_path / "s", lambda _: None) as url:
        began = clock.monotonic()
        # Enough to start the process that looks, and less than the 3 s after which the connection gives up by itself.
        found = find_and_examine(url, patience=2.5)
        assert clock.monotonic() - began < 20
    hung = only(found, "store-hung")
    assert hung.text.endswith("(connection) timed out after 2.5 s: its server hangs")
    assert "no-node" not in causes(found)


# servers that answer


# spec: CL-4
def test_an_empty_store(url: str) -> None:  # cause: not-durable
    found = examined(url)
    assert causes(found) == USUAL
    assert only(found, "not-durable").text.startswith("fsync and full_page_writes and synchronous_commit are off")
    assert found.store == parse(url).shown


# spec: CL-4 ST-2
def test_users_without_rights() -> None:  # cause: no-rights server-read-only sessions-hidden
    with pgserver.weak_role() as (name, url):
        assert "no-store" in causes(examined(url))
        open_store(url).close()
        assert causes(examined(url)) - {"sessions-hidden"} == USUAL
        with pgserver.weak_role() as (other, theirs):
            stranger = url.replace(f"{name}@", f"{other}@", 1)
            lacks = only(examined(stranger), "no-rights")
            assert f"the user {other} lacks rights: USAGE on schema {name}, DELETE on chargehand_" in lacks.text
            pgserver.admin(f"GRANT USAGE ON SCHEMA {name} TO {other}")
            pgserver.admin(f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {other}")
            found = examined(stranger)
            assert "USAGE" not in only(found, "no-rights").text
            assert "no-node" in causes(found), "the tables can be read"
            with query(url, "SELECT 1"):
                assert only(examined(stranger), "sessions-hidden").severity == "note"
            pgserver.admin(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {other}")
            assert only(examined(stranger), "no-rights").text.endswith("lacks rights: USAGE on chargehand_job_seq_seq")
            pgserver.admin(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO {other}")
            assert "no-rights" not in causes(examined(stranger))
            assert theirs != stranger
        pgserver.admin(f"ALTER ROLE {name} SET default_transaction_read_only = on")
        found = only(examined(url), "server-read-only")
        assert "default_transaction_read_only" in found.text
        with pytest.raises(StoreError) as caught:
            open_store(url)
        assert caught.value.code == "server-read-only"


# spec: CL-4 ST-2
def test_the_limit_of_a_user() -> None:
    with pgserver.weak_role("CONNECTION LIMIT 1") as (name, url):
        open_store(url).close()
        found = eventually(lambda: _unless_full(url))
        assert found is not None
        assert only(found, "no-connections").text.startswith(f"0 connections left (the user {name} may have 1)")
        with query(url, "SELECT 1"):
            full = examined(url)
    assert causes(full) == {"no-connections"}
    assert only(full, "no-connections").severity == "error"


def _unless_full(url: str) -> Diagnosis | None:
    """Returns the diagnosis, unless an earlier connection has not ended yet."""
    found = examined(url)
    return found if found.status != "error" or "no-node" in causes(found) else None


# spec: CL-4
def test_old_transactions_and_locked_tables(url: str, monkeypatch: pytest.MonkeyPatch) -> None:  # cause: old-snapshot
    monkeypatch.setattr(rules, "OLD_SNAPSHOT", 0.0)
    monkeypatch.setattr(rules, "LONG_LOCK", 0.0)
    with query(url, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM chargehand_live") as old:
        about = f"pid {old.info.backend_pid} (a long report, user postgres, idle in transaction, last statement SET)"
        # The oldest one is named, and another test may have an older one for a moment.
        eventually(lambda: about in only(examined(url), "old-snapshot").text, what="the oldest transaction")
    with query(url, "LOCK TABLE chargehand_live") as locks:
        found, pid = examined(url), locks.info.backend_pid
    locked = only(found, "store-locked")
    assert locked.text.startswith(f"pid {pid} (a long report, user postgres, idle in transaction) ")
    assert "chargehand_live" in locked.text
    assert "unread" not in causes(found), "the lock explains it"


# spec: CL-4
def test_dead_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:  # cause: dead-rows autovacuum-off
    monkeypatch.setattr(rules, "DEAD_ROWS", 50)
    columns = "seq, run_at_ms, place, rank, queue"
    fill = f"INSERT INTO chargehand_live ({columns}) SELECT n, 0, n, 0, 'q' FROM generate_series(1, 99) n"
    with query(url, f"{fill}; DELETE FROM chargehand_live"):
        pass
    dead = eventually(lambda: next((f for f in examined(url).findings if f.cause == "dead-rows"), None))
    assert dead is not None
    assert dead.text.startswith("chargehand_live has 99 dead rows beside 0 live ones, never vacuumed: ")
    pgserver.admin(f"ALTER TABLE {schema_of(url)}.chargehand_live SET (autovacuum_enabled = false)")
    assert "ALTER TABLE chargehand_live" in only(examined(url), "autovacuum-off").remedy


# spec: CL-4
def test_the_clock_the_pooler_the_driver_and_the_version(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # cause: clock-skew pooler driver-slow server-old
    with monkeypatch.context() as patch:
        hour = 3_600_000
        now = clock.now_ms
        patch.setattr(clock, "now_ms", lambda: now() + hour)
        assert "is 60 minutes behind this machine's" in only(examined(url), "clock-skew").text
    with monkeypatch.context() as patch:
        patch.setitem(peek._STORE, "server", b"SELECT 0, 0, false, 'x'")
        assert causes(examined(url)) == {*USUAL, "pooler"}, "the settings are sent with each statement"
        patch.setattr(driver, "OLDEST_SERVER", 990_000)
        assert "the oldest supported version is 99" in only(examined(url), "server-old").text
        patch.setattr(psycopg.pq, "__impl__", "python")
        assert only(examined(url), "driver-slow").severity == "warning"


# spec: CL-4
def test_what_the_store_contains(url: str) -> None:  # cause: node-gone
    """Crews, pauses, jobs and marks are found as in an SQLite store."""
    from chargehand.model.job import NewJob
    from chargehand.model.records import CrewRow, HealthNote, Holder

    store = open_store(url)
    crew = CrewRow(name="tag", queue="tag", handler="x:Y", workers=1, max_attempts=3, timeout_ms=None)
    with store.transaction() as tx:
        tx.fleet.register(Holder("far", "life"), [crew], {"version": "1.0", "pid": 1})
        tx.jobs.enqueue([NewJob(id="one", queue="tag", payload="{}"), NewJob(id="two", queue="other", payload="{}")])
        tx.fleet.pause("tag", "olga", "SMTP outage", None)
    found = examined(url)  # cause: nodes-elsewhere
    assert only(found, "nodes-elsewhere").text == "no node runs here, but 1 elsewhere: far"
    assert only(found, "paused").text.startswith("tag was paused by olga")
    assert "2 waiting" in found.headline
    assert only(found, "no-crew").about == "other", "also seen where no node runs"
    with store.transaction() as tx:
        old = Holder("old", "another life")
        tx.fleet.register(old, [crew], {"version": "1.0", "pid": 1})
        tx.fleet.project([HealthNote(component="app", status="healthy", heartbeat_age_ms=0)], old)
        tx.execute("DELETE FROM chargehand_node WHERE name = 'old'")
    assert only(examined(url), "node-gone").text.startswith("node old disappeared without having been stopped")
    store.close()
    eventually(lambda: "no-node" in causes(examined(url)))


# the command


# spec: CL-4
def test_the_command_and_its_bundle_show_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pgserver.weak_role(password=SECRET) as (name, url):
        given = url.replace(f"{name}@", f"{name}:p%40ss%2Fw0rd@", 1)
        file = tmp_path / "doctor.tar.gz"
        told = terminal(
            "doctor", "--json", "--bundle", str(file), cwd=tmp_path, CHARGEHAND_URL=given,
            XDG_STATE_HOME=str(tmp_path / "state"),
        )  # fmt: skip
    assert told.returncode == 1
    found = json.loads(told.stdout)
    assert "no-store" in {finding["cause"] for finding in found["findings"]}
    with tarfile.open(file) as archive:
        texts = {member.name: _text(archive, member) for member in archive}
    assert json.loads(texts["chargehand-doctor/server.json"])["user"] == name
    for text in (told.stdout, told.stderr, *texts.values()):
        for secret in ("ss/w0rd", "ss%2Fw0rd"):
            assert secret not in text


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode()
