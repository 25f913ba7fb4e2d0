"""Adreel as its Dockerfile and its Compose file run it: what they name exists, and the server works as pid 1 on a root
file system that is read-only apart from the data folder.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from adreelserver import Adreel

from adreel import settings
from chargehand import Chargehand, LivenessPolicy
from chargehand.processes import proc
from chargehand.settings.layers import read
from chargehand.testing import eventually
from paths import ROOT

FOLDER = ROOT / "apps" / "adreel"
FILES = ("compose.yaml", "Dockerfile")


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def instructions(name: str) -> list[str]:
    """The lines of the Dockerfile with this instruction, continued ones joined."""
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.partition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")]


def tool(name: str) -> str:
    found = shutil.which(name) or str(ROOT / ".venv" / "bin" / name)
    assert Path(found).exists(), f"{name} belongs to the dependency group dev"
    return found


@pytest.mark.parametrize("words", [("hadolint", "Dockerfile"), ("yamllint", "-s", "compose.yaml")], ids=str)
def test_the_linter_finds_nothing(words: tuple[str, ...]) -> None:
    options = ["-d", "{extends: relaxed, rules: {line-length: {max: 150}}}"] if words[0] == "yamllint" else []
    done = subprocess.run([tool(words[0]), *options, *words[1:]], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_image_copies_exists() -> None:
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source


def test_every_setting_that_is_named_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An unknown setting is refused at the start."""
    text = "".join((FOLDER / name).read_text() for name in FILES)
    (environment,) = instructions("ENV")[1:]
    given = dict(each.split("=", 1) for each in environment.split())
    given |= dict.fromkeys(re.findall(r"\b(CHARGEHAND_[A-Z_]+)(?==|:)", text), str(tmp_path / "a.db"))
    assert {"ADREEL_HOME", "CHARGEHAND_FILES", "CHARGEHAND_URL", "CHARGEHAND_ADMIN_KEY"} <= set(given)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert settings.read(given).home == Path("/data")
    assert read(tmp_path, {}).files == given["CHARGEHAND_FILES"]
    Chargehand(folder=tmp_path).close()


def test_every_backend_has_a_name_of_its_own_the_same_folder_and_time_to_stop() -> None:
    found = compose()
    backends = {name: each for name, each in found["services"].items() if name != "database"}
    assert len(backends) == 2
    assert {name: each["environment"]["NODE_NAME"] for name, each in backends.items()} == {n: n for n in backends}
    assert len({each["ports"][0] for each in backends.values()}) == 2
    for each in backends.values():
        assert (each["volumes"], each["init"]) == (["films:/data"], True)
        assert each["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert set(found["volumes"]) == {"database", "films"}
    assert instructions("VOLUME") == ["/data"]
    grace, drain = LivenessPolicy().grace, 10
    assert json.loads(instructions("CMD")[-1])[-2:] == ["--timeout-graceful-shutdown", str(drain)]
    assert all(float(each["stop_grace_period"].rstrip("s")) > grace + drain for each in backends.values())


CONTAINER = """
home=$1; shift
mount --make-rprivate / && mount --bind "$home" "$home" && mount -o remount,bind,ro / || exit 70
for each in /tmp /dev/shm /run /var /work; do ! mountpoint -q $each || mount -o remount,bind,ro $each || exit 71
done
! touch "$home/../x" 2>/dev/null || exit 72
exec "$@"
"""
"""Runs a command on a root file system on which only the data folder can be written."""


class Contained(Adreel):
    """A server that is pid 1 of its own namespace, on a read-only root file system."""

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        program = ["sh", "-c", CONTAINER, "sh", str(self.home), sys.executable, "-m", *words]
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *program],
                env=self.environment, cwd=self.home, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def signal(self, number: int) -> None:
        """Sends a signal to pid 1 of the namespace."""
        os.kill(self.below(self.process.pid), number)

    def below(self, pid: int) -> int:
        """The child of a process."""
        (child,) = (each for each, seen in proc.descendants(pid).items() if seen.parent == pid and not seen.dead)
        return child


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Contained]:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a container is NOT tested: it needs root, and unshare of util-linux")
    settled = {"WORKER_PROCESSES": "1", "ADREEL_MIN_FREE": "1", "CHARGEHAND_GRACE": "1", "HOME": "/nonexistent"}
    server = Contained(tmp_path, CHARGEHAND_ADMIN_KEY="long-enough-for-a-test-0123456789", **settled)
    yield server
    server.close()


@pytest.mark.full
def test_it_works_as_pid_1_on_a_root_file_system_that_is_read_only(contained: Contained) -> None:  # spec: AR-5 SE-6
    server = contained
    server.ready()
    assert server.http.get("/healthz").status_code == 200
    eventually(lambda: server.http.get("/readyz").status_code == 200, 30, what="it is ready")
    film = server.upload()["id"]
    assert server.ends(film)["status"] == "done"
    assert server.http.get("/diagnostics/mapping").json()["problems"] == []

    node = server.below(server.below(server.process.pid))
    os.kill(node, signal.SIGKILL)
    eventually(lambda: proc.stat(node) is None, 30, what="the node is reaped")
    assert server.ends(server.upload("b.mp4")["id"])["status"] == "done"

    gate = server.close_gate("frames")
    last = server.upload("c.mp4")["id"]
    server.waits_at("frames")
    server.signal(signal.SIGTERM)  # pid 1 has no default action for it
    assert server.ended() == 0
    assert "Traceback" not in server.log.read_text()
    gate.unlink()
    assert server.service.get(last).status in ("queued", "running")
    assert not list((server.home / "uploads").iterdir())
