"""Live state for any number of watchers in an event loop: from one connection to the node, or from the store.

The connection exists while there are watchers. Nothing here blocks the event loop: the store is read in a thread.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.host.calls import NoNode, connect
from chargehand.ids import new_id
from chargehand.live.bodies import Body, HealthBody, Identity
from chargehand.live.broker import Broker, Delivery, Subscription, Wire
from chargehand.model.health import Verdict
from chargehand.model.topic import HEALTH, Patterns, resync, union
from chargehand.protocol.control import FRAME_LIMIT
from chargehand.protocol.frame import BadFrame, Decoder, Frame, encode
from chargehand.stores.location import Location

READ_EVERY = 1.0
"""Seconds between two reads of the store, and two attempts to reach a node, while no node answers."""
PING_AFTER = 5.0
"""Seconds of silence after which a node is pinged; after the same time again the connection is closed."""
LONGEST_WAIT = 1.0
"""Seconds that a new watcher waits for the full state; state that arrives later is delivered as changes."""
LINGER = 5.0
"""Seconds for which the connection is kept after the last watcher has left."""
AT_ONCE = 500
NO_NODE = "store"
"""The prefix of the life of a state that was read from the store, without a node."""
DELAY_EACH, MOST_DELAY = 0.0004, 0.1
"""Seconds for which events are collected: per watcher, and the maximum. Waking many watchers is costly."""


class Shown(NamedTuple):
    """The state of a node, worker, queue, job or flow as the store has it, or its removal."""

    key: str
    topic: str
    name: str
    body: Body | Identity
    aside: bool = False
    removed: bool = False


class NodeFrame(msgspec.Struct, frozen=True):
    """A frame from the node."""

    call: int
    life: str = ""
    anew: bool = False
    events: tuple[Wire, ...] = ()
    floors: tuple[int, int] = (0, 0)
    error: str | None = None


_frames = msgspec.json.Decoder(NodeFrame)


class Watcher:
    """A subscription: `next` waits for events and returns them."""

    def __init__(self, feed: "Feed", patterns: Patterns) -> None:
        self._feed, self.patterns = feed, patterns
        self.news = asyncio.Event()
        self.subscription: Subscription | None = None

    @property
    def life(self) -> str:
        """The life of the node whose versions the events have."""
        return self._feed.broker.life

    @property
    def node_there(self) -> bool:
        """Whether the events come from a node; otherwise they are read from the store."""
        return bool(self.life) and not self.life.startswith(NO_NODE)

    async def next(self, timeout: float | None = None) -> tuple[bool, list[Delivery]]:
        """Waits for events, `timeout` seconds at most. Returns whether all earlier state is void, and the events."""
        assert self.subscription is not None
        try:
            async with asyncio.timeout(timeout):
                await self.news.wait()
        except TimeoutError:
            return False, []
        self.news.clear()
        anew, events = self.subscription.take(AT_ONCE)
        if len(self.subscription):
            self.news.set()
        return anew, events

    def interrupt(self) -> None:
        """Makes a waiting call of `next` return."""
        self.news.set()

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yields events as plain data."""
        while True:
            anew, events = await self.next()
            if anew:
                yield msgspec.json.decode(resync(clock.now_ms()))
            for event, topic in events:
                yield event.read(topic)


class Feed:
    """Mirrors the state of a node, or of the store, for its watchers. `fetch` reads the store, in a thread."""

    def __init__(self, location: Location, fetch: Callable[[Patterns], list[Shown]]) -> None:
        self._location, self._fetch = location, fetch
        self.broker = Broker("")
        self._patterns: Counter[Patterns] = Counter()
        self._watchers: set[Watcher] = set()
        self._awake: set[Watcher] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.TimerHandle | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked = self._known = 0
        """The number of the last request for topics, and of the last one that was answered completely."""
        self._answered = asyncio.Condition()
        self._read_now = asyncio.Event()
        self._life = ""
        self._joining: list[Wire] | None = None
        """The events of a new connection, until the full state has arrived."""

    # watchers

    @asynccontextmanager
    async def watch(self, patterns: Patterns, last: str | None = None) -> AsyncGenerator[Watcher]:
        """Subscribes for the length of the block. `last` is the id of the last event that the watcher has received."""
        watcher = Watcher(self, patterns)
        self._patterns[patterns] += 1
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._start()
        try:
            if self._patterns[patterns] == 1:
                self._ask()
            await self._until_known(self._asked)
            watcher.subscription = self.broker.subscribe(patterns, lambda: self._woken(watcher), last)
            self._watchers.add(watcher)
            if len(watcher.subscription):
                watcher.news.set()
            yield watcher
        finally:
            self._leave(watcher)

    def _leave(self, watcher: Watcher) -> None:
        if watcher.subscription is not None:
            self.broker.unsubscribe(watcher.subscription)
        self._watchers.discard(watcher)
        self._awake.discard(watcher)
        self._patterns -= Counter((watcher.patterns,))
        wanted = union(self._patterns)
        if wanted is None:  # the node goes on sending what was watched last, so it is kept until the connection closes
            self._end = asyncio.get_running_loop().call_later(LINGER, self.close)
            return
        if watcher.patterns not in self._patterns:
            self._ask()
        if not (wanted.jobs and wanted.flows):
            self.broker.forget_work(wanted.keeps)

    def _woken(self, watcher: Watcher) -> None:
        """Wakes the watcher: at once if there were no events lately, otherwise together with others."""
        self._awake.add(watcher)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._wake_at, loop.time()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._wake_at = asyncio.get_running_loop().time() + min(DELAY_EACH * len(self._watchers), MOST_DELAY)
        awake, self._awake = self._awake, set()
        for watcher in awake:
            watcher.news.set()

    async def _until_known(self, asked: int) -> None:
        """Waits until the request is answered, LONGEST_WAIT seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT), self._answered:
                await self._answered.wait_for(lambda: self._known >= asked)

    async def _knows(self, asked: int) -> None:
        async with self._answered:
            self._known = max(self._known, asked)
            self._answered.notify_all()

    # the source

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="chargehand feed")

    def close(self) -> None:
        """Closes the connection; the next watcher opens another."""
        self.broker.forget_work()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            with suppress(OSError, NoNode, EOFError):  # no node answers: the store is read instead
                await self._listen()
            await self._read_store()

    def _ask(self) -> None:
        """Requests the state of all watched topics from the node or the store."""
        self._asked += 1
        self._read_now.set()
        wanted = union(self._patterns)
        if self._writer is not None and wanted is not None:
            fields = {"call": self._asked, "topics": wanted.texts, "mirror": True}
            self._writer.write(encode("SUBSCRIBE", fields))

    async def _listen(self) -> None:
        """Mirrors a node until the connection ends."""
        reader, writer = await connect(self._location)
        self._writer, self._joining = writer, []
        late = asyncio.get_running_loop().call_later(LONGEST_WAIT, self._join, None)
        try:
            self._ask()
            decoder = Decoder(FRAME_LIMIT)
            while True:
                for frame in decoder.feed(await self._read(reader, writer)):
                    await self._receive(frame)
        except (ChargehandError, ValueError) as error:
            log.warning("a frame of the node cannot be read", why=error)
        finally:
            late.cancel()
            self._writer = None
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Returns bytes from the node. Raises EOFError if it closed the connection or does not answer."""
        for _ in range(2):
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_AFTER):
                    data = await reader.read(1 << 16)
                    if not data:
                        raise EOFError
                    return data
            writer.write(encode("PING", {"call": 0}))
        raise EOFError

    async def _receive(self, frame: Frame | BadFrame) -> None:
        if isinstance(frame, BadFrame):
            raise ValueError(frame.why)
        received = _frames.decode(frame.body)
        if received.error is not None:
            raise ChargehandError(received.error)
        if received.anew:
            raise EOFError  # this process was too slow: start again with the full state
        self._life = received.life or self._life
        if self._joining is not None:
            self._joining += received.events
        else:
            for wire in received.events:
                self.broker.accept(wire.event())
        if frame.kind == "KNOWN":
            self._join(received)
            await self._knows(received.call)

    def _join(self, received: NodeFrame | None) -> None:
        """Takes the events of a new connection as the state, even if incomplete because the store of the node hangs."""
        events = self._joining
        if events is None or (received is None and not events):
            return  # done already, or nothing has arrived yet
        self._joining = None
        newest = max((wire.version for wire in events), default=0)
        floors = (newest, newest) if received is None else received.floors
        self.broker.mirror(self._life, (wire.event() for wire in events), floors)

    async def _read_store(self) -> None:
        """Publishes the state of the store, because no node answers."""
        asked, wanted = self._asked, union(self._patterns)
        self._read_now.clear()
        if wanted is not None:
            try:
                found = await asyncio.to_thread(self._fetch, wanted)
            except ChargehandError as error:
                failing = HealthBody(Verdict.ERROR, (f"the store fails: {error}",))
                found = [Shown(HEALTH, HEALTH, "health", failing)]
            self._show(found)
        await self._knows(asked)
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_EVERY):
                await self._read_now.wait()

    def _show(self, found: Sequence[Shown]) -> None:
        broker, at_ms = self.broker, clock.now_ms()
        if not broker.life.startswith(NO_NODE):
            broker.start_over(f"{NO_NODE}{new_id()}")
        for key, topic, name, body, aside, removed in found:
            if removed:
                broker.remove(key, topic, name, body, at_ms)
            else:
                broker.publish(key, topic, name, body, at_ms, ignoring=("oldest_wait_s", "beat_age_ms"), aside=aside)
        every = {*broker.keys("node:"), *broker.keys("worker:"), *broker.keys("queue:")}
        for gone in every - {shown.key for shown in found}:
            known = broker.get(gone)
            assert known is not None
            name = known.type.removesuffix("_update")
            broker.remove(gone, known.topic, name, known.body.identity, at_ms)
