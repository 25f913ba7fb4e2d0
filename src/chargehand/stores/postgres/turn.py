from collections.abc import Callable
from typing import Any

from chargehand.model.batch import Batch, Result
from chargehand.model.records import Holder
from chargehand.stores.turn import turn


class Turns:
    """x"""

    def __init__(self, store: Any) -> None:
        self._store = store

    def turn(
        self, batch: Batch, holder: Holder, monotonic: Callable[[], float], waits: Callable[[Any], bool]
    ) -> Result:
        return turn(self._store, batch, holder, monotonic, waits)
