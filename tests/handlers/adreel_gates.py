"""Stages of Adreel that decode nothing: each waits at its gate while there is one. Imported by the workers of tests.

A gate is the file `gates/STAGE` in the data folder. A film whose name contains `stubborn` does not look whether it was
cancelled; one whose name contains `broken` is refused while the file `gates/refuse` exists.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any

from adreel.records import Classified, Cut, Film, Guess, Persisted, Probe, Read, Run
from chargehand import GiveUp, Handler, Job

PIXEL = b"\xff\xd8\xff\xe0 a key frame \xff\xd9"


def gates() -> Path:
    """The folder of the gates."""
    return Path(os.environ["ADREEL_HOME"]) / "gates"


def at_gate(job: Job[Any], stage: str, film: Film) -> Path:
    """Waits at the gate; `at-STAGE` exists from then on. Returns the folder of the film."""
    folder = Path(film.folder or job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    job.progress(0, 10, stage=stage)
    done = 0
    while (gates() / stage).exists():
        (gates() / f"at-{stage}").touch()
        threading.Event().wait(0.02)
        done = min(9, done + 1)
        if "stubborn" not in film.name:
            job.progress(done, 10, stage=stage, detail="waits")
    (folder / f"{stage}.done").write_text(film.id)
    return folder


class Ingest(Handler[Film, Probe]):
    def perform(self, job: Job[Film]) -> Probe:
        at_gate(job, "ingest", job.payload)
        if "broken" in job.payload.name and (gates() / "refuse").exists():
            raise GiveUp("truncated: the film ends after 12 % of its length")
        return Probe("mp4", "h264", 640, 360, 0, 1.0, 4.0, 25.0, 1, 0, os.stat(job.payload.path).st_size)


class Frames(Handler[Film, Cut]):
    def perform(self, job: Job[Film]) -> Cut:
        folder = at_gate(job, "frames", job.payload)
        (folder / "frames").mkdir(exist_ok=True)
        for number in (1, 2):
            (folder / "frames" / f"{number:05d}.jpg").write_bytes(PIXEL)
        job.spawn("ocr", [Run(job.payload, number, number) for number in (1, 2)])
        return Cut(2, 2, 100, 0, 4.0, False, 0.1)


class Ocr(Handler[Run, Read]):
    def perform(self, job: Job[Run]) -> Read:
        at_gate(job, "ocr", job.payload.film)
        return Read(job.payload.first, job.payload.last, 1, 1, 0, 0.1)


class Classify(Handler[Film, Classified]):
    def perform(self, job: Job[Film]) -> Classified:
        at_gate(job, "classify", job.payload)
        return Classified(Guess("Travel", 0.9), [], [], 0.1)


class Persist(Handler[Film, Persisted]):
    def perform(self, job: Job[Film]) -> Persisted:
        folder = at_gate(job, "persist", job.payload)
        guess = {"category": "Travel", "confidence": 0.9, "runner_up": None}
        scenes = [
            {"number": n, "start": 2.0 * n - 2, "end": 2.0 * n, "stills": [{"number": n, "time": 1.0, "flat": False}],
             "text": [f"words of scene {n}"], "codes": [], "guess": guess}
            for n in (1, 2)
        ]  # fmt: skip
        result = {
            "id": job.payload.id, "name": job.payload.name, "guess": guess, "codes": [], "scenes": scenes, "took": {},
            "brands": [{"text": "SONNENFLUG", "confidence": 0.8, "scenes": [1]}], "categories": "0", "version": "0",
            "probe": {"container": "mp4", "codec": "h264", "width": 640, "height": 360, "frame_rate": 25.0},
            "cut": {"scenes": 2, "seconds": 4.0, "variable": False, "damaged": 0},
        }  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "chapters.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\nwords of scene 1\n")
        return Persisted(str(folder), Guess("Travel", 0.9), [], [], 2, 2, 4.0, {})
