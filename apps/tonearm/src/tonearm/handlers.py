"""What the light crews do: look through folders, count scores, write files. Imported in workers; nothing heavy here."""

from typing import Any

import msgspec

from chargehand import GiveUp, Handler, Item, Job
from tonearm import hearing, scan, written
from tonearm.errors import TonearmError
from tonearm.library import Library, home, shown
from tonearm.tags import Refused


class Look(msgspec.Struct, frozen=True):
    """Look through a folder."""

    folder: int
    full: bool = False


class Count(msgspec.Struct, frozen=True):
    """Count all scores anew; `force`: derive labels again whatever comes of it."""

    force: bool = False


class Scanner(Handler[Look, dict[str, Any]]):
    """Looks through one folder a job."""

    def set_up(self) -> None:
        self.library = Library(home())

    def perform(self, job: Job[Look]) -> dict[str, Any]:
        folder = self.library.folder(job.payload.folder)
        if folder is None:
            raise GiveUp(f"there is no folder {job.payload.folder} in the library any more")
        try:
            found = scan.scan(
                self.library,
                folder,
                full=job.payload.full,
                progress=lambda done, path: job.progress(done, stage="scan", detail=path[-200:]),
            )
        except TonearmError as error:
            raise GiveUp(str(error)) from error
        return msgspec.to_builtins(found)

    def tear_down(self) -> None:
        self.library.close()


class Calibrator(Handler[Count, dict[str, Any]]):
    """Counts scores, and derives labels from them."""

    def set_up(self) -> None:
        self.library = Library(home())

    def perform(self, job: Job[Count]) -> dict[str, Any]:
        def tick(done: int, total: int, stage: str) -> None:
            job.progress(done, total, stage=stage)

        try:
            return msgspec.to_builtins(hearing.recalibrate(self.library, tick, force=job.payload.force))
        except TonearmError as error:  # the label file cannot be used
            raise GiveUp(str(error)) from error

    def tear_down(self) -> None:
        self.library.close()


class Writer(Handler[None, str]):
    """Writes the files that somebody asked to have written, one a job."""

    def set_up(self) -> None:
        self.library = Library(home())

    def discover(self, after: str | None, limit: int) -> list[Item]:
        start = int(after.split(".")[0]) if after else 0
        found = written.in_line(self.library, start, limit)
        return [Item(f"{number:012d}.{turn}", label=shown(path)) for number, turn, path in found]

    def perform(self, job: Job[None]) -> str:
        todo = written.task(self.library, int((job.item or "0").split(".")[0]))
        if todo is None:
            return "nothing to do any more"
        outcome = written.perform(self.library, todo)
        if isinstance(outcome, Refused):
            raise GiveUp(f"{shown(todo.path)}: {outcome.reason}")
        return type(outcome).__name__.lower()

    def tear_down(self) -> None:
        self.library.close()
