"""The HTTP server of `chargehand serve`: uvicorn, with limits for clients that stall.

uvicorn itself limits neither the time for headers, nor the time in which a client reads, nor the number of connections.
"""

import asyncio
import gc
import math
import socket
from enum import Enum
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from chargehand import clock
from chargehand.settings.http import HttpPolicy
from chargehand.system import notify

CHECK_EVERY = 0.5
"""Seconds between two checks of all connections."""
CANCEL_AFTER = 0.5
"""Seconds after the grace period after which requests are cancelled."""
BACKLOG = 128
"""The number of connections that the system holds for the server, which accepts as many at once."""
SEND_BUFFER = 256 << 10
"""The bytes that the system holds for a client that does not read; otherwise they can be several MiB."""
READ_SIZE, CHUNKED_READ_SIZE = 64 << 10, 1 << 10
"""The bytes that are parsed before other connections have their turn; a chunk can be one byte of body for six."""
FREE_CHUNKS, LEAST_CHUNK = 256, 32
"""A body in more chunks than this must have that many bytes in each on average: h11 needs about 10 µs for any chunk."""
TINY_CHUNKS = f"The chunks of the body are too small: send {LEAST_CHUNK} bytes or more in each."
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Config(uvicorn.Config):
    """The configuration of the server, with the limits of its connections."""

    def __init__(self, app: ASGIApp, limits: HttpPolicy, grace: float) -> None:
        super().__init__(
            app,
            lifespan="on",
            log_config=None,
            access_log=False,
            # Headers of proxies count only if a setting names the proxies (Site.origin_of), not for every local client.
            proxy_headers=False,
            loop="asyncio",
            http=Connection,
            ws="none",
            backlog=BACKLOG,
            h11_max_incomplete_event_size=limits.header_size,
            timeout_keep_alive=limits.idle_time,  # type: ignore[arg-type]
            timeout_graceful_shutdown=grace + CANCEL_AFTER,  # type: ignore[arg-type]
        )
        self.limits, self.grace = limits, grace


class Server(uvicorn.Server):
    """A server that closes the connections of clients that stall; at the end of the grace period, all of them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._grace = config.grace
        self._timer: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What was made until now stays. Otherwise a full garbage collection would hold all requests for up to 100 ms.
        gc.collect()
        gc.freeze()
        notifier = notify.current()
        if notifier is not None and not self.should_exit:
            notifier.ready("the server listens")  # a node may be elsewhere
        self._check()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        last = asyncio.get_running_loop().call_later(self._grace, self._abort)
        try:
            await super().shutdown(sockets)
        finally:
            last.cancel()
            if self._timer is not None:
                self._timer.cancel()

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY, self._check)
        now = clock.monotonic()
        for connection in self._connections():
            connection.check(now)

    def _abort(self) -> None:
        for connection in self._connections():
            connection.transport.abort()

    def _connections(self) -> "list[Connection]":
        return [cast("Connection", each) for each in self.server_state.connections]


class Parser(h11.Connection):
    """The parser of one connection: refuses bodies in many tiny chunks, and tells why headers were refused."""

    def __init__(self, limit: int) -> None:
        super().__init__(h11.SERVER, limit)
        self._chunks = self._size = 0
        self.refused = False
        """Whether the chunks of the current body are too small."""
        self.too_large = False
        """Whether the headers of the current request are larger than the limit."""

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.too_large = error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise
        if isinstance(event, h11.Request):
            self._chunks = self._size = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._size += len(event.data)
            self.refused = self._chunks > FREE_CHUNKS and self._size < LEAST_CHUNK * self._chunks
            if self.refused:
                raise h11.RemoteProtocolError(TINY_CHUNKS)
        return event


class Phase(Enum):
    """What a connection waits for."""

    HEADERS = "headers"
    ANSWER = "answer"
    """The answer of the application, which limits the time for the body."""
    REST = "rest"
    """The rest of a body that nobody reads, because the request has been answered."""


class Connection(H11Protocol):
    """An HTTP/1 connection that is closed if its client stalls."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self.conn = Parser(config.limits.header_size)
        self.phase, self.since = Phase.HEADERS, clock.monotonic()
        self._latest: RequestResponseCycle | None = None
        self._unsent: tuple[int, float] | None = None
        """The size of the data that the client has not read, and when it last was that small."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._read_at_most(CHUNKED_READ_SIZE)
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def _make_room(self) -> None:
        """Closes the connection that has waited longest for its client: this one, if all others are busy."""
        everyone = cast("set[Connection]", self.connections)
        waiting = [each for each in everyone if each.phase is not Phase.ANSWER and not each.transport.is_closing()]
        min(waiting, key=lambda each: each.since).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.too_large:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(TINY_CHUNKS if self.conn.refused else msg)
        else:  # the application has begun to answer
            self.transport.close()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            # As after the loss of the connection, which uvicorn reports too late: nothing more can be sent.
            cycle.disconnected = True
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def _follow(self) -> None:
        """Notes what the connection waits for, and since when."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and cycle is not self._latest:
            self._latest = cycle
            chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
            self._read_at_most(CHUNKED_READ_SIZE if chunked else READ_SIZE)
        if cycle is not None and not cycle.response_complete:
            phase = Phase.ANSWER
        else:
            phase = Phase.REST if self.conn.their_state is h11.SEND_BODY else Phase.HEADERS
        if phase is not self.phase:
            self.phase, self.since = phase, clock.monotonic()
            if phase is Phase.HEADERS:
                self._read_at_most(CHUNKED_READ_SIZE)

    def _read_at_most(self, size: int) -> None:
        self.transport.max_size = size  # type: ignore[attr-defined]  # of the transports of asyncio

    def check(self, now: float) -> None:
        """Closes the connection if its client does not send its request in time, or does not read."""
        if not self.transport.is_closing() and now - self.since >= self._time_limit():
            if self.phase is Phase.HEADERS and self.conn.trailing_data[0]:
                self.transport.write(TIMED_OUT)
            self.transport.close()
        self._check_reading(now)

    def _time_limit(self) -> float:
        match self.phase:
            case Phase.HEADERS:
                return self._limits.header_time + (self._limits.idle_time if self._latest else 0)
            case Phase.REST:
                return self._limits.body_time
            case Phase.ANSWER:
                return math.inf

    def _check_reading(self, now: float) -> None:
        size = self.transport.get_write_buffer_size()
        # Otherwise the application may add data, and the size says nothing about the client.
        fixed = self.flow.write_paused or self.phase is not Phase.ANSWER or self.transport.is_closing()
        if not size or not fixed:
            self._unsent = None
        elif self._unsent is None or size <= self._unsent[0] - self._limits.send_size:
            self._unsent = size, now
        elif now - self._unsent[1] >= self._limits.send_time:
            self.transport.abort()
