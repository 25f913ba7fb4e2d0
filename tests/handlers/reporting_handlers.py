"""Handlers that report their environment, print lines, or crash while they load."""

import logging
import os
import sys
from pathlib import Path
from typing import Any

from chargehand import Handler, Job
from chargehand.settings.plan import THREAD_LIMITS, THREADS


class Mirror(Handler[Any, dict[str, Any]]):
    """Says who it is and what it finds in its environment."""

    def perform(self, job: Job[Any]) -> dict[str, Any]:
        names = (THREADS, *THREAD_LIMITS, *(job.payload or ()))
        return {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}


class Talker(Handler[dict[str, Any], None]):
    """Prints the payload's lines."""

    def perform(self, job: Job[dict[str, Any]]) -> None:
        for text in job.payload["lines"]:
            sys.stdout.write(text + "\n")
        sys.stdout.flush()


class Recorder(Handler[dict[str, Any], None]):
    """Logs a record with the payload's fields, and the exception of a failed step."""

    def perform(self, job: Job[dict[str, Any]]) -> None:
        try:
            {}["missing"]
        except KeyError:
            logging.getLogger("songs").exception("step %d failed", 3, extra=job.payload)


class Fragile(Handler[Any, str]):
    """Crashes in C code while it loads, until the file that TEST_MENDED names is there."""

    def set_up(self) -> None:
        if not Path(os.environ["TEST_MENDED"]).exists():
            from chargehand.testing.faults_deeds import segfault

            segfault()

    def perform(self, job: Job[Any]) -> str:
        return "well"
