"""Handlers for `chargehand run` and `check`."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runnable_app import Labels, rows
from runnable_app import Song as TheSong

from chargehand import ConfigurationError, GiveUp, Handler, Item, Job, Retry, UnrecoverableError


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class Tagger(Handler[TheSong, Labels]):
    def set_up(self) -> None:
        say("set up")

    def perform(self, job: Job[TheSong]) -> Labels:
        assert isinstance(job.payload, TheSong)
        job.progress(1, 2, stage="net", detail="\x1b[2J")
        job.enqueue("does", {"of": job.payload.path})
        job.enqueue(rows, None, delay=5)
        return Labels({job.payload.path: job.payload.seconds, os.environ["MODEL"]: self.threads})

    def tear_down(self) -> None:
        say("torn down")


class Late(Handler[TheSong, float]):
    async def set_up(self) -> None:
        self.factor = 2

    async def perform(self, job: Job[TheSong]) -> float:
        return job.payload.seconds * self.factor

    async def tear_down(self) -> None:
        say("torn down")


class Settler(Handler[str, Any]):
    def perform(self, job: Job[str]) -> Any:
        with job.settle({"title": job.payload}) as tx:
            tx.execute("INSERT INTO song VALUES (?)", (job.payload,))
            job.enqueue("does", {"of": job.payload})
            if job.payload == "spoil":
                raise RuntimeError("spoilt inside the transaction")
        return "not used"


class Doer(Handler[dict[str, Any], Any]):
    def perform(self, job: Job[dict[str, Any]]) -> Any:
        match job.payload.get("end"):
            case "raise":
                raise RuntimeError("as told")
            case "retry":
                raise Retry(after=7)
            case "give up":
                raise GiveUp("it is hopeless")
            case "exit":
                sys.exit(7)
            case "configuration":
                raise ConfigurationError("the model is for another card")
            case "unrecoverable":
                raise UnrecoverableError("the card is broken")
            case "object":
                return object()
            case "unknown crew":
                return job.enqueue("nobody", 1)
            case "debug":
                value = "from the handler"
                breakpoint()
                return value
            case _:
                return job.payload

    def tear_down(self) -> None:
        say("torn down")


class Rows(Handler[Any, Any]):
    async def discover(self, after: str | None, limit: int) -> Iterable[str | Item]:
        keys = [f"{number:04}" for number in range(1200)]
        return [Item(key, {"row": key}, f"row {key}") for key in keys if after is None or key > after][:limit]

    def perform(self, job: Job[Any]) -> Any:
        return [job.item, job.payload, job.label]


class Liar(Handler[Any, Any]):
    def perform(self, job: Job[Any]) -> Any:
        return {"marks": 5}


class Unready(Handler[Any, Any]):
    def set_up(self) -> None:
        raise RuntimeError("the model file is missing")

    def perform(self, job: Job[Any]) -> Any:
        return None


class Unlicensed(Handler[Any, Any]):
    def set_up(self) -> None:
        sys.exit("no licence")

    def perform(self, job: Job[Any]) -> Any:
        return None


class Idle(Handler[Any, Any]):
    pass


@dataclass
class Song:
    """Another one, under the name of the application's."""

    path: str


Song.__module__ = "runnable_app"


class Twin(Handler[Song, Any]):
    def perform(self, job: Job[Song]) -> Any:
        return None
