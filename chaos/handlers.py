"""The handlers. Each job has a file with the lines `start`, then `end` or `raise`, written before any report.

Their times are those of the monotonic clock, which all processes of a machine share.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

from chaos import ledger
from chaos.app import FOLDER, insert
from chargehand import Handler, Job, clock
from chargehand.crew import JobOptions
from chargehand.processes import proc

TICK, AGAIN = 0.1, 0.5
"""Seconds between two lines of a long job, and seconds that such a job takes if it was interrupted before."""


class AsTold(Exception):
    """The only exception that these handlers raise."""


class Worker(Handler[dict[str, Any], int]):
    """Sleeps for a short time, and does what the payload requests."""

    def set_up(self) -> None:
        self.folder = Path(os.environ[FOLDER])
        self.pid = os.getpid()
        own = proc.stat(self.pid)
        self.start = own.start if own else 0
        self.children: list[subprocess.Popen[str]] = []

    def perform(self, job: Job[dict[str, Any]]) -> int:
        self.begin(job.id)
        try:
            self.act(job)
        except Exception as error:
            self.note(job.id, "raise", self.pid, type(error).__name__)
            raise
        return self.pid

    def act(self, job: Job[dict[str, Any]]) -> None:
        """Runs the job; its last step records the end."""
        payload = job.payload
        if payload["do"] == "child":
            self.start_child(payload["child"])
        if payload["do"] in ("follow", "follow held"):
            options: JobOptions = {"key": payload["key"]} if "key" in payload else {}
            follower = job.enqueue("work", {"do": "nothing", "ms": 1.0, "parent": job.id}, **options)
            self.note(job.id, "follow", follower)
        clock.sleep(payload["ms"] / 1000)
        if payload["do"] == "raise" and job.attempt == 1:
            raise AsTold("once")
        self.note(job.id, "end", self.pid, clock.monotonic())

    def note(self, job_id: str, *words: object) -> None:
        """Appends a line to the file of the job."""
        ledger.append(self.folder / "jobs" / job_id, [words])

    def begin(self, job_id: str) -> None:
        """Records that this process runs the job, and whether another live process runs it too."""
        self.note(job_id, "start", self.pid, self.start, clock.monotonic(), os.environ.get("CHARGEHAND_NODE", ""))
        others = executions(ledger.read(self.folder / "jobs" / job_id))
        others.remove((self.pid, self.start))
        for pid, start in others:
            if proc.alive(pid, start):
                self.note(job_id, "overlap", self.pid, pid)

    def start_child(self, kind: str) -> None:
        """Starts a process that would run for minutes and must be killed with this worker."""
        match kind:
            case "daemon":  # its parent exits immediately
                command = ["sh", "-c", "sleep 300 >/dev/null & echo $!"]
                pid = int(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
            case "fork":  # a fork of this process
                pid = os.fork()
                while not pid:
                    clock.sleep(60)
            case _:
                child = subprocess.Popen(["sleep", "300"], start_new_session=kind == "session", text=True)
                self.children.append(child)
                pid = child.pid
        seen = proc.stat(pid)
        if seen is not None:
            ledger.append(self.folder / "children", [("child", pid, seen.start)])


class Settler(Worker):
    """Writes its own row and completes the job in one transaction, sometimes holding the write lock for a while."""

    def act(self, job: Job[dict[str, Any]]) -> None:
        clock.sleep(job.payload["ms"] / 1000)
        with job.settle(self.pid) as tx:
            tx.execute(insert("chaos_row", 2), (job.id, self.pid))
            clock.sleep(job.payload["hold"] / 1000)
            self.note(job.id, "end", self.pid, clock.monotonic())
        clock.sleep(job.payload["linger"] / 1000)  # done, but not yet reported to the node


class Churn(Handler[dict[str, Any], None]):
    """Does nothing."""

    def perform(self, job: Job[dict[str, Any]]) -> None:
        pass


class Tiny(Handler[dict[str, Any], int]):
    """Records that this process has begun the job, and does nothing else."""

    def set_up(self) -> None:
        path = Path(os.environ[FOLDER]) / "jobs" / str(os.getpid())
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def perform(self, job: Job[dict[str, Any]]) -> int:
        os.write(self.file, f"{job.id}\n".encode())
        return os.getpid()


class Long(Worker):
    """Runs for seconds, and writes all the time that it does. A job that was interrupted is short the next time."""

    def act(self, job: Job[dict[str, Any]]) -> None:
        payload = job.payload
        starts = sum(kind == "start" for kind, *_ in ledger.read(self.folder / "jobs" / job.id))
        until = clock.monotonic() + (payload["seconds"] if starts == 1 else AGAIN)
        while clock.monotonic() < until:
            self.note(job.id, "at", self.pid, clock.monotonic())
            if payload["do"] == "yield":
                job.progress(0.5)  # raises an exception if the job was cancelled
            clock.sleep(TICK)
        self.note(job.id, "end", self.pid, clock.monotonic())


def executions(lines: list[list[str]]) -> list[tuple[int, int]]:
    """Returns pid and start time of every execution in a job's file without an end, oldest first."""
    going: list[tuple[int, int]] = []
    for kind, *words in lines:
        if kind == "start":
            going.append((int(words[0]), int(words[1])))
        elif kind in ("end", "raise"):
            going = [one for one in going if one[0] != int(words[0])]
    return going


class Split(Handler[dict[str, Any], int]):
    """Spawns the parts of a flow."""

    def perform(self, job: Job[dict[str, Any]]) -> int:
        job.spawn("part", [{"number": number} for number in range(job.payload["parts"])])
        return os.getpid()


class Part(Handler[dict[str, Any], int]):
    """Returns the number of the part."""

    def perform(self, job: Job[dict[str, Any]]) -> int:
        clock.sleep(0.002)
        return job.payload["number"]


class Add(Handler[dict[str, Any], int]):
    """Adds up the results of the parts."""

    def perform(self, job: Job[dict[str, Any]]) -> int:
        return sum(job.results("part"))
