"""Handlers that take longer to load than they may: one asks, one does not."""

from typing import Any

from chargehand import Handler, Job, clock


class Hasty(Handler[Any, str]):
    def set_up(self) -> None:
        clock.sleep(1.0)  # stands for a model that takes its time

    def perform(self, job: Job[Any]) -> str:
        return "loaded"


class Patient(Hasty):
    def set_up(self) -> None:
        self.more_time(60)
        super().set_up()
