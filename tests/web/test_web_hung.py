"""A store that hangs: probes and refusals come in bounded time, and neither the event loop nor anybody else waits."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest
from webworld import Web, problem

from chargehand import clock
from chargehand.testing import eventually
from chargehand.web.threads import Cached, Overdue, ThreadPool


@contextmanager
def locked(web: Web) -> Generator[None]:
    """Somebody holds the store's write lock, and does not let go."""
    lock = os.open(f"{web.hand.path}-lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def test_while_the_store_hangs_only_who_needs_it_is_refused(web: Web) -> None:  # spec: HT-5 SE-3
    assert web.ask("GET", "/readyz").status_code == 200
    web.site.probe.forget()
    web.site.in_thread = ThreadPool(threads=2, waiting=1, limit=0.3)

    async def crowd() -> list[httpx.Response]:
        creating = [asyncio.create_task(web.asks("POST", "/api/v1/jobs", json={"crew": "plain"})) for _ in range(4)]
        ready = asyncio.create_task(web.asks("GET", "/readyz"))
        while not all(task.done() for task in (*creating, ready)):
            assert (await web.asks("GET", "/healthz")).status_code == 200  # the event loop goes on
            await asyncio.to_thread(lambda: None)  # and so do the application's own threads
            await asyncio.sleep(0.01)
        return [task.result() for task in (*creating, ready)]

    with locked(web):
        *refused, ready = web.run(crowd())
        for answer in refused:
            assert problem(answer, 503, "store-slow")
            assert answer.headers["retry-after"] == "1"
        assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
        assert str(web.hand.path) not in ready.text  # it is open to everybody
        assert web.ask("GET", "/readyz").status_code == 503  # at once: the first one still waits
        assert web.site.in_thread._running <= 2
    eventually(lambda: web.ask("GET", "/readyz").status_code == 200)
    # Who had begun was carried through, unheard; who had not was dropped.
    eventually(lambda: sum(count.queued for count in web.hand.counts()) == 2)


def test_a_store_that_cannot_be_written_is_not_ready(web: Web) -> None:  # spec: HT-5
    assert web.ask("GET", "/readyz").status_code == 200
    web.site.probe.forget()
    web.hand.path.rename(web.hand.path.with_suffix(".gone"))
    assert web.ask("GET", "/readyz").status_code == 503
    problem(web.ask("POST", "/api/v1/jobs", json={"crew": "plain"}), 503, "store-unusable")


def test_another_schema_is_not_ready(web: Web) -> None:  # spec: HT-5 ST-4
    with web.hand.transaction() as tx:
        tx.execute("INSERT INTO chargehand_schema VALUES (99, '', 0)")
    assert web.ask("GET", "/readyz").status_code == 503


def test_what_is_done_aside_comes_back_as_it_ended() -> None:
    async def calls() -> None:
        pool = ThreadPool(threads=2, waiting=0, limit=5)
        for _ in range(100):  # whoever has been answered is in nobody's way
            assert await asyncio.gather(pool(lambda: 7), pool(lambda: 8)) == [7, 8]
        with pytest.raises(ZeroDivisionError):
            await pool(lambda: 1 / 0)
        gate = threading.Event()
        waiting = [asyncio.create_task(pool(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overdue, match="too many"):
            await pool(lambda: 7)
        gate.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await pool(lambda: 7) == 7

    asyncio.run(calls())


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    async def calls() -> list[str]:
        done: list[str] = []
        begun, gate = threading.Event(), threading.Event()
        pool = ThreadPool(threads=1, waiting=5, limit=0.01)

        def work() -> None:
            done.append("begun")
            begun.set()
            gate.wait(20)

        first = asyncio.create_task(pool(work, 20))
        await asyncio.to_thread(begun.wait, 20)
        with pytest.raises(Overdue):
            await pool(lambda: done.append("not begun"))
        gate.set()
        await first
        await pool(lambda: done.append("last"), 20)
        return done

    assert asyncio.run(calls()) == ["begun", "last"]


def test_many_who_ask_at_once_are_one_question() -> None:
    async def calls() -> None:
        asked, now = 0, 0.0

        async def ask() -> int:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            if asked == 3:
                raise LookupError
            return asked

        cached = Cached(ask, 1.0, lambda: now)
        assert await asyncio.gather(*(cached.get() for _ in range(5))) == [1] * 5
        now = 1.0
        assert await cached.get() == 1
        now = 1.1
        assert await cached.get() == 2
        cached.forget()
        with pytest.raises(LookupError):
            await cached.get()
        assert await cached.get() == 4

    asyncio.run(calls())


def test_a_newer_answer_is_of_a_question_that_began_later_and_there_are_few() -> None:
    async def calls() -> None:
        asked, gate = 0, asyncio.Event()

        async def ask() -> int:
            nonlocal asked
            asked += 1
            number = asked
            await gate.wait()
            return number

        cached = Cached(ask, 60.0, clock.monotonic)
        first = asyncio.ensure_future(cached.get())
        while not asked:
            await asyncio.sleep(0)
        newer = [asyncio.ensure_future(cached.get_newer(0.02)) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        assert await first == 1
        assert await asyncio.gather(*newer) == [2] * 5  # the first had begun before
        assert await cached.get() == 2

    asyncio.run(calls())
