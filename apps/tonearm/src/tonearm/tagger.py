"""Handler of the tag crew: analyses one file per job.

The networks are loaded with the first file, so a worker that only discovers stays small.
"""

import os
from typing import TYPE_CHECKING, Any

from chargehand import ConfigurationError, GiveUp, Handler, Item, Job
from tonearm import catalogue, clock, hearing
from tonearm.errors import Undecodable, WeightsError
from tonearm.handlers import wake_writers
from tonearm.library import Library, home
from tonearm.tags.audio import digest

if TYPE_CHECKING:
    from tonearm.ear.listen import Ear

CALIBRATION = "calibration"


class Tagger(Handler[dict[str, int], dict[str, Any]]):
    """Analyses one file per job."""

    ear: "Ear | None" = None

    def set_up(self) -> None:
        os.nice(int(os.environ.get("TONEARM_NICE", "10")))
        self.library = Library(home())

    def discover(self, after: str | None, limit: int) -> list[Item]:
        found = catalogue.in_line(self.library, after or "", limit)
        return [Item(key, {"id": number, "round": turn}, label) for key, number, turn, label in found]

    def perform(self, job: Job[dict[str, int]]) -> dict[str, Any]:
        number, turn = job.payload["id"], job.payload["round"]
        file = catalogue.waiting(self.library, number, turn)
        if (
            file is None
        ):  # the file was analysed by a worker that crashed before it reported; or it changed, or is missing
            wake_writers(self.library)
            return {"labels": None}
        began = clock.monotonic()
        ear = self._ear(job)

        def tell(done: float, total: float | None, stage: str) -> None:
            job.progress(done, total, stage=stage)

        try:
            heard = ear.listen(file.file, tell)
        except Undecodable as error:
            hearing.refuse(self.library, number, turn, "undecodable", error.reason)
            raise GiveUp(error.reason.encode("utf-8", "backslashreplace").decode()) from None
        took = clock.monotonic() - began
        given = hearing.keep(self.library, file, heard, digest(file.file), took)
        if hearing.is_due(self.library):
            job.enqueue(CALIBRATION, {"force": False}, key="calibrate")
        wake_writers(self.library)
        return {"labels": None if given is None else [label.name for label in given]}

    def _ear(self, job: Job[dict[str, int]]) -> "Ear":
        if self.ear is None:
            job.progress(stage="loading the networks")
            from tonearm.ear.listen import Ear  # imported here: heavy

            try:
                self.ear = Ear(threads=self.threads)
            except WeightsError as error:
                raise ConfigurationError(str(error)) from error
        return self.ear

    def tear_down(self) -> None:
        self.library.close()
