"""The tag crew of the demo: the real one, except that one song crashes its worker. Imported by workers only."""

import ctypes
from typing import Any

from chargehand import Job
from tonearm.demo import story
from tonearm.tagger import Tagger


class DemoTagger(Tagger):
    """Analyses a file; crashes with SIGSEGV in C code for the bad song, as a broken decoder would."""

    def perform(self, job: Job[dict[str, int]]) -> dict[str, Any]:
        if job.label == story.BAD:
            job.progress(0, 1, stage="decode")
            ctypes.string_at(0)
        return super().perform(job)
