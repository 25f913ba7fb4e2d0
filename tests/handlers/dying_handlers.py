"""Handlers whose process dies right after it has sent something, or sends what the protocol does not allow."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from scripted_handlers import worker_of, write

from chargehand import Handler, Job, clock


class DiesAfter(Handler[dict[str, Any], str]):
    def perform(self, job: Job[dict[str, Any]]) -> str:
        write(job.payload["ledger"], "start", job.id, os.getpid())
        while not Path(job.payload["gate"]).exists():
            clock.sleep(0.002)
        context: Any = worker_of(job)
        send = context._send

        def last_words(frame: bytes) -> None:
            send(frame)
            os.kill(os.getpid(), signal.SIGKILL)

        context._send = last_words
        return "said"


class Garbler(Handler[dict[str, Any], str]):
    """Writes what no worker should into its sockets."""

    def perform(self, job: Job[dict[str, Any]]) -> str:
        write(job.payload["ledger"], "start", job.id, os.getpid())
        context: Any = worker_of(job)
        match job.payload["into"]:
            case "nothing":
                return "said"
            case "pulse":
                context.outlet.send(b"\x00\xff|{[" * 50 + b"\nHEALTH|{}\n" + b"HEALTH|" + b"[" * 5000 + b"\n")
            case "work":
                context._send(b"DONE|{half of an outcome\n")
            case _:  # the outcome of a job that it does not have
                context._send(b'DONE|{"id":"another","fence":1,"result":1}\n')
        while True:
            clock.sleep(60)


class Unflushed(Handler[dict[str, Any], Any]):
    """Prints as everybody prints, and dies in the next moment."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        for number in range(job.payload["lines"]):
            sys.stdout.write(f"line {number}\n")
        os.abort()


class EndsItsNode(Handler[dict[str, Any], Any]):
    """Kills the node that it works for, so often; other jobs of the crew are done after a moment."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        write(job.payload["ledger"], "start", job.id, os.getpid())
        lines = Path(job.payload["ledger"]).read_text().splitlines()
        begun = sum(line.split()[:2] == ["start", job.id] for line in lines)
        if begun <= job.payload.get("kills", 0):
            os.kill(os.getppid(), signal.SIGKILL)
            clock.sleep(60)
        return begun
