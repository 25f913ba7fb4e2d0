"""The connection of a node that waits for notifications (LISTEN). Nothing depends on it: a node polls as well.

What is sent is in `session`; when, and what a node does then, is decided in `model.wakeups`.
"""

from collections.abc import Callable

import psycopg

from chargehand.errors import StoreError
from chargehand.model.wakeups import Wakeup
from chargehand.stores.postgres import driver, statements
from chargehand.stores.postgres.address import Address
from chargehand.stores.postgres.errors import described
from chargehand.stores.postgres.session import line_of

# The connection is idle all the time.
_SETTINGS = {"statement_timeout": "5s", "idle_session_timeout": "0"}
_SQL = statements.load("store")
_KNOWN = {str(each): each for each in Wakeup}


class PostgresListener:
    """Implements `chargehand.store.Listener`."""

    def __init__(self, address: Address, stale: Callable[[], None]) -> None:
        """`stale` is called, in any thread, when another connection of this process has lost the server: `receive`
        raises then. Raises StoreError if there is no connection to be had, with the code `no-listen` behind a pooler
        and if LISTEN is refused."""
        self._address, self._line = address, line_of(address)
        self._losses, self._stale = self._line.losses, stale
        opened = driver.connect(address, _SETTINGS)
        self._connection = opened.connection
        try:
            if opened.pooled:
                raise StoreError("a pooler does not pass on notifications", "no-listen")
            ((channel,),) = self._connection.execute(_SQL["channel"]).fetchall()
            self._connection.execute(f"LISTEN {channel}".encode(), prepare=False)
        except psycopg.Error as error:
            self._connection.close()
            raise StoreError(f"LISTEN is refused: {described(error, address)}", "no-listen") from error
        except BaseException:
            self._connection.close()
            raise
        self._line.watchers.append(stale)

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> set[Wakeup]:
        if self._losses != self._line.losses:
            raise StoreError(f"the server of {self._address.shown} was lost, or replaced", "server-gone")
        found: set[Wakeup] = set()
        try:
            self._connection.pgconn.consume_input()
            while (notification := self._connection.pgconn.notifies()) is not None:
                kind = _KNOWN.get(notification.extra.decode(errors="replace"))
                found.update(Wakeup if kind is None else (kind,))  # a later version may know more kinds
        except psycopg.Error as error:
            self._line.lost()
            raise described(error, self._address) from error
        return found

    def close(self) -> None:
        if self._stale in self._line.watchers:
            self._line.watchers.remove(self._stale)
        self._connection.close()
