"""Finds cuts in a stream of small pictures, and groups scenes into the runs that are read together."""

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adreel.records import Scene

Picture = NDArray[np.uint8]
"""A small picture with its three planes (Y, U, V)."""

CERTAIN = 60.0
HARD = 30.0
SOFT = 8.0
SHORTEST = 0.3
"""Seconds of the shortest scene; a picture that returns within this time was a flash."""
DARK = 30
"""The greatest brightness (of 255, black is 16) of a picture that counts as black."""
RUN_SECONDS = 2.0
RUN_STILLS = 4
MOST_RUNS = 1000


def difference(one: Picture, other: Picture) -> float:
    """Returns how much two pictures differ: the mean absolute differences of the planes, added."""
    planes: NDArray[Any] = np.abs(one.astype(np.int16) - other).reshape(3, -1).mean(axis=1)
    return float(planes.sum())


@dataclass(frozen=True, slots=True)
class _Pending:
    time: float
    before: Picture


class CutDetector:
    """Reports cuts some frames after they happened, when it is certain that they were no flash."""

    def __init__(self) -> None:
        self._previous: Picture | None = None
        self._recent: deque[float] = deque(maxlen=9)
        self._pending: _Pending | None = None
        self._dark_since: float | None = None
        self._seen_light = False
        self._last_cut = 0.0

    def feed(self, time: float, picture: Picture) -> float | None:
        """Takes the next picture. Returns the time of a cut, which is that of the first frame after it, or None."""
        previous, self._previous = self._previous, picture
        if previous is None:
            self._follow_dark(time, picture)
            return None
        cut = self._confirm(time)
        if self._pending is not None and difference(picture, self._pending.before) < HARD / 3:
            self._pending = None  # it was a flash, and its end is no cut, either
            return cut
        score = difference(picture, previous)
        if self._pending is None and time - self._last_cut >= SHORTEST and self._is_cut(score):
            self._pending = _Pending(time, previous)
        self._recent.append(score)
        faded = self._follow_dark(time, picture)
        return faded if cut is None else cut

    def _is_cut(self, score: float) -> bool:
        usual = median(self._recent) if self._recent else 0.0
        if score >= HARD:
            return score >= CERTAIN or score >= 1.8 * usual
        return score >= SOFT and score >= 8 * (usual + 0.5)

    def _confirm(self, time: float) -> float | None:
        if self._pending is None or time - self._pending.time < SHORTEST:
            return None
        cut, self._pending = self._pending.time, None
        self._last_cut = cut
        return cut

    def _follow_dark(self, time: float, picture: Picture) -> float | None:
        """Returns a cut in the middle of a passage of black, if no cut was seen where it begins or ends."""
        if int(picture.reshape(3, -1)[0].max()) <= DARK:
            self._dark_since = time if self._dark_since is None else self._dark_since
            return None
        since, self._dark_since = self._dark_since, None
        seen, self._seen_light = self._seen_light, True
        if since is None or not seen or self._pending is not None:
            return None
        middle = (since + time) / 2
        if self._last_cut >= since or middle - self._last_cut < SHORTEST:
            return None
        self._last_cut = middle
        return middle

    def finish(self, end: float) -> float | None:
        """Returns the cut that was not yet certain, if the scene after it is long enough."""
        return self._confirm(end)


def runs_of(scenes: list[Scene]) -> list[tuple[int, int]]:
    """Returns the runs of scenes that are read together, as first and last scene: at most 1,000.

    A scene of two seconds or more is a run of its own. Scenes without a picture that may contain text are in none.
    """
    scale = 1
    while len(runs := _runs(scenes, scale)) > MOST_RUNS:
        scale *= 2
    return runs


def _runs(scenes: list[Scene], scale: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    first: int | None = None
    last, seconds, stills = 0, 0.0, 0
    for scene in scenes:
        readable = sum(not still.flat for still in scene.stills)
        if not readable:
            continue
        length = scene.end - scene.start
        full = seconds + length > RUN_SECONDS * scale or stills + readable > RUN_STILLS * scale
        if first is not None and full:
            runs.append((first, last))
            first, seconds, stills = None, 0.0, 0
        first = scene.number if first is None else first
        last, seconds, stills = scene.number, seconds + length, stills + readable
    return runs if first is None else [*runs, (first, last)]
