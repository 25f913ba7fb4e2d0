"""The handlers, one for each stage. Only workers load this module; what is heavy is imported in `set_up`."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adreel.records import Classified, Code, Cut, Film, Persisted, Probe, Read, Refusal, Run
from chargehand import ConfigurationError, GiveUp, Handler, Job

if TYPE_CHECKING:
    from adreel.media.stages import Place, Tell


class _Stage(Handler[Any, Any]):
    """What all stages have in common: limits, thread caps, and refusals in words."""

    name = ""

    def set_up(self) -> None:
        from adreel.media.limits import Limits, cap_threads, limit_memory

        cap_threads(self.threads)
        try:
            self.limits = Limits.from_environment(os.environ)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        limit_memory(self.limits.memory)
        from adreel.media import stages

        self.stages = stages
        self.load()

    def load(self) -> None:
        """Loads the model of the stage, if it has one."""

    def telling(self, job: Job[Any]) -> "Tell":
        """Returns the function by which a stage reports its progress."""
        return lambda done, total, detail: job.progress(done, total, stage=self.name, detail=detail)

    def place(self, job: Job[Any], film: Film) -> "Place":
        """Returns the folders of a job; a film that is classified again has the folder of its analysis."""
        return self.stages.Place(Path(job.folder if film.folder is None else film.folder), Path(job.scratch))


@contextmanager
def refusals() -> Generator[None]:
    """Makes a film that cannot be analysed fail for good, with its reason: another attempt would not help."""
    from adreel.media.limits import Refused

    try:
        yield
    except Refused as error:
        raise GiveUp(str(error.refusal)) from error
    except MemoryError as error:
        text = "the film needs more memory than a worker may use (ADREEL_MAX_MEMORY)"
        raise GiveUp(str(Refusal(Code.MEMORY, text))) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = "the disk of the data folder (ADREEL_HOME) is full: free some space, then try the film again"
        raise GiveUp(str(Refusal(Code.DISK_FULL, text))) from error


class Ingest(_Stage, Handler[Film, Probe]):
    """Recognises a film and checks it against the limits."""

    name = "ingest"

    def perform(self, job: Job[Film]) -> Probe:
        place = self.place(job, job.payload)
        with refusals():
            return self.stages.ingest(job.payload, place, self.limits, self.threads, self.telling(job))


class Frames(_Stage, Handler[Film, Cut]):
    """Decodes a film once, and spawns the jobs that read its scenes."""

    name = "frames"

    def perform(self, job: Job[Film]) -> Cut:
        place = self.place(job, job.payload)
        with refusals():
            cut, runs = self.stages.cut(job.payload, place, self.limits, self.threads, self.telling(job))
        if runs:
            job.spawn("ocr", runs, label=job.payload.name)
        return cut


class Ocr(_Stage, Handler[Run, Read]):
    """Reads the text in a scene, or in a run of short scenes."""

    name = "ocr"

    def load(self) -> None:
        from adreel.media.ocr import Reader

        self.reader = Reader(self.threads)

    def perform(self, job: Job[Run]) -> Read:
        place = self.place(job, job.payload.film)
        with refusals():
            return self.stages.read(job.payload, place, self.reader, self.telling(job))


class Classify(_Stage, Handler[Film, Classified]):
    """Finds the category of a film from its text."""

    name = "classify"

    def load(self) -> None:
        from adreel.media.category import Sorter
        from adreel.media.minilm import MiniLM, ModelMissing

        try:
            self.sorter = Sorter(MiniLM())
        except ModelMissing as error:
            raise ConfigurationError(str(error)) from error

    def perform(self, job: Job[Film]) -> Classified:
        place = self.place(job, job.payload)
        with refusals():
            return self.stages.classify(job.payload, place, self.sorter, self.telling(job))


class Persist(_Stage, Handler[Film, Persisted]):
    """Writes the result and the chapters."""

    name = "persist"

    def perform(self, job: Job[Film]) -> Persisted:
        place = self.place(job, job.payload)
        with refusals():
            return self.stages.persist(job.payload, place, self.telling(job))
