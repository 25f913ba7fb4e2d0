"""An open SQLite connection with its file and its clock. It begins no transaction and takes no lock."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from chargehand.stores.rows import clean
from chargehand.stores.sqlite.errors import store_errors


class Database:
    """Runs reading statements and turns the engine's errors into the store's."""

    def __init__(
        self, path: Path, connection: Any, now_ms: Callable[[], int], use: AbstractContextManager[None]
    ) -> None:
        self.path, self.now_ms, self._use = path, now_ms, use
        self.connection = connection  # untyped: apsw's own types need Python 3.12

    def all(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns every row of a statement."""
        with store_errors(self.path), self._use:
            try:
                return self.connection.execute(sql, tuple(bindings)).fetchall()
            except UnicodeEncodeError:  # a text that is not UTF-8, such as an id from a command line: no row has it
                storable = tuple(clean(each) if isinstance(each, str) else each for each in bindings)
                return self.connection.execute(sql, storable).fetchall()
