"""A process that left its worker's session and hides its environment is found by the next node."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

import chargehand
from chargehand import clock
from chargehand.node import strays
from chargehand.processes import proc

SCRIPT = """
import os, signal, sys
from pathlib import Path
from chargehand.node import strays
from chargehand.processes import proc
from chargehand.processes.child import launch
from chargehand.processes.record import ProcessRecord

file = Path(sys.argv[1]) / "lives"
DAEMON = '''
import ctypes, os, signal
os.setsid()
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE: others of this user may not read its environment
os.write(1, b"%d" % os.getpid())
signal.pause()
'''
WORKER = f"import signal, subprocess, sys; subprocess.Popen([sys.executable, '-c', {DAEMON!r}]); signal.pause()"
strays.INTERVAL = 0.0
store = sys.argv[1]  # every process of a store can be killed by its nodes: this one is of this test alone
node = ProcessRecord(file, store)
node.end_earlier(1)
reading, writing = os.pipe()
mark = f"{node.mark}/worker:do:0/1"
worker = launch(WORKER, "worker:do:0", mark=mark, pass_fds=[], env=os.environ, name="worker", output=writing)
daemon = int(os.read(reading, 100))
assert proc.mark_of(daemon) is None, "its environment can be read"
node.add(worker)
found = strays.Strays(node, worker)
if "look" in sys.argv:
    found.look(active=True)
worker.signal(signal.SIGKILL)
assert worker.wait(5)
worker.exit()
assert ProcessRecord(file, store).end_earlier(5) == []
seen = proc.stat(daemon)
print("gone" if seen is None or seen.dead else "left")
os.system(f"kill -9 {daemon} 2>/dev/null")
"""


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A folder with a copy of the package that every user may read."""
    folder = Path(f"/tmp/chargehand-strays-{os.getpid()}")
    package = Path(chargehand.__file__).parent
    shutil.copytree(
        package, folder / "src" / "chargehand", ignore=shutil.ignore_patterns("web", "__pycache__", "stores")
    )
    (folder / "state").mkdir()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


def as_nobody(python: str, code: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs this code in the copy of the package, as a user without any rights."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    path = os.pathsep.join([str(folder / "src"), str(Path(msgspec.__file__).resolve().parent.parent)])
    env = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    return subprocess.run(
        [*user, python, "-c", code, *words], env=env, cwd=folder, capture_output=True, text=True, timeout=30
    )


# spec: SV-11 WP-7
def test_an_undumpable_daemon_is_found_by_another_user_than_root(open_folder: Path) -> None:
    """Root may read every environment, so this shows only for others."""
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: to become another user needs root")
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import msgspec'], check=True)"
    for python in (sys.executable, "/usr/bin/python3"):  # a virtual environment may belong to root alone
        if as_nobody(python, child, open_folder).returncode == 0:
            break
    else:
        pytest.skip(
            f"NOT PROVEN HERE: another user may not execute {sys.executable}, and the system's Python cannot load this "
            "one's modules; it needs an interpreter that every user may execute"
        )
    for how, what in (("look", "gone"), ("no look", "left")):
        done = as_nobody(python, SCRIPT, open_folder, str(open_folder / "state"), how)
        assert (done.stdout, done.returncode) == (f"{what}\n", 0), done.stderr


# spec: SV-11
def test_an_idle_worker_is_looked_at_once_more_and_then_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 1000.0, list[float]()

    def none_below(_pid: int) -> dict[int, proc.Stat]:
        looks.append(now)
        return {}

    class Worker:
        pid, component = 4711, "worker:do:0"

    monkeypatch.setattr(clock, "monotonic", lambda: now)
    monkeypatch.setattr(proc, "descendants", none_below)
    found = strays.Strays(None, Worker())  # pyright: ignore[reportArgumentType]
    for step in range(200):
        now = 1000.0 + step / 4
        found.look(active=20 <= step < 24)
    active = [1000.5, 1005.0, 1005.5]
    assert looks == [*active, 1006.0, 1006.0 + strays.IDLE_INTERVAL]
