"""A thread that waits for notifications of other processes, so that the node learns at once what they have written.

Only for stores that notify. If it cannot wait, the node finds everything by polling.
"""

import os
import select
import threading
from collections.abc import Callable

from chargehand import clock, log
from chargehand.errors import StoreError
from chargehand.model.wakeups import Wakeup
from chargehand.store import Listener

NO_LISTEN = "no-listen"
"""The code of the error that a server, or a pooler before it, does not pass on notifications."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds between two attempts to connect."""
LASTING = 60.0
"""Seconds after which a connection has lasted: the next attempt follows at once."""


class Listening:
    """Keeps a listener connected. The main thread calls `take`; `ready` becomes readable with a notification."""

    def __init__(self, open_listener: Callable[[Callable[[], None]], Listener]) -> None:
        self._open = open_listener
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._interrupt = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._news: set[Wakeup] = set()
        self._stopping = False
        self.connected = False
        """Whether notifications arrive."""
        self.why: str | None = None
        """Why they do not."""

    def start(self) -> None:
        """Connect, as soon as the store is open."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        os.eventfd_write(self._interrupt, 1)

    def take(self) -> set[Wakeup]:
        """Returns what was reported since the last call."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return set()
        found: set[Wakeup] = set()
        while self._news:
            found.add(self._news.pop())
        return found

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping:
            began = clock.monotonic()
            try:
                listener = self._open(self._stale)
            except StoreError as error:
                self._refused(error)
                if error.code == NO_LISTEN:
                    pause = LONGEST_PAUSE
            except Exception:
                log.error("notifications cannot be received: unexpected error", trace=True)
                return
            else:
                self.connected, self.why = True, None
                self._tell({Wakeup.JOBS, Wakeup.ORDERS})  # whatever was reported before is lost
                self._listen(listener)
                self.connected = False
                self._tell(set())
            lasted = clock.monotonic() - began >= LASTING
            pause = 0.0 if lasted else min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._wait(pause)

    def _refused(self, error: StoreError) -> None:
        if error.code == NO_LISTEN and str(error) != self.why:
            log.warning("no notifications arrive: jobs of other processes are found by polling", why=error)
        self.why = str(error)

    def _listen(self, listener: Listener) -> None:
        """Waits for notifications until the connection is lost."""
        try:
            poller = select.poll()
            poller.register(listener, select.POLLIN)
            poller.register(self._interrupt, select.POLLIN)
            while not self._stopping:
                poller.poll()
                self._rest()
                found = listener.receive()
                if found:
                    self._tell(found)
        except StoreError as error:
            self.why = str(error)
        finally:
            listener.close()

    def _tell(self, found: set[Wakeup]) -> None:
        self._news |= found
        os.eventfd_write(self.ready, 1)

    def _stale(self) -> None:
        """Called by any thread: the connection must be replaced."""
        os.eventfd_write(self._interrupt, 1)

    def _rest(self) -> None:
        """Forgets that it was interrupted."""
        try:
            os.eventfd_read(self._interrupt)
        except BlockingIOError:
            return

    def _wait(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._interrupt, select.POLLIN)
        if not self._stopping:
            poller.poll(seconds * 1000)
        self._rest()
