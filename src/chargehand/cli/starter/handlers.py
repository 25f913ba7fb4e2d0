"""The handlers. They may be heavy (models, codecs, GPUs): only workers import this module."""

import collections

from chargehand import Handler, Job
from jobs import Text, Words


class Counter(Handler[Text, Words]):
    """Counts words."""

    def set_up(self) -> None:
        """Once in every process: load what the work needs."""
        self.ignored = {"the", "a"}

    def perform(self, job: Job[Text]) -> Words:
        """One job. `async def` works, too; what is raised is tried again."""
        words = [word for word in job.payload.text.lower().split() if word not in self.ignored]
        job.progress(1, 2, stage="counting")
        return Words(counts=dict(collections.Counter(words)))
