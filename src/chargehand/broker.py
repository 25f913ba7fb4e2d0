"""State in, events out: the newest state of every thing, and what each subscriber has not been told of it yet.

It does no input or output and reads no clock. A subscriber that does not take its events costs a bounded amount of
memory, slows nobody down, and is right again as soon as it does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chargehand.model.topic import Event, Patterns, lasting, read_id, rest_of

MOST_PENDING = 1000
"""Job states that are kept for a subscriber; with one more it is told the full state anew."""
LAST_JOBS = 100
"""Jobs that do not run and are part of the state: those that changed last."""
MOST_REMOVED = 1000
"""Removals that are remembered for those who come back."""

Told = tuple[Event, str]
"""An event, and the topic under which a subscriber is told of it."""


class Subscription:
    """What one subscriber has not been told yet. `wake` is called when there is something, after there was nothing."""

    def __init__(self, broker: "Broker", patterns: Patterns, wake: Callable[[], None]) -> None:
        self._broker, self.patterns, self._wake = broker, patterns, wake
        self._pending: dict[str, Told] = {}
        self._jobs = 0
        self.resync = False
        """It is to forget what it knows; its events are then the full state."""

    def __len__(self) -> int:
        return len(self._pending) + self.resync

    def offer(self, event: Event, topic: str) -> None:
        """There is a newer state of this thing."""
        if self.resync:
            return  # it is given everything anyway
        idle = not self._pending
        is_job = event.key.startswith("job:")
        if self._pending.pop(event.key, None) is None and is_job:
            self._jobs += 1
        self._pending[event.key] = (event, topic)  # at the end: the order is that of the versions
        if is_job and self._jobs > max(MOST_PENDING, self._broker.jobs):
            self.start_over()
        elif idle:
            self._wake()

    def start_over(self) -> None:
        """Tell it everything anew, when it next asks."""
        idle = not len(self)
        self._pending, self._jobs, self.resync = {}, 0, True
        if idle:
            self._wake()

    def fill(self, events: Iterable[Event]) -> None:
        """It has not been told of these (in the order of their versions)."""
        for event in events:
            topic = self.patterns.topic_of(event)
            if topic is not None:
                self._pending[event.key] = (event, topic)
        self._jobs = sum(key.startswith("job:") for key in self._pending)

    def take(self, limit: int, size: int = 1 << 18) -> tuple[bool, list[Told]]:
        """Up to so many events, of about so many bytes together, oldest first; and whether all before them is void."""
        anew, self.resync = self.resync, False
        if anew:
            self.fill(self._broker.state())
        taken: list[Told] = []
        while self._pending and len(taken) < limit and size > 0:
            told = self._pending.pop(next(iter(self._pending)))
            self._jobs -= told[0].key.startswith("job:")
            size -= len(told[0].rest)
            taken.append(told)
        return anew, taken


class Broker:
    """See the module. `life` names this sequence of versions; another life's versions mean nothing here."""

    def __init__(self, life: str) -> None:
        self.life, self.version = life, 0
        self._things: dict[str, Event] = {}
        self._idle_jobs: dict[str, None] = {}
        """Jobs in the state that do not run, in the order of their changes."""
        self._removed: dict[str, Event] = {}
        self._floor = self._job_floor = 0
        """Who was told up to less than this may have missed a removal, or a job that was let go of."""
        self._groups: dict[Patterns, dict[Subscription, None]] = {}
        self._pins: Counter[str] = Counter()
        self.jobs = 0
        """How many jobs are in the state."""

    # state

    def state(self) -> list[Event]:
        """Everything, in the order of the versions."""
        return sorted(self._things.values(), key=lambda event: event.version)

    def get(self, key: str) -> Event | None:
        """The newest state of one thing."""
        return self._things.get(key)

    def keys(self, prefix: str) -> list[str]:
        """Of which things there is a state."""
        return [key for key in self._things if key.startswith(prefix)]

    def publish(
        self, key: str, topic: str, name: str, body: dict[str, Any], at_ms: int, *,
        ignoring: Sequence[str] = (), aside: bool = False,
    ) -> bool:  # fmt: skip
        """This is the state of that thing now; whether it is news. `ignoring`: fields that are no news by themselves."""
        known = self._things.get(key)
        if known is not None and known.aside <= aside and _same(known.body, body, ignoring):
            return False
        type = f"{name}_update"
        lasts = name != "job" or lasting(body)
        rest = rest_of(type, at_ms, name, body)
        self.accept(Event(self.version + 1, key, topic, type, rest, lasts=lasts, aside=aside, body=body))
        return True

    def remove(self, key: str, name: str, identity: dict[str, Any], at_ms: int) -> bool:
        """That thing is no more; whether that is news. `identity`: which it was."""
        known = self._things.get(key)
        if known is None:
            return False
        rest = rest_of(known.type, at_ms, name, identity, removed=True)
        self.accept(Event(self.version + 1, key, known.topic, known.type, rest, removed=True))
        return True

    def accept(self, event: Event) -> None:
        """Take an event that has its version, as another broker of the same life made it; older ones change nothing."""
        known = self._things.get(event.key) or self._removed.get(event.key)
        if known is not None and known.version >= event.version:
            return
        self.version = max(self.version, event.version)
        self._drop(event.key)
        if event.removed:
            self._remember_removed(event)
        else:
            self._keep(event)
        for patterns, subscriptions in self._groups.items():
            topic = patterns.topic_of(event)
            if topic is not None:
                for subscription in subscriptions:
                    subscription.offer(event, topic)

    def _drop(self, key: str) -> None:
        self._removed.pop(key, None)
        self._idle_jobs.pop(key, None)
        if self._things.pop(key, None) is not None:
            self.jobs -= key.startswith("job:")

    def _keep(self, event: Event) -> None:
        self._things[event.key] = event
        if not event.key.startswith("job:"):
            return
        self.jobs += 1
        if not event.lasts:
            self._idle_jobs[event.key] = None
            if len(self._idle_jobs) > LAST_JOBS + len(self._pins):
                self._let_go(next(key for key in self._idle_jobs if key not in self._pins))

    def _let_go(self, key: str) -> None:
        """Keep that job's state no longer; whoever has not been told of it is to start over when it comes back."""
        self._job_floor = max(self._job_floor, self._things[key].version)
        self._drop(key)

    def _remember_removed(self, event: Event) -> None:
        self._removed[event.key] = event
        if len(self._removed) > MOST_REMOVED:
            oldest = next(iter(self._removed))
            self._floor = max(self._floor, self._removed.pop(oldest).version)

    def forget_jobs(self, wanted: Callable[[str], bool] = lambda _: False) -> None:
        """Nobody asks for jobs (but for those that are wanted): keep no state of them that would soon be wrong."""
        for key in self.keys("job:"):
            if not wanted(key):
                self._let_go(key)

    def start_over(self, life: str) -> None:
        """Everything is different: a new life. Subscribers are told the full state anew."""
        patterns, pins = self._groups, self._pins
        self.__init__(life)
        self._groups, self._pins = patterns, pins
        for subscriptions in self._groups.values():
            for subscription in subscriptions:
                subscription.start_over()

    # subscribers

    def subscribe(self, patterns: Patterns, wake: Callable[[], None], last: str | None = None) -> Subscription:
        """A new subscriber. `last`: the id of the last event that it was told, if it comes back."""
        subscription = Subscription(self, patterns, wake)
        since = read_id(last)
        if since is None:
            subscription.fill(self.state())
        elif since[0] != self.life or self._missed(patterns, since[1]):
            subscription.start_over()
        else:
            events = (*self._things.values(), *self._removed.values())
            newer = [event for event in events if event.version > since[1]]
            subscription.fill(sorted(newer, key=lambda event: event.version))
        self._join(subscription)
        return subscription

    def _missed(self, patterns: Patterns, since: int) -> bool:
        """Whether something happened after that of which we no longer know."""
        if since == 0:
            return True  # it was told to forget everything
        return since < self._floor or (since < self._job_floor and bool(patterns.jobs or patterns.ids))

    def _join(self, subscription: Subscription) -> None:
        self._groups.setdefault(subscription.patterns, {})[subscription] = None
        self._pins.update(f"job:{job_id}" for job_id in subscription.patterns.ids)

    def unsubscribe(self, subscription: Subscription) -> None:
        """It is told nothing more."""
        group = self._groups[subscription.patterns]
        del group[subscription]
        if not group:
            del self._groups[subscription.patterns]
        self._pins.subtract(f"job:{job_id}" for job_id in subscription.patterns.ids)
        self._pins = +self._pins

    def change(self, subscription: Subscription, patterns: Patterns) -> None:
        """The subscriber wants to hear of other things: it is told the state of those that are new to it."""
        before = subscription.patterns
        self.unsubscribe(subscription)
        subscription.patterns = patterns
        self._join(subscription)
        for event in self.state():
            topic = patterns.topic_of(event)
            if topic is not None and before.topic_of(event) is None:
                subscription.offer(event, topic)

    def wanted(self) -> Patterns | None:
        """What all subscribers together want; None if there is nobody."""
        if not self._groups:
            return None
        groups = list(self._groups)
        return Patterns(
            texts=tuple(dict.fromkeys(text for group in groups for text in group.texts)),
            ids=frozenset(job_id for group in groups for job_id in group.ids),
            of_jobs=tuple(dict.fromkeys(text for group in groups for text in group.of_jobs)),
            list_jobs=any(group.list_jobs for group in groups),
        )


def _same(one: Any, other: dict[str, Any], ignoring: Sequence[str]) -> bool:
    if not ignoring or one is None:
        return one == other
    return {**one, **dict.fromkeys(ignoring)} == {**other, **dict.fromkeys(ignoring)}
