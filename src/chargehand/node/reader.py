"""A thread that reads the store for subscribers, beside the store thread that claims and settles.

The thread exists only while it is needed: for subscribers, and now and then for the past of the charts. Counting a
million jobs takes a while; claims do not wait for it.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.live import store_view
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.store import Store


class Reader:
    """Reads the store in a thread. The main thread calls `ask` and `take`; `ready` becomes readable with a result."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._thread: threading.Thread | None = None
        self._inbox: SimpleQueue[StoreLook | None] = SimpleQueue()
        self._outbox: deque[tuple[StoreView, float]] = deque()
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ask(self, look: StoreLook) -> None:
        """Read the store; `take` returns the result later."""
        if self._thread is None:
            self._inbox = SimpleQueue()
            self._thread = threading.Thread(target=self._run, args=(self._inbox,), name="reader", daemon=True)
            self._thread.start()
        self._inbox.put(look)

    def take(self) -> list[tuple[StoreView, float]]:
        """Returns the results so far, each with the seconds that it took."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        found: list[tuple[StoreView, float]] = []
        while self._outbox:
            found.append(self._outbox.popleft())
        return found

    def rest(self, patience: float = 0.0) -> None:
        """End the thread and close the store after the reads that were asked for: no subscriber is left."""
        if self._thread is not None:
            self._inbox.put(None)
            if patience:
                self._thread.join(patience)
            self._thread = None

    def _run(self, inbox: "SimpleQueue[StoreLook | None]") -> None:
        store: Store | None = None
        while (look := inbox.get()) is not None:
            began = clock.monotonic()
            try:
                store = store or self._open()
                seen = store_view.take(store, look)
            except Exception as error:
                if not isinstance(error, ChargehandError):
                    log.error("the store could not be read for subscribers", trace=True)
                seen = StoreView(look=look, error=str(error))
            self._outbox.append((seen, clock.monotonic() - began))
            os.eventfd_write(self.ready, 1)
        if store is not None:
            store.close()
