"""All stages of Adreel in one plain function, in a process of its own: `python -m bench.plain FOLDER FILM…`.

Each line of its input is one analysis of the films, one after another; it answers with the seconds.
"""

import shutil
import sys
from pathlib import Path
from time import perf_counter

from adreel.media.limits import Limits, cap_threads

cap_threads(1)

from adreel.media import stages  # noqa: E402
from adreel.media.category import Sorter  # noqa: E402
from adreel.media.minilm import MiniLM  # noqa: E402
from adreel.media.ocr import Reader  # noqa: E402
from adreel.records import Film  # noqa: E402


def quietly(done: float, total: float | None, detail: str) -> None: ...


def analyse(path: Path, folder: Path, reader: Reader, sorter: Sorter) -> None:
    """Performs all stages of a film."""
    place = stages.Place(folder / "analysis", folder / "scratch")
    place.scratch.mkdir(parents=True)
    film = Film("1", str(path), path.name)
    stages.ingest(film, place, Limits(), 1, quietly)
    _, runs = stages.cut(film, place, Limits(), 1, quietly)
    for run in runs:
        stages.read(run, place, reader, quietly)
    stages.classify(film, place, sorter, quietly)
    stages.persist(film, place, quietly)
    shutil.rmtree(folder)


def main() -> None:
    folder, *films = map(Path, sys.argv[1:])
    reader, sorter = Reader(), Sorter(MiniLM())
    print("ready", flush=True)
    for _ in sys.stdin:
        began = perf_counter()
        for film in films:
            analyse(film, folder / "plain", reader, sorter)
        print(perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
