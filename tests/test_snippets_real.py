"""The README, the tutorial and the page on scripts, followed as a reader would: in an empty folder, with servers."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import snippets
from chargehand.testing import eventually

ROOT = Path(__file__).parent.parent
SERVER = ("uvicorn ", "chargehand work ", "chargehand serve ")


class Reader:
    """Writes the files of a page and enters its commands. Port 8000 is replaced by a free one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._server: subprocess.Popen[bytes] | None = None
        left_out = ("CHARGEHAND_URL", "DISPLAY", "BROWSER")
        self._env = {name: value for name, value in os.environ.items() if name not in left_out}
        self._env["PATH"] = f"{Path(sys.executable).parent}:{self._env['PATH']}"

    def follow(self, page: Path) -> None:
        """Does what the page says."""
        for snippet in snippets.of_page(page):
            if snippet.file is not None:
                (self.folder / snippet.file).write_text(snippet.code)
            elif snippet.mark == "run":
                if "stop" in snippet.said:
                    self.stop()
                try:
                    self._enter(snippet.code)
                except BaseException as error:
                    error.add_note(f"in the commands at {page.name}:{snippet.line}")
                    raise

    def _enter(self, code: str) -> None:
        """Starts the servers of a block, performs the rest, and compares the output with `# prints`."""
        lines = code.replace("localhost:8000", f"localhost:{self.port}").splitlines()
        for line in lines:
            if line.startswith(SERVER):
                self._start(line.partition(" #")[0])
        rest = [line for line in lines if not line.startswith(SERVER)]
        script = "set -e -o pipefail\n" + "\n".join(rest)
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, (code, done.stdout, done.stderr)
        for expected in re.findall(r"# prints (.+)$", code, re.MULTILINE):
            assert expected.strip() in done.stdout, (expected, done.stdout, done.stderr)

    def _start(self, command: str) -> None:
        self.stop()
        if command.startswith("uvicorn"):
            command += f" --port {self.port}"
        with open(self.folder / "server.log", "ab") as log:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self._env, stdout=log, stderr=log
            )
        eventually(self._answers, 60, what="the server answers")

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, (self.folder / "server.log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Stops the server as Ctrl+C does."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(60)
            self._server = None


@contextmanager
def reading(folder: Path) -> Generator[Reader]:
    """Returns a reader, whose server is stopped at the end."""
    if missing := [name for name in ("bash", "curl") if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not found: the commands of the documentation use them")
    reader = Reader(folder)
    try:
        yield reader
    finally:
        reader.stop()


def test_the_service_of_the_readme_runs_in_an_empty_folder(tmp_path: Path) -> None:  # spec: CF-3
    page = ROOT / "README.md"
    (service,) = [each for each in snippets.of_page(page) if each.file]
    assert sum(bool(line.strip()) for line in service.code.splitlines()) <= 16  # with the name of the file
    with reading(tmp_path) as reader:
        reader.follow(page)


@pytest.mark.full
@pytest.mark.timeout(600)  # dozens of commands, each a process
@pytest.mark.parametrize("page", ["tutorial.md", "how-to/standalone.md", "how-to/pipeline.md"])
def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    with reading(tmp_path) as reader:
        reader.follow(ROOT / "docs" / page)
