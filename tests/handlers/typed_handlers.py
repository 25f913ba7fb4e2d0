"""A typed handler whose module imports nothing of the tests."""

from dataclasses import dataclass

from chargehand import Handler, Job


@dataclass
class Track:
    path: str
    seconds: float = 0


class Length(Handler[Track, float]):
    async def set_up(self) -> None:
        self.factor = 2

    async def perform(self, job: Job[Track]) -> float:
        return job.payload.seconds * self.factor
