"""Handlers of the scenes: a model that is missing, a library that crashes, long and short work."""

import asyncio
import os
from importlib import import_module
from typing import Any

from chargehand import Handler, Job, clock


class Embed(Handler[Any, Any]):
    """Cannot load its model."""

    def set_up(self) -> None:
        try:
            _open_model("/models/clip-vit-l14.onnx")
        except FileNotFoundError as error:
            error.add_note("set MODEL_DIR to the folder with the models")
            raise

    def perform(self, job: Job[Any]) -> Any:
        return None


def _open_model(path: str) -> None:
    with open(path, "rb"):
        return


class Native(Handler[Any, Any]):
    """Crashes in C code while it loads."""

    def set_up(self) -> None:
        from chargehand.testing.faults_deeds import segfault

        segfault()

    def perform(self, job: Job[Any]) -> Any:
        return None


class Work(Handler[dict[str, Any], Any]):
    """Goes `steps` steps of `seconds` each; crashes, or fails with `error`, at the end."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        steps = int(job.payload.get("steps", 1))
        for step in range(steps):
            job.progress(step, steps, stage=job.payload.get("stage", "render"), detail=job.payload.get("detail"))
            clock.sleep(float(job.payload.get("seconds", 0.02)))
        if "crash" in job.payload:
            from chargehand.testing.faults_deeds import segfault

            segfault()
        if "error" in job.payload:
            _decode(job.payload["error"])
        if "sometimes" in job.payload and int(job.id, 16) % 3 == 0:
            _decode(job.payload["sometimes"])
        return {"steps": steps, "pid": os.getpid()}


def _decode(text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise RuntimeError(f"{text}: the stream ends after 0.2 s\nexpected at least 3 s of audio") from error


class Call(Handler[Any, Any]):
    """Waits for an answer, many at a time."""

    async def perform(self, job: Job[Any]) -> Any:
        await asyncio.sleep(3)


class Absent(Handler[Any, Any]):
    """Needs a module that is not installed."""

    def set_up(self) -> None:
        import_module("torch_that_is_not_there")

    def perform(self, job: Job[Any]) -> Any:
        return None
