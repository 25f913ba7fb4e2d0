"""Tonearm as a person runs it: real processes, real networks, odd files, and kill -9 of everything in the middle."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import shelves
import tagged

from chargehand.testing import eventually
from paths import token_of
from tonearm import crews, report
from tonearm.library import Library
from tonearm.tags import read
from tonearm.tags.read import Tags

pytestmark = pytest.mark.full


def port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "TONEARM_HOME": str(root / "home"), "XDG_CACHE_HOME": str(root / "cache")}


@contextmanager
def serving(root: Path, music: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """`tonearm serve`, up and working."""
    at = port()
    words = ["serve", str(music), "--port", str(at), "--rescan", "0", "--nice", "0", "--workers", "2"]
    command = [sys.executable, "-m", "tonearm", *words]
    served = subprocess.Popen(command, env=environment(root), stdout=subprocess.DEVNULL)
    try:
        yield served, f"http://127.0.0.1:{at}"
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait(30)


def kill_everything(served: subprocess.Popen[bytes], all_crews: crews.Crews) -> None:
    view = all_crews.hand.status()
    assert view is not None
    pids = [served.pid, view["pid"], *(worker["pid"] for worker in view["workers"] if worker["pid"])]
    for pid in pids:
        with suppress(ProcessLookupError):  # a worker exits when its node is gone
            os.kill(pid, signal.SIGKILL)
    served.wait(10)


def command(root: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tonearm", *words], env=environment(root), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_heard_and_written_once_through_a_kill_of_everything(
    tmp_path: Path, weights_folder: Path
) -> None:
    # spec: TA-1, TA-3, TA-5, TA-6
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tonearm").symlink_to(weights_folder)
    music = tmp_path / "music"
    good = shelves.songs(music, seconds=3.5)
    odd = shelves.odd_files(music, good[1], tmp_path / "outside.flac")
    before = {path: (tagged.packets(path), tagged.others(path)) for path in good}
    library = Library(tmp_path / "home")
    all_crews = crews.build(tmp_path / "home")

    def heard() -> int:
        return library.number("SELECT count(*) FROM heard")

    with serving(tmp_path, music) as (served, _):
        eventually(lambda: heard() >= 2, 90)
        kill_everything(served, all_crews)
    first = dict(library.rows("SELECT id, tagged_ms FROM file WHERE tagged_ms IS NOT NULL"))
    with serving(tmp_path, music) as (served, url):
        eventually(lambda: heard() == 9, 90)
        eventually(lambda: report.progress(library).waiting == 0, 60)
        again = dict(library.rows("SELECT id, tagged_ms FROM file WHERE tagged_ms IS NOT NULL"))
        assert first.items() <= again.items(), "a song was heard twice"
        reasons = {wrong.path.rpartition("/")[2]: wrong.reason for wrong in report.troubles(library)}
        assert reasons.keys() == {name.decode() for name in odd}
        assert all(word in reasons[name.decode()] for name, word in odd.items()), reasons
        key = {"Authorization": f"Bearer {token_of(all_crews.hand.path)}"}
        number = httpx.get(f"{url}/api/tracks?text=song 0", headers=key).json()[0]["id"]
        near = httpx.get(f"{url}/api/tracks/{number}/similar?count=3", headers=key, timeout=60).json()
        assert len(near) == 3
        command(tmp_path, "write", "--mode", "minimal", "--tier", "loose")
        eventually(lambda: library.number("SELECT count(*) FROM journal") >= 1, 60)
        kill_everything(served, all_crews)
    with serving(tmp_path, music):
        eventually(lambda: report.progress(library).writes_waiting == 0, 60)
    assert library.number("SELECT count(*) FROM file WHERE written IS NOT NULL") == 9
    assert library.number("SELECT max(times) FROM (SELECT count(*) AS times FROM journal GROUP BY file)") == 1
    for path in good:
        said = read(path)
        assert isinstance(said, Tags)
        assert said.own
        assert tagged.packets(path) == before[path][0]
    # no workers are running: the command line does it itself
    assert "no workers are running" in command(tmp_path, "status")
    assert "9 files changed" in command(tmp_path, "undo")
    assert {path: (tagged.packets(path), tagged.others(path)) for path in good} == before
    assert not list(music.rglob(".tonearm-*"))
    all_crews.hand.close()
    library.close()


def test_without_a_library_every_command_says_what_to_do(tmp_path: Path) -> None:
    # spec: TA-1, SE-1
    words = [sys.executable, "-m", "tonearm", "serve", "--host", "0.0.0.0"]
    done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert (done.returncode, "no encryption" in done.stderr) == (1, True)
    words = [sys.executable, "-m", "tonearm", "status"]
    done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "tonearm scan FOLDER" in done.stderr
