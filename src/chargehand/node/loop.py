"""The node's event loop and its non-blocking sockets. The meaning of the frames is the caller's business."""

import select
import socket
import threading
from collections.abc import Callable

from chargehand.protocol.frame import BadFrame, Decoder, Frame

READ_AT_ONCE = 1 << 16
PRECISE = 0.003
"""Waits that are shorter than so many seconds are exact."""
MOST_UNSENT = 64 << 20
"""Bytes buffered for a peer that does not read; beyond that the connection is closed."""


class Loop:
    """Waits for descriptors, and calls the handler that was registered for each."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._first: set[int] = set()

    def add(
        self, descriptor: int, handler: Callable[[int], None], events: int = select.EPOLLIN, *, first: bool = False
    ) -> None:
        """Call the handler with the events whenever the descriptor is ready; `first`: before all others that are ready
        at the same time."""
        self._epoll.register(descriptor, events)
        self._handlers[descriptor] = handler
        if first:
            self._first.add(descriptor)

    def change(self, descriptor: int, events: int) -> None:
        """Change the events that are waited for."""
        self._epoll.modify(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Forget the descriptor. Call this before the descriptor is closed."""
        if self._handlers.pop(descriptor, None) is not None:
            self._first.discard(descriptor)
            self._epoll.unregister(descriptor)

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        """Wait up to so many seconds (without limit if negative). Returns what is ready, for `handle`."""
        if 0 < timeout < PRECISE:
            select.select((self._epoll,), (), (), timeout)  # epoll itself counts whole milliseconds
            timeout = 0
        return self._epoll.poll(timeout)

    def handle(self, ready: list[tuple[int, int]]) -> None:
        """Call the handlers of these descriptors."""
        if len(ready) > 1:  # the order of epoll is not that in which they became ready
            ready.sort(key=lambda each: each[0] not in self._first)
        for descriptor, events in ready:
            handler = self._handlers.get(descriptor)
            if handler is not None:  # an earlier handler may have removed it
                handler(events)

    def close(self) -> None:
        self._epoll.close()


def one_by_one(
    on_frame: Callable[["Channel", Frame | BadFrame], None],
) -> Callable[["Channel", list[Frame | BadFrame]], None]:
    """Returns a receiver of frames that handles each by itself; if it closes the channel, the rest is dropped."""

    def on_frames(channel: "Channel", frames: list[Frame | BadFrame]) -> None:
        for frame in frames:
            if channel.open:
                on_frame(channel, frame)

    return on_frames


class Channel:
    """A stream socket that carries frames: decodes what arrives, and buffers what cannot be sent yet."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        limit: int,
        on_frames: Callable[["Channel", list[Frame | BadFrame]], None],
        on_end: Callable[["Channel"], None],
    ) -> None:
        """`on_frames` is called with all frames of one read. It stops after a frame for which it closes the channel."""
        sock.setblocking(False)
        self._loop, self._sock, self._descriptor = loop, sock, sock.fileno()
        self._decoder = Decoder(limit)
        self._on_frames, self._on_end = on_frames, on_end
        self._unsent = bytearray()
        self.open = True
        self._guard = threading.Lock()
        """Held while the descriptor is closed, examined or written to: two threads may send, and after the close the
        number may belong to another socket."""
        self.deaf = False
        self.on_sent: Callable[[], None] | None = None
        """Called when the send buffer is empty again."""
        self.rest: list[BadFrame] = []
        """An unfinished line at the end of the stream: the sender may have died while it wrote."""
        loop.add(self._descriptor, self._ready)

    def send(self, frame: bytes) -> None:
        """Send what fits now, and buffer the rest. Does nothing if the channel is closed."""
        if self.send_now(frame) or not self.open:
            return
        with self._guard:
            waits = not self._unsent
            self._unsent += frame
            if waits:
                self._await()
        if len(self._unsent) > MOST_UNSENT:
            self._ended()

    def send_now(self, frame: bytes) -> bool:
        """Sends a frame if nothing else waits to be sent. Returns False if it must be buffered, by `send`, which only
        the thread of the loop may call. Any thread may call this."""
        with self._guard:
            if self._unsent or not self.open:
                return False
            try:
                sent = self._sock.send(frame)
            except BlockingIOError:
                return False
            except OSError:
                return True  # the peer is gone: reading reports it, after everything that it sent
            if sent < len(frame):
                self._unsent += frame[sent:]
                self._await()
            return True

    @property
    def clogged(self) -> bool:
        """Whether the peer has not read everything that was sent."""
        return bool(self._unsent)

    def listen(self, heed: bool) -> None:
        """Stop or resume reading. Nothing is lost meanwhile: data waits in the socket."""
        if self.open and self.deaf is heed:
            self.deaf = not heed
            with self._guard:
                self._await()

    def _await(self) -> None:
        reading = 0 if self.deaf else select.EPOLLIN
        self._loop.change(self._descriptor, reading | (select.EPOLLOUT if self._unsent else 0))

    def drain(self) -> None:
        """Read everything that the peer has sent so far."""
        while self.open and self._read():
            continue

    def _ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._flush()
        if events & ~select.EPOLLOUT and self.open:
            self._read()

    def _flush(self) -> None:
        with self._guard:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                sent = 0
            del self._unsent[:sent]
            if self._unsent:
                return
            self._await()
        if self.on_sent is not None:
            self.on_sent()

    def _read(self) -> bool:
        """Read once. Returns whether there may be more."""
        try:
            data = self._sock.recv(READ_AT_ONCE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._ended()
            return False
        frames = self._decoder.feed(data)
        if frames:
            self._on_frames(self, frames)
        return self.open and len(data) == READ_AT_ONCE

    def _ended(self) -> None:
        self.rest += self._decoder.end()
        if self.open:
            self.close()
            self._on_end(self)

    def close(self) -> None:
        """Close the socket without calling anybody."""
        with self._guard:
            if self.open:
                self.open = False
                self._loop.remove(self._descriptor)
                self._sock.close()

    def connected(self) -> bool:
        """Returns whether the peer still waits for an answer. Any thread may call it."""
        with self._guard:
            if not self.open:
                return False
            poller = select.poll()
            poller.register(self._descriptor, select.POLLRDHUP)
            return not poller.poll(0)
