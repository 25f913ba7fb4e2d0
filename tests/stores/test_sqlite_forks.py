"""Processes that are forked while this one uses a store, and writers that meet a lock which is not Chargehand's."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import apsw
import pytest
from builders import job, put, state

from chargehand import clock
from chargehand.errors import StoreBusy
from chargehand.model.job import State
from chargehand.stores.sqlite import forks
from chargehand.stores.sqlite import store as sqlite_store
from chargehand.stores.sqlite.store import SqliteStore

PATIENCE = 20.0


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "LONGEST_DELAY", 0.2)


class Fork:
    """A forked process that runs an action and reports its result or error as text."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what is tested
            self.pid = os.fork()
        if not self.pid:
            try:
                text = str(action())
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(writing, text.encode())
            os._exit(0)
        os.close(writing)

    def report(self) -> str:
        """Returns the text, or fails if there is none in time."""
        ready, _, _ = select.select([self._reading], [], [], PATIENCE)
        if not ready:
            os.kill(self.pid, signal.SIGKILL)
        text = os.read(self._reading, 1 << 16).decode()
        os.close(self._reading)
        os.waitpid(self.pid, 0)
        assert ready, "the forked process hangs"
        return text


def written(path: Path, job_id: str) -> str:
    """Opens the store anew and writes a job."""
    with_store = SqliteStore(path)
    put(with_store, job(job_id))
    with_store.close()
    return "written"


@contextmanager
def elsewhere(action: Callable[[threading.Event], None]) -> Generator[threading.Event]:
    """Runs an action in a thread, which has set the event when the block begins; the block's end clears it."""
    event = threading.Event()
    thread = threading.Thread(target=action, args=(event,))
    thread.start()
    assert event.wait(PATIENCE)
    try:
        yield event
    finally:
        event.clear()
        thread.join()


def transact(path: Path, job_id: str) -> Callable[[threading.Event], None]:
    """Returns an action that is in a transaction until the event is cleared."""

    def action(event: threading.Event) -> None:
        store = SqliteStore(path)
        with store.transaction() as tx:
            tx.jobs.enqueue([job(job_id)])
            event.set()
            while event.is_set():
                clock.sleep(0.005)
        store.close()

    return action


# spec: ST-2
def test_a_process_forked_while_another_thread_writes_can_write(path: Path) -> None:
    waits: list[float] = []

    def write(event: threading.Event) -> None:
        store = SqliteStore(path)
        while not waits or event.is_set():
            began = clock.monotonic()
            put(store, job(f"parent {len(waits)}"))
            waits.append(clock.monotonic() - began)
            if len(waits) == 1:
                event.set()
        store.close()

    with elsewhere(write):
        for n in range(30):
            assert Fork(lambda n=n: written(path, f"child {n}")).report() == "written"
    assert max(waits) < 1.0


# spec: ST-2
def test_a_forked_process_holds_locks_of_its_own(path: Path) -> None:
    """Otherwise a checkpoint or the last close of another process would change the file under its reader."""
    store = SqliteStore(path)
    inode = os.stat(path).st_ino

    def locks() -> bool:
        mine = SqliteStore(path)
        put(mine, job("one"))
        found = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any(w[1] == "POSIX" and w[4] == str(os.getpid()) and w[5].endswith(f":{inode}") for w in found)

    assert Fork(locks).report() == "True"
    assert state(store, "one") is State.QUEUED
    put(store, job("two"))
    store.close()


# spec: ST-2
def test_a_process_forked_in_a_long_transaction_is_refused_in_words(path: Path) -> None:
    SqliteStore(path).close()
    with elsewhere(transact(path, "one")):
        began = clock.monotonic()
        refused = Fork(lambda: written(path, "two")).report()
        assert clock.monotonic() - began < 2.0
    assert refused.startswith("StoreError")
    assert f"forked while process {os.getpid()} was in a transaction" in refused
    assert "spawn" in refused
    store = SqliteStore(path)
    assert state(store, "one") is State.QUEUED  # the transaction of the parent was not disturbed
    assert Fork(lambda: written(path, "three")).report() == "written"
    store.close()


# spec: ST-2
def test_the_refusal_is_inherited(path: Path) -> None:
    with elsewhere(transact(path, "one")):
        child = Fork(lambda: Fork(lambda: written(path, "two")).report()).report()
    assert "forked while process" in child


# spec: ST-2
def test_a_process_forked_inside_a_transaction_neither_uses_nor_ends_it(path: Path) -> None:
    store = SqliteStore(path)
    lock = os.open(f"{path}-lock", os.O_RDWR)
    block = store.transaction()
    tx = block.__enter__()
    tx.jobs.enqueue([job("one")])
    actions: list[Callable[[], object]] = [
        lambda: tx.execute("SELECT 1"),
        lambda: block.__exit__(None, None, None),
        lambda: store.jobs.get("one"),
    ]
    for action in actions:
        assert f"belongs to process {os.getpid()}" in Fork(action).report()
    assert Fork(lambda: block.__exit__(KeyError, KeyError("left"), None)).report() == "None"  # it goes on
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no child has released it
    block.__exit__(None, None, None)
    assert state(store, "one") is State.QUEUED
    os.close(lock)
    store.close()


# spec: ST-2
def test_a_forked_process_does_not_keep_the_write_lock(path: Path) -> None:
    """A child that outlives a parent killed in a transaction would lock out everybody."""
    store = SqliteStore(path)
    assert Fork(lambda: [f for f in _open_files() if f.startswith(str(path))]).report() == "[]"
    store.close()


def _open_files() -> list[str]:
    return [
        os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")
    ]


# spec: ST-2
def test_a_fork_beside_a_connection_that_is_not_ours_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    foreign = apsw.Connection(str(path))
    foreign.execute("SELECT 1 FROM chargehand_job").fetchall()
    assert "another engine" in Fork(lambda: written(path, "one")).report()
    foreign.close()
    store.close()


# locks of other programs


@contextmanager
def locked_by_another_program(path: Path) -> Generator[int]:
    """Holds SQLite's lock in another process, without Chargehand's; yields its pid."""
    to_child, from_parent = os.pipe()
    holding, held = os.pipe()

    def hold() -> None:
        os.close(from_parent)
        connection = apsw.Connection(str(path))
        connection.execute("BEGIN IMMEDIATE")
        os.write(held, b"x")
        os.read(to_child, 1)
        connection.execute("ROLLBACK")

    fork = Fork(hold)
    os.read(holding, 1)
    try:
        yield fork.pid
    finally:
        os.close(from_parent)
        fork.report()
        for descriptor in (to_child, holding, held):
            os.close(descriptor)


# spec: ST-2
def test_a_writer_that_waits_for_sqlites_lock_does_not_keep_the_write_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LONGEST_HOLD", 0.1)
    store = SqliteStore(path)
    writer = threading.Thread(target=put, args=(store, job("one")))
    with locked_by_another_program(path), open(f"{path}-lock") as lock:
        writer.start()
        for _ in range(3):  # the writer takes the lock again and again, and so does another
            began = clock.monotonic()
            while _is_free(lock):
                clock.sleep(0.001)
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert clock.monotonic() - began < 1.0
            fcntl.flock(lock, fcntl.LOCK_UN)
    writer.join()
    assert state(store, "one") is State.QUEUED
    store.close()


def _is_free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


# spec: ST-2
def test_an_error_names_the_program_that_holds_sqlites_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "LONGEST_HOLD", 0.05)
    monkeypatch.setattr(sqlite_store, "LONGEST_WAIT", 0.2)
    store = SqliteStore(path)
    with locked_by_another_program(path) as pid, pytest.raises(StoreBusy, match=rf"by process {pid} \("):
        put(store, job("one"))
    store.close()


IMPORTER = """
import os, signal, sys, threading
from chargehand import clock
from chargehand.stores import open_store

began = threading.Event()

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "chargehand.stores.sqlite.store":
            began.set()
            clock.sleep(0.3)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=open_store, args=(sys.argv[1],))
thread.start()
began.wait()
pid = os.fork()
if not pid:
    signal.alarm(5)
    open_store(sys.argv[1]).close()
    os._exit(7)
thread.join()
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
"""


# spec: ST-2
def test_a_process_forked_while_a_thread_opens_the_first_store_can_open_it(path: Path) -> None:
    """The child of a process in which a thread imports a module would wait forever for the lock of that module."""
    assert subprocess.run([sys.executable, "-c", IMPORTER, str(path)], check=False).returncode == 7
