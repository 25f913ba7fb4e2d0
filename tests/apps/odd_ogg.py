"""Ogg files as some encoders make them: comments without a name, audio on the page where the headers end.

Built with mutagen's pages, from files that an ordinary encoder made.
"""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import tagged
from mutagen.ogg import OggPage
from mutagen.oggopus import OggOpus
from mutagen.oggvorbis import OggVorbis

NAMELESS = (b"no equals sign", b"", b"GENRE", b"tonearm_genre", "Größe".encode("latin-1"))
NOT_UTF8 = b"Composer=" + "Händel".encode("latin-1")
HEADERS = {".ogg": 3, ".opus": 2}
SIGNATURES = {".ogg": b"\x03vorbis", ".opus": b"OpusTags"}


def pages(path: Path) -> list[Any]:
    found: list[Any] = []
    with path.open("rb") as file:
        while True:
            try:
                found.append(OggPage(file))
            except EOFError:
                return found


def packets(path: Path) -> list[bytes]:
    """All packets of the file, joined over pages."""
    return OggPage.to_packets(pages(path))


def stored(path: Path) -> list[bytes]:
    """The comments of the file as bytes."""
    data = packets(path)[1][len(SIGNATURES[path.suffix]) :]
    at = 4 + int.from_bytes(data[:4], "little")
    count = int.from_bytes(data[at : at + 4], "little")
    at += 4
    found: list[bytes] = []
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def with_entries(path: Path, entries: list[bytes]) -> bytes:
    """The comment packet of the file with these comments."""
    signature = SIGNATURES[path.suffix]
    made = signature + (5).to_bytes(4, "little") + b"maker" + len(entries).to_bytes(4, "little")
    made += b"".join(len(entry).to_bytes(4, "little") + entry for entry in entries)
    return made + (b"\1" if path.suffix == ".ogg" else b"\1kept by Opus")


def rebuild(path: Path, comment: bytes, whole: int = 0, begun: int = 0) -> None:
    """Writes the file anew with this comment packet.

    On the page where the headers end follow `whole` packets of audio and `begun` bytes of the next one. Positions on a
    page are known for Opus, where a packet has 960 samples; in Vorbis, `whole` must be the end of a page.
    """
    old, headers = pages(path), packets(path)[: HEADERS[path.suffix]]
    audio = [page for page in old if page.position > 0]
    shared = OggPage()
    shared.serial, shared.sequence, shared.position = old[0].serial, 1, 0
    shared.packets = [comment, *headers[2:]]
    while whole:
        taken, audio[0].packets = audio[0].packets[:whole], audio[0].packets[whole:]
        shared.packets += taken
        shared.position += 960 * len(taken)
        whole -= len(taken)
        if not audio[0].packets:
            shared.position = audio.pop(0).position
    if begun:
        first = audio[0].packets[0]
        shared.packets.append(first[:begun])
        audio[0].packets[0] = first[begun:]
        shared.complete, audio[0].continued = False, True
    for number, page in enumerate(audio, 2):
        page.sequence = number
    path.write_bytes(b"".join(page.write() for page in (old[0], shared, *audio)))


def make(path: Path, **shared: int) -> Path:
    """Noise, of which every packet is large, with ordinary and odd comments."""
    noise = np.random.default_rng(1).normal(0, 0.2, (72000, 2))
    subtype = "VORBIS" if path.suffix == ".ogg" else "OPUS"
    soundfile.write(path, noise, 48000, format="OGG", subtype=subtype, compression_level=0.0)
    tagged.tag_vorbis(path, OggVorbis(path) if path.suffix == ".ogg" else OggOpus(path))
    entries = [*NAMELESS, NOT_UTF8, *stored(path), b"genre=", b"noname"]
    rebuild(path, with_entries(path, entries), **shared)
    return path
