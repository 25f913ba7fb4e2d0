"""A library for tests: songs of all formats, odd files among them, and what the networks might have heard."""

import os
import random
from pathlib import Path

import tagged

from tonearm import catalogue, hearing, scan
from tonearm.catalogue import Waiting
from tonearm.heard import EMBEDDING, MODELS, Heard
from tonearm.library import Folder, Library
from tonearm.tags.audio import digest

FORMATS = ("mp3-23", "flac", "vorbis", "opus", "m4a", "wav", "aiff")


def songs(folder: Path, seconds: float = 0.5) -> list[Path]:
    """One song of each format, some of them in a folder of their own."""
    (folder / "inside").mkdir(parents=True, exist_ok=True)
    return [
        tagged.make(folder / "inside" if number % 2 else folder, case, name=f"song {number}", seconds=seconds)
        for number, case in enumerate(FORMATS)
    ]


def odd_files(folder: Path, song: Path, outside: Path) -> dict[bytes, str]:
    """Files that nothing good can be said about; each name with a word of what is wrong (none: it is a good song)."""
    whole = song.read_bytes()
    (folder / "cut.flac").write_bytes(whole[:300])
    (folder / "zero.mp3").touch()
    (folder / "text.mp3").write_text("this is no music\n" * 50)
    outside.write_bytes(whole)
    (folder / "elsewhere.flac").symlink_to(outside)
    (folder / "broken link.flac").symlink_to(folder / "nowhere.flac")
    (folder / "two\nlines 🎵.flac").write_bytes(whole)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.flac")).write_bytes(whole + b"\0")
    return {
        b"cut.flac": "soundfile",
        b"zero.mp3": "empty",
        b"text.mp3": "soundfile",
        b"elsewhere.flac": "outside",
        b"broken link.flac": "does not exist",
    }


def heard(seed: int) -> Heard:
    """What the networks might say of a track."""
    chance = random.Random(seed)
    return Heard(
        scores={model: [round(chance.random() ** 3, 6) for _ in words] for model, words in MODELS.items()},
        embedding={model: [chance.gauss(0, 1) for _ in range(EMBEDDING)] for model in MODELS},
        duration=1.0,
        decoder="none",
        patches=1,
    )


def opened(home: Path, music: Path) -> tuple[Library, Folder]:
    """The library of a folder, scanned."""
    library = Library(home)
    folder = library.add_folder(music)
    scan.scan(library, folder)
    return library, folder


def hear_all(library: Library) -> int:
    """As if every file had been listened to."""
    line = catalogue.in_line(library, "", 1000)
    for _, number, turn, _ in line:
        file = catalogue.waiting(library, number, turn)
        assert isinstance(file, Waiting)
        assert hearing.keep(library, file, heard(number), digest(file.file), 0.1) is not None
    return len(line)
