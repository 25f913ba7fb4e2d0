"""A crew for Tonearm that loads no network and refuses every song. Workers import this module."""

from typing import Any

from chargehand import Job
from tonearm import hearing
from tonearm.tagger import Tagger


class Deaf(Tagger):
    """Refuses every song, for want of ears."""

    def perform(self, job: Job[dict[str, int]]) -> dict[str, Any]:
        hearing.refuse(self.library, job.payload["id"], job.payload["round"], "deaf", "nobody can hear it")
        return {"labels": None}
