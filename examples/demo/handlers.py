"""The handlers. Imported by worker processes only, so heavy imports belong here."""

import math
from typing import Any

from chargehand import Handler, Job, clock

from .jobs import Loudness, Song, picture

STEPS = 20


class Measure(Handler[Song, Loudness]):
    def set_up(self) -> None:
        self.table = [math.sin(n / 50) for n in range(50_000)]  # stands for a model, loaded once per process

    def perform(self, job: Job[Song]) -> Loudness:
        energy = 0.0
        for step in range(STEPS):
            clock.sleep(job.payload.seconds / STEPS)  # stands for computation
            energy += self.table[step * 100] ** 2
            job.progress(step + 1, STEPS, stage="measure")
        job.enqueue(picture, {"title": job.payload.title, "energy": energy}, label=job.payload.title)
        return Loudness(job.payload.title, 10 * math.log10(energy / STEPS))


class Picture(Handler[dict[str, Any], str]):
    def perform(self, job: Job[dict[str, Any]]) -> str:
        job.progress(0, 1, stage="draw")
        clock.sleep(0.2)
        return "█" * round(job.payload["energy"])
