"""The smallest possible handler."""

import os
from typing import Any

from chargehand import Handler, Job


class Bare(Handler[Any, int]):
    def perform(self, job: Job[Any]) -> int:
        return os.getpid()
