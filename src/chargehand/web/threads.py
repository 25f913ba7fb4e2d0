"""Runs blocking calls in a small thread pool, apart from the event loop.

A store that hangs blocks only these threads, not the event loop and not the default executor of the application. They
are daemon threads, so that a hung store does not prevent the process from exiting.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from chargehand.errors import ChargehandError
from chargehand.system import forks

Answer = TypeVar("Answer")

IDLE = 5.0
"""Seconds after which an idle thread ends."""


class Overdue(ChargehandError):
    """A call did not return in time, or too many calls are waiting."""

    code = "store-slow"


class ThreadPool:
    """A pool of at most `threads` threads, with at most `waiting` queued calls and `limit` seconds for each call."""

    def __init__(self, threads: int = 8, waiting: int = 64, limit: float = 10.0) -> None:
        self._threads, self._waiting, self._limit = threads, waiting, limit
        self._start()
        forks.in_child(self._start)

    def _start(self) -> None:
        self._todo: SimpleQueue[_Call] = SimpleQueue()
        self._guard = threading.Lock()
        self._running = self._open = 0

    async def __call__(self, work: Callable[[], Answer], limit: float | None = None) -> Answer:
        """Returns or raises what `work` does. Raises Overdue after `limit` seconds; the call may still continue."""
        seconds = self._limit if limit is None else limit
        call = _Call(work)
        with self._guard:
            if self._open >= self._threads + self._waiting:
                raise Overdue("too many requests are waiting for the store, which answers slowly or not at all")
            self._open += 1
            needed = self._running < min(self._open, self._threads)
            self._running += needed
        self._todo.put(call)
        if needed:
            threading.Thread(target=self._run, name="chargehand-web", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                return await call.answer
        except TimeoutError:
            raise Overdue(f"the store did not answer within {seconds:g} s; the request may still take effect") from None

    def _run(self) -> None:
        while True:
            try:
                call = self._todo.get(timeout=IDLE)
            except Empty:
                with self._guard:
                    if self._todo.empty():
                        self._running -= 1
                        return
                continue
            report = call.run()
            with self._guard:
                self._open -= 1  # before the result is set: a finished call must not count as open
            report()


class _Call:
    """A call to be run by a thread, and the future of its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._context = work, contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> Callable[[], None]:
        """Runs the call. Returns a function that sets the result of the future."""
        if self.answer.cancelled():  # the caller no longer waits, and the call has not started
            return lambda: None
        try:
            return partial(self._report, self.answer.set_result, self._context.run(self._work))
        except Exception as error:
            return partial(self._report, self.answer.set_exception, error)

    def _report(self, setter: Callable[[Any], None], value: Any) -> None:
        def done() -> None:
            if not self.answer.done():
                setter(value)

        try:
            self._loop.call_soon_threadsafe(done)
        except RuntimeError:
            return  # the event loop is closed: nobody waits for the result


class Cached:
    """Caches the result of `ask` for `age` seconds; at most one call of `ask` runs at a time."""

    def __init__(self, ask: Callable[[], Any], age: float, clock: Callable[[], float]) -> None:
        self._ask, self._age, self._clock = ask, age, clock
        self._answer: Any = None
        self._at: float | None = None
        self._asking: asyncio.Task[Any] | None = None

    def forget(self) -> None:
        """Invalidates the cached result."""
        self._at = None

    async def get(self) -> Any:
        """Returns the cached result, or calls `ask` if it is too old. Raises what `ask` raises."""
        if self._at is not None and self._clock() - self._at <= self._age:
            return self._answer
        return await self._renewed()

    async def get_newer(self, least_pause: float) -> Any:
        """Returns the result of a call of `ask` that began after this one. Such calls begin at most once every
        `least_pause` seconds, however many ask for them. Raises what `ask` raises."""
        now = self._clock()
        while self._at is None or self._at < now:
            if self._at is not None and (pause := self._at + least_pause - self._clock()) > 0:
                await asyncio.sleep(pause)
            elif not self._is_asking():
                return await self._renewed()
            else:
                await self._renewed()  # it may have begun before this call
        return self._answer

    def _is_asking(self) -> bool:
        asking = self._asking
        return asking is not None and not asking.done() and asking.get_loop() is asyncio.get_running_loop()

    async def _renewed(self) -> Any:
        if self._asking is None or not self._is_asking():
            self._asking = asyncio.create_task(self._renew())
        return await asyncio.shield(self._asking)

    async def _renew(self) -> Any:
        at = self._clock()
        self._answer = await self._ask()
        self._at = at
        return self._answer
