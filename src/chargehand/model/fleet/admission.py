"""Decides which worker may start now: starts are staggered, few workers load at a time, and their memory must fit.

Pure. Places that are due wait in a line, in order; a place that does not fit lets others pass.
"""

from collections.abc import Mapping

from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place, Shortage
from chargehand.model.fleet.policy import StartPolicy, Terms


class Admission:
    """The line of places that are due to start."""

    def __init__(self, policy: StartPolicy, crews: Mapping[str, Terms]) -> None:
        self._policy, self._crews = policy, crews
        self._line: list[Place] = []
        self._next_at = 0.0
        self._full = False
        """Whether no place in the line can start until a worker has exited or finished loading."""

    def join(self, place: Place) -> None:
        """Adds a place that is due to the line."""
        if not place.in_line:
            place.start_at, place.in_line = None, True
            self._line.append(place)
            self._full = False

    def leave(self, place: Place) -> None:
        """Removes a place from the line."""
        if place.in_line:
            place.in_line, place.shortage = False, None
            self._line.remove(place)

    def next_due(self) -> float | None:
        """Returns when the next place may start, if only the stagger interval delays it."""
        return self._next_at if self._line and not self._full else None

    def admit(self, places: Mapping[str, Place], now: float) -> Place | None:
        """Removes and returns the next place that may start now; None if there is none."""
        if not self._line or self._full or now < self._next_at:
            return None
        if sum(place.status is Status.STARTING for place in places.values()) < self._policy.most_loading:
            for place in self._line:
                place.shortage, text = self._shortage(place, places)
                if place.shortage is None:
                    self.leave(place)
                    self._next_at = now + self._policy.stagger
                    return place
                place.text = text
        self._full = True
        return None

    def look_again(self) -> None:
        """Checks the line again: a worker has exited or is ready."""
        self._full = False

    def _shortage(self, place: Place, places: Mapping[str, Place]) -> tuple[Shortage | None, str]:
        """Returns why the place's memory does not fit, as a code and as text; None and an empty text if it does."""
        for what, name in (("memory", "memory"), ("gpu_memory", "GPU memory")):
            total: int | None = getattr(self._policy, what)
            need: int = getattr(self._crews[place.crew], what) or 0
            if total is None or not need:
                continue
            taken = sum(getattr(self._crews[other.crew], what) or 0 for other in places.values() if other.alive)
            if need > total:
                return Shortage.PERMANENT, f"needs {_size(need)} of {name}; the limit is {_size(total)}"
            if taken + need > total:
                left = _size(max(0, total - taken))
                return Shortage.TEMPORARY, f"waits for {name}: needs {_size(need)}; {left} of {_size(total)} are free"
        return None, ""


def _size(count: int) -> str:
    """Formats a number of bytes."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.1f} B"
