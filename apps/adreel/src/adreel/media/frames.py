"""The one decode of a film: finds its scenes and keeps key frames as JPEG."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import cv2
import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from adreel.media.decode import Decoder, Timed
from adreel.media.scenes import CutDetector, Picture
from adreel.records import Scene, Still, still_name

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

SMALL = (64, 36)
"""Size of the pictures that are compared."""
LONGEST_SIDE = 1280
"""Pixels of the longer side of a key frame."""
QUALITY = 90
FIRST_INTERVAL = 0.4
"""Seconds between two candidates at the start of a scene."""
MOST_CANDIDATES = 16
SECONDS_A_STILL = 3.0
MOST_STILLS_OF_A_SCENE = 6
SAME = 24
"""The greatest difference in brightness, of 255, at any place of two pictures that count as the same."""
FLAT = 16
"""The greatest range of brightness in a picture of one colour."""
DENSE_STILLS = 1000
"""Key frames after which they must be further apart."""
MOST_STILLS = 3000

Tell = Callable[[float], None]
"""Called with the time of each frame; reports progress and raises if the work was cancelled."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    time: float
    small: Picture
    jpeg: bytes
    flat: bool


@dataclass(slots=True)
class _Album:
    """Candidates for the key frames of the scene that is being decoded: few, however long the scene is."""

    candidates: list[_Candidate] = field(default_factory=list[_Candidate])
    interval: float = FIRST_INTERVAL

    def wants(self, time: float) -> bool:
        return not self.candidates or time - self.candidates[-1].time >= self.interval

    def add(self, candidate: _Candidate) -> None:
        self.candidates.append(candidate)
        if len(self.candidates) > MOST_CANDIDATES:
            self.candidates = self.candidates[::2]
            self.interval *= 2

    def split(self, cut: float) -> "_Album":
        """Returns the candidates before a cut; those after it stay."""
        before = _Album([each for each in self.candidates if each.time < cut])
        self.candidates = [each for each in self.candidates if each.time >= cut]
        self.interval = FIRST_INTERVAL
        return before

    def chosen(self, start: float, end: float) -> list[_Candidate]:
        """Returns the best picture of the scene, after its beginning, and others that show something else."""
        if not self.candidates:
            return []
        most = min(MOST_STILLS_OF_A_SCENE, 1 + int((end - start) / SECONDS_A_STILL))
        best = start + 0.6 * (end - start)  # text that moves in is complete by then
        ranked = sorted(self.candidates, key=lambda each: (each.flat, abs(each.time - best)))
        chosen = ranked[:1]
        while len(chosen) < most:
            distances = [(min(_greatest_change(each, other) for other in chosen), each) for each in ranked]
            distance, next_one = max(distances, key=lambda pair: pair[0])
            if distance <= SAME:
                break
            chosen.append(next_one)
        return sorted(chosen, key=lambda each: each.time)


def _greatest_change(one: _Candidate, other: _Candidate) -> int:
    return int(np.abs(one.small.astype(np.int16) - other.small).max())


class Shaper:
    """Scales frames; corrects rotation and pixel aspect of those that people see."""

    def __init__(self, pixel_aspect: float, threads: int) -> None:
        self.pixel_aspect, self.threads = pixel_aspect, threads
        self._to_small, self._to_still = VideoReformatter(), VideoReformatter()

    def small(self, frame: "VideoFrame") -> Picture:
        """Returns the frame as a small picture for comparison."""
        shaped = self._to_small.reformat(
            frame, SMALL[0], SMALL[1], "yuv444p", interpolation=Interpolation.AREA, threads=self.threads
        )
        return cast("Picture", shaped.to_ndarray())

    def still(self, frame: "VideoFrame", rotation: int) -> NDArray[np.uint8]:
        """Returns the frame as people see it, in BGR, not larger than a key frame may be."""
        width, height = display_size(frame.width, frame.height, self.pixel_aspect)
        shaped = self._to_still.reformat(
            frame, width, height, "bgr24", interpolation=Interpolation.AREA, threads=self.threads
        )
        return np.ascontiguousarray(np.rot90(cast("Picture", shaped.to_ndarray()), -rotation // 90))


def display_size(width: int, height: int, pixel_aspect: float, longest: int = LONGEST_SIDE) -> tuple[int, int]:
    """Returns the size of a picture with square pixels; one side grows, so that no line is lost."""
    wide, high = (width * pixel_aspect, float(height)) if pixel_aspect >= 1 else (width, height / pixel_aspect)
    scale = min(1.0, longest / max(wide, high))
    return max(2, round(wide * scale)), max(2, round(high * scale))


@dataclass(slots=True)
class _Stills:
    """Writes key frames, and spaces them out in a film of very many scenes."""

    folder: Path
    count: int = 0
    last: float = -1e9

    def spacing(self) -> float:
        """Returns how far apart, in seconds, key frames must be by now."""
        return 0.0 if self.count < DENSE_STILLS else 2.0 ** (self.count // 500)

    def has_room(self, time: float) -> bool:
        return self.count < MOST_STILLS and time - self.last >= self.spacing()

    def write(self, candidate: _Candidate) -> Still:
        self.count, self.last = self.count + 1, candidate.time
        (self.folder / still_name(self.count)).write_bytes(candidate.jpeg)
        return Still(self.count, round(candidate.time, 3), candidate.flat)


class Cutter:
    """Cuts a film into scenes while it is decoded."""

    def __init__(self, decoder: Decoder, folder: Path) -> None:
        """Key frames are written into the folder `frames` of `folder`, which is created."""
        self.decoder = decoder
        self.scenes: list[Scene] = []
        self._shaper = Shaper(decoder.pixel_aspect, decoder.threads)
        self._detector = CutDetector()
        self._album = _Album()
        self._start = 0.0
        self._stills = _Stills(folder)
        (folder / still_name(1)).parent.mkdir(parents=True, exist_ok=True)

    def run(self, tell: Tell) -> None:
        """Decodes the film; `scenes` is complete afterwards."""
        for timed in self.decoder.frames():
            self._take(timed)
            tell(timed.time)
        end = self.decoder.end
        if (cut := self._detector.finish(end)) is not None:
            self._close(cut)
        self._close(end)

    def _take(self, timed: Timed) -> None:
        small = self._shaper.small(timed.frame)
        if (cut := self._detector.feed(timed.time, small)) is not None:
            self._close(cut)
        if self._album.wants(timed.time) and self._stills.has_room(timed.time):
            self._album.add(self._candidate(timed, small))

    def _candidate(self, timed: Timed, small: Picture) -> _Candidate:
        picture = self._shaper.still(timed.frame, self.decoder.rotation)
        flat = is_flat(picture)
        done, jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
        if not done:
            raise RuntimeError("OpenCV cannot encode a key frame as JPEG")
        return _Candidate(timed.time, small, jpeg.tobytes(), flat)

    def _close(self, end: float) -> None:
        album = self._album.split(end)
        chosen = album.chosen(self._start, end)
        stills = [self._stills.write(each) for each in chosen if self._stills.has_room(each.time)]
        self.scenes.append(Scene(len(self.scenes) + 1, round(self._start, 3), round(end, 3), stills))
        self._start = end


def is_flat(picture: NDArray[np.uint8]) -> bool:
    """Returns whether a picture has one colour, so that it contains no text."""
    grey: Any = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
    return int(grey.max()) - int(grey.min()) <= FLAT
