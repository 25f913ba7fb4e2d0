"""Blocking calls, done beside the event loop in a few threads of our own.

A store that hangs costs these threads and no others: the event loop goes on, and so does the application's default
executor. The threads are daemons, so that a hung store does not keep the process from ending.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from chargehand.errors import ChargehandError

Answer = TypeVar("Answer")

IDLE = 5.0
"""Seconds after which a thread that has nothing to do ends."""


class Overdue(ChargehandError):
    """What was asked for did not come in time, or too many wait already."""


class Aside:
    """So many threads, so many that may wait for one, so many seconds for each."""

    def __init__(self, threads: int = 8, waiting: int = 64, limit: float = 10.0) -> None:
        self._threads, self._waiting, self._limit = threads, waiting, limit
        self._todo: SimpleQueue[_Errand] = SimpleQueue()
        self._guard = threading.Lock()
        self._running = self._open = 0

    async def __call__(self, work: Callable[[], Answer], limit: float | None = None) -> Answer:
        """What the work returns or raises; Overdue after so many seconds. What has begun then goes on unheard."""
        seconds = self._limit if limit is None else limit
        errand = _Errand(work)
        with self._guard:
            if self._open >= self._threads + self._waiting:
                raise Overdue("too many requests wait for the store, which answers slowly or not at all")
            self._open += 1
            needed = self._running < min(self._open, self._threads)
            self._running += needed
        self._todo.put(errand)
        if needed:
            threading.Thread(target=self._run, name="chargehand-web", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                return await errand.answer
        except TimeoutError:
            raise Overdue(f"the store did not answer within {seconds:g} s; what was asked may still be done") from None

    def _run(self) -> None:
        while True:
            try:
                errand = self._todo.get(timeout=IDLE)
            except Empty:
                with self._guard:
                    if self._todo.empty():
                        self._running -= 1
                        return
                continue
            tell = errand.run()
            with self._guard:
                self._open -= 1  # before it is told: whoever has been answered does not count any more
            tell()


class _Errand:
    """One call on its way to a thread and back."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._context = work, contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> Callable[[], None]:
        """Do it; what is returned tells how it ended."""
        if self.answer.cancelled():  # nobody waits for it any more, and it has not begun
            return lambda: None
        try:
            return partial(self._tell, self.answer.set_result, self._context.run(self._work))
        except Exception as error:
            return partial(self._tell, self.answer.set_exception, error)

    def _tell(self, tell: Callable[[Any], None], what: Any) -> None:
        def done() -> None:
            if not self.answer.done():
                tell(what)

        try:
            self._loop.call_soon_threadsafe(done)
        except RuntimeError:
            return  # the server is gone, and with it whoever asked


class Cached:
    """The newest answer to a question that many ask: asked once at a time, and believed for so long."""

    def __init__(self, ask: Callable[[], Any], age: float, clock: Callable[[], float]) -> None:
        self._ask, self._age, self._clock = ask, age, clock
        self._answer: Any = None
        self._at: float | None = None
        self._asking: asyncio.Task[Any] | None = None

    def forget(self) -> None:
        """Whatever it was may have changed."""
        self._at = None

    async def get(self) -> Any:
        """The answer, no older than that; or what the asking raised."""
        if self._at is not None and self._clock() - self._at <= self._age:
            return self._answer
        if self._asking is None or self._asking.done() or self._asking.get_loop() is not asyncio.get_running_loop():
            self._asking = asyncio.create_task(self._renew())
        return await asyncio.shield(self._asking)

    async def _renew(self) -> Any:
        at = self._clock()
        self._answer = await self._ask()
        self._at = at
        return self._answer
