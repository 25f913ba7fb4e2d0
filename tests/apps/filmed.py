"""Performs the stages of Adreel in the test's own process."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adreel.media import stages
from adreel.media.category import Sorter
from adreel.media.limits import Limits, cap_threads
from adreel.media.minilm import MiniLM
from adreel.media.ocr import Reader
from adreel.records import RESULT, Analysis, Film

cap_threads(1)


@cache
def reader() -> Reader:
    return Reader()


@cache
def sorter() -> Sorter:
    return Sorter(MiniLM())


def quietly(done: float, total: float | None, detail: str) -> None: ...


def place(path: Path) -> stages.Place:
    """Folders of their own for a film, beside it."""
    found = stages.Place(path.parent / "analysis", path.parent / "scratch")
    found.scratch.mkdir(parents=True, exist_ok=True)
    return found


def ingested(path: Path, limits: Limits | None = None, tell: stages.Tell = quietly) -> Any:
    return stages.ingest(Film("1", str(path), path.name), place(path), limits or Limits(), 1, tell)


def cut(path: Path, limits: Limits | None = None, tell: stages.Tell = quietly) -> tuple[Any, Any]:
    """Performs the stages that decode."""
    ingested(path, limits)
    return stages.cut(Film("1", str(path), path.name), place(path), limits or Limits(), 1, tell)


def scenes(path: Path) -> list[tuple[float, float]]:
    found = msgspec.json.decode((place(path).folder / "scenes.json").read_bytes(), type=stages.Scenes)
    return [(scene.start, scene.end) for scene in found.scenes]


def analysed(path: Path, tell: stages.Tell = quietly, began: Callable[[str], object] = str) -> Analysis:
    """Performs all stages, and returns the result as it is stored; `began` is called with the name of each."""
    film, where = Film("1", str(path), path.name), place(path)
    began("ingest")
    stages.ingest(film, where, Limits(), 1, tell)
    began("frames")
    _, runs = stages.cut(film, where, Limits(), 1, tell)
    began("ocr")
    for run in runs:
        stages.read(run, where, reader(), tell)
    began("classify")
    stages.classify(film, where, sorter(), tell)
    began("persist")
    stages.persist(film, where, tell)
    return result(path)


def result(path: Path) -> Analysis:
    return msgspec.json.decode((place(path).folder / RESULT).read_bytes(), type=Analysis)
