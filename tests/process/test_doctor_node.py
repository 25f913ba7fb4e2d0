"""What `doctor` says of a node: one that is well, and then everything that can happen to it, one after the other."""

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from operating import FAULTY, WRONG, Serving, become, serving
from terminal import WITHOUT_OVERRIDE, Told
from terminal import chargehand as terminal
from test_contention import HOLDER
from world import World

import chargehand
from chargehand import clock
from chargehand.doctor import bundle
from chargehand.doctor.examine import PATIENCE, _worst, examine, facts_from, find_and_examine
from chargehand.host import restart_plan
from chargehand.host.host import Host
from chargehand.log import Event
from chargehand.model.doctor import node as by_node
from chargehand.model.doctor.causes import Finding
from chargehand.model.doctor.diagnosis import Diagnosis, diagnose
from chargehand.model.doctor.facts import Other
from chargehand.stores.sqlite.schema import MIGRATIONS
from chargehand.stores.sqlite.store import SqliteStore
from chargehand.testing import eventually

CREW = "hand.crew('do', 'scripted_handlers:Doer', workers=1)"
PATIENT = "liveness=LivenessPolicy(beat=0.2, silent=5.0, grace=60, terminate=0.5)"
FREEZER = Path("/sys/fs/cgroup/freezer")


def only(found: Diagnosis, cause: str) -> Finding:
    (finding,) = [finding for finding in found.findings if finding.cause == cause]
    return finding


def doctor(*words: str, cwd: Path, **environment: str) -> Told:
    """`chargehand doctor` in a folder, as somebody types it there."""
    told = terminal("doctor", *words, cwd=cwd, **environment)
    assert "Traceback" not in told.stderr
    return told


@pytest.mark.full
def test_a_life(world: World) -> None:  # spec: CL-4
    """One node, well and ill."""
    with serving(world, CREW, PATIENT) as served:
        become(served.hand, "healthy")
        well(served)
        nothing_due(served, world)
        store_locked(served, world)
        skewed(served, world)
        clock_set_back(served, world)
        node_stopped(served, world)
        file_gone(served, world)
        log_gone(served, world)
        stopping(served, world)
    gone = only(examine(served.hand), "no-node")  # cause: no-node
    assert gone.severity == "error"
    assert "did not shut down gracefully" not in gone.text
    host_waits(served)


def host_waits(served: Serving) -> None:  # spec: RP-10
    """A host whose nodes exit repeatedly says when it starts the next one; `doctor` does not say that nobody will."""
    host = Host(served.hand.brief())
    host._deaths, host._last = [clock.monotonic()] * 9, "signal 9"
    waiting = threading.Thread(target=host._pause, args=(60.0,))
    waiting.start()
    try:
        eventually(lambda: restart_plan.announced(served.hand.location))
        found = examine(served.hand)
    finally:
        host._stopping = True
        os.eventfd_write(host._wake, 1)
        waiting.join()
    dies = only(found, "node-dies")  # cause: node-dies
    assert "exited 9 times within 5 minutes, the last time with signal 9" in dies.text
    assert f"its host (pid {os.getpid()}) starts another in 59 seconds" in dies.text.replace("60 sec", "59 sec")
    assert "no-node" not in {finding.cause for finding in found.findings}
    assert only(examine(served.hand), "no-node"), "the host stopped, so nobody will start a node"


def well(served: Serving) -> None:
    found = examine(served.hand)
    assert (found.status, found.findings, found.well) == (None, (), True)
    assert found.headline == "nothing to do: 1 of 1 workers ready"


def nothing_due(served: Serving, world: World) -> None:  # cause: future failed-jobs
    crew = served.hand.crew("do", "scripted_handlers:Doer")
    later, failed = crew.enqueue({}, delay=7210), world.put(crew, end="give up")
    eventually(lambda: failed.job().state == "failed")
    found = examine(served.hand)
    future = only(found, "future")
    assert (future.severity, found.well) == ("note", True)
    assert future.text == "all waiting jobs are scheduled for later: 1 job, the first in 2 hours"
    assert only(found, "failed-jobs").text == "1 job failed permanently: do 1"
    later.cancel()


def store_locked(served: Serving, world: World) -> None:  # cause: store-locked
    command, pipe = [sys.executable, "-c", HOLDER, str(world.store)], subprocess.PIPE
    holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    found = examine(served.hand)
    locked = only(found, "store-locked")
    assert locked.text.startswith(f"pid {holder.pid} (")
    assert locked.severity == "error"
    assert locked.remedy.endswith(f", or: kill -TERM {holder.pid}")
    holder.kill()
    holder.communicate()
    other_programs_lock(served, world)


OTHER_PROGRAM = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def other_programs_lock(served: Serving, world: World) -> None:
    """Whoever has SQLite's lock is named, not who waits for it with ours; then one whose lock was taken by another."""
    pipe, lock = subprocess.PIPE, served.hand.location.lock
    words = [sys.executable, "-c", OTHER_PROGRAM, str(world.store)]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as other, open(lock, "rb") as ours:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        fcntl.flock(ours, fcntl.LOCK_EX)
        locked = only(examine(served.hand), "store-locked")
        assert locked.text.startswith(f"pid {other.pid} (")
        assert "has held SQLite's write lock of" in locked.text
        assert locked.remedy == f"end its transaction (COMMIT or ROLLBACK), or: kill -TERM {other.pid}"
        other.kill()
    with open(lock, "rb") as file, subprocess.Popen(
        ["sh", "-c", f"flock {file.fileno()}; echo held; exec sleep 60"], stdout=pipe, text=True,
        pass_fds=[file.fileno()],
    ) as left:  # fmt: skip
        file.close()
        assert left.stdout
        assert left.stdout.readline() == "held\n"
        locked = only(examine(served.hand), "store-locked")
        assert locked.text.startswith(f"pid {left.pid} (sleep 60) has held the write lock of ")
        assert locked.remedy == f"let it finish, or: kill -TERM {left.pid}"
        left.kill()


EXAMINE = """
import msgspec, sys
from chargehand.doctor.examine import find_and_examine
print(msgspec.json.encode(find_and_examine(sys.argv[1])).decode())
"""


def skewed(served: Serving, world: World) -> None:  # cause: version-skew schema-new schema-old
    """Another version of the package looks at the same node and store."""
    older, newer = (copy_of_the_package(world.folder / name) for name in ("older", "newer"))
    last = sorted((older / "chargehand/stores/sqlite/migrations").glob("*.sql"))[-1]
    last.unlink()
    (newer / "chargehand/stores/sqlite/migrations/9999_later.sql").write_text("SELECT 1;")
    known = len(MIGRATIONS)
    words = [sys.executable, "-c", EXAMINE, str(world.store)]
    told = [
        subprocess.run(words, env={**os.environ, "PYTHONPATH": str(folder)}, stdout=subprocess.PIPE, check=True)
        for folder in (older, newer)
    ]
    old, new = (json.loads(each.stdout) for each in told)
    causes = [{finding["cause"]: finding for finding in found["findings"]} for found in (old, new)]
    assert causes[0]["version-skew"]["text"].endswith(f"runs Chargehand {chargehand.__version__}, this is 9.9.9")
    assert causes[0]["version-skew"]["severity"] == "warning"
    assert (causes[0]["schema-new"]["severity"], causes[1]["schema-old"]["severity"]) == ("error", "warning")
    assert f"its schema is {known}, version 9.9.9 here supports {known - 1}" in causes[0]["schema-new"]["text"]


def copy_of_the_package(folder: Path) -> Path:
    source = Path(chargehand.__file__).parent
    shutil.copytree(source, folder / "chargehand", ignore=shutil.ignore_patterns("web", "testing"))
    root = folder / "chargehand" / "__init__.py"
    root.write_text(root.read_text().replace(f'"{chargehand.__version__}"', '"9.9.9"'))
    return folder


def clock_set_back(served: Serving, world: World) -> None:  # cause: clock
    ahead = SqliteStore(world.store, now_ms=lambda: clock.now_ms() + 3_600_000)
    with ahead.transaction() as tx:
        tx.fleet.pause("worker:do:9", "tim", None, 1)
        tx.jobs.enqueue([served.hand.find_crew("do").new_job({"ledger": world.ledger})])
    ahead.close()
    found = examine(served.hand)
    assert "60 minutes in the future" in only(found, "clock").text
    world.put(served.hand.find_crew("do")).wait(30)


def node_stopped(served: Serving, world: World) -> None:  # cause: node-stopped
    pid = served.ready_pid()
    ref = world.put(served.hand.find_crew("do"))
    ref.wait(30)
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
        found = examine(served.hand)
        assert only(found, "node-stopped").remedy == f"kill -CONT {pid}"
        assert found.headline.startswith("not working since ")
        with frozen(pid) as cold:
            if cold:  # cause: node-silent
                os.kill(pid, signal.SIGCONT)
                silent = only(examine(served.hand), "node-silent")
                assert silent.text.endswith("does not answer (no reply within 2 s; the kernel waits for its disk)")
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen(pid: int) -> Generator[bool]:
    """The process in a frozen control group, if we can have one: it neither runs nor answers."""
    folder = FREEZER / f"chargehand-doctor-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        yield False
        return
    (folder / "freezer.state").write_text("FROZEN")
    (folder / "cgroup.procs").write_text(str(pid))
    try:
        yield True
    finally:
        (folder / "freezer.state").write_text("THAWED")
        (FREEZER / "cgroup.procs").write_text(str(pid))
        folder.rmdir()


def test_the_frozen_node_was_tried() -> None:  # spec: CL-4
    if os.geteuid() != 0 or not FREEZER.is_dir():
        pytest.skip("NOT PROVEN HERE: a node that hangs needs root and a freezer control group")


def file_gone(served: Serving, world: World) -> None:  # cause: file-gone
    aside = world.folder / "aside.db"
    world.store.rename(aside)
    shutil.copy(aside, world.store)
    gone = only(examine(served.hand), "file-gone")
    assert gone.severity == "error"
    assert f"kill -TERM {served.ready_pid()}" in gone.remedy
    aside.rename(world.store)


def log_gone(served: Serving, world: World) -> None:
    log, kept = Path(f"{world.store}-wal"), world.folder / "kept-wal"
    os.link(log, kept)
    log.unlink()
    gone = only(examine(served.hand), "file-gone")
    assert gone.text.startswith(f"{log} was deleted or replaced while the node (pid ")
    kept.rename(log)
    # A connection that was opened meanwhile fails, and is opened again.
    eventually(lambda: examine(served.hand).well, what="the store works again")


def stopping(served: Serving, world: World) -> None:  # cause: node-stopping
    gate = world.gate()
    ref = world.put(served.hand.find_crew("do"), gate)
    world.started(ref)
    served.kill(signal.SIGTERM)
    eventually(lambda: (served.view() or {}).get("stopping"))
    found = examine(served.hand)
    assert only(found, "node-stopping").text.endswith("is stopping: the host asked")
    gate.touch()
    served.end()


BYSTANDER = """
import sys
from chargehand.host import nodelock, restart_plan
from chargehand.stores.location import locate
import os
lock = nodelock.take(locate(sys.argv[1]))
nodelock.sign(lock, os.getpid(), "there", [], "")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def lock_held(store: Path, *before: str) -> "Generator[subprocess.Popen[str]]":
    """Somebody has the node's lock, and does nothing with it."""
    command = [*before, sys.executable, "-c", BYSTANDER, str(store)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.communicate()


def test_a_node_that_starts_and_one_in_another_container(world: World) -> None:  # spec: CL-4 SV-11
    from scripted_app import chargehand as made

    hand = made(world.store)
    hand.open()
    with lock_held(world.store) as process:  # cause: node-starting
        starting = only(examine(hand), "node-starting")
        assert (starting.severity, starting.about) == ("note", f"pid {process.pid}")
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: a node in another pid namespace needs root")
    with lock_held(world.store, "unshare", "--pid", "--fork"):  # cause: node-elsewhere
        assert only(examine(hand), "node-elsewhere").severity == "error"


def test_a_node_without_its_socket(  # spec: CL-4 # cause: socket-gone
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(world.store).close()
    monkeypatch.setattr(by_node, "YOUNG", 0.0)  # it is not starting any more
    with lock_held(world.store) as process:
        gone = only(find_and_examine(str(world.store)), "socket-gone")
    assert f"(pid {process.pid}), {world.store}-sock, was deleted: the node performs jobs" in gone.text
    assert gone.remedy.endswith(f"kill -TERM {process.pid}, and its host starts another")


def test_another_users_node() -> None:  # spec: CL-4 # cause: not-allowed
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: to be another user needs root")
    folder = Path(f"/tmp/chargehand-doctor-{os.getpid()}")
    folder.mkdir(mode=0o755)
    try:
        store = SqliteStore(folder / "chargehand.db")
        store.close()
        with lock_held(folder / "chargehand.db") as process:
            for file in folder.iterdir():
                file.chmod(0o600)
                os.chown(file, 65534, 65534)
            code = "from chargehand.doctor.__main__ import main; main()"
            words = [*WITHOUT_OVERRIDE, sys.executable, "-c", code, "store", str(folder / "chargehand.db")]
            told = subprocess.run(words, capture_output=True, text=True, check=False)
        found: dict[str, object] = {}
        for line in told.stdout.splitlines():
            found |= json.loads(line)["found"]
        diagnosis = diagnose(facts_from(found, plain=True, others=()), clock.hour)
        assert only(diagnosis, "not-allowed").text.endswith(
            f"(pid {process.pid}) belongs to root and refuses the connection"
        )
        assert only(diagnosis, "not-allowed").remedy.startswith("sudo -u root chargehand doctor --store /tmp/")
        assert only(diagnosis, "store-unusable").text.endswith(
            "it belongs to nobody, and the user root has no permission to read and write it"
        )
    finally:
        shutil.rmtree(folder)


def test_after_a_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: CL-4 SV-11 RP-6
    """Host and node killed at once: what is left, what is remembered, and which other store has a node."""
    wrong = f"hand.crew('wrong', '{FAULTY}', environment={WRONG})"
    other = World(world.folder / "other")
    other.folder.mkdir()
    with serving(world, f"{CREW}; {wrong}") as served:
        become(served.hand, {"do:0": "healthy", "wrong:0": "failed"})
        ref = world.put(served.hand.crew("do", "scripted_handlers:Doer"), world.gate(), children=["session"])
        world.started(ref)
        (child,) = world.children_of(1)
        eventually(lambda: served.hand.health("healthy"))
        served.die_with_the_node()
    talk = "hand.crew('talk', 'reporting_handlers:Talker')"
    with serving(other, f"{CREW}; {talk}", CHARGEHAND_LOG="json") as running:
        become(running.hand, "healthy")
        logged_as_json(running)
        monkeypatch.chdir(other.folder)
        here = find_and_examine()
        monkeypatch.chdir(world.folder)
        monkeypatch.setenv("CHARGEHAND_URL", str(other.store))
        both = find_and_examine()
        monkeypatch.setenv("CHARGEHAND_URL", str(world.store))
        found = find_and_examine()
        worst = _worst(tuple(Other(path=str(w.store), why="it runs", pid=1) for w in (other, world)), (), PATIENCE)
        packed(other, running)
        running_pid = running.ready_pid()
    os.kill(child, signal.SIGKILL)
    assert "did not shut down gracefully" in only(found, "no-node").text
    assert str(child) in only(found, "orphans").text  # cause: orphans
    assert only(found, "given-up").severity == "warning"
    assert only(found, "given-up").remedy.startswith("chargehand crashes --crew wrong; ")  # it is CHARGEHAND_URL's
    assert only(found, "two-stores").severity == "warning"  # cause: two-stores
    assert (worst.store, [each.path for each in worst.others]) == (str(world.store), [str(other.store)])
    assert (here.findings, here.store) == ((), str(other.store))
    assert (running_pid, str(other.store)) in [(other.pid, other.path) for other in found.others]
    (note,) = both.findings
    assert (note.cause, note.severity, note.about) == ("two-stores", "note", str(world.store))


def logged_as_json(running: Serving) -> None:  # spec: WP-10 SE-4
    """Every line of the node's log is one object, with its component and job; the workers' own lines, too."""
    ref = running.hand.crew("talk", "reporting_handlers:Talker").enqueue({"lines": ["so \x1b[31mit is\x7f"]})
    ref.wait(30)
    eventually(lambda: running.logged("so "))
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    assert all(set(line) >= {"ts", "level", "message", "component", "job"} for line in lines)
    assert lines[0]["component"] == "host"
    (started,) = [line for line in lines if line.get("event") == Event.NODE_STARTED]
    assert started["component"] == "node"
    (said,) = [line for line in lines if line.get("event") == Event.WORKER_OUTPUT]
    assert (said["component"], said["job"], said["line"]) == ("worker:talk:0", ref.id, "so \x1b[31mit is\x7f")
    assert not set(running.log.read_text()) & {"\x1b", "\x7f"}


SECRET = "sesame-open-4711"


def packed(world: World, running: Serving) -> None:  # spec: SE-4
    """The bundle of a running node, without what is nobody's business."""
    file = world.folder / "doctor.tar.gz"
    do = running.hand.crew("do", "scripted_handlers:Doer")
    failing = do.enqueue(
        {"ledger": world.ledger, "end": "raise", "text": f"payload-{SECRET} of Nightingale"}, max_attempts=1
    )
    with pytest.raises(chargehand.JobFailed, match="Nightingale"):
        failing.wait(20)
    hidden = {
        "CHARGEHAND_ADMIN_KEY": SECRET,
        "CHARGEHAND_LOG_LEVEL": "INFO",
        "DATABASE_URL": "postgres://u:pw1234@h/db",
    }
    told = doctor("--bundle", str(file), "--store", str(world.store), cwd=world.folder, **hidden)
    assert "is written" in told.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(chargehand.ChargehandError, match="cannot be written: File exists"):
        bundle.write(file, Diagnosis(store="", status=None, headline=""))
    files: dict[str, str] = {}
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            files[Path(member.name).name] = (content or io.BytesIO()).read().decode()
    assert set(files) == {
        "diagnosis.json", "versions.json", "environment.json", "status.json", "log.json", "schema.sql", "health.json",
        "crashes.json", "store.json",
    }  # fmt: skip
    whole = "".join(files.values())
    assert SECRET not in whole
    assert "Nightingale" not in whole
    assert "event=job-failed" in files["log.json"]
    assert "pw1234" not in whole
    here = json.loads(files["environment.json"])["here"]
    assert (here["CHARGEHAND_ADMIN_KEY"], here["CHARGEHAND_LOG_LEVEL"], here["PATH"]) == ("***", "INFO", "***")
    assert json.loads(files["status.json"])["view"]["workers"]
    assert "node started" in files["log.json"]
    assert "CREATE TABLE chargehand_job" in files["schema.sql"]
    assert json.loads(files["versions.json"])["chargehand"] == chargehand.__version__
