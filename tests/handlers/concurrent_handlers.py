"""Handlers that perform several jobs at the same time. Workers import this module."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

from scripted_handlers import write

from chargehand import GiveUp, Handler, Job, Retry, WorkerBroken, clock

log = logging.getLogger("many")


class Waiter(Handler[dict[str, Any], Any]):
    """Keeps `start ID PID`, `beside ID COUNT` and `end ID PID`, and does what the payload says."""

    async def set_up(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.together = self.most = 0

    async def perform(self, job: Job[dict[str, Any]]) -> Any:
        payload = job.payload
        if "ledger" in payload:
            write(payload["ledger"], "start", job.id, os.getpid())
            write(payload["ledger"], "beside", job.id, self.together)
        assert asyncio.get_running_loop() is self.loop, "set_up and all jobs share a loop"
        self.together += 1
        self.most = max(self.most, self.together)
        try:
            return await self.do(job)
        finally:
            self.together -= 1

    async def do(self, job: Job[dict[str, Any]]) -> Any:
        payload = job.payload
        if "steps" in payload:
            job.progress(payload["steps"], 9, stage=job.id)
        if "says" in payload:
            log.info("says %s", payload["says"])
            await asyncio.to_thread(log.info, "thread says %s", payload["says"])
        for crew, following in payload.get("follow", ()):
            job.enqueue(crew, following)
        await asyncio.sleep(payload.get("waits", 0))
        await self.gate(job)
        match payload.get("end"):
            case "raise":
                raise RuntimeError("as told")
            case "retry":
                if job.attempt == 1:
                    raise Retry(after=0.01)
            case "give up":
                raise GiveUp("as told")
            case "exit":
                os._exit(7)
            case "broken":
                raise WorkerBroken("as told")
            case "leave" | "interrupt" as how:
                await asyncio.gather(self.inner(SystemExit(4) if how == "leave" else KeyboardInterrupt()))
            case "fail when cancelled":
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise RuntimeError("as told") from None
            case "generator exit":
                raise GeneratorExit
            case "leave later":
                asyncio.get_running_loop().call_soon(sys.exit, 4)
                await asyncio.sleep(0.05)
            case "cancel itself":  # and return before it awaits again
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            case "stop the loop":
                asyncio.get_running_loop().stop()
                await asyncio.sleep(0.05)
            case "block":
                self.block(payload["until"])
            case "burn":
                while not Path(payload["until"]).exists():
                    sum(range(1000))
            case _:
                pass
        if "ledger" in payload:
            write(payload["ledger"], "end", job.id, os.getpid())
        return payload.get("result", self.most)

    async def gate(self, job: Job[dict[str, Any]]) -> None:
        while "gate" in job.payload and not Path(job.payload["gate"]).exists():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if not job.payload.get("deaf"):
                    raise

    async def inner(self, error: BaseException) -> None:
        """Raises this in a task of its own."""
        raise error

    def block(self, until: str) -> None:
        """Keeps the loop from running, without CPU time."""
        while not Path(until).exists():
            clock.sleep(0.01)


class Plain(Handler[dict[str, Any], Any]):
    """Its perform is not async."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        return "alone"


class Finder(Handler[Any, Any]):
    """Finds twenty things to do; each is done when there is a file for it."""

    async def discover(self, after: str | None, limit: int) -> list[str]:
        await asyncio.sleep(0)
        return [key for key in "abcdefghijklmnopqrst" if not self.path(key).exists()]

    async def perform(self, job: Job[Any]) -> Any:
        await asyncio.sleep(0.05)
        self.path(str(job.item)).touch()
        return job.item

    def path(self, key: str) -> Path:
        return Path(os.environ["FOLDER"]) / f"found-{key}"


class Settler(Handler[dict[str, Any], Any]):
    """Writes a row of the application's own and settles its job in one transaction."""

    async def perform(self, job: Job[dict[str, Any]]) -> Any:
        await asyncio.sleep(0.01)
        with job.settle({"by": os.getpid()}) as tx:
            tx.execute("INSERT INTO song (title, worker) VALUES (?, ?)", (job.payload["title"], os.getpid()))
            if job.payload.get("awaits"):
                await asyncio.sleep(0.01)
