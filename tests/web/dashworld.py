"""A server for the dashboard's tests and pictures, started as somebody starts it: uvicorn, a node, workers."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx

from chargehand import Chargehand
from chargehand.testing import eventually

HERE = Path(__file__).parent
CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if os.path.exists(path)), None)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Served:
    """The application of `dashhands` on a store in this folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.port, self._environment = folder, free_port(), environment
        self.store = folder / "chargehand.db"
        self.url = f"http://127.0.0.1:{self.port}/chargehand"
        self.hand = Chargehand(self.store)
        self.start()

    def start(self) -> None:
        path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, **self._environment, "CHARGEHAND_URL": str(self.store), "PYTHONPATH": path}
        command = ["-m", "uvicorn", "dashhands:app", "--port", str(self.port), "--timeout-graceful-shutdown", "1"]
        with open(self.folder / "uvicorn.log", "ab") as log:
            self.process = subprocess.Popen([sys.executable, *command], env=env, stdout=log, stderr=log)
        eventually(self.up, 30, what="the server is up")

    def up(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/healthz").status_code == 200
        return False

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def close(self) -> None:
        self.stop()
        self.hand.close()
