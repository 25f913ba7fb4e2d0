"""Decides which worker may start now: starts are staggered, few load at a time, and their memory and GPUs must fit.

Pure. Places that are due wait in a line, in order; a place that does not fit lets others pass.
"""

import math
from collections.abc import Mapping

from chargehand.model.fleet.cards import Holding, Lack, Reading, WorkerGpu, assign, size
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place, Shortage
from chargehand.model.fleet.policy import StartPolicy, Terms

FRESH = 30.0
"""Seconds for which a reading of the GPUs counts."""
TURN = 30.0
"""Seconds after which a place that waits for memory gets that of a worker which is always busy."""


class Admission:
    """The line of places that are due to start."""

    def __init__(self, policy: StartPolicy, crews: Mapping[str, Terms]) -> None:
        self._policy, self._crews = policy, crews
        self._line: list[Place] = []
        self._next_at = 0.0
        self._full = False
        """Whether no place in the line can start until a worker has exited or finished loading."""
        self.waiting: set[str] = set()
        """The components whose reason to wait has changed; the caller empties it."""
        self.reading: Reading | None = None
        """What is known of the GPUs; None before the first reading."""
        self._read_at = self._freed_at = -math.inf
        self.unread = False
        """Whether a place cannot start because the last reading of the GPUs is missing or outdated."""

    def join(self, place: Place) -> None:
        """Adds a place that is due to the line."""
        if not place.in_line:
            place.start_at, place.in_line = None, True
            self._line.append(place)
            self._full = False

    def leave(self, place: Place) -> None:
        """Removes a place from the line."""
        if place.in_line:
            place.in_line, place.shortage, place.short_since = False, None, None
            self._line.remove(place)

    def next_due(self) -> float | None:
        """Returns when the next place may start, if only the stagger interval delays it."""
        return self._next_at if self._line and not self._full else None

    def admit(self, places: Mapping[str, Place], now: float) -> Place | None:
        """Removes and returns the next place that may start now; None if there is none."""
        if not self._line or self._full or now < self._next_at:
            return None
        if sum(place.status is Status.STARTING for place in places.values()) < self._policy.most_loading:
            reserved: Place | None = None
            for place in self._line:
                found = self._room(place, places, now, reserved)
                if not isinstance(found, Lack):
                    self.leave(place)
                    place.gpus = found
                    self._next_at = now + self._policy.stagger
                    return place
                if place.shortage is None or place.text != found.text:
                    self.waiting.add(place.component)
                place.shortage = Shortage.PERMANENT if found.permanent else Shortage.TEMPORARY
                place.text, place.short_of = found.text, found.memory
                since = now if place.short_since is None else place.short_since
                place.short_since = since if self._can_fit(place, places) else None
                if reserved is None and place.short_since is not None and now - since >= TURN:
                    reserved = place
        self._full = True
        return None

    def short(self) -> Place | None:
        """Returns the place that has waited longest for declared memory that others can release."""
        waiting = [place for place in self._line if place.short_since is not None]
        return min(waiting, key=lambda place: place.short_since or 0.0, default=None)

    def holds(self, place: Place, what: str) -> bool:
        """Returns whether the worker of this place runs and declares memory of this kind."""
        return place.alive and self._declared(place, what) > 0

    def _can_fit(self, place: Place, places: Mapping[str, Place]) -> bool:
        """Returns whether the place fits as soon as every worker has exited that its next job starts again."""
        total: int | None = getattr(self._policy, place.short_of) if place.short_of else None
        if total is None:
            return False
        stay = [other for other in places.values() if other.alive and self._crews[other.crew].idle_exit is None]
        return self._declared(place, place.short_of) + sum(self._declared(o, place.short_of) for o in stay) <= total

    def look_again(self) -> None:
        """Checks the line again: a worker has exited or is ready."""
        self._full = False

    def read(self, reading: Reading, now: float) -> Reading:
        """Takes over a reading of the GPUs; returns what is known of them now."""
        self.reading, self._read_at = reading.after(self.reading), now
        self._full = self.unread = False
        return self.reading

    def freed(self, now: float) -> None:
        """Records that a worker with GPUs has exited: an earlier reading still counts its memory as used."""
        self._freed_at = now

    def _room(
        self, place: Place, places: Mapping[str, Place], now: float, reserved: Place | None
    ) -> tuple[WorkerGpu, ...] | Lack:
        """Returns the GPUs for the place, none if it needs none; or why it does not fit. What becomes free is for
        the place `reserved`, which has waited for long."""
        if reserved is not None and self._declared(place, reserved.short_of):
            return Lack(f"waits for {reserved.component}, which is to start first", memory=reserved.short_of)
        for what, name in (("memory", "memory"), ("gpu_memory", "GPU memory")):
            total: int | None = getattr(self._policy, what)
            need: int = self._declared(place, what)
            if total is None or not need:
                continue
            taken = sum(self._declared(other, what) for other in places.values() if other.alive)
            if need > total:
                return Lack(f"needs {size(need)} of {name}; the limit is {size(total)}", permanent=True)
            if taken + need > total:
                left = size(max(0, total - taken))
                text = f"waits for {name}: needs {size(need)}; {left} of {size(total)} are free"
                return Lack(text, memory=what)
        gpus = self._crews[place.crew].gpus
        if gpus is None:
            return ()
        fresh = self.reading is not None and self.reading.at >= self._freed_at and now - self._read_at <= FRESH
        self.unread |= not fresh
        holdings = [self._holding(other) for other in places.values() if other.gpus]
        return assign(gpus, self.reading if fresh else None, holdings)

    def _declared(self, place: Place, what: str) -> int:
        """Returns how much memory of a kind the crew of this place declares for each worker."""
        terms = self._crews[place.crew]
        gpus = terms.gpus.count if terms.gpus is not None and what == "gpu_memory" else 1
        return (getattr(terms, what) or 0) * gpus

    def _holding(self, place: Place) -> Holding:
        at = -math.inf if self.reading is None else self.reading.at
        settled = place.ready_at is not None and place.ready_at <= at
        need, uuids = self._crews[place.crew].gpus, frozenset(gpu.uuid for gpu in place.gpus)
        return Holding(uuids=uuids, memory=None if need is None else need.memory, settled=settled)
