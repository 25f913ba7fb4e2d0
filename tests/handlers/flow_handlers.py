"""Handlers of flows: a video pipeline whose scenes can fail or wait, and jobs that keep checkpoints and files."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chargehand import FlowEnd, GiveUp, Handler, Job, JobFailed, clock

Payload = dict[str, Any]


def note(job: Job[Any], *words: object) -> None:
    """Appends a line to the ledger of the test."""
    descriptor = os.open(job.payload["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, (" ".join(str(word) for word in words) + "\n").encode())
    os.close(descriptor)


def wait_for(job: Job[Any], path: str) -> None:
    """Waits until the file exists, or the job is cancelled."""
    while not Path(path).exists():
        job.progress()
        clock.sleep(0.002)


class Decode(Handler[Payload, int]):
    """Spawns a job for each scene."""

    def perform(self, job: Job[Payload]) -> int:
        scenes = job.payload["scenes"]
        rest = {name: value for name, value in job.payload.items() if name != "scenes"}
        job.spawn("scene", [{"number": number, **rest} for number in range(scenes)])
        return scenes


class Scene(Handler[Payload, int]):
    """Returns the square of its number. Scene 3 fails while the file `broken` exists, and waits for the file `gate`."""

    def perform(self, job: Job[Payload]) -> int:
        payload = job.payload
        if payload["number"] == 3:
            if "gate" in payload:
                note(job, "waits", job.id)
                wait_for(job, payload["gate"])
            if Path(payload.get("broken", "")).is_file():
                raise GiveUp("this scene is broken")
        return payload["number"] ** 2


def shown(results: Sequence[Any]) -> list[Any]:
    return [each.reason if isinstance(each, JobFailed) else each for each in results]


class Classify(Handler[Any, list[Any]]):
    def perform(self, job: Job[Any]) -> list[Any]:
        return shown(list(job.results("scene")))


class AsyncClassify(Handler[Any, list[Any]]):
    async def perform(self, job: Job[Any]) -> list[Any]:
        found = [each async for each in job.results("scene")]
        plain = list(job.results("scene"))
        in_thread = await asyncio.to_thread(lambda: list(job.results("scene")))
        assert found == plain == in_thread
        return shown(found)


class BatchClassify(Handler[Any, list[Any]]):
    def perform_batch(self, jobs: list[Job[Any]]) -> list[list[Any]]:
        return [shown(list(job.results("scene"))) for job in jobs]


class Sum(Handler[Any, list[int]]):
    """Returns the number of results, and their sum, without keeping them."""

    def perform(self, job: Job[Any]) -> list[int]:
        count = total = 0
        for each in job.results("scene"):
            count, total = count + 1, total + each
        return [count, total]


class Ended(Handler[FlowEnd, Any]):
    def perform(self, job: Job[FlowEnd]) -> Any:
        end = job.payload
        return [end.flow, end.state, end.end, end.counts.done, end.reasons]


class Enqueues(Handler[Payload, list[str]]):
    """Settles itself in a transaction with a child and a job outside the flow."""

    def perform(self, job: Job[Payload]) -> list[str]:
        with job.settle(job.flow):
            (child,) = job.spawn("scene", [{"number": 5}])
            other = job.enqueue("scene", {"number": 6}, flow=None)
            Path(job.payload["ledger"]).write_text(f"made {child} {other}\n")
        return []


class Keeps(Handler[Payload, Any]):
    """Returns what an earlier attempt kept; the first attempt keeps a checkpoint and ends as it is told."""

    def perform(self, job: Job[Payload]) -> Any:
        if job.kept is not None:
            return {"kept": job.kept, "attempt": job.attempt, "crashes": job.crashes}
        for row in range(3):
            job.keep({"row": row})
        note(job, "kept", job.id, os.getpid())
        match job.payload["ends"]:
            case "raise":
                raise ValueError("as told")
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                wait_for(job, "/nowhere")
        return None


class KeepsAsync(Handler[Payload, Any]):
    async def perform(self, job: Job[Payload]) -> Any:
        if job.kept is not None:
            return job.kept
        for row in range(3):
            job.keep({"row": row, "of": job.id})
            await asyncio.sleep(0)
        raise ValueError("as told")


class Files(Handler[Payload, Any]):
    """Writes into its folders, and is killed in its first attempt if told so."""

    def perform(self, job: Job[Payload]) -> Any:
        made = job.scratch / "part"
        made.write_text("half")
        note(job, "files", job.id, job.scratch, job.folder)
        killed = Path(str(job.payload.get("ledger"))).parent / "killed"
        if (victim := job.payload.get("kill")) and not killed.exists():
            killed.touch()
            os.kill(os.getppid() if victim == "node" else os.getpid(), signal.SIGKILL)
            signal.pause()
        if "size" in job.payload:
            (job.folder / "large").write_bytes(bytes(job.payload["size"]))
        made.rename(job.folder / f"whole-{job.id}")
        return sorted(path.name for path in job.folder.iterdir())


class Stamp(Handler[Any, int]):
    """Returns the time at which it was started, in microseconds of the monotonic clock."""

    def perform(self, job: Job[Any]) -> int:
        return int(clock.monotonic() * 1e6)
