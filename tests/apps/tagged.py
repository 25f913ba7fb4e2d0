"""Small audio files in every format, with covers and with tags of others, odd ones among them."""

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
from mutagen.aiff import AIFF
from mutagen.apev2 import APEv2
from mutagen.flac import FLAC, Picture
from mutagen.id3 import APIC, COMM, ID3, PRIV, TALB, TCON, TDRC, TIT2, TPE1, TXXX, TYER, UFID, USLT
from mutagen.mp4 import MP4, MP4Cover, MP4FreeForm
from mutagen.oggopus import OggOpus
from mutagen.oggvorbis import OggVorbis
from mutagen.wave import WAVE

from tonearm.tags import Labels
from tonearm.tags.kinds import Kind

RATE = 24000
COVER = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 12
FIVE: tuple[str, ...] = ("mp3-23", "flac", "vorbis", "opus", "m4a")
"""The five formats of the kill campaign."""

SOME = Labels({"genre": ("rock", "indie rock"), "mood": ("calm",)}, {"rock": 0.91, "calm": 0.5}, "musicnn 0.1")
OTHER = Labels({"genre": ("jazz",), "voice": ("female", "ünïcødé 日本")}, {"jazz": 0.77}, "musicnn 0.1")

_made: dict[tuple[str, float], bytes] = {}


def tones(seconds: float) -> "np.ndarray[Any, Any]":
    at = np.arange(int(RATE * seconds)) / RATE
    noise = np.random.default_rng(1).normal(0, 0.02, at.size)
    return (0.3 * np.sin(2 * np.pi * 440 * at) + 0.2 * np.sin(2 * np.pi * 661 * at) + noise).astype(np.float32)


def encode(path: Path, kind: Kind, seconds: float) -> None:
    if kind != "m4a":
        container, subtype = {
            "mp3": ("MP3", None), "flac": ("FLAC", None), "vorbis": ("OGG", "VORBIS"), "opus": ("OGG", "OPUS"),
            "wav": ("WAV", None), "aiff": ("AIFF", None),
        }[kind]  # fmt: skip
        soundfile.write(path, tones(seconds), RATE, format=container, subtype=subtype)
        return
    with av.open(str(path), "w", format="ipod", options={"movflags": "faststart"}) as out:
        stream: Any = out.add_stream("aac", rate=RATE)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(tones(seconds)[None], format="fltp", layout="mono")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            out.mux(packet)


def old_footer(title: str = "Old title") -> bytes:
    text = title.encode("latin-1").ljust(30, b"\0") + b"Old artist".ljust(30, b"\0") + b"Old album".ljust(30, b"\0")
    return b"TAG" + text + b"1987" + b"old comment".ljust(28, b"\0") + bytes([0, 7, 17])


def id3_frames(tags: Any, version: int) -> None:
    tags.add(TIT2(encoding=1, text="Тихая ночь"))
    tags.add(TPE1(encoding=0, text=["One", "Two"]))
    tags.add(TALB(encoding=0, text="Album"))
    tags.add(TDRC(encoding=3, text="1999-05-01") if version == 4 else TYER(encoding=0, text="1999"))
    tags.add(TCON(encoding=0, text=["(17)Rock"] if version == 3 else ["Rock", "Pop"]))
    tags.add(TXXX(encoding=0, desc="replaygain_track_gain", text="-3.21 dB"))
    tags.add(TXXX(encoding=1, desc="メモ", text=["一", "二"]))
    tags.add(COMM(encoding=0, lang="eng", desc="", text="keep me"))
    tags.add(COMM(encoding=1, lang="deu", desc="Notiz", text="für später"))
    tags.add(USLT(encoding=1, lang="eng", desc="", text="la\nla"))
    tags.add(UFID(owner="http://musicbrainz.org", data=b"abc"))
    tags.add(PRIV(owner="somebody", data=bytes(range(256))))
    tags.add(APIC(encoding=0, mime="image/png", type=3, desc="front", data=COVER))


def tag_mp3(path: Path, version: int) -> None:
    tags: Any = ID3()
    id3_frames(tags, version)
    tags.save(path, v2_version=version, v23_sep=None)


def tag_chunked(path: Path, file: Any, version: int) -> None:
    file.add_tags()
    id3_frames(file.tags, version)
    file.save(path, v2_version=version, v23_sep=None)


def tag_vorbis(path: Path, file: Any) -> None:
    if file.tags is None:
        file.add_tags()
    tags: Any = file.tags
    picture = Picture()
    picture.data, picture.mime, picture.type = COVER, "image/png", 3
    if hasattr(file, "add_picture"):
        file.add_picture(picture)
    else:
        tags["metadata_block_picture"] = [base64.b64encode(picture.write()).decode()]
    tags["Title"] = ["Тихая ночь"]
    tags["ARTIST"] = ["One", "Two"]
    tags["album"] = ["Album"]
    tags["DATE"] = ["1999-05-01"]
    tags["Genre"] = ["Rock", "Pop"]
    tags["COMMENT"] = ["keep me", "and = me\ntoo"]
    tags["REPLAYGAIN_TRACK_GAIN"] = ["-3.21 dB"]
    tags["TONEARM"] = ["SME V"]  # a record player's part, on a digitised record: not ours
    file.save(path)


def tag_mp4(path: Path) -> None:
    file: Any = MP4(path)
    file["\xa9nam"], file["\xa9ART"], file["\xa9alb"] = ["Тихая ночь"], ["One", "Two"], ["Album"]
    file["\xa9day"], file["\xa9gen"], file["\xa9cmt"] = ["1999-05-01"], ["Rock", "Pop"], ["keep me"]
    file["trkn"], file["cpil"], file["tmpo"] = [(3, 12)], True, [120]
    file["----:com.apple.iTunes:replaygain_track_gain"] = [MP4FreeForm(b"-3.21 dB")]
    file["----:com.example:odd"] = [MP4FreeForm(bytes(range(32)), 0)]
    file["covr"] = [MP4Cover(COVER, MP4Cover.FORMAT_PNG)]
    file.save()


def tag_mp3_all(path: Path) -> None:
    tag_mp3(path, 3)
    ape = APEv2()
    ape["Title"] = "Ape title"
    ape["MP3GAIN_MINMAX"] = "1,2"
    ape.save(path)
    path.write_bytes(path.read_bytes() + old_footer())


def old_only(path: Path) -> None:
    path.write_bytes(path.read_bytes() + old_footer())


def nothing(_: Path) -> None:
    """A file without any tag."""


CASES: dict[str, tuple[Kind, str, Callable[[Path], None]]] = {
    "mp3-23": ("mp3", ".mp3", lambda p: tag_mp3(p, 3)),
    "mp3-24": ("mp3", ".mp3", lambda p: tag_mp3(p, 4)),
    "mp3-ape-v1": ("mp3", ".mp3", tag_mp3_all),
    "mp3-v1": ("mp3", ".mp3", old_only),
    "mp3-bare": ("mp3", ".mp3", nothing),
    "flac": ("flac", ".flac", lambda p: tag_vorbis(p, FLAC(p))),
    "flac-bare": ("flac", ".flac", nothing),
    "vorbis": ("vorbis", ".ogg", lambda p: tag_vorbis(p, OggVorbis(p))),
    "opus": ("opus", ".opus", lambda p: tag_vorbis(p, OggOpus(p))),
    "m4a": ("m4a", ".m4a", tag_mp4),
    "m4a-bare": ("m4a", ".m4a", nothing),
    "wav": ("wav", ".wav", lambda p: tag_chunked(p, WAVE(p), 3)),
    "wav-bare": ("wav", ".wav", nothing),
    "aiff": ("aiff", ".aiff", lambda p: tag_chunked(p, AIFF(p), 4)),
}
TAGGED = ("mp3-23", "mp3-24", "mp3-ape-v1", "flac", "vorbis", "opus", "m4a", "wav", "aiff")


def make(folder: Path, case: str, name: str = "song", seconds: float = 0.5) -> Path:
    """A fresh file of this case; its content is made once a run."""
    kind, suffix, tag = CASES[case]
    path = folder / f"{name}{suffix}"
    if (case, seconds) not in _made:
        encode(path, kind, seconds)
        tag(path)
        _made[case, seconds] = path.read_bytes()
    path.write_bytes(_made[case, seconds])
    return path


def packets(path: Path) -> str:
    """A digest of the audio packets as PyAV takes them out of the file: another reader than the one under test."""
    digest = hashlib.sha256()
    with av.open(str(path), metadata_errors="replace") as file:
        for packet in file.demux(file.streams.audio[0]):
            digest.update(f"{packet.pts} {packet.duration} ".encode() + bytes(packet))
    return digest.hexdigest()


def metadata(path: Path) -> dict[str, str]:
    """The tags as PyAV shows them: another reader than the one that wrote them."""
    with av.open(str(path)) as file:
        return {**file.streams.audio[0].metadata, **file.metadata}


def others(path: Path) -> dict[str, str]:
    """Every tag that is not Tonearm's, as mutagen shows it."""
    import mutagen

    file: Any = mutagen.File(path)
    if file.tags is None:
        return {}
    pairs = list(file.tags) if isinstance(file.tags, list) else file.tags.items()
    pictures = {f"picture {n}": repr(p.data) for n, p in enumerate(getattr(file, "pictures", []))}
    shown: dict[str, str] = {}
    for key, value in pairs:
        if "tonearm:" not in key.lower() and not key.lower().startswith("tonearm_"):
            shown[key] = shown.get(key, "") + repr(value)
    return shown | pictures
