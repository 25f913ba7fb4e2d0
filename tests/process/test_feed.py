"""A feed in front of a node that is slow, silent, stuck or gone: its watchers are told what is known, and are right."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chargehand.errors import StoreError
from chargehand.host import feed as module
from chargehand.host.feed import Feed, Shown, Watcher
from chargehand.live.bodies import HealthBody
from chargehand.live.broker import Broker, Wire
from chargehand.model.health import Verdict
from chargehand.model.topic import HEALTH, parse
from chargehand.protocol.frame import encode
from chargehand.stores.location import Location


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("READ_EVERY", "PING_AFTER", "LONGEST_WAIT", "LINGER"):
        monkeypatch.setattr(module, name, 0.05)


def absent(_: Any) -> list[Shown]:
    return [Shown(HEALTH, HEALTH, "health", HealthBody(Verdict.ERROR, ("no node runs",)))]


class Pretended:
    """The other end of the line, which says what the test wants."""

    def __init__(self, life: str) -> None:
        self.broker = Broker(life)
        self.broker.publish(HEALTH, HEALTH, "health", HealthBody(Verdict.HEALTHY), 1)
        self.lines: list[asyncio.StreamWriter] = []
        self.said: list[str] = []
        self.speak = self.knows = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines.append(writer)
        while line := await reader.readline():
            kind, _, body = line.decode().partition("|")
            self.said.append(kind)
            if kind == "SUBSCRIBE" and self.speak:
                call = json.loads(body)["call"]
                self.tell(call, "EVENTS", events=self.wires())
                if self.knows:
                    self.tell(call, "KNOWN", floors=self.broker.floors)
        writer.close()

    def wires(self) -> Any:
        return json.loads(msgspec.json.encode([Wire.of(event) for event in self.broker.state(parse(["*"]))]))

    def tell(self, call: int, kind: str, **fields: Any) -> None:
        self.lines[-1].write(encode(kind, {"call": call, "life": self.broker.life, **fields}))


@asynccontextmanager
async def line(path: Path, node: Pretended) -> AsyncGenerator[None]:
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(node.serve, path)
    try:
        yield
    finally:
        server.close()
        for writer in node.lines:
            writer.close()
        path.unlink(missing_ok=True)


async def health(watcher: Watcher, wanted: str) -> str:
    """Wait until the health is told to be so; under which life."""
    async with asyncio.timeout(20):
        async for event in watcher.events():
            if event["type"] == "health_update" and event["health"]["status"] == wanted:
                return watcher.life
    raise AssertionError


def run(folder: Path, scene: Callable[[Feed, Path], Any], look: Callable[[Any], list[Shown]] = absent) -> None:
    location = Location(folder / "node")

    async def all_of_it() -> None:
        source = Feed(location, look)
        await scene(source, location.socket)
        source.close()
        await asyncio.sleep(0)

    asyncio.run(all_of_it())


def test_a_node_that_falls_silent_is_done_without_and_found_again(tmp_path: Path) -> None:  # spec: EV-5 EV-6
    async def scene(source: Feed, path: Path) -> None:
        node = Pretended("one")
        async with line(path, node), source.watch(parse([])) as watcher:
            assert await health(watcher, "healthy") == "one"
            node.speak = False  # stopped, say: the kernel still takes what is sent to it
            assert (await health(watcher, "error")).startswith("store")
            assert "PING" in node.said
            node.speak = True
            assert await health(watcher, "healthy") == "one"

    run(tmp_path, scene)


def test_a_node_whose_store_is_stuck_still_tells_what_it_knows(tmp_path: Path) -> None:
    async def scene(source: Feed, path: Path) -> None:
        node = Pretended("one")
        node.knows = False
        async with line(path, node), source.watch(parse([])) as watcher:
            assert await health(watcher, "healthy") == "one"

    run(tmp_path, scene)


def test_a_new_life_and_a_store_that_fails(tmp_path: Path) -> None:  # spec: EV-5
    def fails(_: Any) -> list[Shown]:
        raise StoreError("the disk is gone")

    async def scene(source: Feed, path: Path) -> None:
        async with source.watch(parse([])) as watcher:
            assert (await health(watcher, "error")).startswith("store")
            for life in ("one", "two"):
                async with line(path, Pretended(life)):
                    assert await health(watcher, "healthy") == life
                assert (await health(watcher, "error")).startswith("store")

    run(tmp_path, scene, fails)


def test_one_line_for_all_and_none_when_nobody_watches(tmp_path: Path) -> None:
    async def scene(source: Feed, path: Path) -> None:
        node = Pretended("one")
        async with line(path, node):
            async with source.watch(parse([])) as first, source.watch(parse(["system:health"])) as second:
                for watcher in (first, second):
                    await health(watcher, "healthy")
                node.tell(9, "EVENTS", anew=True, events=[])  # we were too slow, it says
                async with asyncio.timeout(20):
                    while len(node.lines) < 2:
                        await asyncio.sleep(0.001)
            async with asyncio.timeout(20):
                while not all(writer.is_closing() for writer in node.lines):
                    await asyncio.sleep(0.001)
        assert len(node.lines) == 2

    run(tmp_path, scene)
