"""Opens films with ffmpeg and reads their headers. A film is recognised by its content, never by its name."""

import errno
import os
import re
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import av.error

from adreel.media.limits import Limits, Refused
from adreel.records import Code, Probe

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

FORMATS = "asf,avi,flv,gif,matroska,mov,mpeg,mpegts,mxf,ogg"
"""Demuxers that may open a file. Playlists (hls, concat, dash) could name other files and are not among them."""
DECODERS = (
    "av1,cinepak,dnxhd,dvvideo,ffv1,flv,gif,h263,h264,hevc,huffyuv,ffvhuff,libdav1d,mjpeg,mpeg1video,mpeg2video,mpeg4,"
    "msmpeg4,msmpeg4v2,png,prores,qtrle,rawvideo,svq1,svq3,theora,utvideo,vc1,vp6,vp6f,vp8,vp9,wmv1,wmv2,wmv3"
)
"""Video decoders that may run: those of formats in use. Sound is never decoded."""
PROBE_BYTES = 8 << 20
ODD_ASPECT = 10.0
"""Pixel aspects beyond this factor are taken for damage, and pixels for square."""
PRESENT = 0.9
"""The share of the stated size or length that must be there."""

_DURATION = re.compile(r"(\d+):(\d+):(\d+(?:\.\d+)?)")


def open_film(path: Path, limits: Limits, threads: int = 1) -> "InputContainer":
    """Opens a film. Raises Refused if it is none, is incomplete, or has too many streams."""
    _check_bytes(path)
    # ffmpeg decodes some frames while it looks for the streams: the limits hold for these, too.
    container = _open(path, limits, {"max_pixels": str(limits.pixels), "threads": str(threads)})
    if len(container.streams) > limits.streams:
        container.close()
        raise Refused(Code.TOO_MANY_STREAMS, f"the file has more than {limits.streams} streams")
    return container


def _check_bytes(path: Path) -> None:
    """Raises Refused if the file is missing, empty, or shorter than its first bytes state."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(12)
    except OSError as error:
        raise Refused(Code.MISSING, f"the file cannot be read: {error.strerror}") from error
    if not size:
        raise Refused(Code.NOT_A_FILM, "the file is empty")
    stated = int.from_bytes(head[4:8], "little") + 8
    if head[:4] == b"RIFF" and head[8:] == b"AVI " and size < stated * PRESENT and stated < 1 << 31:
        raise Refused(Code.TRUNCATED, f"the file has {size} bytes, though its header states {stated}")


def _open(path: Path, limits: Limits, decoding: dict[str, str]) -> "InputContainer":
    options = {
        "format_whitelist": FORMATS,
        "protocol_whitelist": "file",
        "codec_whitelist": DECODERS,
        "probesize": str(PROBE_BYTES),
        "analyzeduration": "5000000",
        "max_streams": str(limits.streams + 1),
        **decoding,
    }
    # An absolute file URL, so that a name with a colon is not taken for a protocol.
    name = "file:" + os.path.abspath(path)
    try:
        return av.open(name, metadata_errors="ignore", options=options)
    except (av.error.FFmpegError, OSError, ValueError, MemoryError) as error:
        raise _unreadable(error, path) from error


def _size(path: Path, limits: Limits) -> tuple[int, int]:
    """Returns the size of the picture, without decoding any: ffmpeg hides the size of a picture that is too large."""
    with closing(_open(path, limits, {"skip_frame": "all"})) as container:
        context = film_stream(container).codec_context
        return context.width, context.height


def _unreadable(error: Exception, path: Path) -> Refused:
    if isinstance(error, PermissionError):
        return Refused(Code.MISSING, "the file cannot be read: permission denied")
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return Refused(Code.MEMORY, "the header of the file needs more memory than a worker may use")
    if looks_like_film(path):
        return Refused(
            Code.TRUNCATED, f"the file begins like a film, but its index is missing or damaged: {said(error)}"
        )
    return Refused(Code.NOT_A_FILM, "the file is not a film, or of a kind that is not supported")


def looks_like_film(path: Path) -> bool:
    """Returns whether the first bytes are those of a common film container."""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(16)
        return head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free") or head[:4] in (
            b"\x1a\x45\xdf\xa3", b"RIFF", b"FLV\x01", b"OggS", b"\x00\x00\x01\xba",
        )  # fmt: skip
    return False


def said(error: Exception) -> str:
    """Returns the message of ffmpeg without its decoration."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).strip().rstrip(".")


def film_stream(container: "InputContainer") -> "VideoStream":
    """Returns the video stream with the largest picture, covers aside. Raises Refused if there is none.

    Some cameras write a small preview as the first stream.
    """
    films = [each for each in container.streams.video if not is_cover(each)]
    if not films:
        sound = len(container.streams.audio)
        text = "the file has no video" + (f", only {sound} sound track{'s' * (sound != 1)}" if sound else "")
        raise Refused(Code.NO_VIDEO, text)
    return max(films, key=_pixels)


def _pixels(stream: "VideoStream") -> int:
    """Returns the size of the picture; 0 if the codec is unknown."""
    context: Any = stream.codec_context
    return 0 if context is None else context.width * context.height


def is_cover(stream: Any) -> bool:
    """Returns whether a video stream is a picture attached to sound."""
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def probe(container: "InputContainer", path: Path, limits: Limits) -> Probe:
    """Reads the header. Raises Refused if the film is outside the limits or cannot be decoded."""
    stream = film_stream(container)
    context = stream.codec_context
    if context is None or context.codec is None or context.codec.name not in DECODERS.split(","):  # pyright: ignore[reportUnnecessaryComparison]
        name = "unknown" if context is None else context.name  # pyright: ignore[reportUnnecessaryComparison]
        raise Refused(Code.UNSUPPORTED, f"the video codec {name} is not supported")
    width, height = context.width, context.height
    if width <= 0 or height <= 0:
        width, height = _size(path, limits)
    limits.check_pixels(width, height)
    if width <= 0 or height <= 0:
        raise Refused(Code.DAMAGED, "the header does not state the size of the picture")
    seconds = stated_seconds(container, stream)
    if seconds is not None and clock_restarts(container):
        seconds = seconds if seconds <= limits.seconds else None  # how long it is shows when it is decoded
    elif seconds is not None:
        limits.check_seconds(seconds)
    aspect = pixel_aspect(stream.sample_aspect_ratio)
    rate = stream.average_rate
    return Probe(
        container=container_name(container.format.name, container.metadata.get("major_brand", ""), path),
        codec=context.codec.canonical_name,
        width=max(1, round(width * aspect)) if aspect >= 1 else width,
        height=height if aspect >= 1 else max(1, round(height / aspect)),
        rotation=0,
        pixel_aspect=aspect,
        seconds=seconds,
        frame_rate=float(rate) if rate else None,
        video_streams=len(container.streams.video),
        audio_streams=len(container.streams.audio),
        bytes=path.stat().st_size,
    )


def container_name(names: str, brand: str, path: Path) -> str:
    """Returns the name of a container: ffmpeg has one demuxer for MP4 and MOV, and one for Matroska and WebM."""
    found = names.split(",")[0]
    if found == "mov":
        return "mov" if brand.strip() in ("", "qt") else "mp4"
    if found == "matroska":
        with path.open("rb") as file:
            return "webm" if b"\x42\x82\x84webm" in file.read(64) else found
    return found


def clock_restarts(container: "InputContainer") -> bool:
    """Returns whether the clock may begin anew in the middle, as where recordings are joined.

    Such a container states no length: ffmpeg takes the difference of the last and the first time for it.
    """
    return container.format.name in ("mpegts", "mpeg")


def stated_seconds(container: "InputContainer", stream: "VideoStream") -> float | None:
    """Returns the length that the header states, or None."""
    return stated_video_seconds(container, stream) or _stated_whole(container)


def stated_video_seconds(container: "InputContainer", stream: "VideoStream") -> float | None:
    """Returns the length that the header states for the video alone: sound may be longer. None if it states none."""
    if stream.duration and stream.time_base and stream.duration > 0:
        return float(stream.duration * stream.time_base)
    if found := _DURATION.fullmatch(stream.metadata.get("DURATION", "")):  # Matroska
        end = int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3])
        start = float(stream.start_time * stream.time_base) if stream.start_time and stream.time_base else 0.0
        return _from(start, end)
    return _stated_whole(container) if len(container.streams) == 1 else None


def _stated_whole(container: "InputContainer") -> float | None:
    if not container.duration or container.duration <= 0:
        return None
    end = container.duration / av.time_base
    if "matroska" not in container.format.name:
        return end
    return _from((container.start_time or 0) / av.time_base, end)


def _from(start: float, end: float) -> float | None:
    """Returns the length of a Matroska file, whose header states the end.

    A part that was cut out of a recording may begin at the time that it had there.
    """
    return (end - max(0.0, start)) if end > start else None


def pixel_aspect(ratio: Fraction | None) -> float:
    """Returns width by height of a pixel; 1 if the file states none or an absurd one."""
    aspect = float(ratio) if ratio else 1.0
    return aspect if 1 / ODD_ASPECT <= aspect <= ODD_ASPECT else 1.0
