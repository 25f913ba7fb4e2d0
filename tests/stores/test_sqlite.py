"""Tests for SQLite only: the file and its file system, the lock, the schema, and other programs that use the file."""

import errno
import fcntl
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import apsw
import msgspec
import pytest
from builders import (
    ME,
    bring,
    crew,
    end,
    everything,
    job,
    jobs,
    put,
    record,
    recover,
    register,
    retry,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand.errors import ConfigurationError, StoreError
from chargehand.model.job import Done, Found, State
from chargehand.model.records import (
    CrashFilter,
    Discovery,
    GivenUpMark,
    HealthNote,
    Holder,
    RecurringPlan,
    Retention,
)
from chargehand.stores import open_store, surplus
from chargehand.stores.location import locate
from chargehand.stores.sqlite import files
from chargehand.stores.sqlite.store import SqliteStore, check_engine


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
def without_sqlite3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the state of a process that never imported the standard library's sqlite3."""
    monkeypatch.delitem(sys.modules, "_sqlite3", raising=False)


@contextmanager
def opened(path: Path, *, create: bool = True) -> Generator[SqliteStore]:
    store = SqliteStore(path, create=create)
    try:
        yield store
    finally:
        store.close()


def pragma(store: SqliteStore, name: str) -> object:
    with store.transaction() as tx:
        return tx.execute(f"PRAGMA {name}")[0][0]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-lock")}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def refusal(path: Path, *, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        SqliteStore(path, create=create)
    return str(caught.value)


# the file


# spec: ST-2
def test_a_store_is_written_ahead_and_synced_in_full(path: Path) -> None:
    with opened(path) as store:
        assert pragma(store, "journal_mode") == "wal"
        assert pragma(store, "synchronous") == 2


# spec: ST-2
def test_a_store_that_is_opened_again_is_still_synced_in_full(path: Path) -> None:
    for _ in range(2):
        with opened(path, create=not path.exists()) as store:
            assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("wal", 2)


# spec: ST-2
def test_whoever_writes_holds_the_lock_beside_the_file(path: Path) -> None:
    with opened(path) as store, open(f"{path}-lock") as lock:
        with store.transaction(), pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# spec: ST-2
def test_a_transaction_that_fails_lets_go_of_the_lock(path: Path) -> None:
    with opened(path) as store, open(f"{path}-lock") as lock:
        roll_back(store, lambda tx: tx.jobs.enqueue([job("one")]))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# spec: ST-2
def test_reading_needs_no_lock(path: Path) -> None:
    with opened(path) as store, open(f"{path}-lock") as lock:
        put(store, job("one"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state(store, "one") is State.QUEUED
        assert len(everything(store)) == len(store.jobs.counts()) == 1
        assert (store.fleet.crews(), store.fleet.pauses(), store.jobs.attempts("one")) == ([], [], [])
        assert (store.fleet.health(), store.fleet.crashes(CrashFilter()), store.fleet.given_up()) == ([], [], [])
        assert (store.fleet.snapshots(0, 10), [queue for queue, _ in store.jobs.waiting()]) == ([], ["q"])
        assert (store.jobs.cancelling(), store.jobs.claims(), store.jobs.recurring()) == ([], [], [])
        assert store.prune(Retention(), 10) == 0


# spec: SE-1, ST-2
def test_the_lock_is_for_its_owner_alone(path: Path) -> None:
    with opened(path):
        assert stat.S_IMODE(os.stat(f"{path}-lock").st_mode) == 0o600


# spec: ST-2
def test_many_threads_with_stores_of_their_own_write_without_an_error(path: Path, without_sqlite3: None) -> None:
    stores = [SqliteStore(path) for _ in range(8)]

    def write(number: int) -> None:
        for turn in range(25):
            put(stores[number], job(f"{number}-{turn}"))
            take(stores[number], 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    (counts,) = stores[0].jobs.counts()
    assert counts.queued + counts.running == 200
    for store in stores:
        store.close()


# spec: ST-2
def test_a_reader_sees_one_moment_while_others_write(path: Path, without_sqlite3: None) -> None:
    """Jobs are written in pairs, and a reader never sees half of a pair."""
    stop = threading.Event()
    with opened(path) as writer, opened(path) as reader:

        def write() -> None:
            for turn in range(150):
                put(writer, job(f"{turn}-a"), job(f"{turn}-b"))
            stop.set()

        thread = threading.Thread(target=write)
        thread.start()
        while not stop.is_set():
            assert len(everything(reader)) % 2 == 0
        thread.join()
        assert len(everything(reader)) == 300


# spec: ST-2
def test_nobody_elses_write_is_not_a_stir(path: Path) -> None:
    with opened(path) as mine, opened(path) as other:
        assert mine.changed() is True  # nothing was read before
        assert mine.changed() is False
        put(mine, job("own"))
        assert mine.changed() is False
        put(other, job("theirs"))
        assert mine.changed(again=True) is True
        assert mine.changed(again=True) is True
        assert mine.changed() is True
        assert mine.changed(again=True) is False
        assert mine.changed() is False


# the schema


# spec: ST-4
def test_a_fresh_store_has_the_newest_schema(path: Path) -> None:
    with opened(path) as store, store.transaction() as tx:
        rows = tx.execute("SELECT version, length(checksum), applied_ms > 0 FROM chargehand_schema ORDER BY version")
        assert rows == [(version, 64, 1) for version in range(1, len(rows) + 1)]


# spec: ST-4
def test_opening_again_applies_nothing(path: Path) -> None:
    with opened(path) as store:
        put(store, job("one"))
    before = snapshot(path.parent)
    with opened(path) as store:
        assert state(store, "one") is State.QUEUED
    assert snapshot(path.parent) == before


# spec: ST-4
def test_many_who_open_a_fresh_store_at_once_make_one_schema(path: Path, without_sqlite3: None) -> None:
    barrier = threading.Barrier(8)

    def open_one(number: int) -> SqliteStore:
        barrier.wait()
        store = SqliteStore(path)
        put(store, job(f"{number}"))
        return store

    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_one, range(8)))
    with stores[0].transaction() as tx:
        versions = [version for (version,) in tx.execute("SELECT version FROM chargehand_schema ORDER BY version")]
        assert versions == list(range(1, stores[0].migrate().after + 1))
    assert len(everything(stores[0])) == 8
    for store in stores:
        store.close()


def make_first_schema(path: Path, *data: str) -> None:
    """Creates a store of the first version: its migration, its row in the schema table, and this data."""
    text = (resources.files("chargehand.stores.sqlite") / "migrations" / "0001_begin.sql").read_text("utf-8")
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute(
        "CREATE TABLE chargehand_schema "
        "(version INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_ms INTEGER NOT NULL)"
    )
    db.execute(text)
    db.execute("INSERT INTO chargehand_schema VALUES (1, ?, 7)", (hashlib.sha256(text.encode()).hexdigest(),))
    for sql in data:
        db.execute(sql)
    db.close()


FIRST_DATA = (
    """
    INSERT INTO chargehand_job (id, queue, state, run_at_ms, max_attempts, created_ms, payload)
    VALUES ('old', 'q', 'queued', 5, 3, 5, '[1]')
    """,
    "INSERT INTO chargehand_crew VALUES ('tag', 'q', 'm:H', 2, 3, NULL, 0, 5)",
    "INSERT INTO chargehand_pause (scope, who, reason, since_ms) VALUES ('tag', 'anna', 'why', 5)",
)


# spec: ST-4
def test_a_store_of_the_first_schema_is_brought_up_to_date_with_what_is_in_it(path: Path) -> None:
    make_first_schema(path, *FIRST_DATA)
    with opened(path, create=False) as store:
        assert record(store, "old").payload == msgspec.Raw(b"[1]")
        assert [(row.name, row.workers, row.scaled) for row in store.fleet.crews()] == [("tag", 2, None)]
        assert [(found.scope, found.who, found.until_ms) for found in store.fleet.pauses()] == [("tag", "anna", None)]
        with store.transaction() as tx:
            rows = tx.execute("SELECT version, applied_ms = 7, length(checksum) FROM chargehand_schema")
        assert rows == [(1, 1, 64), *((version, 0, 64) for version in range(2, store.migrate().after + 1))]
        assert len(rows) > 1


# spec: ST-4, HP-2
def test_a_store_of_the_first_schema_can_do_all_that_is_new(path: Path) -> None:
    make_first_schema(path, *FIRST_DATA)
    with opened(path) as store:
        with store.transaction() as tx:
            tx.fleet.scale("tag", 4, ME)
            tx.fleet.project([HealthNote(component="app", status="healthy")], ME)
            tx.fleet.mark([GivenUpMark(component="worker:tag:0", crew="tag", reason="why", fingerprint="f")], ME)
            tx.fleet.snapshot()
        assert [row.scaled for row in store.fleet.crews()] == [4]
        assert [row.component for row in store.fleet.health()] == ["app"]
        assert [mark.component for mark in store.fleet.given_up()] == ["worker:tag:0"]
        assert [queue for queue, _ in store.jobs.waiting()] == ["q"]
        assert len(store.fleet.snapshots(0, 10)) == 1
        register(store, crew("tag", limit=1, limit_per_key=1))
        with store.transaction() as tx:
            tx.jobs.discover([Discovery(queue="q", found=(Found(item="x"),), priority=0, max_attempts=1, timeout_ms=1)])
            tx.jobs.recur([RecurringPlan(name="plan", schedule="s", job="{}", next_run_ms=1)], ME)
        assert [claim.id for claim in take(store, 5)] == ["old"]
        with store.transaction() as tx:
            assert [one.at_once for one in tx.jobs.cancel(["old"])] == [False]
        assert (len(store.jobs.cancelling()), len(store.jobs.claims()), len(store.jobs.recurring())) == (1, 1, 1)


# spec: ST-4
def test_a_store_brought_up_to_date_is_like_a_fresh_one(folder: Path) -> None:
    make_first_schema(folder / "old.db")
    shapes: list[object] = []
    for name in ("old.db", "fresh.db"):
        with opened(folder / name) as store, store.transaction() as tx:
            shapes.append(tx.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"))
    assert shapes[0] == shapes[1]


# spec: ST-4
def test_many_who_open_an_old_store_at_once_bring_it_up_to_date_once(path: Path, without_sqlite3: None) -> None:
    make_first_schema(path, *FIRST_DATA)
    barrier = threading.Barrier(8)

    def open_one(_: int) -> SqliteStore:
        barrier.wait()
        return SqliteStore(path)

    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_one, range(8)))
    assert all(state(store, "old") is State.QUEUED for store in stores)
    with stores[0].transaction() as tx:
        assert tx.execute("SELECT count(*) FROM chargehand_schema") == [(stores[0].migrate().after,)]
    for store in stores:
        store.close()


# spec: ST-4
def test_a_newer_schema_is_refused_in_words_and_left_as_it_is(path: Path) -> None:
    with opened(path) as store:
        put(store, job("one"))
        with store.transaction() as tx:
            tx.execute("INSERT INTO chargehand_schema VALUES (999, 'x', 1)")
    before = snapshot(path.parent)
    why = refusal(path)
    assert str(path) in why
    assert "999" in why
    assert "newer" in why
    assert "upgrade" in why
    assert snapshot(path.parent) == before


# spec: ST-4
def test_a_refused_newer_schema_leaves_the_lock_free(path: Path) -> None:
    with opened(path) as store, store.transaction() as tx:
        tx.execute("INSERT INTO chargehand_schema VALUES (999, 'x', 1)")
    before = descriptors()
    for _ in range(3):
        refusal(path)
    assert descriptors() == before
    with open(f"{path}-lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# what is no store

NO_DATABASES = {
    "text": b"Dear diary,\n" * 500,
    "zeros and ones": bytes(range(256)) * 64,
    "only the name of the format": b"SQLite format 3\0" + b"\xff" * 5000,
    "short": b"hello\n",
}


# spec: ST-2
@pytest.mark.parametrize("what", NO_DATABASES)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, what: str) -> None:
    path.write_bytes(NO_DATABASES[what])
    why = refusal(path)
    assert str(path) in why
    assert "not a database" in why
    assert snapshot(path.parent) == {path.name: NO_DATABASES[what]}


# spec: ST-2
def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with opened(path) as store:
        put(store, job("one"))


# spec: ST-2, CL-4
@pytest.mark.parametrize("what", ["text", "another database", "empty"])
def test_a_file_that_is_no_store_is_refused_unchanged_unless_it_may_become_one(path: Path, what: str) -> None:
    if what == "text":
        path.write_text("Dear diary")
    elif what == "empty":
        path.touch()
    else:
        code = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('CREATE TABLE t (x)')"
        subprocess.run([sys.executable, "-c", code], check=True)
    path.chmod(0o644)
    before = path.stat().st_mode, path.read_bytes(), os.listdir(path.parent)
    for _ in range(2):
        assert refusal(path, create=False).endswith("Nothing was changed")
        assert (path.stat().st_mode, path.read_bytes(), os.listdir(path.parent)) == before


# spec: ST-2
@pytest.mark.parametrize("what", ["not a database", "folder", "missing"])
def test_a_refusal_leaves_no_descriptor_open(path: Path, what: str) -> None:
    if what == "folder":
        path.mkdir()
    elif what == "not a database":
        path.write_bytes(b"Dear diary,\n" * 500)
    before = descriptors()
    for _ in range(5):
        refusal(path, create=False)
    assert descriptors() == before


# spec: ST-2
def test_a_folder_is_refused_in_words(path: Path) -> None:
    path.mkdir()
    assert "is a folder" in refusal(path)
    assert list(path.iterdir()) == []


# spec: ST-2
def test_a_missing_folder_is_refused_in_words_and_not_made(folder: Path) -> None:
    assert "there is no folder" in refusal(folder / "no" / "store.db")
    assert list(folder.iterdir()) == []


# spec: ST-2
def test_a_file_in_the_place_of_the_folder_is_refused_in_words(folder: Path) -> None:
    (folder / "file").touch()
    assert str(folder / "file") in refusal(folder / "file" / "store.db")


# spec: CL-4, ST-2
def test_a_missing_store_is_not_made_by_whoever_only_looks(path: Path) -> None:
    why = refusal(path, create=False)
    assert "there is no store" in why
    assert "CHARGEHAND_URL" in why
    assert list(path.parent.iterdir()) == []


# spec: ST-2
def test_open_store_takes_an_address(path: Path) -> None:
    store = open_store(f"sqlite://{path}")
    put(store, job("one"))
    store.close()
    with opened(path, create=False) as again:
        assert state(again, "one") is State.QUEUED


# addresses


# spec: CF-1, ST-2
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/a/b.db", "/a/b.db"),
        ("sqlite:///a/b.db", "/a/b.db"),
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:/a/b.db", "/a/b.db"),
        ("sqlite:///a%20b/c%25.db", "/a b/c%.db"),
        ("/a%20b.db", "/a%20b.db"),
        ("/a b/ü.db", "/a b/ü.db"),
        ("/a:b.db", "/a:b.db"),
        ("SQLITE:///a/b.db", "/a/b.db"),
    ],
)
def test_an_address_names_a_file(url: str, expected: str) -> None:
    assert locate(url).path == Path(expected)


# spec: CF-1
@pytest.mark.parametrize("url", ["b.db", "sqlite:b.db", "sqlite://b.db"])
def test_a_relative_address_is_made_absolute(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert locate(url).path == folder / "b.db"


# spec: CF-1
def test_the_home_folder_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert locate("~/b.db").path == Path("/home/anna/b.db")


# spec: CF-1
@pytest.mark.parametrize("scheme", ["mysql", "redis", "http", "file"])
def test_an_address_of_another_kind_is_refused_in_words(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"'{scheme}' is not supported.*CHARGEHAND_URL"):
        locate(f"{scheme}://host/name")


# spec: CF-1
@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite://", "sqlite:///", "/a/b/", "sqlite:///a/"])
def test_an_address_without_a_file_is_refused_in_words(url: str) -> None:
    with pytest.raises(ConfigurationError, match="names no file"):
        locate(url)


# the engine


# spec: ST-2
@pytest.mark.parametrize(
    "version", ["3.51.3", "3.51.10", "3.52.0", "3.53.1", "4.0.0", "3.50.7", "3.50.8", "3.44.6", "3.44.9"]
)
def test_a_mended_engine_is_accepted(version: str) -> None:
    check_engine(version)


# spec: ST-2
@pytest.mark.parametrize(
    "version", ["3.51.2", "3.51.0", "3.50.6", "3.50.0", "3.49.9", "3.45.0", "3.44.5", "3.43.99", "3.7.0", "2.99.99"]
)
def test_an_engine_that_damages_files_is_refused_in_words(version: str) -> None:
    with pytest.raises(StoreError, match=rf"{version}.*damage.*3\.51\.3"):
        check_engine(version)


# spec: ST-2
def test_the_engine_that_is_installed_is_a_mended_one() -> None:
    check_engine(apsw.sqlite_lib_version())


# what lies under it

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw,nosuid shared:2 - proc proc rw
30 21 0:40 / /srv rw shared:9 - nfs4 server:/export rw,vers=4.2
31 30 8:2 / /srv/local rw - xfs /dev/sdb1 rw
32 21 0:41 / /mnt/with\\040blank rw - cifs //server/share rw
33 21 0:42 / /mnt/ssh rw - fuse.sshfs anna@host: rw
34 21 0:43 / /over rw - tmpfs tmpfs rw
35 21 0:44 / /over rw - nfs server:/x rw
36 21 0:45 / /mnt/müsik rw - nfs server:/y rw
nonsense
37 21 0:46 / /mnt/tab\\011x rw master:1 propagate_from:2 - 9p host rw
"""


# spec: ST-2
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a.db", "ext4"),
        ("/", "ext4"),
        ("/srv/a.db", "nfs4"),
        ("/srv", "nfs4"),
        ("/srvX/a.db", "ext4"),
        ("/srv/local/a.db", "xfs"),
        ("/srv/localX", "nfs4"),
        ("/mnt/with blank/a.db", "cifs"),
        ("/mnt/ssh/deep/down/a.db", "fuse.sshfs"),
        ("/over/a.db", "nfs"),
        ("/mnt/müsik/a.db", "nfs"),
        ("/mnt/tab\tx/a.db", "9p"),
    ],
)
def test_the_file_system_under_a_path_is_the_nearest_mount(path: str, kind: str) -> None:
    assert files.filesystem_of(Path(path), MOUNTS) == kind


# spec: ST-2
def test_without_a_mount_the_file_system_is_unknown() -> None:
    assert files.filesystem_of(Path("/a"), "") == ""


# spec: ST-2
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "virtiofs"])
def test_network_file_systems_are_known(kind: str) -> None:
    assert kind in files.NETWORK


# spec: ST-2
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs"])
def test_local_file_systems_are_not_taken_for_network_ones(kind: str) -> None:
    assert kind not in files.NETWORK


# spec: ST-2
def test_the_folder_of_these_tests_is_local(folder: Path) -> None:
    assert files.is_network(folder) is None


# others' hands on the file


# spec: ST-2
def test_another_engine_on_the_file_in_this_process_is_refused_in_words(path: Path) -> None:
    with opened(path) as store:
        put(store, job("one"))
    other = sqlite3.connect(path)
    try:
        other.execute("SELECT * FROM chargehand_job").fetchall()
        assert "sqlite3" in refusal(path)
    finally:
        other.close()
    with opened(path) as store:
        assert state(store, "one") is State.QUEUED


# spec: ST-2
def test_another_engine_on_another_file_is_nobodys_business(path: Path) -> None:
    other = sqlite3.connect(path.parent / "other.db")
    other.execute("CREATE TABLE song (path TEXT)")
    with opened(path) as store:
        put(store, job("one"))
    other.close()


# spec: ST-2
def test_stores_may_be_opened_and_closed_in_any_order_though_sqlite3_is_loaded(path: Path) -> None:
    """SQLite keeps the descriptor of a closed connection while another connection has locks."""
    assert "_sqlite3" in sys.modules
    first = SqliteStore(path)
    with opened(path) as second:
        put(second, job("one"))
        first.close()
        with opened(path) as third:
            assert state(third, "one") is State.QUEUED


# spec: ST-2
def test_threads_may_open_stores_at_once_though_sqlite3_is_loaded(path: Path) -> None:
    assert "_sqlite3" in sys.modules
    SqliteStore(path).close()
    barrier = threading.Barrier(6)

    def open_one(_: int) -> SqliteStore:
        barrier.wait()
        return SqliteStore(path)

    refused: list[str] = []
    for _ in range(10):
        with ThreadPoolExecutor(6) as pool:
            futures = [pool.submit(open_one, number) for number in range(6)]
        refused += [str(future.exception()) for future in futures if future.exception()]
        for future in futures:
            if not future.exception():
                future.result().close()
    assert refused == []


# spec: ST-2, WK-2
def test_an_application_keeps_its_own_tables_in_the_file(path: Path) -> None:
    with opened(path) as store:
        with store.transaction() as tx:
            tx.execute("CREATE TABLE song (path TEXT PRIMARY KEY, tagged INTEGER)")
            tx.execute("INSERT INTO song VALUES (?, ?)", ("a.flac", 0))
            tx.jobs.enqueue([job("one")])
        claim = take_one(store)
        with store.transaction() as tx:
            tx.execute("UPDATE song SET tagged = ? WHERE path = ?", [1, "a.flac"])
        end(store, claim, Done())
    with opened(path) as store, store.transaction() as tx:
        assert tx.execute("SELECT path, tagged FROM song") == [("a.flac", 1)]


# spec: ST-2, WK-2
def test_an_applications_own_database_becomes_a_store_beside_its_tables(path: Path) -> None:
    own = apsw.Connection(str(path))
    own.execute("CREATE TABLE job (x); INSERT INTO job VALUES (1), (2)")
    own.close()
    with opened(path) as store:
        put(store, job("one"))
        with store.transaction() as tx:
            assert tx.execute("SELECT x FROM job ORDER BY x") == [(1,), (2,)]


# spec: ST-2
def test_every_table_of_ours_carries_the_prefix(path: Path) -> None:
    with opened(path) as store, store.transaction() as tx:
        names = [name for (name,) in tx.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
    assert names
    assert all(name.startswith("chargehand_") for name in names)


# spec: WK-5, WK-6
def test_what_a_node_of_another_name_held_is_recovered_under_that_name(path: Path) -> None:
    """A file has one node, so every earlier holder of a job was an earlier life of it, even under another name."""
    with opened(path) as store:
        put(store, job("one"))
        take_one(store, holder=Holder("old-name", "old-life"))
        assert recover(store) == ["one"]
        (attempt,) = store.jobs.attempts("one")
        assert attempt.node == "old-name"


class Interrupting(SqliteStore):
    """A store whose next write waits for the lock while `meanwhile` runs."""

    meanwhile: Callable[[], object] | None = None

    def take_lock(self, begin: Callable[[], object]) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().take_lock(begin)


# spec: WK-12
def test_a_job_that_is_retried_while_it_is_about_to_be_pruned_keeps_its_history(path: Path) -> None:
    with opened(path) as other:
        claim = bring(other, State.FAILED)
        store = Interrupting(path)
        store.meanwhile = lambda: retry(other, claim.id)
        assert store.prune(Retention(count=0), 10) == 0
        assert state(other, claim.id) is State.QUEUED
        assert [attempt.outcome for attempt in other.jobs.attempts(claim.id)] == ["gave up"]
        store.close()


# spec: WK-12
def test_very_many_are_counted_a_piece_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surplus, "COUNT_AT_ONCE", 3)
    with opened(path) as store:
        ids = [bring(store, State.DONE).id for _ in range(14)]
        seen = [(store.prune(Retention(count=10), 2), store.pruning) for _ in range(6)]
        assert seen == [(0, True), (0, True), (2, False), (2, False), (0, False), (0, True)]
        assert [found.id for found in reversed(everything(store))] == ids[4:]


# spec: WK-12
def test_what_finishes_while_it_is_counted_is_counted_the_next_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "COUNT_AT_ONCE", 3)
    with opened(path) as store:
        ids = [bring(store, State.DONE).id for _ in range(6)]
        assert (store.prune(Retention(count=5), 10), store.pruning) == (0, True)
        ids += [bring(store, State.DONE).id for _ in range(2)]
        assert (store.prune(Retention(count=5), 10), store.pruning) == (1, False)
        while store.prune(Retention(count=5), 10) or store.pruning:
            pass
        assert [found.id for found in reversed(everything(store))] == ids[3:]


# spec: WK-12
def test_what_is_enqueued_while_others_prune_stays(path: Path) -> None:
    with opened(path) as other:
        bring(other, State.DONE)
        store = Interrupting(path)
        store.meanwhile = lambda: put(other, job("new"))
        assert store.prune(Retention(count=0), 10) == 1
        assert [found.id for found in everything(store)] == ["new"]
        store.close()


# disks that are full or read-only


@contextmanager
def disk(folder: Path, size: str) -> Generator[Path]:
    point = folder / "disk"
    point.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(point)],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"NOT TESTED: a full or read-only disk. It needs the right to mount: {made.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)  # whatever a failed test left open


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a full or read-only disk. It needs root, to mount a small file system")
    with disk(tmp_path, "4m") as point:
        yield point


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return filler


def remount(point: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(point)], check=True, capture_output=True)


# spec: ST-2, CL-4
def test_a_full_disk_is_told_in_words_and_costs_nothing_that_was_acknowledged(small_disk: Path) -> None:
    with opened(small_disk / "store.db") as store:
        put(store, job("early"), job("running"))
        running = take(store, 2)[1]
        filler = fill(small_disk)
        with pytest.raises(StoreError, match=r"store\.db.*(full|could not be)"):
            put(store, *jobs(20, payload='"' + "x" * 100_000 + '"'))
        assert sorted(found.id for found in everything(store)) == ["early", "running"]
        filler.unlink()
        put(store, job("late"))
        assert end(store, running, Done()) == []
        assert pragma(store, "integrity_check") == "ok"
    with opened(small_disk / "store.db") as store:
        assert [found.id for found in everything(store)] == ["late", "running", "early"]
        assert state(store, "running") is State.DONE


# spec: ST-2, CL-4
def test_a_disk_that_fills_up_bit_by_bit_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    acknowledged: list[str] = []

    def until_full() -> None:
        for number in range(10_000):
            put(store, job(f"{number}", payload='"' + "x" * 5000 + '"'))
            acknowledged.append(f"{number}")

    with opened(small_disk / "store.db") as store:
        filler = small_disk / "filler"
        filler.write_bytes(bytes(2 << 20))
        with pytest.raises(StoreError, match=r"store\.db"):
            until_full()
        assert [found.id for found in reversed(everything(store))] == acknowledged
        filler.unlink()
        put(store, job("late"))
        assert pragma(store, "integrity_check") == "ok"
        assert len(everything(store)) == len(acknowledged) + 1


# spec: ST-2, CL-4
def test_a_store_cannot_be_made_on_a_full_disk_and_can_be_once_there_is_room(small_disk: Path) -> None:
    filler = fill(small_disk)
    why = refusal(small_disk / "store.db")
    assert "store.db" in why
    filler.unlink()
    with opened(small_disk / "store.db") as store:
        put(store, job("one"))


# spec: ST-2, CL-4
@pytest.mark.parametrize("create", [True, False])
def test_a_store_on_a_read_only_disk_is_refused_in_words_and_left_as_it_is(small_disk: Path, create: bool) -> None:
    with opened(small_disk / "store.db") as store:
        put(store, job("one"))
    before = snapshot(small_disk)
    remount(small_disk, "ro")
    why = refusal(small_disk / "store.db", create=create)
    assert "store.db" in why
    assert "ead-only" in why
    assert snapshot(small_disk) == before
    remount(small_disk, "rw")
    with opened(small_disk / "store.db") as store:
        assert record(store, "one").state is State.QUEUED
        assert take_one(store, holder=ME).id == "one"


# spec: ST-2, CL-4
def test_a_store_cannot_be_made_on_a_read_only_disk(small_disk: Path) -> None:
    remount(small_disk, "ro")
    assert "ead-only" in refusal(small_disk / "store.db")
    remount(small_disk, "rw")
