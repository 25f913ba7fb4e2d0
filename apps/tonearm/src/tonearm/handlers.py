"""Handlers of the light crews: scan folders, calibrate, write files. Must not import numpy or a decoder."""

import logging
from typing import Any

import msgspec

from chargehand import ChargehandError, GiveUp, Handler, Item, Job
from tonearm import catalogue, hearing, scan, written
from tonearm.errors import TonearmError
from tonearm.library import Library, home, shown
from tonearm.tags import Refused

_logger = logging.getLogger(__name__)


class Look(msgspec.Struct, frozen=True):
    """Payload of a job that scans a folder."""

    folder: int
    full: bool = False


class Count(msgspec.Struct, frozen=True):
    """Payload of a calibration job; `force` derives labels again in any case."""

    force: bool = False


class Scanner(Handler[Look, dict[str, Any]]):
    """Scans one folder per job."""

    def set_up(self) -> None:
        self.library = Library(home())

    def perform(self, job: Job[Look]) -> dict[str, Any]:
        folder = self.library.folder(job.payload.folder)
        if folder is None:
            raise GiveUp(f"folder {job.payload.folder} is no longer in the library")
        try:
            found = scan.scan(
                self.library,
                folder,
                full=job.payload.full,
                progress=lambda done, path: job.progress(done, stage="scan", detail=path[-200:]),
            )
        except TonearmError as error:
            raise GiveUp(str(error)) from error
        if catalogue.in_line(self.library, "", 1):
            wake("tag")
        wake_writers(self.library)
        return msgspec.to_builtins(found)

    def tear_down(self) -> None:
        self.library.close()


def wake(crew: str) -> None:
    """Makes a discovering crew look for jobs now, because it may be idle; it also looks by itself from time to time."""
    from tonearm import crews  # imported here: crews imports this module

    hand = crews.build().hand
    try:
        hand.wake(crew)
    except ChargehandError as error:  # for example, the node is being replaced
        _logger.warning("cannot wake %s: %s", crew, error)
    finally:
        hand.close()


def wake_writers(library: Library) -> None:
    """Wakes the write crew if a file waits for writing."""
    if written.is_waiting(library):
        wake("write")


class Calibrator(Handler[Count, dict[str, Any]]):
    """Calibrates, and derives labels again if necessary."""

    def set_up(self) -> None:
        self.library = Library(home())

    def perform(self, job: Job[Count]) -> dict[str, Any]:
        def tick(done: int, total: int, stage: str) -> None:
            job.progress(done, total, stage=stage)

        try:
            done = hearing.recalibrate(self.library, tick, force=job.payload.force)
        except TonearmError as error:  # the label file is invalid
            raise GiveUp(str(error)) from error
        wake_writers(self.library)
        return msgspec.to_builtins(done)

    def tear_down(self) -> None:
        self.library.close()


class Writer(Handler[None, str]):
    """Writes or cleans one requested file per job."""

    def set_up(self) -> None:
        self.library = Library(home())

    def discover(self, after: str | None, limit: int) -> list[Item]:
        start = int(after.split(".")[0]) if after else 0
        found = written.in_line(self.library, start, limit)
        return [Item(f"{number:012d}.{turn}", label=shown(path)) for number, turn, path in found]

    def perform(self, job: Job[None]) -> str:
        todo = written.task(self.library, int((job.item or "0").split(".")[0]))
        if todo is None:
            return "nothing left to do"
        outcome = written.perform(self.library, todo)
        if isinstance(outcome, Refused):
            raise GiveUp(f"{shown(todo.path)}: {outcome.reason}")
        return type(outcome).__name__.lower()

    def tear_down(self) -> None:
        self.library.close()
