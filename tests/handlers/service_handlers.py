"""The handlers of the web service. Only workers import this module."""

import os
from pathlib import Path

from service_jobs import Labels, Song

from chargehand import Handler, Job, clock


class Tagger(Handler[Song, Labels]):
    def perform(self, job: Job[Song]) -> Labels:
        gate = job.payload.gate
        if gate is not None:
            Path(f"{gate}-{os.getpid()}").touch()
            while not Path(gate).exists():
                clock.sleep(0.01)
        return Labels(scores={job.payload.path: 1.0}, pid=os.getpid())
