"""The sleep of the store thread of an idle node: who wakes it, and that nobody's write is missed."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from chargehand.model.batch import Batch, Request, Result
from chargehand.model.job import NewJob
from chargehand.model.records import CrewRow, Holder, NodeAbout, Retention
from chargehand.node import store_thread
from chargehand.node.doze import Doze
from chargehand.node.store_thread import News, OthersWrote, StoreThread
from chargehand.processes import inotify
from chargehand.stores.location import Location
from chargehand.stores.sqlite.store import SqliteStore
from chargehand.testing import eventually


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "log"
    found.write_bytes(b"before")
    return found


def slept(doze: Doze) -> Thread:
    """Sleeps in another thread, which ends with the sleep."""
    thread = Thread(target=doze.sleep, args=(60.0,), daemon=True)
    thread.start()
    return thread


def test_a_write_ends_the_sleep_and_an_earlier_one_does_not(file: Path) -> None:
    doze = Doze(file)
    assert doze.begin()
    file.write_bytes(b"the thread's own")
    assert doze.begin()
    sleeper = slept(doze)
    sleeper.join(0.05)
    assert sleeper.is_alive(), "what was written before it began is forgotten"
    file.write_bytes(b"another's")
    sleeper.join(10)
    assert not sleeper.is_alive()


def test_a_call_before_the_sleep_ends_it(file: Path) -> None:
    doze = Doze(file)
    assert doze.begin()
    doze.rouse()
    doze.sleep(60)
    doze.sleep(0)


def test_a_file_that_was_replaced_is_watched_again(file: Path) -> None:
    doze = Doze(file)
    assert doze.begin()
    file.unlink()
    assert not doze.begin(), "there is nothing to watch"
    file.write_bytes(b"new")
    assert doze.begin()
    sleeper = slept(doze)
    file.write_bytes(b"newer")
    sleeper.join(10)
    assert not sleeper.is_alive()


def test_without_watches_the_thread_looks_by_itself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(paths: object, what: int) -> int:
        raise OSError("the user has no more watches")

    monkeypatch.setattr(inotify, "watch", no_more)
    assert not Doze(file).begin()


class Watching(SqliteStore):
    """Counts how often it is asked for the writes of others."""

    asked = 0

    def changed(self, *, again: bool = False) -> bool:
        self.asked += again
        return super().changed(again=again)


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StoreThread, Watching]]:
    """A store thread with nothing to do, and its store."""
    monkeypatch.setattr(store_thread, "WATCH_EVERY", 0.02)
    made: list[Watching] = []

    def opened() -> Watching:
        made.append(Watching(tmp_path / "store.db", tend=True))
        return made[0]

    location = Location(tmp_path / "store.db")
    crew = CrewRow(name="do", queue="q", handler="", workers=1, max_attempts=1, timeout_ms=None)
    thread = StoreThread(
        opened, Holder("n", "1"), [crew], NodeAbout(), Retention(), (), True, dict, lambda _: True,
        written=location.written,
    )  # fmt: skip
    thread.watch_every = 0.02
    thread.start()
    thread.submit(Batch(poll=True))  # as the main thread does: what was written before is known
    eventually(lambda: thread.doze is not None and thread.doze.asleep, what="the thread sleeps")
    thread.take()
    yield thread, made[0]
    thread.stop()
    thread.join(10)
    assert not thread.is_alive()
    os.close(thread.ready)


def test_while_nobody_writes_the_store_is_not_read(idle: tuple[StoreThread, Watching]) -> None:
    thread, store = idle
    before = store.asked
    thread.join(0.3)  # fifteen intervals
    assert store.asked == before
    assert thread.take() == []


def test_the_write_of_another_process_is_told(idle: tuple[StoreThread, Watching], tmp_path: Path) -> None:
    thread, _ = idle
    other, heard = SqliteStore(tmp_path / "store.db"), list[News]()
    with other.transaction() as tx:
        tx.jobs.enqueue([NewJob(id="one", queue="q")])
    other.close()
    eventually(lambda: heard.extend(thread.take()) or heard, what="the write is told")
    assert heard[0] == OthersWrote()


def test_a_batch_ends_the_sleep_and_it_sleeps_again(idle: tuple[StoreThread, Watching]) -> None:
    thread, store = idle
    for number in range(20):
        thread.submit(Batch(requests=(Request(1, (NewJob(id=str(number), queue="q"),)),)))
        (news,) = eventually(thread.take, what="the result")
        assert isinstance(news, Result)
        eventually(lambda: thread.doze is not None and thread.doze.asleep, what="the thread sleeps again")
    assert len(store.jobs.waiting()) == 1
