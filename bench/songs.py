"""Measures Tonearm: the cost of a song, the gain of a second worker, and the speed of scans.

This process imports nothing heavy: songs are generated and analysed in other processes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.processes import cpu, peak
from bench.row import Row, measures
from bench.scene import folder
from chargehand import clock
from chargehand.testing import eventually
from tonearm import catalogue, crews, report, scan, weights
from tonearm.library import Library

SECONDS = 215
SONGS = 4
SMALL = 10_000
PATIENCE = 900.0
MAKE = (
    "import sys, soundfile; from tonearm.demo.songs import RATE, song\n"
    "soundfile.write(sys.argv[1], song(sys.argv[2], float(sys.argv[3]), 1), RATE, format=sys.argv[4])"
)


def make(file: Path, style: str, seconds: float, form: str) -> None:
    """Generates a song in another process."""
    subprocess.run([sys.executable, "-c", MAKE, str(file), style, str(seconds), form], check=True)


@dataclass(frozen=True, slots=True)
class Heard:
    """The cost of analysing all songs."""

    wall: float
    cpu: float
    listening: float
    memory: float


def hear(home: Path, music: Path, workers: int) -> Heard:
    """Analyses all songs with this number of workers, whose networks are already loaded."""
    library = Library(home)
    library.add_folder(music)
    all_crews = crews.build(home, workers=workers, nice=0)
    all_crews.hand.log_level = "ERROR"
    with all_crews.hand.running():
        scan.scan(library, library.folders()[0])
        all_crews.hand.wake("tag")
        eventually(lambda: not report.progress(library).waiting, PATIENCE)
        pids = [w["pid"] for w in report.workers(all_crews.hand, library) if w["crew"] == "tag" and w["pid"]]
        before = sum(sum(cpu(pid)) for pid in pids)
        with library.writing() as db:
            db.execute("UPDATE file SET tagged_ms = NULL, took = NULL")
        catalogue.again(library, [row[0] for row in library.rows("SELECT id FROM file")])
        all_crews.hand.wake("tag")
        eventually(lambda: not report.progress(library).waiting, PATIENCE)
        used = sum(sum(cpu(pid)) for pid in pids) - before
        memory = max(peak(pid) for pid in pids)
    rows = library.rows("SELECT tagged_ms / 1000.0, took FROM file")
    all_crews.hand.close()
    library.close()
    wall = max(end for end, _ in rows) - min(end - took for end, took in rows)
    return Heard(wall, used, sum(took for _, took in rows), memory)


@measures(
    "a song, CPU", "a song, one listener", "a song, two listeners", "a listener, memory", "two listeners, memory each",
    "two listeners against one", "beside listening",
)  # fmt: skip
def listening() -> Iterable[Row]:
    """Songs of three and a half minutes, both networks."""
    weights.fetch()
    with folder() as here:
        (here / "music").mkdir()
        make(here / "music" / "0.mp3", "piano", SECONDS, "MP3")
        for number in range(1, SONGS):
            shutil.copy(here / "music" / "0.mp3", here / "music" / f"{number}.mp3")
        alone = hear(here / "one", here / "music", 1)
        both = hear(here / "two", here / "music", 2)
    busy = f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"
    yield Row("a song, CPU", alone.cpu / SONGS, "s", None, 3.5, note=busy)
    yield Row("a song, one listener", alone.wall / SONGS, "s", None, 4.0, note=busy)
    yield Row("a song, two listeners", both.wall / SONGS, "s", None, 2.2, note=busy)
    yield Row("a listener, memory", alone.memory, "MiB", None, 350)
    yield Row("two listeners, memory each", both.memory, "MiB", None, 350)
    yield Row("two listeners against one", alone.wall / both.wall, "×", None, 1.85, more_is_better=True, note=busy)
    yield Row("beside listening", (1 - alone.listening / alone.wall) * 100, "%", None, 3.0)


@measures("scan, new files", "scan, known files")
def scanning() -> Iterable[Row]:
    """Small files in folders of a hundred, in the page cache."""
    with folder() as here:
        song = here / "song.mp3"
        make(song, "flute", 1, "MP3")
        for number in range(SMALL):
            inside = here / "music" / f"{number // 100:03}"
            inside.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(song, inside / f"{number}.mp3")
        library = Library(here / "home")
        root = library.add_folder(here / "music")
        rates: list[float] = []
        for _ in range(2):
            began = clock.monotonic()
            scan.scan(library, root)
            rates.append(SMALL / (clock.monotonic() - began))
        library.close()
    note = "reading tags: mutagen"
    yield Row("scan, new files", rates[0], "files/s", None, 2000, more_is_better=True, note=note)
    yield Row("scan, known files", rates[1], "files/s", None, 2000, more_is_better=True)
