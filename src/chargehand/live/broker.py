"""The broker of live events: keeps the newest state of every object, and the events that each subscriber has not taken.

The broker does no input or output and reads no clock. A subscriber that does not take its events uses a bounded amount
of memory and does not delay other subscribers; it has the current state as soon as it takes events again. An object is
a worker, a queue, a job, a flow, or the health of the system.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from chargehand.live.bodies import FlowBody, JobBody
from chargehand.model.job import State
from chargehand.model.topic import Event, Patterns, is_flow, is_work, read_id, rest_of, union

MOST_PENDING = 1000
"""The maximum number of pending events of jobs and flows of a subscriber; if exceeded, it receives the full state
again."""
LAST_JOBS = 100
"""The number of jobs in the state that are not running, and of flows that have ended: those that changed last."""
MOST_REMOVED = 1000
"""The number of removals that are kept for subscribers that reconnect."""


class Wire(msgspec.Struct, array_like=True, frozen=True):
    """The encoding of an event between the broker of a node and the broker of another process."""

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
        """Returns the decoded event."""
        rest = bytes(self.text)[len(b'{"topic":' + msgspec.json.encode(self.topic)) :]
        return Event(
            self.version, self.key, self.topic, self.type, rest,
            lasts=self.lasts, removed=self.removed, aside=self.aside,
        )  # fmt: skip


Delivery = tuple[Event, str]
"""An event, and the topic under which a subscriber receives it."""


class Subscription:
    """The pending events of one subscriber. `wake` is called when the first event becomes pending."""

    def __init__(self, broker: "Broker", patterns: Patterns, wake: Callable[[], None]) -> None:
        self._broker, self.patterns, self._wake = broker, patterns, wake
        self._pending: dict[str, Delivery] = {}
        self._jobs = 0
        self.resync = False
        """Whether the subscriber must discard its state: the next events are the full state."""

    def __len__(self) -> int:
        return len(self._pending) + self.resync

    def offer(self, event: Event, topic: str) -> None:
        """Adds a newer state of an object."""
        if self.resync:
            return  # the full state will include it
        idle = not self._pending
        is_job = is_work(event.key)
        if self._pending.pop(event.key, None) is None and is_job:
            self._jobs += 1
        self._pending[event.key] = (event, topic)  # at the end, in the order of versions
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
        self._jobs = sum(map(is_work, self._pending))

    def take(self, limit: int, size: int = 1 << 18) -> tuple[bool, list[Delivery]]:
        """Returns whether all earlier state is void, and up to `limit` events of about `size` bytes, oldest first."""
        anew, self.resync = self.resync, False
        if anew:
            self.fill(self._broker.state(self.patterns))
        taken: list[Delivery] = []
        for delivery in islice(self._pending.values(), limit):
            taken.append(delivery)
            size -= len(delivery[0].rest)
            if size <= 0:
                break
        for event, _ in taken:
            del self._pending[event.key]
            self._jobs -= is_work(event.key)
        return anew, taken


class Broker:
    """Keeps the newest state of each object. `life` identifies a sequence of versions; a new one has a new life."""

    def __init__(self, life: str) -> None:
        self.life, self.version = life, 0
        self._objects: dict[str, Event] = {}
        self._idle: tuple[dict[str, None], dict[str, None]] = ({}, {})
        """The jobs in the state that are not running, and the flows that have ended, in the order of their changes."""
        self._removed: dict[str, Event] = {}
        self._mirrors = False
        """Whether this is the state of another broker, which may be behind by the events that are pending there."""
        self._floor = self._job_floor = 0
        self._groups: dict[Patterns, dict[Subscription, None]] = {}
        self._pins: Counter[str] = Counter()
        self.jobs = 0
        """The number of jobs and flows in the state."""
        self.dropped = 0
        """The number of events dropped because subscribers were too slow; they then receive the full state."""

    # state

    def state(self, patterns: Patterns) -> list[Event]:
        """Returns the state of all objects, and the removals of jobs and flows that the patterns name by id."""
        missing = map(self._removed.get, patterns.named)
        found = self._objects.values()
        if self._mirrors:
            left_out = self._beyond_the_last()
            found = [event for event in found if event.key not in left_out]
        return [*found, *(event for event in missing if event is not None)]

    def _beyond_the_last(self) -> set[str]:
        """Returns the jobs and flows that a mirror keeps although the mirrored broker has dropped them."""
        keys: set[str] = set()
        for idle in self._idle:
            surplus = len(idle) - LAST_JOBS - len(self._pins)
            keys.update(key for key in islice(idle, max(0, surplus)) if key not in self._pins)
        return keys

    def get(self, key: str) -> Event | None:
        """Returns the newest state of an object; None if there is none."""
        return self._objects.get(key)

    def knows(self, key: str) -> bool:
        """Returns whether the newest state of an object is known: that it exists, or that it does not."""
        return key in self._objects or key in self._removed

    def keys(self, prefix: str) -> list[str]:
        """Returns the keys of all objects with this prefix."""
        return [key for key in self._objects if key.startswith(prefix)]

    def publish(
        self, key: str, topic: str, name: str, body: msgspec.Struct, at_ms: int, *,
        ignoring: Sequence[str] = (), aside: bool = False,
    ) -> bool:  # fmt: skip
        """Sets the state of an object. Returns whether it changed, apart from the fields in `ignoring`."""
        known = self._objects.get(key)
        if known is not None and known.aside <= aside and _same(known.body, body, ignoring):
            return False
        kind = f"{name}_update"
        lasts = not isinstance(body, JobBody | FlowBody) or body.state == State.RUNNING
        rest = rest_of(kind, at_ms, name, body)
        self.accept(Event(self.version + 1, key, topic, kind, rest, lasts=lasts, aside=aside, body=body))
        return True

    def remove(self, key: str, topic: str, name: str, identity: msgspec.Struct, at_ms: int) -> bool:
        """Records that an object does not exist. Returns False if that is already recorded.

        The removal of a job or flow that was sent only to subscribers of its id, or to none, is sent only to those.
        """
        if key in self._removed:
            return False
        known = self._objects.get(key)
        aside = is_work(key) and (known is None or known.aside)
        kind = f"{name}_update"
        rest = rest_of(kind, at_ms, name, identity, removed=True)
        self.accept(Event(self.version + 1, key, topic, kind, rest, removed=True, aside=aside))
        return True

    def accept(self, event: Event) -> None:
        """Applies an event with a version of this life, and offers it to subscribers. Ignores older events."""
        known = self._objects.get(event.key) or self._removed.get(event.key)
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
        self._idle[is_flow(key)].pop(key, None)
        if self._objects.pop(key, None) is not None:
            self.jobs -= is_work(key)

    def _keep(self, event: Event) -> None:
        self._objects[event.key] = event
        if not is_work(event.key):
            return
        self.jobs += 1
        if not event.lasts:
            idle = self._idle[is_flow(event.key)]
            idle[event.key] = None
            # A job that seems to have ended may run again by an event that is pending: until that is received, nothing
            # is dropped for it that the mirrored broker has kept.
            behind = max(MOST_PENDING, self.jobs - len(idle)) if self._mirrors else 0
            if len(idle) > LAST_JOBS + len(self._pins) + behind:
                self._evict(next(key for key in idle if key not in self._pins))

    def _evict(self, key: str) -> None:
        """Drops the state of a job or flow; a subscriber that reconnects without having received it gets everything."""
        self._job_floor = max(self._job_floor, self._objects[key].version)
        self._drop(key)

    def _remember_removed(self, event: Event) -> None:
        self._removed[event.key] = event
        if len(self._removed) > MOST_REMOVED:
            oldest = next(iter(self._removed))
            self._floor = max(self._floor, self._removed.pop(oldest).version)

    def forget_work(self, wanted: Callable[[str], bool] = lambda _: False) -> None:
        """Drops the state of all jobs and flows except wanted ones: without subscribers it is not updated."""
        for key in [key for key in self._objects if is_work(key) and not wanted(key)]:
            self._evict(key)
        for key in [key for key in self._removed if is_work(key) and not wanted(key)]:
            self._job_floor = max(self._job_floor, self._removed.pop(key).version)

    @property
    def floors(self) -> tuple[int, int]:
        """The versions below which a subscriber may have missed a removal, and the dropped state of a job or flow."""
        return self._floor, self._job_floor

    def mirror(self, life: str, events: Iterable[Event], floors: tuple[int, int]) -> None:
        """Takes over the state of another broker; `events` are its full state, including removals."""
        if life != self.life or self.version < max(floors):
            self.start_over(life)
        self._mirrors = True
        self._floor, self._job_floor = max(self._floor, floors[0]), max(self._job_floor, floors[1])
        for event in events:
            self.accept(event)

    def start_over(self, life: str) -> None:
        """Clears the state and begins a new life. Subscribers receive the full state again."""
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
        """Returns a new subscription. `last`: the id of the last event that a reconnecting subscriber received.

        `mirror`: the subscriber is a broker, which also receives removals for its own reconnecting subscribers.
        """
        subscription = Subscription(self, patterns, wake)
        since = read_id(last)
        if mirror:
            subscription.fill((*self._objects.values(), *self._removed.values()))
        elif since is None:
            subscription.fill(self.state(patterns))
        elif since[0] != self.life or self._missed(patterns, since[1]):
            subscription.start_over()
        else:
            events = (*self._objects.values(), *self._removed.values())
            subscription.fill(event for event in events if event.version > since[1])
        self._join(subscription)
        return subscription

    def _missed(self, patterns: Patterns, since: int) -> bool:
        """Returns whether events after this version are no longer known."""
        if since == 0:
            return True  # the subscriber was sent a resync, and no state yet
        return since < self._floor or (
            since < self._job_floor and bool(patterns.jobs or patterns.flows or patterns.named)
        )

    def _join(self, subscription: Subscription) -> None:
        self._groups.setdefault(subscription.patterns, {})[subscription] = None
        self._pins.update(subscription.patterns.named)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Ends a subscription."""
        group = self._groups[subscription.patterns]
        del group[subscription]
        if not group:
            del self._groups[subscription.patterns]
        self._pins.subtract(subscription.patterns.named)
        self._pins = +self._pins

    def change(self, subscription: Subscription, patterns: Patterns) -> None:
        """Changes the patterns of a subscription; it receives the state of objects that only the new patterns match."""
        before = subscription.patterns
        self.unsubscribe(subscription)
        subscription.patterns = patterns
        self._join(subscription)
        for event in sorted(self.state(patterns), key=lambda event: event.version):
            topic = patterns.topic_of(event)
            if topic is not None and before.topic_of(event) is None:
                subscription.offer(event, topic)

    def wanted(self) -> Patterns | None:
        """Returns the union of the patterns of all subscribers; None if there are none."""
        return union(self._groups)


def _same(one: msgspec.Struct | None, other: msgspec.Struct, ignoring: Sequence[str]) -> bool:
    if not ignoring or one is None:
        return one == other
    names = (name for name in other.__struct_fields__ if name not in ignoring)
    return all(getattr(one, name) == getattr(other, name) for name in names)
