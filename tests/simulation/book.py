"""The oracle's book: a record of every place, the pauses, and the delays of the node. The checked promises use it."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from clockwork import Broken
from oracle_flows import FlowPromises
from record import EPS, TABLE, Life, Past, Record

from chargehand.model.batch import Batch
from chargehand.model.chores import KeepRestarts
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place

if TYPE_CHECKING:
    from actors import Worker
    from stage import World

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
        self.jobs = FlowPromises(world)
        self.records: dict[str, Record] = {}
        self.done: dict[str, int] = {}
        """How many jobs each crew has finished in this life of the node."""
        self.applied: frozenset[str] = frozenset()
        self.stopping = False
        self._totals: dict[str, int] = {}
        """The restarts of every worker, in all lives of the node."""
        self._unwritten: dict[str, list[Past]] = {}
        """What the store was asked to keep of the past of workers, and has not committed yet."""
        self._past: dict[str, Past] = {}
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

    def several(self, crew: str) -> bool:
        """Whether workers of this crew perform several jobs at the same time."""
        return self.world.profile.crews[crew].concurrency > 1

    # the node

    def node_starts(self, counts: dict[str, int], given_up: Iterable[str]) -> None:
        """Starts a new book: a new node knows of the past which workers were given up, and what the store has kept."""
        self.records.clear()
        self._statuses.clear()
        _moves.clear()
        self._late.clear()
        self._unwritten.clear()
        self._totals = {component: past.restarts_total for component, past in self._past.items()}
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
        """Notes who has the status of a worker that was given up before, and what is known of the past of all."""
        assert self.world.node is not None
        for component, record in self.records.items():
            if record.state == "failed":
                self._statuses[component] = "failed"
            self._remember(record, self.world.node.fleet.places[component])

    # what the store keeps (RP-9)

    def kept(self, component: str) -> None:
        """The node asks the store to keep the past of a worker."""
        record, policy = self.records[component], self.world.profile.restart
        record.rest(self.world.now, policy.healthy_after, policy.forgive_after)
        record.unkept = False
        total = self._totals.get(component, 0)
        past = Past(tuple(record.charged), record.streak, record.rested_at, record.restarts, total)
        self._unwritten.setdefault(component, []).append(past)

    def all_kept(self) -> None:
        left = [record.component for record in self.records.values() if record.unkept]
        self.check(not left, f"the past of {left} has changed, and the store is not asked to keep it")

    def written(self, batch: Batch) -> None:
        """The store has committed this."""
        for chore in batch.chores:
            if isinstance(chore, KeepRestarts):
                self._past[chore.component] = self._unwritten[chore.component].pop(0)

    def _remember(self, record: Record, place: Place) -> None:
        """A node that starts knows what the store has kept: nobody has a new budget."""
        past = self._past.get(record.component, Past((), 0, -math.inf, 0, 0))
        history, about = place.history, f"{record.component} remembers {place.history}, must be {past}"
        self.check((history.streak, history.restarts) == (past.streak, past.restarts), about)
        self.check(place.restarts_total == past.restarts_total, about)
        self.check(len(history.charged) == len(past.charged), about)
        for is_, must in zip(history.charged, past.charged, strict=True):
            counts = is_ >= history.rested_at - EPS
            self.check(math.isclose(is_, must, abs_tol=0.005) and counts == (must >= past.rested_at - EPS), about)
        record.charged, record.rested_at = list(history.charged), history.rested_at
        record.streak, record.restarts = past.streak, past.restarts

    def unrested(self) -> None:
        """Whoever has run well for long enough has a clean past, as far as it counts, in the store, too."""
        assert self.world.node is not None
        policy = self.world.profile.restart
        for record in self.records.values():
            ready_at = None if record.life is None else record.life.ready_at
            place = self.world.node.fleet.places.get(record.component)
            if ready_at is None or place is None or record.life is None or record.life.asked_at is not None:
                continue
            well = self.world.now - ready_at - HICCUP - self.slack(ready_at)
            dirty = place.history.streak or place.history.restarts
            self.check(
                well < policy.healthy_after or not dirty, f"{record.component} has run well, and {place.history}"
            )
            due = well >= policy.forgive_after and place.history.charged
            self.check(not due, f"{record.component} is not forgiven: {place.history}")

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
        # A worker whose backoff may or may not be over, as far as the node has seen, counts in `most` only.
        least = loading + sum(record.latest + HICCUP + self.slack(record.latest) <= now for record in due)
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
