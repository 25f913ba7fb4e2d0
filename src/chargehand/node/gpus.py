"""Reads the GPUs of this machine in a thread, because NVIDIA's tool may take seconds, or hang with its driver.

The thread exists only if a crew needs GPUs, and reads only while such a worker runs or is due to start.
"""

import os
import threading
from collections import deque
from queue import SimpleQueue

from chargehand import clock, log
from chargehand.model.fleet.cards import VISIBLE, Reading, size
from chargehand.model.fleet.fleet import Fleet
from chargehand.processes.nvidia import Tool

EVERY = 5.0
"""Seconds between two readings."""
NEVER = float("inf")


class Gpus:
    """Reads the GPUs. The main thread calls `due`, `ask` and `take`; `ready` becomes readable with a result."""

    def __init__(self, tool: Tool, fleet: Fleet) -> None:
        self._tool, self._fleet = tool, fleet
        self._wanted = any(terms.gpus is not None for terms in fleet.crews.values())
        self._inbox: SimpleQueue[None] = SimpleQueue()
        self._outbox: deque[Reading] = deque()
        self._thread: threading.Thread | None = None
        self._look_at = 0.0
        self._busy = False
        self._known: tuple[object, ...] | None = None
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def due(self) -> float:
        """Returns when the next reading is to be asked for."""
        if self._busy or not self._wanted:
            return NEVER
        return 0.0 if self._fleet.gpus_unread else self._look_at

    def ask(self, now: float) -> None:
        """Read the GPUs, for the first time or if a worker uses or needs one; `take` returns the result later."""
        self._look_at = now + EVERY
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
            self._thread.start()
        elif not self._fleet.gpus_unread and not self._fleet.uses_gpus():
            return
        self._busy = True
        self._inbox.put(None)

    def take(self) -> list[Reading]:
        """Returns the results so far, and logs which GPUs were found if that has changed."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        found: list[Reading] = []
        while self._outbox:
            found.append(self._outbox.popleft())
            self._busy = False
            self._tell(found[-1])
        return found

    def stop(self) -> None:
        """End a tool that is still running: no process outlives the node."""
        self._tool.stop()

    def _tell(self, reading: Reading) -> None:
        known = (*(card.uuid for card in reading.cards), reading.why)
        if known == self._known:
            return
        self._known = known
        if reading.cards:
            cards = ", ".join(f"{card.title}: {size(card.memory or 0)}" for card in reading.cards)
            log.info("GPUs found", gpus=cards)
        else:
            log.warning("no GPUs could be read", why=reading.why)

    def _run(self) -> None:
        while True:
            self._inbox.get()
            try:
                reading = self._tool.read(os.environ.get(VISIBLE))
            except Exception as error:
                log.error("the GPUs could not be read", trace=True)
                reading = Reading(at=clock.monotonic(), why=str(error))
            self._outbox.append(reading)
            os.eventfd_write(self.ready, 1)
