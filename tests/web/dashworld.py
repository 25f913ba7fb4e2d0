"""A server for the dashboard's tests and pictures, started as somebody starts it: uvicorn, a node, workers."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from chargehand import Chargehand, clock
from chargehand.testing import eventually
from paths import ROOT, python_path

CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if os.path.exists(path)), None)

SOURCE = ROOT / "src" / "chargehand" / "web" / "dashboard" / "source"


CROWD = int(os.environ.get("CHARGEHAND_TEST_JOBS", "20000"))
"""Jobs in the test of very many; a million takes half a minute."""
_CROWD = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
INSERT INTO chargehand_job (id, queue, label, state, waits_for, run_at_ms, max_attempts, created_ms, payload)
SELECT printf('%032x', n), 'archive', 'song ' || n, 'queued', 'time', ?2 + 86400000, 3, ?2 - ?1 + n, 'null' FROM number
"""


def missing() -> str | None:
    """Why there can be no tests in a browser here; None if there can."""
    if find_spec("playwright") is None:
        return "the Python package playwright is not installed"
    return None if CHROMIUM is not None else "there is no chromium in /usr/bin"


@cache
def axe() -> tuple[str | None, str]:
    """The script that judges how usable a page is to all, and why there is none: from npm, for tests alone."""
    version = json.loads((SOURCE / "package.json").read_text())["devDependencies"]["axe-core"]
    known = SOURCE / "node_modules" / "axe-core" / "axe.min.js"
    if known.exists():
        return known.read_text(), ""
    if shutil.which("npm") is None:
        return None, "npm is not there to fetch it, nor has `make dashboard` been run"
    with TemporaryDirectory(prefix="chargehand-axe-") as folder:
        command = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", f"axe-core@{version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return None, "npm could not fetch it within 60 s"
        if done.returncode:
            return None, f"npm could not fetch it: {done.stderr.strip()[-200:]}"
        return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text(), ""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Served:
    """The application of `dashboard_app`, or of another module, on a store, by default one in this folder."""

    def __init__(
        self, folder: Path, address: str | None = None, app: str = "dashboard_app", **environment: str
    ) -> None:
        """`address`: the store; by default a file in the folder."""
        self.folder, self.port, self._environment, self._app = folder, free_port(), environment, app
        self.store = address or str(folder / "chargehand.db")
        self.url = f"http://127.0.0.1:{self.port}/chargehand"
        self.hand = Chargehand(self.store)
        self.steps = self.hand.crew("steps", "dashboard_handlers:Steps", max_attempts=1)
        self.scenes = self.hand.crew("scenes", "dashboard_handlers:Steps", max_attempts=1)
        self.faults = self.hand.crew("faults", "chargehand.testing.faults:Faulty", max_attempts=1)
        self.start()

    def start(self) -> None:
        path = python_path()
        env = {**os.environ, **self._environment, "CHARGEHAND_URL": self.store, "PYTHONPATH": path}
        command = ["-m", "uvicorn", f"{self._app}:app", "--port", str(self.port), "--timeout-graceful-shutdown", "1"]
        with open(self.folder / "uvicorn.log", "ab") as log:
            self.process = subprocess.Popen([sys.executable, *command], env=env, stdout=log, stderr=log)
        eventually(self.up, 30, what="the server is up")
        self.address = self.hand.with_token(f"{self.url}/dashboard")
        """The dashboard, signed in while no key exists."""

    def fill(self, count: int) -> None:
        """So many jobs of a queue that nobody serves; none of them is due today."""
        with self.hand.transaction() as tx:
            tx.execute(_CROWD, (count, clock.now_ms()))

    def empty(self) -> None:
        """Away with them."""
        with self.hand.transaction() as tx:
            tx.execute("DELETE FROM chargehand_job WHERE queue = 'archive'")

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
