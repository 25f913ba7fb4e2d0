"""The demonstration's tag crew: the real one, but for one song that crashes its worker. Imported in workers only."""

import ctypes
from typing import Any

from chargehand import Job
from tonearm.demo import story
from tonearm.tagger import Tagger


class DemoTagger(Tagger):
    """Listens; and ends with SIGSEGV, out of C code, where a broken decoder would."""

    def perform(self, job: Job[dict[str, int]]) -> dict[str, Any]:
        if job.label == story.BAD:
            job.progress(0, 1, stage="decode")
            ctypes.string_at(0)
        return super().perform(job)
