"""Any music file becomes mono at 16 kHz, piece by piece; one that does not says why."""

import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from soundfiles import EVERY, tone, write

from tonearm.ear.decode import AV, SOUNDFILE, Audio, Decoder, decode, order
from tonearm.ear.pieces import Broken, Piece, Stream
from tonearm.ear.segments import KEPT, Choice, segments
from tonearm.errors import Undecodable


class Sound(NamedTuple):
    decoder: str
    expected: float | None
    seconds: float
    level: float


def whole(audio: Audio) -> Sound:
    samples = np.concatenate(list(audio.blocks))
    assert samples.dtype == np.float32
    assert np.isfinite(samples).all()
    return Sound(audio.decoder, audio.expected, len(samples) / 16_000, float(samples.std()))


@pytest.mark.parametrize("kind", EVERY)
def test_every_format_becomes_the_mean_of_its_channels(tmp_path: Path, kind: str) -> None:  # spec: TA-2 TA-3
    rate = 48_000 if kind == "opus" else 44_100
    path = write(tmp_path / f"a.{kind}", tone(3, rate), rate)
    sound = decode(path, whole)
    assert sound.decoder == ("av" if kind in ("m4a", "opus") else "soundfile")
    assert sound.seconds == pytest.approx(3, abs=0.06)
    assert sound.expected == pytest.approx(3, abs=0.06)
    assert sound.level == pytest.approx(0.25 / 2**0.5, rel=0.03)  # not 3 dB louder, as ffmpeg's own way would be


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind != "m4a"])
def test_each_decoder_is_the_others_fallback(tmp_path: Path, kind: str) -> None:
    rate = 48_000 if kind == "opus" else 44_100
    path = write(tmp_path / f"a.{kind}", tone(2, rate), rate)
    one, other = (decode(path, whole, (decoder,)) for decoder in (SOUNDFILE, AV))
    assert one.seconds == pytest.approx(other.seconds, abs=0.06)
    assert one.level == pytest.approx(other.level, rel=0.03)


@pytest.mark.parametrize(
    ("rate", "channels", "subtype"),
    [(8_000, 1, "PCM_U8"), (96_000, 6, "PCM_24"), (22_050, 2, "FLOAT"), (16_000, 1, "PCM_16"), (11_025, 3, "DOUBLE")],
)
def test_any_rate_any_number_of_channels_any_samples(tmp_path: Path, rate: int, channels: int, subtype: str) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(2, rate, channels), rate, subtype=subtype)
    for decoder in (SOUNDFILE, AV):
        sound = decode(path, whole, (decoder,))
        assert sound.seconds == pytest.approx(2, abs=0.01)
        assert sound.level == pytest.approx(0.5 / channels / 2**0.5, rel=0.03)


def test_a_wrong_suffix_is_forgiven(tmp_path: Path) -> None:
    assert decode(write(tmp_path / "a.mp3", tone(1, 44_100), 44_100, "m4a"), whole).decoder == "av"
    assert decode(write(tmp_path / "a.m4a", tone(1, 44_100), 44_100, "flac"), whole).decoder == "av"
    assert decode(write(tmp_path / "NOSUFFIX", tone(1, 44_100), 44_100, "ogg"), whole).decoder == "soundfile"


@pytest.mark.parametrize(
    "name", [b"Artist: Title.wav", b"-dash.wav", b"caf\xe9 \xff.wav", b"concat:a|b.wav", b"100%.wav"]
)
def test_any_name_is_a_name(tmp_path: Path, name: bytes) -> None:
    path = write(tmp_path / "plain.wav", tone(1, 16_000, 1), 16_000)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.rename(odd)
    for decoder in (SOUNDFILE, AV):
        assert decode(odd, whole, (decoder,)).seconds == 1


def test_a_relative_name_is_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "http:a.m4a", tone(1, 44_100), 44_100)
    monkeypatch.chdir(tmp_path)
    assert decode(Path("http:a.m4a"), whole).decoder == "av"


def wav_of_rate(rate: int) -> bytes:
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16)
    data = b"data" + struct.pack("<I", 2000) + bytes(2000)
    return b"RIFF" + struct.pack("<I", 4 + len(form) + len(data)) + b"WAVE" + form + data


HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "empty": ("a.mp3", lambda path: path.touch(), "empty"),
    "text": (
        "a.mp3",
        lambda path: path.write_text("These are words, not music.\n" * 200),
        "soundfile: Format not recognised; av: .+",
    ),
    "zeros": ("a.flac", lambda path: path.write_bytes(bytes(5000)), "soundfile: .+; av: .+"),
    "noise": ("a.ogg", lambda path: path.write_bytes(np.random.default_rng(1).bytes(5000)), "soundfile: .+; av: .+"),
    "a folder": ("a.wav", lambda path: path.mkdir(), "not a file"),
    "nothing": ("a.wav", lambda path: None, "no such file"),
    "one sample a second": ("a.wav", lambda path: path.write_bytes(wav_of_rate(1)), "invalid sample rate: 1 Hz"),
    "no samples": ("a.wav", lambda path: soundfile.write(path, np.zeros((0, 2)), 44_100), "contains no audio"),
    "a picture": ("a.m4a", lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500)), "av: .+; soundfile: .+"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_decoded_says_why(tmp_path: Path, name: str) -> None:  # spec: TA-6
    file, make, reason = HOSTILE[name]
    make(tmp_path / file)
    with pytest.raises(Undecodable, match=reason) as caught:
        decode(tmp_path / file, whole)
    assert caught.value.reason == str(caught.value)


def test_a_playlist_in_disguise_opens_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "secret.m4a", tone(1, 44_100), 44_100)
    for head in ("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n", "ffconcat version 1.0\nfile "):
        (tmp_path / "a.mp3").write_text(f"{head}secret.m4a\n")
        with pytest.raises(Undecodable):
            decode(tmp_path / "a.mp3", whole)


@pytest.mark.parametrize("kind", ["mp3", "flac", "ogg", "opus", "wav"])
def test_what_is_left_of_a_truncated_file_is_heard(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"a.{kind}", tone(6, 48_000), 48_000)
    os.truncate(path, path.stat().st_size // 2)
    assert 1 < decode(path, whole).seconds < 6


def test_a_few_damaged_packets_are_skipped_and_many_are_not(tmp_path: Path) -> None:  # spec: TA-6
    path = write(tmp_path / "a.m4a", tone(4, 44_100), 44_100)
    sound, rng = path.read_bytes(), np.random.default_rng(1)
    middle = len(sound) // 2
    path.write_bytes(sound[:middle] + rng.bytes(300) + sound[middle + 300 :])
    assert 3.5 < decode(path, whole).seconds < 4.1
    path.write_bytes(sound[:1000] + rng.bytes(middle) + sound[1000 + middle :])
    with pytest.raises(Undecodable, match="packets are damaged"):
        decode(path, whole)


def test_samples_that_are_not_numbers_are_silence(tmp_path: Path) -> None:
    audio = tone(2, 16_000, 1)
    audio[5000:6000], audio[7000] = np.nan, np.inf
    soundfile.write(tmp_path / "a.wav", audio, 16_000, subtype="FLOAT")
    assert decode(tmp_path / "a.wav", whole).level > 0  # `whole` asserts that all of it is finite


class BreaksOff:
    """A decoder that gets half-way through a file."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.closed = stream, False
        self.expected = stream.expected

    @property
    def pieces(self) -> Iterator[Piece]:
        for piece in self.stream.pieces:
            yield Piece(piece.rate, piece.mono[: len(piece.mono) // 2])
            raise Broken("something is wrong in the middle")

    def close(self) -> None:
        self.closed = True
        self.stream.close()


def test_a_decoder_that_breaks_off_is_replaced_from_the_beginning(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", tone(2, 44_100), 44_100)
    opened: list[BreaksOff] = []

    def open_it(path: Path) -> Stream:
        opened.append(BreaksOff(SOUNDFILE.open(path)))
        return opened[-1]

    half = Decoder("half", open_it)
    assert decode(path, whole, (half, AV)).seconds == 2
    with pytest.raises(Undecodable, match="half: something is wrong in the middle"):
        decode(path, whole, (half,))
    assert [stream.closed for stream in opened] == [True, True]


def test_what_the_listener_raises_is_not_the_files_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", tone(1, 16_000, 1), 16_000)

    def cancelled(audio: Audio) -> None:
        next(audio.blocks)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode(path, cancelled)


def test_the_first_decoder_depends_on_the_format() -> None:
    assert order(Path("a.OPUS"))[0] is AV
    assert order(Path("a.m4a"))[0] is AV
    assert order(Path("a.Ogg"))[0] is SOUNDFILE


def test_an_hour_needs_no_more_memory_than_minutes(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with soundfile.SoundFile(path, "w", 2_000, 1, "PCM_U8") as file:
        for _ in range(60):
            file.write(np.zeros(120_000))

    def choose(audio: Audio) -> Choice:
        choice = Choice()
        for segment in segments(audio.blocks):
            choice.offer(segment)
        return choice

    tracemalloc.start()
    try:
        choice = decode(path, choose)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert choice.seen == 3600 * 16_000 // 256 // 187
    assert len(choice.kept) <= KEPT
    assert peak < 80e6  # all of it would be 230 MB
