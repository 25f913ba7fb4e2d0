"""State in, events out: the newest state of every thing, and what each subscriber has not been told of it yet.

It does no input or output and reads no clock. A subscriber that does not take its events costs a bounded amount of
memory, slows nobody down, and is right again as soon as it does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from chargehand.live.bodies import JobBody
from chargehand.model.job import State
from chargehand.model.topic import Event, Patterns, job_topic, read_id, rest_of, union

MOST_PENDING = 1000
"""Job states that are kept for a subscriber; with one more it is told the full state anew."""
LAST_JOBS = 100
"""Jobs that do not run and are part of the state: those that changed last."""
MOST_REMOVED = 1000
"""Removals that are remembered for those who come back."""


class Wire(msgspec.Struct, array_like=True, frozen=True):
    """An event on its way from a node's broker to that of another process."""

    version: int
    key: str
    topic: str
    type: str
    lasts: bool
    removed: bool
    aside: bool
    text: msgspec.Raw

    @classmethod
    def of(cls, event: Event) -> "Wire":
        text = msgspec.Raw(event.encoded(event.topic))
        return cls(event.version, event.key, event.topic, event.type, event.lasts, event.removed, event.aside, text)

    def event(self) -> Event:
        """The same event, there."""
        rest = bytes(self.text)[len(b'{"topic":' + msgspec.json.encode(self.topic)) :]
        return Event(
            self.version, self.key, self.topic, self.type, rest,
            lasts=self.lasts, removed=self.removed, aside=self.aside,
        )  # fmt: skip


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
        """Adds a newer state of a thing."""
        if self.resync:
            return  # it is given everything anyway
        idle = not self._pending
        is_job = event.key.startswith("job:")
        if self._pending.pop(event.key, None) is None and is_job:
            self._jobs += 1
        self._pending[event.key] = (event, topic)  # at the end: the order is that of the versions
        if is_job and self._jobs > max(MOST_PENDING, self._broker.jobs):
            self._broker.dropped += len(self._pending)
            self.start_over()
        elif idle:
            self._wake()

    def start_over(self) -> None:
        """Makes the next `take` return the full state."""
        idle = not len(self)
        self._pending, self._jobs, self.resync = {}, 0, True
        if idle:
            self._wake()

    def fill(self, events: Iterable[Event]) -> None:
        """Adds the events that this subscriber has not received."""
        for event in sorted(events, key=lambda event: event.version):
            topic = self.patterns.topic_of(event)
            if topic is not None:
                self._pending[event.key] = (event, topic)
        self._jobs = sum(key.startswith("job:") for key in self._pending)

    def take(self, limit: int, size: int = 1 << 18) -> tuple[bool, list[Told]]:
        """Up to so many events, of about so many bytes together, oldest first; and whether all before them is void."""
        anew, self.resync = self.resync, False
        if anew:
            self.fill(self._broker.state(self.patterns))
        taken: list[Told] = []
        for told in islice(self._pending.values(), limit):
            taken.append(told)
            size -= len(told[0].rest)
            if size <= 0:
                break
        for event, _ in taken:
            del self._pending[event.key]
            self._jobs -= event.key.startswith("job:")
        return anew, taken


class Broker:
    """Keeps the newest state of each thing. `life` names the sequence of versions, and changes when it starts again."""

    def __init__(self, life: str) -> None:
        self.life, self.version = life, 0
        self._things: dict[str, Event] = {}
        self._idle_jobs: dict[str, None] = {}
        """Jobs in the state that do not run, in the order of their changes."""
        self._removed: dict[str, Event] = {}
        self._floor = self._job_floor = 0
        self._groups: dict[Patterns, dict[Subscription, None]] = {}
        self._pins: Counter[str] = Counter()
        self.jobs = 0
        """How many jobs are in the state."""
        self.dropped = 0
        """Events that subscribers were too slow for; they were told to start over."""

    # state

    def state(self, patterns: Patterns) -> list[Event]:
        """Everything; and of jobs that these name, that they are not there."""
        missing = (self._removed.get(job_topic(job_id)) for job_id in patterns.ids)
        return [*self._things.values(), *(event for event in missing if event is not None)]

    def get(self, key: str) -> Event | None:
        """Returns the newest state of a thing."""
        return self._things.get(key)

    def keys(self, prefix: str) -> list[str]:
        """Of which things there is a state."""
        return [key for key in self._things if key.startswith(prefix)]

    def publish(
        self, key: str, topic: str, name: str, body: msgspec.Struct, at_ms: int, *,
        ignoring: Sequence[str] = (), aside: bool = False,
    ) -> bool:  # fmt: skip
        """This is the state of that thing now; whether it is news. `ignoring`: fields that alone are no news."""
        known = self._things.get(key)
        if known is not None and known.aside <= aside and _same(known.body, body, ignoring):
            return False
        kind = f"{name}_update"
        lasts = not isinstance(body, JobBody) or body.state is State.RUNNING
        rest = rest_of(kind, at_ms, name, body)
        self.accept(Event(self.version + 1, key, topic, kind, rest, lasts=lasts, aside=aside, body=body))
        return True

    def remove(self, key: str, topic: str, name: str, identity: msgspec.Struct, at_ms: int) -> bool:
        """There is no such thing, or no more; whether that is news. `identity`: which one.

        A job that others were never told of is missed only by those who asked for it by its id.
        """
        if key in self._removed:
            return False
        known = self._things.get(key)
        aside = name == "job" and (known is None or known.aside)
        kind = f"{name}_update"
        rest = rest_of(kind, at_ms, name, identity, removed=True)
        self.accept(Event(self.version + 1, key, topic, kind, rest, removed=True, aside=aside))
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
        for key in [key for key in self._removed if key.startswith("job:") and not wanted(key)]:
            self._job_floor = max(self._job_floor, self._removed.pop(key).version)

    @property
    def floors(self) -> tuple[int, int]:
        """Whoever was told up to less than this may have missed a removal; or a job that was let go of."""
        return self._floor, self._job_floor

    def mirror(self, life: str, events: Iterable[Event], floors: tuple[int, int]) -> None:
        """From now on be the image of another broker, whose whole state, removals included, these events are."""
        if life != self.life or self.version < max(floors):
            self.start_over(life)
        self._floor, self._job_floor = max(self._floor, floors[0]), max(self._job_floor, floors[1])
        for event in events:
            self.accept(event)

    def start_over(self, life: str) -> None:
        """Everything is different: a new life. Subscribers are told the full state anew."""
        patterns, pins, dropped = self._groups, self._pins, self.dropped
        self.__init__(life)
        self._groups, self._pins, self.dropped = patterns, pins, dropped
        for subscriptions in self._groups.values():
            for subscription in subscriptions:
                subscription.start_over()

    # subscribers

    def subscribe(
        self, patterns: Patterns, wake: Callable[[], None], last: str | None = None, *, mirror: bool = False
    ) -> Subscription:
        """A new subscriber. `last`: the id of the last event that it was told, if it comes back.

        `mirror`: it is a broker itself, and wants to know of removals, too, so that it can tell those who come back.
        """
        subscription = Subscription(self, patterns, wake)
        since = read_id(last)
        if mirror:
            subscription.fill((*self._things.values(), *self._removed.values()))
        elif since is None:
            subscription.fill(self.state(patterns))
        elif since[0] != self.life or self._missed(patterns, since[1]):
            subscription.start_over()
        else:
            events = (*self._things.values(), *self._removed.values())
            subscription.fill(event for event in events if event.version > since[1])
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
        """Ends a subscription."""
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
        for event in sorted(self.state(patterns), key=lambda event: event.version):
            topic = patterns.topic_of(event)
            if topic is not None and before.topic_of(event) is None:
                subscription.offer(event, topic)

    def wanted(self) -> Patterns | None:
        """What all subscribers together want; None if there is nobody."""
        return union(self._groups)


def _same(one: msgspec.Struct | None, other: msgspec.Struct, ignoring: Sequence[str]) -> bool:
    if not ignoring or one is None:
        return one == other
    names = (name for name in other.__struct_fields__ if name not in ignoring)
    return all(getattr(one, name) == getattr(other, name) for name in names)
