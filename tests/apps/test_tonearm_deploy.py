"""Tonearm as its Dockerfile and its Compose file run it: pid 1, with only the data folder writable."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import shelves
import yaml
from test_tonearm_app_running import port

from chargehand.testing import eventually
from paths import ROOT, token_of
from tonearm.cli.running import PORT

FOLDER = ROOT / "apps" / "tonearm"
LINTERS = {
    "Dockerfile": ("hadolint", "Dockerfile"),
    "compose.yaml": ("yamllint", "-s", "-d", "{extends: relaxed, rules: {line-length: {max: 150}}}", "compose.yaml"),
}


def service() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["tonearm"]


def image() -> dict[str, list[str]]:
    """The instructions of the Dockerfile, continued lines joined, by their names."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name.isupper():
            found.setdefault(name, []).append(rest)
    return found


@pytest.mark.parametrize("name", LINTERS)
def test_the_linter_finds_nothing(name: str) -> None:
    program, *words = LINTERS[name]
    done = subprocess.run(
        [Path(sys.executable).parent / program, *words], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_music_is_read_only_and_the_page_stays_on_this_machine() -> None:
    """The page refuses other addresses than loopback, so the container shares the network of its host."""
    found, its = service(), image()
    music, data = found["volumes"]
    assert (music["type"], music["target"], music["read_only"]) == ("bind", "/music", True)
    assert music["source"].startswith("${MUSIC:?")
    assert data == f"data:{its['VOLUME'][0]}"
    assert (found["network_mode"], found["read_only"], "ports" in found) == ("host", True, False)
    assert its["CMD"][-1] == '["tonearm", "serve", "/music"]'
    assert its["USER"] == ["10001"]
    assert any(f"TONEARM_HOME={its['VOLUME'][0]}" in line for line in its["ENV"])
    assert f"http://127.0.0.1:{PORT}/healthz" in its["HEALTHCHECK"][0]
    for line in its["COPY"]:
        *sources, _ = line.split()
        assert [source for source in sources if not (ROOT / source).exists()] == []


CONTAINER = """
mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 70
shift
exec "$@"
"""
"""Runs a command with one folder read-only."""


@pytest.mark.full
def test_it_works_as_pid_1_with_music_that_it_can_only_read(tmp_path: Path, weights_folder: Path) -> None:
    # spec: TA-5 SV-11
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("NOT PROVEN HERE: a read-only mount needs root, and unshare of util-linux")
    music, home, at = tmp_path / "music", tmp_path / "home", port()
    music.mkdir()
    shelves.songs(music, seconds=3.5)
    for path in list(music.rglob("*"))[2:]:
        if path.is_file():
            path.unlink()
    songs = len([path for path in music.rglob("*") if path.is_file()])
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tonearm").symlink_to(weights_folder)
    environment = {**os.environ, "TONEARM_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tonearm", "serve", str(music), "--port", str(at), "--workers", "1"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
             "sh", "-c", CONTAINER, "sh", str(music), *command],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        key = {"Authorization": f"Bearer {token_of(home / 'chargehand.db')}"}
        url = f"http://127.0.0.1:{at}"

        def answers() -> bool:
            try:
                return httpx.get(f"{url}/healthz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(answers, 60, what="the page is up")
        eventually(
            lambda: httpx.get(f"{url}/api/progress", headers=key).json()["tagged"] == songs, 90, what="songs are tagged"
        )
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
        assert "Traceback" not in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
