"""Servers for the tests of embedding: real ones, each in a process of its own, with a folder of their own."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx

from chargehand import Chargehand
from chargehand.processes import proc
from chargehand.testing import eventually
from chargehand.web.routes.dashboard import files
from chargehand.web.server import SEND_BUFFER
from paths import python_path

RUN = "CHARGEHAND_TEST_RUN"
LOG_LINES = 200
"""The last lines of the log that the report of a failed test shows, without requests that were answered well."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def stalled(port: int, sent: str) -> socket.socket:
    """A client that has sent this and does nothing more; the system holds only a few bytes for it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(("127.0.0.1", port))
    client.sendall(sent.encode())
    return client


def not_reading(port: int) -> int:
    """The number of clients for which the system holds as much as it can: the server has more for them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [int(row[4].partition(":")[0], 16) for row in rows if row[1].endswith(f":{port:04X}")]
    return sum(size > SEND_BUFFER for size in queues)


def large_files(prefix: str, headers: str) -> str:
    """Requests whose responses the buffers of the system do not hold."""
    largest = max(files(), key=lambda name: len(files()[name].body))
    return f"GET {prefix}/dashboard/{largest} HTTP/1.1\r\n{headers}\r\n" * 100


class Server:
    """`uvicorn service_app:app`, or another command, and what tests ask of it."""

    def __init__(self, folder: Path, *words: str, command: str = "uvicorn service_app:app", **environment: str) -> None:
        self.folder, self.store = folder, folder / "chargehand.db"
        self.run, self.port = f"run-{uuid.uuid4().hex}", free_port()
        path = python_path(folder)
        self.environment = {
            **os.environ, "CHARGEHAND_URL": str(self.store), "PYTHONPATH": path, RUN: self.run, **environment
        }  # fmt: skip
        self.log = folder / f"log-{uuid.uuid4().hex}"
        where = ["--port", str(self.port)] if "work" not in command else []
        self.process = self.start(*command.split(), *words, *where)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.hand = Chargehand(folder=folder, url=self.store)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Run a module with the server's environment, in a session of its own, as a terminal would."""
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *words], env=self.environment, cwd=self.folder, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def answers(self, path: str = "/about") -> Any:
        """Wait until it serves."""

        def answer() -> Any:
            try:
                return self.http.get(path)
            except httpx.TransportError:
                assert self.process.poll() is None, self.log.read_text()
                return None

        return eventually(answer, 60, what="an answer").json()

    def submit(self, **song: Any) -> str:
        response = self.http.post("/songs", json={"path": "a", **song})
        assert response.status_code == 202, response.text
        return response.json()

    def result(self, job_id: str) -> Any:
        response = self.http.get(f"/songs/{job_id}")
        assert response.status_code == 200, response.text
        return response.json()

    def node(self) -> int | None:
        """The node's pid, once it answers and every worker is well."""
        view = self.hand.status()
        well = view is not None and all(worker["status"] == "healthy" for worker in view["workers"])
        return view["pid"] if view is not None and well else None

    def workers(self) -> list[int]:
        """Wait until all workers are well; their pids."""
        eventually(self.node, 60, what="a node whose workers are well")
        return [worker["pid"] for worker in (self.hand.status() or {"workers": []})["workers"]]

    def started(self, gate: Path) -> int:
        """Wait until a job stands at the gate; in which process."""
        found = eventually(lambda: list(gate.parent.glob(f"{gate.name}-*")), what="a job at the gate")
        return int(found[0].name.rpartition("-")[2])

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def ctrl_c(self) -> None:
        """As a terminal does it: everybody in the session's foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self) -> int:
        """Wait for the end, after which nothing may be left."""
        code = self.process.wait(60)
        eventually(lambda: not self.left(), 20, what="everything gone")
        return code

    def explain(self) -> str:
        """Returns what helps to understand a failure: the log of the server and its node, and what `doctor` finds."""
        store = self.environment["CHARGEHAND_URL"]
        doctor = subprocess.run(
            [sys.executable, "-m", "chargehand", "doctor", "--store", store], env=self.environment, cwd=self.folder,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if '" 200 OK' not in line]
        return "\n".join([*lines[-LOG_LINES:], "$ chargehand doctor", doctor.stdout + doctor.stderr])

    def left(self) -> list[int]:
        """Every living process that descends from this server."""
        wanted = f"{RUN}={self.run}".encode()
        found: list[int] = []
        for pid in proc.pids():
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            seen = proc.stat(pid)
            if wanted in environment.split(b"\0") and seen is not None and not seen.dead:
                found.append(pid)
        return found

    def close(self) -> None:
        """Stop it in order; what a failing test leaves is killed."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            self.ended()
        finally:
            for pid in self.left():
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.http.close()
            self.hand.close()
