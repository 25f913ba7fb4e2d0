"""The reading thread: it looks at the store for those who watch a node, beside the thread that does the work.

It exists only while somebody watches. Counting a million jobs takes a while, and neither claims nor deaths wait for it.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.live import bodies
from chargehand.live.bodies import StoreLook, StoreView
from chargehand.store import Store


class Reader:
    """`ask` and `take` are for the main thread; `ready` becomes readable with pictures."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._thread: threading.Thread | None = None
        self._inbox: SimpleQueue[StoreLook | None] = SimpleQueue()
        self._outbox: deque[tuple[StoreView, float]] = deque()
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ask(self, look: StoreLook) -> None:
        """Have a look; what was seen can be taken later."""
        if self._thread is None:
            self._inbox = SimpleQueue()
            self._thread = threading.Thread(target=self._run, args=(self._inbox,), name="reader", daemon=True)
            self._thread.start()
        self._inbox.put(look)

    def take(self) -> list[tuple[StoreView, float]]:
        """What was seen so far, each with how many seconds it took."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        found: list[tuple[StoreView, float]] = []
        while self._outbox:
            found.append(self._outbox.popleft())
        return found

    def rest(self, patience: float = 0.0) -> None:
        """Nobody watches any more: let go of the store, as soon as what was asked is done."""
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
                seen = bodies.take(store, look)
            except Exception as error:
                if not isinstance(error, ChargehandError):
                    log.error("the store could not be read for those who watch", trace=True)
                seen = StoreView(look=look, error=str(error))
            self._outbox.append((seen, clock.monotonic() - began))
            os.eventfd_write(self.ready, 1)
        if store is not None:
            store.close()
