"""The signal that stops the server, in memory: the node and the streams end at once."""

import asyncio
import signal
from pathlib import Path
from types import FrameType

import pytest

from chargehand import Chargehand
from chargehand.host.host import Host
from chargehand.web import hosting
from chargehand.web.site import Site


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_signal_stops_the_node_before_the_server_ends_the_lifespan(  # spec: SE-6
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    received: list[int] = []
    calls: list[str] = []

    def servers_own(number: int, frame: FrameType | None) -> None:
        received.append(number)

    monkeypatch.setattr(Host, "start", lambda self: None)
    monkeypatch.setattr(Host, "begin_stop", lambda self: calls.append("stop"))
    monkeypatch.setattr(Host, "kill", lambda self: calls.append("kill"))
    monkeypatch.setattr(Chargehand, "unhost", lambda self, limit=None: calls.append("unhost"))
    hand = Chargehand(folder / "chargehand.db")
    hand.crew("tag", "nowhere:Tagger")
    hand.open()
    site = Site(hand, "")

    async def serve() -> None:
        async with hosting.hosted(site):
            signal.raise_signal(number)
            assert calls == ["stop"]
            await asyncio.wait_for(site.closing.wait(), 10)
            signal.raise_signal(number)
            assert calls[1:] == ["stop", *(["kill"] if number is signal.SIGINT else [])]

    before = signal.signal(number, servers_own)
    try:
        asyncio.run(serve())
    finally:
        signal.signal(number, before)
        hand.close()
    assert received == [number, number]
    assert calls[-1] == "unhost"
