"""Those who watch a node through its socket: each is sent what it has not been told, as fast as it takes it.

One that does not read is sent nothing more until it has taken what is on its way, so that it costs next to nothing.
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
"""That one caller can want: an API process asks for all who watch through it."""
AT_ONCE = 500
"""Events in one frame."""

_encoder = msgspec.json.Encoder()


class Subscriber:
    """One who watches."""

    subscription: Subscription

    def __init__(self, channel: Channel, wake: "Callable[[Subscriber], None]") -> None:
        self.channel, self.call = channel, 0
        self._wake = wake
        self.known_after: int | None = None
        """The look at the store after which it has been told everything; None: it knows that it has."""
        channel.on_sent = self.wake

    def wake(self) -> None:
        """There may be something to be sent."""
        self._wake(self)


class Subscribers:
    """All who watch. `send` is called by the node at the end of every turn, while there are some."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._outlets: dict[Channel, Subscriber] = {}
        self._awake: dict[Subscriber, None] = {}
        """Those who may have something to be sent."""

    def subscribe(self, channel: Channel, call: Call) -> None:
        """Tell this caller of these topics from now on, and no longer of others. TopicError if they cannot be."""
        patterns = parse(call.topics, MOST_TOPICS)
        broker = self._live.broker
        outlet = self._outlets.get(channel)
        if outlet is None:
            outlet = self._outlets[channel] = Subscriber(channel, self._wake)
            outlet.subscription = broker.subscribe(patterns, outlet.wake, call.last, mirror=call.mirror)
        else:
            broker.change(outlet.subscription, patterns)
        outlet.call = call.call
        outlet.known_after = self._live.watch(broker.wanted(), clock.monotonic())
        self._wake(outlet)

    def unsubscribe(self, channel: Channel) -> None:
        """That caller has left."""
        outlet = self._outlets.pop(channel, None)
        if outlet is not None:
            self._awake.pop(outlet, None)
            self._live.broker.unsubscribe(outlet.subscription)
            self._live.watch(self._live.broker.wanted(), clock.monotonic())

    def _wake(self, outlet: Subscriber) -> None:
        self._awake[outlet] = None

    def send(self) -> None:
        """Send everybody what there is for them."""
        for outlet in list(self._awake):
            if self._send(outlet):
                self._awake.pop(outlet, None)

    def _send(self, outlet: Subscriber) -> bool:
        """Whether it need not be looked at again before something happens."""
        subscription, channel = outlet.subscription, outlet.channel
        while len(subscription):
            if channel.clogged:
                return True  # it is woken when all of that is taken
            anew, events = subscription.take(AT_ONCE)
            self._frame(outlet, "EVENTS", anew=anew, events=[Wire.of(event) for event, _ in events])
        if outlet.known_after is None:
            return True
        if self._live.looked < outlet.known_after:
            return False
        outlet.known_after = None
        self._frame(outlet, "KNOWN", version=self._live.broker.version, floors=self._live.broker.floors)
        return True

    def _frame(self, outlet: Subscriber, kind: str, **fields: Any) -> None:
        body = _encoder.encode({"call": outlet.call, "life": self._live.broker.life, **fields})
        outlet.channel.send(b"%b|%b\n" % (kind.encode(), body))
