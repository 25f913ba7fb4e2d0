"""A thread that reads the store for jobs that ask for the results of others, and for callers that wait.

The thread exists only while it is needed. The main thread asks, and handles the answers: it never waits for the store.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from chargehand import log
from chargehand.errors import ChargehandError
from chargehand.store import Store

PATIENCE = 10.0
"""Seconds without a question after which the thread ends and closes the store."""

Read = Callable[[Store], Any]
Then = Callable[[Any], None]


class NotRead:
    """Why a read of the store has failed."""

    def __init__(self, why: str) -> None:
        self.why = why


class Lookups:
    """Reads the store in a thread. The main thread calls `ask`, and `handle` when `ready` is readable."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._inbox: SimpleQueue[tuple[Read, Then] | None] = SimpleQueue()
        self._outbox: deque[tuple[Then, Any]] = deque()
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ask(self, read: Read, then: Then) -> None:
        """Calls `read` in the thread, and `then` on the main thread with what it returned, or with NotRead."""
        with self._guard:
            self._inbox.put((read, then))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lookups", daemon=True)
                self._thread.start()

    def handle(self) -> None:
        """Handles the answers so far, on the main thread."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return
        while self._outbox:
            then, found = self._outbox.popleft()
            then(found)

    def stop(self, patience: float) -> None:
        """Ends the thread after the reads that were asked for, and waits so many seconds for it."""
        with self._guard:
            thread = self._thread
            self._inbox.put(None)
        if thread is not None:
            thread.join(patience)

    def _run(self) -> None:
        store: Store | None = None
        while (todo := self._next()) is not None:
            read, then = todo
            try:
                store = store or self._open()
                found = read(store)
            except Exception as error:
                if not isinstance(error, ChargehandError):
                    log.error("the store could not be read for a job or a caller", trace=True)
                found = NotRead(str(error) or type(error).__name__)
            self._outbox.append((then, found))
            os.eventfd_write(self.ready, 1)
        if store is not None:
            store.close()

    def _next(self) -> tuple[Read, Then] | None:
        """Returns the next question; None, and this thread is no longer the one that reads, if there is none."""
        try:
            todo = self._inbox.get(timeout=PATIENCE)
        except Empty:
            todo = None
        if todo is not None:
            return todo
        with self._guard:
            try:
                return self._inbox.get_nowait()
            except Empty:
                self._thread = None
                return None
