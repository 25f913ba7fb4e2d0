"""The handler of the tests with several nodes that finds its work: the files of a folder. Keeps `look PID`."""

import os
from typing import Any

from scripted_handlers import write

from chargehand import Handler, Job


class Finder(Handler[Any, Any]):
    """Finds the files of a folder, and deletes each."""

    def discover(self, after: str | None, limit: int) -> Any:
        folder = os.environ["TEST_FOUND"]
        write(f"{folder}.ledger", "look", os.getpid())
        return [name for name in sorted(os.listdir(folder)) if name > (after or "")][:limit]

    def perform(self, job: Job[Any]) -> Any:
        os.remove(os.path.join(os.environ["TEST_FOUND"], job.item or ""))
