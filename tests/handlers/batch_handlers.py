"""Handlers that take several jobs at once. Workers import this module."""

import os
from pathlib import Path
from typing import Any

from scripted_handlers import write

from chargehand import Cancelled, GiveUp, Handler, Job, Retry, clock


class Batcher(Handler[dict[str, Any], Any]):
    """Keeps `batch PID ID ID …`, waits for the gate of whoever has one, and does with each job what it says."""

    def perform_batch(self, jobs: list[Job[dict[str, Any]]]) -> Any:
        ledger = jobs[0].payload["ledger"]
        write(ledger, "batch", os.getpid(), *(job.id for job in jobs))
        for job in jobs:
            write(ledger, "start", job.id, os.getpid())
        stopped = {job.id for job in jobs if not self.wait(job)}
        results = [Cancelled("as told") if job.id in stopped else self.one(job, len(jobs)) for job in jobs]
        match next((job.payload["all"] for job in jobs if "all" in job.payload), None):
            case "short":
                return results[:-1]
            case "text":
                return "x" * len(jobs)
            case "raise":
                raise RuntimeError("all of them")
            case _:
                return results

    def wait(self, job: Job[dict[str, Any]]) -> bool:
        """Until its gate is there; False if it was cancelled meanwhile, and heeds that."""
        while "gate" in job.payload and not Path(job.payload["gate"]).exists():
            if job.payload.get("heeds") and job.cancelled:
                return False
            if "steps" in job.payload:
                job.progress(job.payload["steps"], 9)
            clock.sleep(0.002)
        return True

    def one(self, job: Job[dict[str, Any]], count: int) -> Any:
        for crew, following in job.payload.get("follow", ()):
            job.enqueue(crew, following)
        match job.payload.get("end"):
            case "raise":
                return RuntimeError("as told")
            case "retry":
                return Retry(after=0.01) if job.attempt == 1 else count
            case "give up":
                return GiveUp("as told")
            case "exit":
                os._exit(7)
            case "object":
                return object()
            case _:
                write(job.payload["ledger"], "end", job.id, os.getpid())
                return job.payload.get("result", count)


class AsyncBatcher(Batcher):
    async def perform_batch(self, jobs: list[Job[dict[str, Any]]]) -> Any:
        import asyncio

        await asyncio.sleep(0)
        return super().perform_batch(jobs)


class Finder(Handler[Any, Any]):
    """Finds ten things to do; each is done when there is a file for it."""

    def discover(self, after: str | None, limit: int) -> list[str]:
        return [key for key in "abcdefghij" if not self.path(key).exists()]

    def perform_batch(self, jobs: list[Job[Any]]) -> list[Any]:
        write(os.environ["FOLDER"] + "/ledger", "batch", os.getpid(), *(job.id for job in jobs))
        for job in jobs:
            self.path(str(job.item)).touch()
        return [job.item for job in jobs]

    def path(self, key: str) -> Path:
        return Path(os.environ["FOLDER"]) / f"found-{key}"


class OneByOne(Handler[dict[str, Any], Any]):
    """Has no perform_batch."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        return "alone"
