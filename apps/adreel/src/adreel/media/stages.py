"""The stages of an analysis as plain functions on folders. Handlers call them; so do tests, without any process.

Each reads what the stages before it left in `folder`, and writes its own files through `scratch`, a folder of the
attempt on the same file system.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import cv2
import msgspec

import adreel
from adreel.media import files, probe
from adreel.media.category import BUILT_IN, Categories, Sorter, guess, of_film
from adreel.media.chapters import webvtt
from adreel.media.decode import Decoder
from adreel.media.frames import Cutter, display_size
from adreel.media.limits import Limits, Refused
from adreel.media.ocr import Reader
from adreel.media.qr import read_codes
from adreel.media.scenes import runs_of
from adreel.media.text import brands, joined, meaning
from adreel.records import (
    CHAPTERS,
    PROBE,
    RESULT,
    SCENES,
    STILLS,
    TEXTS,
    Analysis,
    Classified,
    Code,
    Cut,
    Film,
    Guess,
    Line,
    Persisted,
    Probe,
    Read,
    Run,
    Scene,
    SceneResult,
    SceneText,
    still_name,
)

CLASSIFIED = "classified.json"
STEP = 0.1
"""Seconds between two reports of progress."""

Tell = Callable[[float, float | None, str], None]
"""Reports progress (done, total, detail); raises if the work was cancelled."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of the analysis, and that of the attempt."""

    folder: Path
    scratch: Path


class Scenes(msgspec.Struct):
    """Content of `scenes.json`."""

    cut: Cut
    scenes: list[Scene]


class Texts(msgspec.Struct):
    """Content of a file in the folder `text`."""

    took: float
    scenes: list[SceneText]


class Categorised(msgspec.Struct):
    """Content of `classified.json`."""

    classified: Classified
    guesses: dict[int, Guess]
    """The guesses of the scenes with text."""
    version: str


def ingest(film: Film, place: Place, limits: Limits, threads: int, tell: Tell) -> Probe:
    """Recognises the film by its content, checks it against the limits, and decodes its first frame."""
    began, path = monotonic(), Path(film.path)
    tell(0, None, "reads the header")
    place.folder.mkdir(parents=True, exist_ok=True)
    with closing(probe.open_film(path, limits, threads)) as container:
        found = probe.probe(container, path, limits)
        tell(0, None, "decodes the first frame")
        decoder = Decoder(container, limits, threads)
        first = next(iter(decoder.frames()))
        width, height = display_size(first.frame.width, first.frame.height, found.pixel_aspect, longest=1 << 30)
    if decoder.rotation % 180:
        width, height = height, width
    found = replace(found, width=width, height=height, rotation=decoder.rotation, took=_since(began))
    files.write(found, PROBE, place.scratch, place.folder)
    return found


def cut(film: Film, place: Place, limits: Limits, threads: int, tell: Tell) -> tuple[Cut, list[Run]]:
    """Decodes the film, once: finds its scenes and keeps key frames. Returns the runs of scenes to read, too."""
    began = monotonic()
    total = files.read(PROBE, Probe, place.folder).seconds
    with closing(probe.open_film(Path(film.path), limits, threads)) as container:
        decoder = Decoder(container, limits, threads)
        cutter = Cutter(decoder, place.scratch)
        every = _Every(tell)

        def report(time: float) -> None:
            every(time, None if total is None else max(total, time), lambda: f"scene {len(cutter.scenes) + 1}")

        cutter.run(report)
    files.put_folder(STILLS, place.scratch, place.folder)
    stills = sum(len(scene.stills) for scene in cutter.scenes)
    done = Cut(
        scenes=len(cutter.scenes), stills=stills, frames=decoder.count, damaged=decoder.damaged,
        seconds=round(decoder.end, 3), variable=decoder.variable, took=_since(began),
    )  # fmt: skip
    files.write(Scenes(done, cutter.scenes), SCENES, place.scratch, place.folder)
    return done, [Run(film, first, last) for first, last in runs_of(cutter.scenes)]


def read(run: Run, place: Place, reader: Reader, tell: Tell) -> Read:
    """Reads the text and the QR codes in the key frames of a run of scenes."""
    began = monotonic()
    scenes = files.read(SCENES, Scenes, place.folder).scenes[run.first - 1 : run.last]
    total = sum(not still.flat for scene in scenes for still in scene.stills)
    done, texts = 0, list[SceneText]()
    for scene in scenes:
        readings: list[list[Line]] = []
        codes: dict[str, None] = {}
        for still in scene.stills:
            if still.flat:
                continue
            tell(done, total, f"scene {scene.number}")
            picture: Any = cv2.imread(str(place.folder / still_name(still.number)))
            if picture is None:
                raise Refused(Code.INCOMPLETE, f"the key frame {still.number} is missing: analyse the film again")
            readings.append(reader.read(picture, lambda: tell(done, total, f"scene {scene.number}")))  # noqa: B023
            codes |= dict.fromkeys(read_codes(picture))
            done += 1
        texts.append(SceneText(scene.number, joined(readings), list(codes)))
    tell(done, total, "")
    result = Read(
        first=run.first, last=run.last, stills=done, lines=sum(len(text.lines) for text in texts),
        codes=sum(len(text.codes) for text in texts), took=_since(began),
    )  # fmt: skip
    files.write(Texts(result.took, texts), f"{TEXTS}/{run.first:05d}.json", place.scratch, place.folder)
    return result


def classify(film: Film, place: Place, sorter: Sorter, tell: Tell) -> Classified:
    """Puts the film and its scenes into categories, and finds text that looks like a brand. Decodes nothing."""
    began = monotonic()
    categories = Categories.read(BUILT_IN if film.categories is None else Path(film.categories))
    scenes = {scene.number: scene for scene in files.read(SCENES, Scenes, place.folder).scenes}
    texts = _texts(place.folder)[0]
    said = {text.scene: meaning(line.text for line in text.lines) for text in texts}
    said = {number: text for number, text in said.items() if text}
    whole = " ".join(dict.fromkeys(said.values()))
    every = _Every(tell)
    likeness = sorter.likenesses(
        categories, [whole, *said.values()], lambda done: every(done, len(said) + 1, lambda: "compares")
    )
    lengths = [scenes[number].end - scenes[number].start for number in said]
    film_likeness = of_film(likeness[0], likeness[1:], lengths, categories.least_likeness)
    classified = Classified(
        guess=guess(categories, film_likeness) if said else Guess(None, 0.0),
        brands=brands(texts),
        codes=list(dict.fromkeys(code for text in texts for code in text.codes)),
        took=_since(began),
    )
    guesses = {number: guess(categories, row) for number, row in zip(said, likeness[1:], strict=True)}
    files.write(Categorised(classified, guesses, categories.version), CLASSIFIED, place.scratch, place.folder)
    return classified


def persist(film: Film, place: Place, tell: Tell) -> Persisted:
    """Writes the result as JSON, and the chapters."""
    began = monotonic()
    tell(0, 2, "result")
    found = files.read(PROBE, Probe, place.folder)
    cut = files.read(SCENES, Scenes, place.folder)
    sorted_ = files.read(CLASSIFIED, Categorised, place.folder)
    texts, reading = _texts(place.folder)
    by_scene = {text.scene: text for text in texts}
    scenes = [_scene(scene, by_scene.get(scene.number), sorted_.guesses.get(scene.number)) for scene in cut.scenes]
    tell(1, 2, "chapters")
    files.put(webvtt(scenes).encode(), CHAPTERS, place.scratch, place.folder)
    classified = sorted_.classified
    took = {"ingest": found.took, "frames": cut.cut.took, "ocr": round(reading, 3), "classify": classified.took}
    took["persist"] = _since(began)
    analysis = Analysis(
        id=film.id, name=film.name, probe=found, cut=cut.cut, guess=classified.guess, brands=classified.brands,
        codes=classified.codes, scenes=scenes, took=took, categories=sorted_.version, version=adreel.__version__,
    )  # fmt: skip
    files.write(analysis, RESULT, place.scratch, place.folder)
    return Persisted(
        folder=str(place.folder), guess=classified.guess, brands=classified.brands, codes=classified.codes[:20],
        scenes=len(scenes), stills=cut.cut.stills, seconds=cut.cut.seconds, took=took,
    )  # fmt: skip


def _scene(scene: Scene, text: SceneText | None, guessed: Guess | None) -> SceneResult:
    return SceneResult(
        scene.number, scene.start, scene.end, scene.stills,
        text=[line.text for line in text.lines] if text else [],
        codes=text.codes if text else [],
        guess=guessed or Guess(None, 0.0),
    )  # fmt: skip


def _texts(folder: Path) -> tuple[list[SceneText], float]:
    """Returns the text of all scenes, in order, and how long it took to read it."""
    names = sorted((folder / TEXTS).glob("*.json"))
    parts = [files.read(f"{TEXTS}/{name.name}", Texts, folder) for name in names]
    return sorted((text for part in parts for text in part.scenes), key=lambda text: text.scene), sum(
        part.took for part in parts
    )


def _since(began: float) -> float:
    return round(monotonic() - began, 3)


class _Every:
    """Passes reports of progress on, not more often than every tenth of a second."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._next = tell, 0.0

    def __call__(self, done: float, total: float | None, detail: Callable[[], str]) -> None:
        now = monotonic()
        if now >= self._next:
            self._next = now + STEP
            self._tell(done, total, detail())
