"""Handlers that record the steps of their life, each with the pid of its process."""

import os
from pathlib import Path
from typing import Any

from chargehand import Handler, Job

STEPS = "CHARGEHAND_TEST_STEPS"


def record(name: str, step: str) -> None:
    with Path(os.environ[STEPS]).open("a") as file:
        file.write(f"{name} {step} {os.getpid()}\n")


class Plain(Handler[Any, None]):
    def set_up(self) -> None:
        record("plain", "set_up")

    def perform(self, job: Job[Any]) -> None:
        record("plain", "perform")

    def tear_down(self) -> None:
        record("plain", "tear_down")


class Async(Handler[Any, None]):
    async def set_up(self) -> None:
        record("async", "set_up")

    async def perform(self, job: Job[Any]) -> None:
        record("async", "perform")

    async def tear_down(self) -> None:
        record("async", "tear_down")
