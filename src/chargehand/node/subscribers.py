"""The subscribers on the node's control socket: each is sent the events that it does not have, as fast as it reads.

A subscriber that does not read is sent nothing more until its socket is empty, so it costs next to nothing.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from chargehand import clock
from chargehand.live.broker import Subscription, Wire
from chargehand.model.topic import parse
from chargehand.node.live import Live
from chargehand.node.loop import Channel
from chargehand.protocol.control import Call

MOST_TOPICS = 10_000
"""Topics of one caller: an API process subscribes for all of its own clients."""
AT_ONCE = 500
"""Events in one frame."""

_encoder = msgspec.json.Encoder()


class Subscriber:
    """One subscriber."""

    subscription: Subscription

    def __init__(self, channel: Channel, wake: "Callable[[Subscriber], None]") -> None:
        self.channel, self.call = channel, 0
        self._wake = wake
        self.known_after: int | None = None
        """The read of the store after which it has the full state; None if it knows that it has."""
        channel.on_sent = self.wake

    def wake(self) -> None:
        """Note that there may be something to send."""
        self._wake(self)


class Subscribers:
    """All subscribers. The node calls `send` at the end of every turn while there are some."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._subscribers: dict[Channel, Subscriber] = {}
        self._awake: dict[Subscriber, None] = {}
        """Subscribers for which there may be something to send."""

    def subscribe(self, channel: Channel, call: Call) -> None:
        """Set the topics of this caller. Raises TopicError if one of them is invalid."""
        patterns = parse(call.topics, MOST_TOPICS)
        broker = self._live.broker
        subscriber = self._subscribers.get(channel)
        if subscriber is None:
            subscriber = self._subscribers[channel] = Subscriber(channel, self._wake)
            subscriber.subscription = broker.subscribe(patterns, subscriber.wake, call.last, mirror=call.mirror)
        else:
            broker.change(subscriber.subscription, patterns)
        subscriber.call = call.call
        subscriber.known_after = self._live.watch(broker.wanted(), clock.monotonic())
        self._wake(subscriber)

    def unsubscribe(self, channel: Channel) -> None:
        """Forget this caller."""
        subscriber = self._subscribers.pop(channel, None)
        if subscriber is not None:
            self._awake.pop(subscriber, None)
            self._live.broker.unsubscribe(subscriber.subscription)
            self._live.watch(self._live.broker.wanted(), clock.monotonic())

    def _wake(self, subscriber: Subscriber) -> None:
        self._awake[subscriber] = None

    def send(self) -> None:
        """Send every subscriber what there is for it."""
        for subscriber in list(self._awake):
            if self._send(subscriber):
                self._awake.pop(subscriber, None)

    def _send(self, subscriber: Subscriber) -> bool:
        """Send what there is. Returns whether nothing more can be sent before something happens."""
        subscription, channel = subscriber.subscription, subscriber.channel
        while len(subscription):
            if channel.clogged:
                return True  # the channel wakes the subscriber when its buffer is empty
            anew, events = subscription.take(AT_ONCE)
            self._frame(subscriber, "EVENTS", anew=anew, events=[Wire.of(event) for event, _ in events])
        if subscriber.known_after is None:
            return True
        if self._live.looked < subscriber.known_after:
            return False
        subscriber.known_after = None
        self._frame(subscriber, "KNOWN", version=self._live.broker.version, floors=self._live.broker.floors)
        return True

    def _frame(self, subscriber: Subscriber, kind: str, **fields: Any) -> None:
        body = _encoder.encode({"call": subscriber.call, "life": self._live.broker.life, **fields})
        subscriber.channel.send(b"%b|%b\n" % (kind.encode(), body))
