"""What a job asks its node: the results of the jobs that it followed, page by page.

The answer arrives on the work socket, which the main thread reads between jobs. While a job is performed, whoever asks
reads it. Only workers whose jobs ask load this module.
"""

from itertools import count
from typing import TYPE_CHECKING, Any

from chargehand import errors
from chargehand.protocol.frame import encode

if TYPE_CHECKING:
    from chargehand.worker.context import Context

FIRST_PAGE, LARGEST_PAGE = 32, 1000
"""How many results are read at a time: few until it is known how large they are."""
PAGE_BYTES = 1 << 20
"""About how many bytes a page has."""

_numbers = count(1)


class Pages:
    """Reads the results of the jobs of one queue that a job followed. Implements `handler.ResultPages`."""

    def __init__(self, context: "Context", queue: str) -> None:
        self._context, self._worker, self._queue = context, context.worker, queue
        self._limit = FIRST_PAGE
        self._ended = False

    def page(self, after: tuple[int, int] | None) -> list[dict[str, Any]]:
        """Returns the page that follows the predecessor with this `nr` and `seq`."""
        return [] if self._ended else self._read(self._worker.ask(self._context, *self._question(after)))

    async def page_async(self, after: tuple[int, int] | None) -> list[dict[str, Any]]:
        """Returns the same without blocking the event loop."""
        return [] if self._ended else self._read(await self._worker.ask_async(self._context, *self._question(after)))

    def _question(self, after: tuple[int, int] | None) -> tuple[int, bytes]:
        self._worker.not_detached("job.results()", "pass the results to the processes that the job forks")
        number = next(_numbers)
        body = {**self._context.about, "number": number, "queue": self._queue, "after": after, "limit": self._limit}
        return number, encode("RESULTS", body)

    def _read(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        if answer.get("why") is not None:
            raise errors.StoreError(f"the results of predecessors could not be read: {answer['why']}")
        ends: list[dict[str, Any]] = answer["ends"]
        self._ended = not answer["more"]
        if ends:
            each = max(1, answer["bytes"] // len(ends))
            self._limit = max(1, min(LARGEST_PAGE, PAGE_BYTES // each))
        return ends
