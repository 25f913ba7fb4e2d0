"""Handlers and hooks that write what they are called with to the file that HOOKS names, as one JSON object a line."""

import json
import os
import signal
from typing import Any

import msgspec

from chargehand import Handler, HookEvent, Job, Retry


def told(**what: Any) -> None:
    """Adds a line to the file."""
    with open(os.environ["HOOKS"], "a") as file:
        file.write(json.dumps(what) + "\n")


def begin(job: Job[Any]) -> None:
    told(hook="start", job=job.id, attempt=job.attempt)
    if job.meta == {"hooks": "fail"}:
        raise RuntimeError("this hook is broken")


def end(job: Job[Any]) -> None:
    told(hook="end", job=job.id, attempt=job.attempt)
    if job.meta == {"hooks": "fail"}:
        raise SystemExit(3)


def failure(job: Job[Any], error: BaseException) -> None:
    told(hook="failure", job=job.id, attempt=job.attempt, error=repr(error))


async def wrong(job: Job[Any]) -> None: ...


def _work(job: Job[str]) -> str:
    match job.payload:
        case "fail":
            raise ValueError("no such song")
        case "later" if job.attempt == 1:
            raise Retry(after=0)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass
    return job.payload


class Hooked(Handler[str, str]):
    def perform(self, job: Job[str]) -> str:
        return _work(job)


class HookedAsync(Handler[str, str]):
    async def perform(self, job: Job[str]) -> str:
        return _work(job)


class HookedBatch(Handler[str, str]):
    def perform_batch(self, jobs: list[Job[str]]) -> list[Any]:
        found: list[Any] = []
        for job in jobs:
            try:
                found.append(_work(job))
            except Exception as error:
                found.append(error)
        return found


class Unable(Handler[str, str]):
    def set_up(self) -> None:
        raise FileNotFoundError("model.onnx")

    def perform(self, job: Job[str]) -> str:
        return ""


class Receiver(Handler[HookEvent, None]):
    def perform(self, job: Job[HookEvent]) -> None:
        told(id=job.id, named=job.label, **msgspec.to_builtins(job.payload))
        if job.payload.queue == "endless":
            raise ValueError("the hook's own job fails")
