"""The server of `chargehand serve`, in memory: connections whose clients stall are closed."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from chargehand import clock
from chargehand.settings.http import HttpPolicy
from chargehand.web.server import CHUNKED_READ_SIZE, FREE_CHUNKS, LEAST_CHUNK, TINY_CHUNKS, Config, Connection, Server

LIMITS = HttpPolicy()
LARGE = 32 << 20
"""More bytes than all buffers of the system hold."""
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the number of bytes that it was sent, or with the number of bytes that the path says."""
    if scope["path"] == "/hang":
        while (await receive())["type"] != "http.disconnect":
            continue
        return
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            continue
        return
    size, more = 0, scope["path"] != "/refuse"
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    wanted = scope["path"].removeprefix("/")
    body = b"x" * int(wanted) if wanted.isdecimal() else str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class World:
    """A listening server whose connections the test checks at the times that it chooses."""

    def __init__(self, path: str, limits: HttpPolicy, kind: type[Connection]) -> None:
        self._path, self._kind = path, kind
        self._writers: list[asyncio.StreamWriter] = []
        self.state = ServerState()
        self._config = Config(echo, limits, 1.0)
        self._config.load()

    def protocol(self) -> Connection:
        return self._kind(self._config, self.state, {})

    @property
    def connections(self) -> list[Any]:
        return list(self.state.connections)

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        known = set(self.connections)
        reader, writer = await asyncio.open_unix_connection(self._path)
        self._writers.append(writer)
        await until(lambda: set(self.connections) - known)
        writer.write(sent)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def check(self, seconds: float) -> None:
        """Checks all connections as if this time had passed."""
        for each in self.connections:
            each.check(clock.monotonic() + seconds)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def served(
    test: Callable[[World], Awaitable[None]], folder: Path, kind: type[Connection] = Connection, **limits: Any
) -> None:
    @asynccontextmanager
    async def running() -> AsyncGenerator[World]:
        path = str(folder / "socket")
        world = World(path, msgspec.structs.replace(LIMITS, **limits), kind)
        server = await asyncio.get_running_loop().create_unix_server(world.protocol, path)
        try:
            yield world
        finally:
            server.close()
            for each in world.connections:
                each.transport.abort()
            await until(lambda: not world.connections)
            await world.close()

    async def run() -> None:
        async with running() as world, asyncio.timeout(30):
            await test(world)

    asyncio.run(run())


def test_headers_that_do_not_end_are_given_up(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        silent, _ = await world.open()
        half, writer = await world.open(HEAD)
        await until(lambda: any(each.conn.trailing_data[0] for each in world.connections))
        world.check(LIMITS.header_time - 1)
        writer.write(b"X-Slow: 1\r\n")  # does not extend the time
        await until(lambda: any(b"Slow" in each.conn.trailing_data[0] for each in world.connections))
        assert len(world.connections) == 2
        world.check(LIMITS.header_time)
        assert await silent.read() == b""
        assert (await half.read()).startswith(b"HTTP/1.1 408 ")

    served(test, folder)


def test_a_request_in_progress_and_a_connection_between_requests_are_left_alone(folder: Path) -> None:
    async def test(world: World) -> None:
        _, writer = await world.open(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: world.connections[0].cycle)
        world.check(3600)
        reader, again = await world.open(HEAD + b"Content-Length: 2\r\n\r\nab")
        assert (await reader.readuntil(b"\r\n\r\n2")).startswith(b"HTTP/1.1 200 ")
        world.check(LIMITS.header_time)
        again.write(HEAD + b"Content-Length: 3\r\n\r\nabc")
        await reader.readuntil(b"\r\n\r\n3")
        assert len(world.connections) == 2
        world.check(LIMITS.header_time + LIMITS.idle_time)
        assert await reader.read() == b""
        assert len(world.connections) == 1
        writer.close()

    served(test, folder)


def test_the_rest_of_a_refused_body_is_awaited_for_a_limited_time(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        reader, writer = await world.open(HEAD.replace(b"/ ", b"/refuse ") + b"Content-Length: 1000000\r\n\r\nab")
        await reader.readuntil(b"\r\n\r\n0")
        world.check(LIMITS.body_time - 1)
        writer.write(b"c")
        await writer.drain()
        assert not world.connections[0].transport.is_closing()
        world.check(LIMITS.body_time)
        await until(lambda: not world.connections)

    served(test, folder)


def test_a_client_that_does_not_read_is_given_up(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        reader, _ = await world.open(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % LARGE)
        await until(lambda: world.connections and world.connections[0].transport.get_write_buffer_size())
        (connection,) = world.connections
        transport = connection.transport
        world.check(0)
        before = transport.get_write_buffer_size()
        await reader.readexactly(16 << 20)  # slow, but not too slow
        await until(lambda: transport.get_write_buffer_size() < before - LIMITS.send_size)
        world.check(LIMITS.send_time)
        assert world.connections
        world.check(2 * LIMITS.send_time)
        await until(lambda: not world.connections)

    served(test, folder)


def test_a_closed_connection_does_not_wait_for_its_client_to_read(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        await world.open(b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % LARGE)
        await until(lambda: world.connections and world.connections[0].transport.is_closing())
        world.check(0)
        assert world.connections
        world.check(LIMITS.send_time)
        await until(lambda: not world.connections)

    served(test, folder)


def test_silent_connections_make_room_for_others(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        _, busy = await world.open(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: world.connections[0].cycle)
        first, _ = await world.open()
        second, _ = await world.open()
        reader, _ = await world.open(HEAD + b"Content-Length: 2\r\n\r\nab")
        await reader.readuntil(b"\r\n\r\n2")
        assert await first.read() == b""
        assert not second.at_eof()
        assert len(world.connections) == 3
        busy.close()

    served(test, folder, connections=3)


def test_tiny_chunks_are_parsed_in_turns(folder: Path) -> None:  # spec: SE-6
    sizes: list[int] = []

    class Watched(Connection):
        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))
            super().data_received(data)

    async def test(world: World) -> None:
        chunks = (b"%x\r\n" % LEAST_CHUNK + b"x" * LEAST_CHUNK + b"\r\n") * 1000
        reader, writer = await world.open()
        writer.write(CHUNKED + chunks + b"0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n%d" % (1000 * LEAST_CHUNK))
        assert max(sizes) <= CHUNKED_READ_SIZE
        # Large bodies of a known size are not slowed down.
        reader, writer = await world.open(HEAD + b"Content-Length: 1000000\r\n\r\n")
        writer.write(b"x" * 1_000_000)
        await reader.readuntil(b"1000000")
        assert max(sizes) > CHUNKED_READ_SIZE

    served(test, folder, Watched)


def test_a_body_in_many_tiny_chunks_is_refused(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        tiny = b"1\r\nx\r\n"
        reader, writer = await world.open(CHUNKED + tiny * FREE_CHUNKS + b"0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n%d" % FREE_CHUNKS)
        writer.write(CHUNKED + tiny * FREE_CHUNKS + b"0\r\n\r\n")  # each body is counted by itself
        await reader.readuntil(b"\r\n\r\n%d" % FREE_CHUNKS)
        for chunk in (tiny, b"1;" + b"extension" * 100 + b"\r\nx\r\n", b"%x\r\n" % 31 + b"x" * 31 + b"\r\n"):
            refused, _ = await world.open(CHUNKED + chunk * (FREE_CHUNKS + 1))
            answer = await refused.read()
            assert answer.startswith(b"HTTP/1.1 400 "), chunk
            assert TINY_CHUNKS.encode() in answer

    served(test, folder)


def test_malformed_chunks_end_a_request_without_a_traceback(  # spec: SE-6
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(world: World) -> None:
        reader, writer = await world.open(CHUNKED.replace(b"/ ", b"/stream "))
        await reader.readuntil(b"begun\r\n")
        writer.write(b"this is no chunk\r\n")
        assert await reader.read() == b""  # nothing can be added to an answer that has begun
        reader, _ = await world.open(CHUNKED.replace(b"/ ", b"/refuse ") + b"this is no chunk\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")  # the application answers, too, but too late

    served(test, folder)
    assert not [record for record in caplog.records if record.exc_info]


def test_headers_are_limited(folder: Path) -> None:  # spec: SE-6
    async def test(world: World) -> None:
        for size in (LIMITS.header_size + 1, 10 * LIMITS.header_size):
            reader, _ = await world.open((HEAD + b"X: ").ljust(size, b"x"))
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 431 ")
        reader, _ = await world.open(b"this is no request\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    served(test, folder)


def test_garbage_collection_does_not_examine_what_the_start_made(monkeypatch: pytest.MonkeyPatch) -> None:  # spec: SE-6
    async def started(server: uvicorn.Server, sockets: Any = None) -> None:
        """Does not listen."""

    async def run() -> None:
        await Server(Config(echo, LIMITS, 1.0)).startup()

    monkeypatch.setattr(uvicorn.Server, "startup", started)
    before, made = gc.get_freeze_count(), [[number] for number in range(10_000)]
    asyncio.run(run())
    assert gc.get_freeze_count() >= before + len(made)
