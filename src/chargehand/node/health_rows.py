"""Decides when to write health rows for readers in other processes: the node's heartbeat, its workers, the history.

A change of status is written at once, everything else every few seconds; never for every short job. In a store that
several nodes share, what workers do is written once a second while they do something: other nodes see it only there.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chargehand.live.bodies import health_note, rounded_memory
from chargehand.model import chores
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.health import APP
from chargehand.model.ledger import Ledger
from chargehand.model.records import HealthNote
from chargehand.node.handle import Handle
from chargehand.processes import proc

SOON = 0.05
"""Seconds for which changes are collected."""
WORK_EVERY = 1.0
"""Seconds between two writes of what workers do."""


class HealthRows:
    """Keeps which rows are out of date. The node asks `due` and `chores`."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: Ledger,
        handles: Mapping[str, Handle],
        *,
        now: float,
        beat: float,
        history: float | None,
        shared: Callable[[float], dict[str, Any]] | None = None,
    ) -> None:
        """`beat`: seconds between two heartbeats of the node; `history`: between two snapshots, or None.

        `shared` returns what other nodes are told of this one; None in a store for one node.
        """
        self._fleet, self._ledger, self._handles = fleet, ledger, handles
        own = proc.stat(os.getpid())
        self._own_start = own.start if own else None
        self._beat_at = now
        self._beat, self._history, self._shared = beat, history, shared
        self._work_at: float | None = None
        self._written: dict[str, tuple[Any, ...]] = {}
        """What was written last of the work of each worker."""
        self._snapshot_at = None if history is None else now + min(beat, history)
        self._changed: set[str] = set()
        self._changed_at: float | None = None

    def changed(self, component: str, now: float) -> None:
        """Write the row of this component soon."""
        self._changed.add(component)
        if self._changed_at is None:
            self._changed_at = now + SOON

    def worked(self, now: float) -> None:
        """Write the rows of workers whose work has changed within a second, if others read them."""
        if self._shared is not None and self._work_at is None:
            self._work_at = now + WORK_EVERY

    def due(self) -> float:
        """Returns when the next rows are to be written."""
        due = self._beat_at
        if self._work_at is not None:
            due = min(due, self._work_at)
        if self._changed_at is not None:
            due = min(due, self._changed_at)
        return due if self._snapshot_at is None else min(due, self._snapshot_at)

    def beat_soon(self, now: float) -> None:
        """Write all rows now, because the node itself has changed."""
        self._beat_at = min(self._beat_at, now)

    def chores(self, now: float, text: str | None, drain: str | None = None) -> list[chores.Chore]:
        """Returns what to write now. `text`: what is wrong with the node, if anything; `drain`: its state."""
        found: list[chores.Chore] = []
        beat = now >= self._beat_at
        if self._work_at is not None and now >= self._work_at:
            self._note_work(now)
        if beat or (self._changed_at is not None and now >= self._changed_at):
            wanted = list(self._fleet.places) if beat else [c for c in self._changed if c in self._fleet.places]
            gone = tuple(component for component in self._changed if component not in self._fleet.places)
            notes = [self._note(component, now) for component in wanted]
            whole = beat or self._shared is not None
            found.append(chores.Project((self._own(now, text, drain), *notes) if whole else tuple(notes), gone))
            self._changed.clear()
            self._changed_at = None
        if beat:
            self._beat_at = now + self._beat
            found.append(chores.LookAtQueues())
        if self._snapshot_at is not None and self._history is not None and now >= self._snapshot_at:
            self._snapshot_at = now + self._history
            found.append(chores.TakeSnapshot())
        return found

    def _note_work(self, now: float) -> None:
        """Adds the workers that do something else than was written last to those whose rows are out of date."""
        doing = {component: self._doing(component) for component in self._fleet.places}
        self._changed.update(component for component, what in doing.items() if self._written.get(component) != what)
        self._written = doing
        if self._changed:
            self._changed_at = now
        self._work_at = now + WORK_EVERY if self._ledger.held else None

    def _doing(self, component: str) -> tuple[Any, ...]:
        held, handle = self._ledger.held.get(component), self._handles.get(component)
        health = handle.health if handle else None
        return (
            held and held.claim.id,
            (health.progress, rounded_memory(health.memory)) if held and health else None,
            self._fleet.places[component].jobs,
        )

    def _note(self, component: str, now: float) -> HealthNote:
        place = self._fleet.places[component]
        return health_note(place, self._handles.get(component), self._ledger.held.get(component), now)

    def _own(self, now: float, text: str | None, drain: str | None) -> HealthNote:
        """Returns the row of the node itself: a monitor sees by its age that the node hangs."""
        about = {} if drain is None else {"drain": drain}
        shared = {} if self._shared is None else self._shared(now)
        return HealthNote(
            component=APP,
            status="healthy" if text is None else "degraded",
            reason=text,
            pid=os.getpid(),
            pid_start=self._own_start,
            heartbeat_age_ms=0,
            metadata=msgspec.json.encode({"workers": len(self._fleet.places), **about, **shared}).decode(),
        )
