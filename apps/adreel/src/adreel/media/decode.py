"""Decodes the frames of a film once, in order, with their presentation times."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av.error
from av.stream import Discard

from adreel.media.limits import Limits, Refused
from adreel.media.probe import PRESENT, clock_restarts, film_stream, pixel_aspect, said, stated_video_seconds
from adreel.records import Code

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

DAMAGED = 0.1
"""The accepted share of damaged packets; they are skipped as players do."""
UNSTEADY = 0.1
"""The frame rate varies if the distance of two frames differs by more than this share from the one before."""
RESTARTED = 1.0
"""Seconds by which a time may lie before the last one without being a new clock."""
JUMPED = 10.0
"""Seconds by which a time may lie after the last one without being a new clock; that of ffmpeg."""
DEFAULT_STEP = 0.04


@dataclass(frozen=True, slots=True)
class Timed:
    """A decoded frame; `time` counts from the first frame, in seconds."""

    time: float
    frame: "VideoFrame"


class Decoder:
    """Decodes a film. The counters are complete when `frames` has ended."""

    def __init__(self, container: "InputContainer", limits: Limits, threads: int = 1) -> None:
        self.container, self.limits, self.threads = container, limits, threads
        self.stream = film_stream(container)
        context = self.stream.codec_context
        context.thread_count = threads
        context.thread_type = "AUTO" if threads > 1 else "SLICE"
        context.options = {"max_pixels": str(limits.pixels)}
        for other in container.streams:
            if other is not self.stream:
                other.discard = Discard.all
        self.pixel_aspect = pixel_aspect(self.stream.sample_aspect_ratio)
        self.rotation = 0
        """Degrees by which the frames are turned clockwise for display."""
        self.count = self.packets = self.damaged = self._uneven = 0
        self.end = 0.0
        """When the last frame ends."""
        self._restarts = clock_restarts(container)
        self._stated = None if self._restarts else stated_video_seconds(container, self.stream)
        self._clock = _Clock()
        self._first: float | None = None
        self._last = -1.0
        self._step = 0.0
        self._error = ""

    @property
    def variable(self) -> bool:
        """Whether the frame rate varies; a few frames that were dropped do not count."""
        return self._uneven > max(2, self.count // 50)

    def frames(self) -> Iterator[Timed]:
        """Yields the frames. Raises Refused if the film is damaged or exceeds a limit."""
        try:
            for packet in self._read():
                yield from self._decode(packet)
        except (av.error.FFmpegError, OSError) as error:
            self._failed(error)
        self._check()

    def _read(self) -> "Iterator[Packet[VideoStream]]":
        try:
            yield from self.container.demux(self.stream)
        except IndexError:
            # PyAV knows no streams that begin in the middle of a transport stream, and at the end may look for one of
            # them. All packets of this stream have come by then: those of later streams follow.
            return

    def _decode(self, packet: "Packet[VideoStream]") -> Iterator[Timed]:
        self.packets += packet.size > 0
        try:
            frames = packet.decode()
        except MemoryError as error:
            raise Refused(Code.MEMORY, "a frame needs more memory than a worker may use") from error
        except av.error.FFmpegError as error:
            self._failed(error)
            return
        for frame in frames:
            self.limits.check_pixels(frame.width, frame.height)
            yield Timed(self._time(frame), frame)

    def _failed(self, error: Exception) -> None:
        self.damaged += 1
        self._error = said(error)

    def _time(self, frame: "VideoFrame") -> float:
        """Returns the presentation time, from the first frame on; it always grows."""
        step = self._step or self._nominal()
        stated = self._clock.time(frame)
        if self._first is None:
            self._first = stated or 0.0
            self.rotation = quarter_turns(-int(frame.rotation))
            time = 0.0
        else:
            time = self._last + step if stated is None else stated - self._first
            jumped = self._restarts and time > self._last + JUMPED
            if jumped or time < self._last - RESTARTED:  # the clock of a transport stream begins anew
                time = self._last + step
                self._first = (stated or 0.0) - time
            elif time <= self._last:
                time = self._last + step / 10
            now = time - self._last
            self._uneven += self.count > 1 and abs(now - self._step) > max(UNSTEADY * now, 0.002)
            self._step = now
        self.count += 1
        self._last = time
        length = float(frame.duration * frame.time_base) if frame.duration and frame.time_base else 0.0
        self.end = time + (length or self._step or self._nominal())
        self.limits.check_seconds(self.end)
        return time

    def _nominal(self) -> float:
        rate = self.stream.average_rate
        return float(1 / rate) if rate else DEFAULT_STEP

    def _check(self) -> None:
        if not self.count:
            text = f"no frame can be decoded: {self._error or 'the file contains none'}"
            raise Refused(Code.DAMAGED if self.packets else Code.TRUNCATED, text)
        if self.damaged > max(1.0, self.packets * DAMAGED):
            text = f"{self.damaged} of {self.packets} packets are damaged: {self._error}"
            raise Refused(Code.DAMAGED, text)
        if self._stated is not None and self.end < self._stated * PRESENT - 1:
            text = f"the film ends after {self.end:.1f} s, though its header states {self._stated:.1f} s"
            raise Refused(Code.TRUNCATED, text)


def quarter_turns(degrees: int) -> int:
    """Returns the nearest of 0, 90, 180 and 270 degrees; 0 for what is no angle, as that of an empty matrix."""
    return 0 if abs(degrees) > 360 else round(degrees / 90) * 90 % 360


class _Clock:
    """Chooses between the presentation and the decoding time of frames, as ffmpeg does: some files have wrong ones."""

    def __init__(self) -> None:
        self._faults = [0, 0]
        self._last = [-(1 << 62), -(1 << 62)]

    def time(self, frame: "VideoFrame") -> float | None:
        """Returns the time of a frame in seconds, or None if the file states none."""
        stated = (frame.pts, frame.dts)
        for which, value in enumerate(stated):
            if value is not None:
                self._faults[which] += value <= self._last[which]
                self._last[which] = value
        pts, dts = stated
        chosen = pts if pts is not None and (dts is None or self._faults[0] <= self._faults[1]) else dts
        return None if chosen is None or frame.time_base is None else float(chosen * frame.time_base)
