"""Makes films for the demo and the tests: title cards, cuts, QR codes, sound tracks, in any common container."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

CODECS: dict[str, tuple[str, str, dict[str, str]]] = {
    "mp4": ("libx264", "yuv420p", {"preset": "ultrafast", "crf": "20"}),
    "mov": ("mjpeg", "yuvj420p", {"q:v": "3"}),
    "mkv": ("libx264", "yuv420p", {"preset": "ultrafast", "crf": "20"}),
    "webm": ("libvpx", "yuv420p", {"deadline": "realtime", "cpu-used": "16", "crf": "12", "b": "2M"}),
    "avi": ("mpeg4", "yuv420p", {"q:v": "3"}),
    "ts": ("mpeg2video", "yuv420p", {"q:v": "3"}),
}
"""Codec, pixel format and options for each suffix."""


@dataclass(frozen=True, slots=True)
class Card:
    """A title card: a scene of a film."""

    seconds: float
    lines: tuple[str, ...] = ()
    ink: Colour = (255, 255, 255)
    paper: Colour = (20, 40, 90)
    qr: str | None = None
    moving: bool = True
    """Whether a disc moves through the picture, so that no frame is like the one before."""


ADVERT = (
    Card(2.0, ("NORDLYS",), paper=(18, 30, 74)),
    Card(2.0, ("Running shoes", "for every road"), ink=(20, 20, 20), paper=(236, 226, 205)),
    Card(2.0, ("Trail sneakers and", "sportswear, 30% off"), paper=(150, 42, 32)),
    Card(2.0, ("Order at", "www.nordlys.example"), ink=(10, 40, 20), paper=(190, 220, 190)),
    Card(2.4, ("NORDLYS",), paper=(18, 30, 74), qr="https://nordlys.example/spring"),
)
"""The advertisement of the demo."""


def advert(
    path: Path,
    cards: Sequence[Card] = ADVERT,
    *,
    size: tuple[int, int] = (640, 360),
    rate: int = 25,
    rotation: int = 0,
    pixel_aspect: Fraction | None = None,
    variable: bool = False,
    sound: int = 0,
) -> list[float]:
    """Writes a film in the container that the suffix names, and returns the times of its cuts.

    `rotation` (degrees clockwise) and `pixel_aspect` change how the film is stored, not how it looks. `variable` drops
    frames irregularly; the others keep their times. `sound` is the number of silent sound tracks.
    """
    aspect = pixel_aspect or Fraction(1)
    codec, pixels, options = CODECS[path.suffix.lstrip(".")]
    wide, high = size if rotation % 180 == 0 else size[::-1]
    stored = (_even(wide / aspect), _even(high))
    opened: Any = av.open(str(path), "w", format="mpegts" if path.suffix == ".ts" else None)
    with opened as container:
        stream = container.add_stream(codec, rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = *stored, pixels
        stream.codec_context.gop_size = rate
        stream.codec_context.thread_count = 1
        if pixel_aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if rotation:
            stream.set_display_rotation(-rotation % 360)  # it counts counter-clockwise
        tracks = [_sound_track(container, path.suffix) for _ in range(sound)]
        for number, picture in enumerate(pictures(cards, size, rate)):
            if variable and number % 7 in (2, 3, 5):
                continue
            turned = np.rot90(picture, rotation // 90)
            shaped: Any = cv2.resize(np.ascontiguousarray(turned), stored, interpolation=cv2.INTER_AREA)
            frame = av.VideoFrame.from_ndarray(shaped, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        for track in tracks:
            _silence(container, track, sum(card.seconds for card in cards))
    times = np.cumsum([round(card.seconds * rate) / rate for card in cards])
    return [float(time) for time in times[:-1]]


def pictures(cards: Sequence[Card], size: tuple[int, int], rate: int) -> Iterator[NDArray[np.uint8]]:
    """Yields the frames of the cards as RGB."""
    for card in cards:
        still = drawn(card, size)
        count = round(card.seconds * rate)
        for number in range(count):
            yield _with_disc(still, card, number / count) if card.moving else still


def drawn(card: Card, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns a card as a picture in RGB."""
    width, height = size
    image = Image.new("RGB", size, card.paper)
    draw = ImageDraw.Draw(image)
    room = width * (0.62 if card.qr else 0.9)
    font = _fitting(card.lines, room, height)
    for number, line in enumerate(card.lines):
        at = (room / 2 + width * 0.05, height * (number + 1) / (len(card.lines) + 1))
        draw.text(at, line, fill=card.ink, font=font, anchor="mm")
    picture = np.array(image)
    if card.qr:
        _paste_code(picture, card.qr)
    return picture


def _fitting(lines: Sequence[str], room: float, height: int) -> Any:
    """Returns the largest font in which every line fits."""
    tall = height / (len(lines) + 2)
    widest = max((ImageFont.load_default(tall).getlength(line) for line in lines), default=0.0)
    return ImageFont.load_default(max(8.0, tall * min(1.0, room / max(widest, 1.0))))


def _paste_code(picture: NDArray[np.uint8], content: str) -> None:
    code = cast("NDArray[np.uint8]", cv2.QRCodeEncoder.create().encode(content))
    height, width = picture.shape[:2]
    side = int(min(height * 0.6, width * 0.28))
    grown = cv2.resize(code, (side, side), interpolation=cv2.INTER_NEAREST)
    top, left = (height - side) // 2, width - side - width // 30
    picture[top - 4 : top + side + 4, left - 4 : left + side + 4] = 255
    picture[top : top + side, left : left + side] = grown[..., None]


def _with_disc(still: NDArray[np.uint8], card: Card, share: float) -> NDArray[np.uint8]:
    height, width = still.shape[:2]
    at = (int(width * (0.05 + 0.9 * share)), int(height * 0.94))
    return cv2.circle(still.copy(), at, height // 24, card.ink, -1)  # pyright: ignore[reportReturnType]


def _even(length: float | Fraction) -> int:
    return max(2, 2 * round(length / 2))


def _sound_track(container: Any, suffix: str) -> Any:
    codec = {".webm": "libopus", ".avi": "mp2", ".ts": "mp2"}.get(suffix, "aac")
    return container.add_stream(codec, rate=48000, layout="mono")


def _silence(container: Any, track: Any, seconds: float) -> None:
    planar = track.codec_context.format.name
    kind: Any = np.float32 if planar.startswith("flt") else np.int16
    size = track.codec_context.frame_size or 1024
    for at in range(0, int(seconds * 48000), size):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, size), kind), format=planar, layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48000, at, Fraction(1, 48000)
        container.mux(track.encode(frame))
    container.mux(track.encode(None))
