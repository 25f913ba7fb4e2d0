"""A handler that holds the interpreter in C code until it is told to stop."""

import mmap
from collections import deque
from functools import partial
from operator import getitem
from typing import Any

from chargehand import Job
from chargehand.testing.faults import Faulty

STOP = 1


class Burning(Faulty):
    """Performs the payload's fault; before, it uses CPU in C code until the first byte of the file `burn` is STOP."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        if "burn" in job.payload:
            with open(job.payload["burn"], "r+b") as file, mmap.mmap(file.fileno(), 1) as memory:
                burn_in_c(memory)
        return super().perform(job)


def burn_in_c(memory: mmap.mmap) -> None:
    """Returns when the first byte is STOP. Every part is implemented in C: the interpreter never switches threads."""
    deque(iter(partial(getitem, memory, 0), STOP), maxlen=0)
