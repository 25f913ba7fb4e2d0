"""Test for a node whose server is lost, and replaced by a standby that lags behind."""

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from chaos.servers import MEMORY, Server, Site
from scripted_app import chargehand
from world import Started, World

import pgserver
from chargehand import JobNotFound, StoreError
from chargehand.log import Event
from chargehand.model.job import State
from chargehand.testing import eventually

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"failover is NOT tested: pip install {packages}", allow_module_level=True)


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """A primary, and a standby that follows it."""
    with tempfile.TemporaryDirectory(prefix="chargehand-test-", dir=MEMORY) as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o711)
        primary = Server(Site(folder), "-a")
        primary.initialise()
        primary.start()
        stack.callback(lambda: primary.process and primary.stop())
        standby = primary.standby("-b")
        stack.callback(lambda: standby.process and standby.stop())
        yield primary, standby


def patiently(condition: Callable[[], Any]) -> Callable[[], Any]:
    """Returns the condition, which is false while the store cannot be reached."""

    def holds() -> Any:
        with suppress(StoreError):
            return condition()
        return None

    return holds


# spec: MN-5, MN-6
@pytest.mark.full
def test_outcomes_that_a_promotion_has_lost_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: tuple[Server, Server]
) -> None:
    primary, standby = servers
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    world = World(tmp_path, f"postgresql://postgres@/postgres?host={standby.sockets},{primary.sockets}")
    hand = chargehand(world.address)
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    node = Started(world, CHARGEHAND_LOG="json")
    node.ready()
    gate = world.gate()
    held = world.put(do, gate)
    world.started(held)
    claimed = "SELECT 1 FROM chargehand_live WHERE claim IS NOT NULL"
    eventually(lambda: standby.execute(claimed), what="the standby has the claim")
    standby.unfollow()
    eventually(lambda: not standby.execute("SELECT 1 FROM pg_stat_wal_receiver"), what="the standby lags behind")
    gate.touch()
    lost = world.put(do)
    for ref in (held, lost):
        eventually(lambda ref=ref: ref.job().state is State.DONE, what="done on the primary")
    primary.stop(signal.SIGQUIT)
    standby.promote()
    eventually(patiently(lambda: held.job().state is State.DONE), what="done on the standby")
    assert [attempt.outcome for attempt in held.attempts()] == ["done"]
    with pytest.raises(JobNotFound):
        lost.job()
    assert world.put(do).wait(20) == 1
    assert len(world.starts(held)) == 1, "what was done is not done again"
    node.kill(signal.SIGTERM)
    assert node.end() == 0
    lines = [json.loads(line) for line in node.log.read_text().splitlines() if Event.STORE_REPLACED in line]
    assert [(line["outcomes_repeated"], line["outcomes_unknown"], line["jobs_cancelled"]) for line in lines] == [
        (1, 1, 0)
    ]
