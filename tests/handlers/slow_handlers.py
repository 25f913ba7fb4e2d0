"""Handlers that load longer than the limit: one asks for more time, one does not."""

from typing import Any

from chargehand import Handler, Job, clock


class Hasty(Handler[Any, str]):
    def set_up(self) -> None:
        clock.sleep(2.0)  # stands for a model that takes its time

    def perform(self, job: Job[Any]) -> str:
        return "loaded"


class Patient(Hasty):
    def set_up(self) -> None:
        self.more_time(60)
        super().set_up()
