"""A rolling upgrade of several nodes on one PostgreSQL store, with real processes of three versions.

The versions after the present one are copies of the package with further migrations, the first of which its code needs.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import terminal
from scripted_app import chargehand
from world import World

import chargehand as package
import pgserver
from chargehand import Chargehand, clock
from chargehand.crew import Ref
from chargehand.model.job import State
from chargehand.stores.postgres.schema import MIGRATIONS
from chargehand.testing import eventually
from paths import python_path

pytestmark = pytest.mark.full

KNOWN = len(MIGRATIONS)
STORE_ERROR = 4
"""The exit status of a command whose store cannot be used."""
ADDS = "-- oldest: {}\nALTER TABLE chargehand_node ADD COLUMN renewed boolean"
REMOVES = "-- oldest: {}\nCOMMENT ON TABLE chargehand_node IS 'without what version {} used'"
BEAT = "SET beat = beat + 1"


def make_version(folder: Path, steps: int) -> Path:
    """Makes a version of the package that knows so many more migrations. Returns the folder for PYTHONPATH."""
    made = folder / f"version-{steps}"
    here = Path(package.__file__).parent
    shutil.copytree(here, made / "chargehand", ignore=shutil.ignore_patterns("dashboard"))
    postgres = made / "chargehand" / "stores" / "postgres"
    known = len(list((postgres / "migrations").glob("*.sql")))
    for number, text in list(enumerate((ADDS, REMOVES), known))[:steps]:
        (postgres / "migrations" / f"{number + 1:04}_later.sql").write_text(text.format(number, number - 1))
    statements = postgres / "sql" / "fleet.sql"
    text = statements.read_text()
    assert text.count(BEAT) == 1
    statements.write_text(text.replace(BEAT, f"{BEAT}, renewed = true"))
    return made


class Cluster:
    """The nodes of one store, and the versions of the package that they run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.versions: list[Path | None] = [None, make_version(world.folder, 1), make_version(world.folder, 2)]
        """The present version, and those that follow."""
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, version: int, name: str = "here") -> dict[str, str]:
        first = [folder] if (folder := self.versions[version]) else []
        own = {"CHARGEHAND_NODE": name, "XDG_STATE_HOME": str(self.world.folder / name), "TEST_LEASE": "10"}
        crews = {"CHARGEHAND_CREW_DO_WORKERS": "1", "CHARGEHAND_CREW_GPU_WORKERS": "0"}
        one = {"CHARGEHAND_URL": self.world.address, "CHARGEHAND_CREW_ALONE_WORKERS": "0"}
        return {**os.environ, **own, **crews, **one, "PYTHONPATH": python_path(*first)}

    def start(self, name: str, version: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "chargehand", "work", "several_app:hand"]
        with open(self.log(name), "wb") as log:
            self.nodes[name] = subprocess.Popen(words, env=self.environment(version, name), stdout=log, stderr=log)
        return self.nodes[name]

    def log(self, name: str) -> Path:
        return self.world.folder / f"log-{name}"

    def stop(self, name: str) -> int:
        node = self.nodes.pop(name)
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)
        return node.wait(30)

    def command(self, version: int, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "chargehand", *words], env=self.environment(version), capture_output=True, text=True,
            timeout=60, check=False, cwd=self.world.folder,
        )  # fmt: skip


class Flow(threading.Thread):
    """A caller of the present version that enqueues jobs all the time."""

    def __init__(self, world: World, hand: Chargehand) -> None:
        super().__init__()
        self._world, self._do = world, hand.crew("do", "scripted_handlers:Doer")
        self.refs: list[Ref[Any]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.refs.append(self._world.put(self._do))

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if (packages := pgserver.missing()) is not None:
        pytest.skip(f"the rolling upgrade is NOT tested: pip install {packages}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "caller"))
    return World(tmp_path, pgserver.new_store())


@pytest.fixture
def cluster(world: World) -> Iterator[Cluster]:
    made = Cluster(world)
    yield made
    for name in list(made.nodes):
        made.stop(name)


@pytest.fixture
def hand(world: World) -> Iterator[Chargehand]:
    made = chargehand(world.address)
    yield made
    made.close()


# spec: ST-4
def test_nodes_are_upgraded_one_after_the_other_while_jobs_flow(
    cluster: Cluster, world: World, hand: Chargehand
) -> None:
    def works(*names: str, renewed: int) -> None:
        """Waits until these nodes have each done a job since now, and so many of them run a later version."""
        since = clock.now_ms()
        done = "SELECT DISTINCT node FROM chargehand_end WHERE finished_ms > %s"
        eventually(lambda: rows(done, since) >= {(name,) for name in names}, 30, what=f"jobs done by {names}")
        if renewed:
            assert len(rows("SELECT name FROM chargehand_node WHERE renewed")) == renewed

    def rows(sql: str, *args: Any) -> set[tuple[Any, ...]]:
        with hand.transaction() as tx:
            return set(tx.execute(sql, args))

    flow = Flow(world, hand)
    for name in ("a", "b"):
        cluster.start(name, 0)
    flow.start()
    try:
        works("a", "b", renewed=0)
        # The next version changes nothing under nodes that live, and says so.
        assert cluster.start("c", 1).wait(30) == STORE_ERROR
        assert "nodes of an older version use it (" in cluster.log("c").read_text()
        migrated = cluster.command(1, "migrate")
        told = f"was migrated from schema {KNOWN} to {KNOWN + 1}"
        assert (migrated.returncode, told in migrated.stdout) == (0, True), migrated.stderr
        # One after the other; a node of the version before may be restarted, too.
        assert cluster.stop("a") == 0
        cluster.start("a", 1)
        works("a", "b", renewed=1)
        assert cluster.stop("b") == 0
        cluster.start("b", 0)
        works("a", "b", renewed=1)
        # The version after that would remove what b uses.
        refused = cluster.command(2, "migrate")
        assert (refused.returncode, f"(b): they cannot work with schema {KNOWN + 2}" in refused.stderr) == (
            STORE_ERROR,
            True,
        )
        assert cluster.stop("b") == 0
        cluster.start("b", 1)
        works("a", "b", renewed=2)
    finally:
        flow.end()
    eventually(lambda: all(ref.job().state is State.DONE for ref in flow.refs[-50:]), 30, what="the last jobs")
    ids = sorted(ref.id for ref in flow.refs)
    assert sorted(job_id for job_id, _ in world.lines("end")) == ids, "none is lost, none runs twice"
    done = "SELECT id FROM chargehand_end JOIN chargehand_job USING (seq) WHERE state = 'done'"
    assert rows(done) == {(job_id,) for job_id in ids}
    # Now it may, and the first version is refused.
    assert cluster.command(2, "migrate").returncode == 0
    words = f"for code that knows schema {KNOWN + 1} or newer; this one knows {KNOWN}): upgrade the package"
    old = cluster.start("c", 0)
    for command in (["status"], ["jobs", "list"], ["migrate"]):
        told = terminal.chargehand(*command, CHARGEHAND_URL=world.address)
        assert (told.returncode, words in told.stderr) == (STORE_ERROR, True), told.stderr
    assert (old.wait(30), words in cluster.log("c").read_text()) == (STORE_ERROR, True)
