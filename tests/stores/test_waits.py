"""Tests for waiting for the end of a job that a node of this machine may not report."""

import asyncio
import os
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from chargehand import clock
from chargehand.host import nodelock
from chargehand.host.calls import LONGEST_LOOK, TOLD, Calls, follow, looks
from chargehand.stores.location import Location, locate


@pytest.fixture(params=["one node", "several nodes"])
def location(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return locate(str(folder / "s.db") if request.param == "one node" else "postgresql://anna@db/app", "me")


@pytest.fixture
def node(location: Location) -> Iterator[None]:
    """A node that answers nothing: the job runs elsewhere."""
    lock = nodelock.take(location)
    assert lock is not None
    location.path.touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(location.socket))
        listener.listen()
        yield
    nodelock.release(lock)
    os.unlink(location.socket)


def test_looks_are_frequent_at_first() -> None:
    pauses = list(islice(looks(), 20))
    assert pauses == sorted(pauses)
    assert sum(pauses[:3]) < 0.1
    assert set(pauses[6:]) == {LONGEST_LOOK}


# spec: WK-5, MN-7
def test_the_end_of_a_job_elsewhere_is_looked_for_if_there_may_be_another_node(location: Location, node: None) -> None:
    counted = 0

    def ended() -> bool:
        nonlocal counted
        counted += 1
        return False

    calls = Calls(location)
    with pytest.raises(TimeoutError):
        calls.wait("job", ended, clock.monotonic() + 0.8 * TOLD)
    calls.close()
    assert counted > 2 if location.server is not None else counted <= 2


# spec: WK-5, MN-7
def test_the_same_in_an_event_loop(location: Location, node: None) -> None:
    async def waited() -> int:
        count, until = 0, clock.monotonic() + 0.8 * TOLD
        async with follow(location, "job") as news:
            for pause in looks():
                await news(pause)
                count += 1
                if clock.monotonic() >= until:
                    break
        return count

    counted = asyncio.run(waited())
    assert counted > 2 if location.server is not None else counted <= 2
