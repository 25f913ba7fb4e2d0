"""Files that are no films, or want too much: each is refused with its reason, and the process lives on."""

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import pytest
from filmed import analysed, cut, ingested, scenes

from adreel.media.decode import Decoder
from adreel.media.limits import Limits, Refused
from adreel.records import Code, Refusal
from adreel.synth import ADVERT, CODECS, Card, advert

pytestmark = pytest.mark.full


def refusal(work: Callable[[], Any]) -> Refusal:
    """Why a film is refused; the reason survives as the text of an error."""
    with pytest.raises(Refused) as caught:
        work()
    assert Refusal.parse(str(caught.value)) == caught.value.refusal
    return caught.value.refusal


def large(path: Path, codec: str, side: int, pixels: str, frames: int = 1) -> None:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=1)
        stream.width, stream.height, stream.pix_fmt = side, side, pixels
        frame = av.VideoFrame(side, side, pixels)
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        for number in range(frames):
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def sounds(path: Path, tracks: int) -> None:
    with av.open(str(path), "w") as container:
        streams: list[Any] = [container.add_stream("aac", rate=48000, layout="mono") for _ in range(tracks)]
        for stream in streams:
            for at in range(0, 48000, 1024):
                frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                frame.sample_rate, frame.pts, frame.time_base = 48000, at, Fraction(1, 48000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


@pytest.mark.parametrize("suffix", sorted(set(CODECS) - {"ts"}))
def test_a_truncated_film(tmp_path: Path, suffix: str) -> None:  # spec: AR-1
    path = tmp_path / f"film.{suffix}"
    advert(path, sound=1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refusal(lambda: cut(path)).code is Code.TRUNCATED


def test_a_truncated_transport_stream_is_a_shorter_film(tmp_path: Path) -> None:
    """Like a recording that was stopped: the format does not state a length."""
    path = tmp_path / "film.ts"
    advert(path, sound=1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    cut(path)
    assert [start for start, _ in scenes(path)] == pytest.approx([0, 2, 4], abs=0.02)


@pytest.mark.parametrize(
    "content",
    [
        b"This is a text.\n" * 500,
        b"",
        bytes(100_000),
        b"ffconcat version 1.0\nfile film.mp4\n",
        b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nhttp://127.0.0.1:9/film.ts\n#EXT-X-ENDLIST\n",
        b"\x89PNG\r\n\x1a\n" + bytes(1000),
    ],
    ids=["text", "empty", "zeros", "concat", "playlist", "picture"],
)
def test_a_file_that_is_no_film(tmp_path: Path, content: bytes) -> None:  # spec: AR-1
    path = tmp_path / "film.mp4"
    path.write_bytes(content)
    assert refusal(lambda: ingested(path)).code is Code.NOT_A_FILM


@pytest.mark.parametrize("hours", [-6.0, 0.2, 6.0])
def test_joined_recordings_are_as_long_as_both(tmp_path: Path, hours: float) -> None:  # spec: AR-1
    """Each has a clock of its own; the difference is no part of the film."""
    advert(tmp_path / "one.ts", ADVERT[:2])
    with av.open(str(tmp_path / "one.ts")) as one, av.open(str(tmp_path / "two.ts"), "w") as two:
        copy: Any = two.add_stream_from_template(one.streams.video[0])
        for packet in one.demux(video=0):
            if packet.dts is not None and packet.pts is not None:
                packet.pts += round(abs(hours) * 3600 * 90_000)
                packet.dts += round(abs(hours) * 3600 * 90_000)
                packet.stream = copy
                two.mux(packet)
    parts = [tmp_path / "one.ts", tmp_path / "two.ts"]
    film = tmp_path / "film.ts"
    film.write_bytes(b"".join(part.read_bytes() for part in (parts if hours > 0 else parts[::-1])))
    found, _ = cut(film)
    assert found.seconds == pytest.approx(8.0, abs=0.2)
    assert [start for start, _ in scenes(film)] == pytest.approx([0.0, 2.0, 4.0, 6.0], abs=0.2)


def test_streams_that_begin_in_the_middle_of_a_film_do_no_harm(tmp_path: Path) -> None:
    """PyAV reads memory that it has not written to find out about them: what it finds there is left to chance."""
    advert(tmp_path / "film.ts", ADVERT[:1])
    with av.open(str(tmp_path / "film.ts")) as container:

        class Late:
            def __getattr__(self, name: str) -> Any:
                return getattr(container, name)

            def demux(self, stream: Any) -> Any:
                yield from container.demux(stream)
                _ = [][0]

        assert sum(1 for _ in Decoder(cast("Any", Late()), Limits()).frames()) == 50


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    assert refusal(lambda: ingested(tmp_path / "film.mp4")).code is Code.MISSING


def test_a_damaged_film(tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "film.mkv"
    advert(path)
    whole = bytearray(path.read_bytes())
    noise = np.random.default_rng(7)
    for at in range(4000, len(whole), 500):
        whole[at : at + 60] = noise.bytes(60)
    path.write_bytes(whole)
    try:
        cut(path)  # the decoder conceals some damage
    except Refused as error:
        assert error.refusal.code in (Code.DAMAGED, Code.TRUNCATED)  # noqa: PT017


@pytest.mark.parametrize(("suffix", "codec"), [("mkv", "mjpeg"), ("avi", "mjpeg")])
def test_a_frame_of_100_megapixels(tmp_path: Path, suffix: str, codec: str) -> None:  # spec: AR-1
    path = tmp_path / f"film.{suffix}"
    large(path, codec, 10_000, "yuvj420p")
    found = refusal(lambda: ingested(path))
    assert found.code is Code.TOO_MANY_PIXELS
    assert "10000 × 10000" in found.text


def test_a_frame_that_needs_more_memory_than_a_worker_has(tmp_path: Path) -> None:  # spec: AR-1
    """In a process of its own: the limit holds for the rest of its life."""
    path = tmp_path / "film.mkv"
    large(path, "mjpeg", 5800, "yuvj420p", 2)
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; import filmed\n"
        "from adreel.media.limits import Refused, limit_memory\n"
        "limit_memory(120 << 20)\n"
        "try: filmed.cut(Path(sys.argv[1]))\n"
        "except Refused as error: print(error.refusal.code.value)\n"
        "except MemoryError: print('memory')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, Code.MEMORY.value), done.stderr


def test_a_film_that_is_too_long_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    advert(path, ADVERT[:1])
    assert refusal(lambda: ingested(path, Limits(seconds=1))).code is Code.TOO_LONG


def test_a_film_that_is_too_long_without_saying_so(tmp_path: Path) -> None:
    path = tmp_path / "film.ts"
    advert(path, ADVERT[:1])
    ingested(path)
    assert refusal(lambda: cut(path, Limits(seconds=1))).code is Code.TOO_LONG


def test_too_many_streams(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    advert(path, ADVERT[:1], sound=4)
    assert refusal(lambda: ingested(path, Limits(streams=4))).code is Code.TOO_MANY_STREAMS


def test_two_sound_tracks_and_no_video(tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "film.mp4"
    sounds(path, 2)
    found = refusal(lambda: ingested(path))
    assert (found.code, found.text) == (Code.NO_VIDEO, "the file has no video, only 2 sound tracks")


def test_a_film_without_cuts_is_one_scene(tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "film.mp4"
    advert(path, [Card(4, ("Hot pizza,", "delivered tonight"))])
    found = analysed(path)
    assert [(scene.start, scene.end) for scene in found.scenes] == [(0, 4)]
    assert found.guess.category == "Food & drink"


@pytest.mark.parametrize("name", ["two\nlines.mp4", "a: b.mp4", "-i.mp4", "%03d.mp4", "\udcff.mp4", "concat:a.mp4"])
def test_odd_names(tmp_path: Path, name: str) -> None:  # spec: AR-1
    plain = tmp_path / "film.mp4"
    advert(plain, ADVERT[:1])
    path = plain.rename(tmp_path / name)
    done, _ = cut(path)
    assert done.scenes == 1


def test_one_hour_of_black(tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "film.mp4"
    advert(path, [Card(3600, paper=(0, 0, 0), moving=False)], size=(160, 90), rate=2)
    found = analysed(path)
    assert [(scene.start, scene.end, scene.text) for scene in found.scenes] == [(0, 3600, [])]
    assert found.took["ocr"] == 0
    assert found.guess.category is None


def test_20_000_cuts(tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "film.mkv"
    papers = ((0, 0, 0), (255, 255, 255))
    advert(path, [Card(0.5, paper=papers[number % 2], moving=False) for number in range(20_001)], size=(64, 36), rate=2)
    done, runs = cut(path)
    assert done.scenes == 20_001
    assert 500 < done.stills <= 3000
    assert len(runs) <= 1000
