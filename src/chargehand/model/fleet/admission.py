"""Who may start now: starts are staggered, few load at a time, and no more than fit into memory.

Pure. Places that are due wait in a line, in order; one that does not fit lets others pass.
"""

from collections.abc import Mapping

from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import StartPolicy, Terms

NEVER = "can never fit"


class Admission:
    """The line of those who are due to start."""

    def __init__(self, policy: StartPolicy, crews: Mapping[str, Terms]) -> None:
        self._policy, self._crews = policy, crews
        self._line: list[Place] = []
        self._next_at = 0.0
        self._full = False
        """Nobody fits until somebody has ended or is done with loading."""

    def join(self, place: Place) -> None:
        """The place is due."""
        if not place.in_line:
            place.start_at, place.in_line = None, True
            self._line.append(place)
            self._full = False

    def leave(self, place: Place) -> None:
        """It is not to be started after all."""
        if place.in_line:
            place.in_line = False
            self._line.remove(place)

    def next_due(self) -> float | None:
        """When somebody may be admitted, if only time is in the way."""
        return self._next_at if self._line and not self._full else None

    def admit(self, places: Mapping[str, Place], now: float) -> Place | None:
        """The next one that may start now."""
        if not self._line or self._full or now < self._next_at:
            return None
        if sum(place.status is Status.STARTING for place in places.values()) < self._policy.most_loading:
            for place in self._line:
                lacking = self._lacking(place, places)
                if lacking is None:
                    self.leave(place)
                    self._next_at = now + self._policy.stagger
                    return place
                place.text = lacking
                place.unfit = lacking.startswith(NEVER)
        self._full = True
        return None

    def look_again(self) -> None:
        """Somebody ended, or is done with loading: there may be room."""
        self._full = False

    def _lacking(self, place: Place, places: Mapping[str, Place]) -> str | None:
        for what, name in (("memory", "memory"), ("gpu_memory", "GPU memory")):
            total: int | None = getattr(self._policy, what)
            need: int = getattr(self._crews[place.crew], what) or 0
            if total is None or not need:
                continue
            taken = sum(getattr(self._crews[other.crew], what) or 0 for other in places.values() if other.alive)
            if need > total:
                return f"{NEVER} into {name}: it needs {_size(need)}, and there are {_size(total)} in all"
            if taken + need > total:
                return (
                    f"waits for {name}: it needs {_size(need)}, and of {_size(total)} only "
                    f"{_size(max(0, total - taken))} are not promised to others"
                )
        return None


def _size(count: int) -> str:
    """Bytes, for people."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.1f} B"
