"""The oracle's book: a record of every place, the pauses, and the delays of the node. The checked promises use it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from clockwork import Broken
from oracle_items import ItemPromises
from record import TABLE, Life, Record

from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place

if TYPE_CHECKING:
    from actors import Worker
    from stage import World

EPS = 1e-6
HICCUP = 2.0
"""Seconds that the node's own steps may add: several delays, each too short to count as lateness."""

_moves: list[tuple[Place, str, str]] = []
_move = Place.move


def _watched_move(self: Place, status: Status) -> None:
    """Records every change of a status, also one that is undone before the fleet returns."""
    if status is not self.status:
        _moves.append((self, self.status.value, status.value))
    _move(self, status)


Place.move = _watched_move


class Book:
    """Keeps the records of all places in this life of the node."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.jobs = ItemPromises(world)
        self.records: dict[str, Record] = {}
        self.done: dict[str, int] = {}
        """How many jobs each crew has finished in this life of the node."""
        self.applied: frozenset[str] = frozenset()
        self.stopping = False
        self._late: list[tuple[float, float]] = []
        self._statuses: dict[str, str] = {}

    def check(self, fine: bool, what: str) -> None:
        if not fine:
            raise Broken(what)

    def life_of(self, component: str) -> Life:
        found = self.records[component].life
        assert found is not None
        return found

    def life(self, worker: "Worker") -> Life:
        found = self.life_of(worker.component)
        self.check(found.worker is worker, f"{worker} is not who lives in its place")
        return found

    def crew(self, name: str) -> list[Record]:
        return [record for record in self.records.values() if record.crew == name]

    # the node

    def node_starts(self, counts: dict[str, int], given_up: Iterable[str]) -> None:
        """Starts with an empty book: a new node knows of the past only which workers were given up."""
        self.records.clear()
        self._statuses.clear()
        _moves.clear()
        self._late.clear()
        self.stopping = False
        self.done = dict.fromkeys(counts, 0)
        self.applied = frozenset()
        for crew, count in counts.items():
            for index in range(count):
                self.add(crew, index)
        for component in given_up:
            if component in self.records:
                self.records[component].state = "failed"

    def begun(self) -> None:
        """Notes that the workers which were given up before have that status already."""
        assert self.world.node is not None
        for component, record in self.records.items():
            if record.state == "failed":
                self._statuses[component] = "failed"

    def add(self, crew: str, index: int) -> None:
        record = Record(f"worker:{crew}:{index}", crew, index)
        record.occupied = any(worker.component == record.component for worker in self.world.processes)
        record.due(self.world.now)
        self.records[record.component] = record

    def work_waits(self, crew: str, count: int) -> None:
        """Expects that so many sleeping workers of the crew are started."""
        asleep = [record for record in self.crew(crew) if record.state == "asleep"]
        paused = [record for record in asleep if self.applied & {"*", crew, record.component}]
        asleep = [record for record in asleep if record not in paused]
        now, lives = self.world.now, [record.life for record in self.crew(crew) if record.life is not None]
        loading = sum(life.ready_at is None and life.asked_at is None for life in lives)
        due = [record for record in self.crew(crew) if record.state == "due"]
        # A worker whose backoff may or may not be over may be started: it counts in `most` only.
        least = loading + sum(record.latest <= now for record in due)
        most = loading + sum(record.earliest <= now for record in due)
        for record in asleep[: max(0, count - least)]:
            record.may_wake = True
        for record in asleep[: max(0, count - most)]:
            record.intent = "run"
            record.due(now)

    def vacated(self, component: str) -> None:
        """Notes that an earlier, unkillable life of the worker has ended."""
        record = self.records.get(component)
        if record is not None:
            record.occupied = False
            if record.state == "occupied":
                record.due(self.world.now)

    def node_stops(self) -> None:
        self.stopping = True
        for record in self.records.values():
            if record.intent != "remove":
                record.intent = "stay"
            if record.state in ("due", "breaker", "asleep", "occupied"):
                record.state = "stay"
            if record.life is not None:
                record.life.may_be_asked = True

    def lateness(self, seconds: float) -> None:
        """Notes that the node took a step so many seconds late."""
        self.world.note(f"the node is {seconds:.1f} s late")
        self._late.append((self.world.now, seconds))
        for record in self.records.values():
            if record.life is not None and record.life.ready_at is not None:
                record.life.ready_at += seconds  # nobody saw whether the worker was healthy meanwhile

    def slack(self, since: float) -> float:
        """Returns the seconds that the node was late since then."""
        return sum(seconds for when, seconds in self._late if when > since)

    # statuses (SV-4)

    def statuses(self, *, thoroughly: bool) -> None:
        """Checks that every change of a status is in the table, and that none was missed."""
        for place, before, after in _moves:
            known = self._statuses.get(place.component, before)
            self.check(known == before, f"{place.component} was {known}, and is {before} all of a sudden")
            self.check((before, after) in TABLE, f"{place.component}: {before} → {after} is not in the table")
            self._statuses[place.component] = after
            self.world.note(f"{place.component}: {before} → {after}")
        _moves.clear()
        if not thoroughly:
            return
        assert self.world.node is not None
        for component, place in self.world.node.fleet.places.items():
            known = self._statuses.setdefault(component, place.status.value)
            self.check(known == place.status.value, f"{component} was {known}, and is {place.status} all of a sudden")
