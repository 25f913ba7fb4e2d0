"""The last release's store, settings, application and running node work with this one.

The last release is in tests/data. Its processes have it first on PYTHONPATH; this process has the present package.
"""

import asyncio
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import terminal
from fastapi import FastAPI
from world import gone

import chargehand
from chargehand import Chargehand, JobFilter
from chargehand.crew import Ref
from chargehand.model.access import Scope
from chargehand.stores.sqlite import schema
from chargehand.testing import eventually
from paths import HANDLERS, ROOT

pytestmark = pytest.mark.full

OLD = ROOT / "tests" / "data" / "chargehand-0.1.0-6d79733.whl"
STORE_ERROR = 4
"""The exit status of a command whose store cannot be used."""
NEW_PACKAGE = str(Path(chargehand.__file__).resolve().parent)
ENV = "CHARGEHAND_URL=work.db\nCHARGEHAND_CREW_KEEP_WORKERS=2\n"
TOML = """
[liveness]
beat = 0.2
silent = 2.0
grace = 3.0
terminate = 0.5
[restart]
first_pause = 0.01
longest_pause = 0.05
[crews.say]
workers = 2
"""
USED = """
import json
from upgraded_app import Text, fail, hand, keep, say
from chargehand import JobFailed
from chargehand.model.access import Scope

with hand.running():
    done = [say.enqueue(Text(text), label=text) for text in ("one", "two")] + [keep.enqueue("three")]
    for ref in done:
        ref.wait(30)
    failed = fail.enqueue("always")
    try:
        failed.wait(30)
    except JobFailed:
        pass
    hand.scale("say", 3)
    hand.pause("fail", reason="until the upgrade", who="olga")
left = [say.enqueue(Text("later"), key="k"), keep.enqueue("later"), fail.enqueue("well")]
secret, _ = hand.make_key("ops", [Scope.READ])
print(json.dumps({
    "done": [ref.id for ref in done], "failed": failed.id, "left": [ref.id for ref in left], "secret": secret,
}))
"""
"""What the last release does to a store before this one gets it."""


class Node:
    """`chargehand work` of either release."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / f"log-{os.urandom(4).hex()}"
        with open(self.log, "wb") as log:
            command = [sys.executable, "-m", "chargehand", "work", "upgraded_app:hand"]
            self.host = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def stop(self) -> int:
        """Stop in order, if it still runs; the exit status."""
        if self.host.poll() is None:
            self.host.send_signal(signal.SIGTERM)
        return self.host.wait(30)


class Place:
    """A folder with the application and its settings, in which either release runs."""

    def __init__(self, folder: Path, old: Path) -> None:
        self.folder, self.old = folder, old
        for name in ("upgraded_app.py", "upgraded_handlers.py"):
            shutil.copy(HANDLERS / name, folder)
        (folder / ".env").write_text(ENV)
        (folder / "chargehand.toml").write_text(TOML)
        self.app: Any = SimpleNamespace(**runpy.run_path(str(folder / "upgraded_app.py")))
        """The application, in this process."""
        self.hand: Chargehand = self.app.hand
        self._nodes: list[Node] = []

    def environment(self, *, old: bool) -> dict[str, str]:
        paths = (str(self.old) if old else "", str(self.folder), os.environ.get("PYTHONPATH", ""))
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def start(self, *, old: bool) -> Node:
        """Start a node, and wait until all its workers are healthy."""
        before = self.view().get("pid")
        self._nodes.append(Node(self.folder, self.environment(old=old)))
        self.healthy(other_than=before)
        return self._nodes[-1]

    def view(self) -> dict[str, Any]:
        return self.hand.status() or {}

    def healthy(self, other_than: int | None = None) -> dict[str, Any]:
        """Wait until all workers of another node than this are healthy, or paused; the node's view."""

        def found() -> dict[str, Any] | None:
            view = self.view()
            ready = bool(view) and all(worker["status"] in ("healthy", "paused") for worker in view["workers"])
            return view if ready and view["pid"] != other_than else None

        return eventually(found, what=self._nodes[-1].log.read_text())  # type: ignore[return-value]

    def by_the_last_release(self, text: str) -> Any:
        """What a script of the last release prints, as data."""
        done = subprocess.run(
            [sys.executable, "-c", text], env=self.environment(old=True), cwd=self.folder, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def command(self, *words: str) -> terminal.Told:
        """A command of this release, in the folder."""
        told = terminal.chargehand(*words, cwd=self.folder, PYTHONPATH=self.environment(old=False)["PYTHONPATH"])
        assert "Traceback" not in told.stderr, told.stderr
        return told

    def get(self, path: str, key: str | None) -> httpx.Response:
        """A request from another machine to the API of this release."""
        app = FastAPI()
        self.hand.attach(app)
        headers = {"Authorization": f"Bearer {key}"} if key else {}

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app, client=("203.0.113.7", 1234))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.get(f"/chargehand/api/v1/{path}", headers=headers)

        return asyncio.run(asked())

    def kept(self) -> list[str]:
        with self.hand.transaction() as tx:
            return [text for (text,) in tx.execute("SELECT text FROM kept ORDER BY text")]

    def close(self) -> None:
        for node in self._nodes:
            node.stop()
        self.hand.close()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release, unpacked."""
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(OLD) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, old: Path) -> Iterator[Place]:
    made = Place(tmp_path, old)
    yield made
    made.close()


def crew_of(view: dict[str, Any], crew: str) -> list[dict[str, Any]]:
    return [worker for worker in view["workers"] if worker["crew"] == crew]


def test_a_store_of_the_last_release_is_used_on(place: Place) -> None:  # spec: ST-3
    made = place.by_the_last_release(USED)
    hand, app = place.hand, place.app
    jobs = [hand.job(job_id) for job_id in made["done"]]
    assert [(job.state, job.label) for job in jobs] == [("done", "one"), ("done", "two"), ("done", None)]
    assert app.say.ref(jobs[0].id).wait(1).text == "one"
    failed = hand.job(made["failed"])
    assert (failed.state, failed.reason, "refused: always" in str(failed.error)) == ("failed", "raised", True)
    assert [attempt.outcome for attempt in hand.attempts(failed.id)] == ["raised"]
    (pause,) = hand.pauses()
    assert (pause.scope, pause.who, pause.reason) == ("fail", "olga", "until the upgrade")
    assert place.kept() == ["three"]
    assert [plan.name for plan in hand.recurrences()] == ["hourly"]
    assert [place.get("jobs", key).status_code for key in (made["secret"], "wrong", None)] == [200, 401, 401]
    place.start(old=False)
    view = place.view()
    assert (len(crew_of(view, "say")), len(crew_of(view, "keep"))) == (3, 2), "as scaled; as in .env"
    later, keep, paused = made["left"]
    assert app.say.ref(later).wait(30).package == app.keep.ref(keep).wait(30) == NEW_PACKAGE
    assert place.kept() == ["later", "three"]
    assert hand.job(paused).state == "queued"
    hand.resume("fail")
    app.fail.ref(paused).wait(30)
    hand.retry(failed.id)
    eventually(lambda: len(hand.attempts(failed.id)) == 2 and hand.job(failed.id).state == "failed")


def test_a_running_node_of_the_last_release_serves_this_one(place: Place, old: Path) -> None:
    place.start(old=True)
    hand, app, package = place.hand, place.app, str(old / "chargehand")
    hand.open()  # whatever this release adds to the store is added now
    pid = place.view()["pid"]
    assert app.say.enqueue(app.Text("hello")).wait(30).package == package
    hand.restart("keep")
    place.healthy()
    assert app.keep.enqueue("kept").wait(30) == package, "by a worker that has opened the store just now"
    tagged: Ref[Any] = app.say.enqueue(
        app.Text("tagged"), tags=["nightly"]
    )  # not through the node, which knows no tags
    assert (tagged.wait(30).text, hand.jobs(JobFilter(tag="nightly"))[0].id) == ("tagged", tagged.id)
    assert {job.state for job in hand.jobs(JobFilter())} == {"done"}
    assert hand.verdict().status == "healthy"
    assert {line["component"] for line in hand.logs("keep:0")} == {"worker:keep:0"}
    # orders
    hand.pause("say", reason="for a moment", who="olga")
    waits: Ref[Any] = app.say.enqueue(app.Text("waits"))
    eventually(lambda: {worker["status"] for worker in crew_of(place.view(), "say")} == {"paused"})
    assert waits.job().state == "queued"
    hand.resume("say")
    assert waits.wait(30).text == "waits"
    hand.scale("say", 3)
    eventually(lambda: len(crew_of(place.healthy(), "say")) == 3)
    held: Ref[Any] = app.say.enqueue(app.Text("held", str(place.folder / "never")))
    eventually(lambda: held.job().state == "running")
    held.cancel()
    eventually(lambda: held.job().state == "cancelled")
    # people
    status = place.command("status", "--json", "--app", "upgraded_app:hand")
    assert (status.returncode, json.loads(status.stdout)["node"]["pid"]) == (0, pid)
    doctor = place.command("doctor", "--json", "--store", str(hand.path))
    assert (doctor.returncode, json.loads(doctor.stdout)["findings"]) == (0, [])
    secret, _ = hand.make_key("ops", [Scope.READ])
    assert place.get("status", secret).json()["node"]["pid"] == pid
    assert place.get("health", secret).json()["status"] == "healthy"
    assert place.get(f"jobs/{waits.id}", secret).json()["state"] == "done"
    events = hand.subscribe(f"job:{waits.id}")
    assert next(event for event in events if event["type"] == "job_update")["job"]["state"] == "done"
    events.close()
    assert place.view()["pid"] == pid


def test_a_node_takes_over_from_one_of_the_last_release(place: Place) -> None:
    hand, app, gate = place.hand, place.app, place.folder / "gate"
    node = place.start(old=True)
    held: Ref[Any] = app.say.enqueue(app.Text("held", str(gate)))
    (worker,) = eventually(lambda: [w["pid"] for w in place.view()["workers"] if w["current_job"] == held.id])
    pids = [node.host.pid, place.view()["pid"]]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that neither acts on the other's death
        for pid in pids:
            os.kill(pid, number)
    node.stop()
    between: Ref[Any] = app.say.enqueue(app.Text("between"))
    place.start(old=False)
    assert gone(worker)
    assert between.wait(30).package == NEW_PACKAGE
    gate.touch()
    assert held.wait(30).package == NEW_PACKAGE
    assert [attempt.outcome for attempt in held.attempts()] == ["interrupted", "done"]
    assert hand.claims() == []


def test_the_package_is_replaced_under_a_running_node_of_the_last_release(place: Place, old: Path) -> None:
    """What the old processes start from then on is this release: workers of the old node, then the old host's node."""
    place.old = place.folder / "site"
    shutil.copytree(old, place.old)
    node, hand, app = place.start(old=True), place.hand, place.app
    pid, package = place.view()["pid"], place.old / "chargehand"
    assert app.say.enqueue(app.Text("before")).wait(30).package == str(package)
    package.rename(place.old / "replaced")
    package.symlink_to(NEW_PACKAGE)
    hand.restart()
    place.healthy()
    assert app.say.enqueue(app.Text("during")).wait(30).package == app.keep.enqueue("kept").wait(30) == NEW_PACKAGE
    assert place.view()["pid"] == pid
    os.kill(pid, signal.SIGKILL)
    place.healthy(other_than=pid)
    assert app.say.enqueue(app.Text("after")).wait(30).package == app.keep.enqueue("kept").wait(30) == NEW_PACKAGE
    assert node.stop() == 0


def test_the_last_release_refuses_a_store_whose_schema_it_does_not_know(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its running node goes on with jobs that need no store in the worker; its next node refuses, and says why."""
    node, app = place.start(old=True), place.app
    more = [*schema.MIGRATIONS, ("ALTER TABLE chargehand_job ADD COLUMN newer TEXT NOT NULL DEFAULT ''", "newer")]
    monkeypatch.setattr(schema, "MIGRATIONS", more)
    place.hand.open()
    assert app.say.enqueue(app.Text("goes on")).wait(30).text == "goes on"
    os.kill(place.view()["pid"], signal.SIGKILL)
    assert node.host.wait(30) == STORE_ERROR
    assert "upgrade the package; nothing was changed" in node.log.read_text()
    waiting: Ref[Any] = app.say.enqueue(app.Text("waits"))
    assert waiting.job().state == "queued"
