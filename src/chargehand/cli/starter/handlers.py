"""The handlers. They may be heavy (models, codecs, GPUs): only workers import this module."""

import collections

from chargehand import Handler, Job
from jobs import Text, Words


class Counter(Handler[Text, Words]):
    """Counts words."""

    def set_up(self) -> None:
        """Runs once in each worker process: load models here."""
        self.ignored = {"the", "a"}

    def perform(self, job: Job[Text]) -> Words:
        """Performs one job. May be `async def`; an exception is retried."""
        words = [word for word in job.payload.text.lower().split() if word not in self.ignored]
        job.progress(1, 2, stage="counting")
        return Words(counts=dict(collections.Counter(words)))
