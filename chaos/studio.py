"""Adreel for the chaos test: its API with embedded workers, a client that repeats what kills interrupt, and a receiver
of its webhook.
"""

import queue
import socket
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx

from adreel import crews, settings
from adreel.service import Service
from chaos import ledger
from chaos.hosts import World
from chargehand import StoreError, clock

KEY = "the-key-of-the-chaos-test-of-adreel"
PATIENCE = 120.0
"""Seconds within which an upload must be accepted, however often its server is killed meanwhile."""
ANSWER = 60.0
"""Seconds within which a server that runs must answer an upload."""
QUICK = 3.0
"""The same for requests that may be repeated."""
AGAIN = 0.1
"""Seconds between two looks for a server."""
VARIABLES = {
    "ADREEL_MIN_FREE": "1", "WORKER_PROCESSES": "2", "CHARGEHAND_ADMIN_KEY": KEY, "CHARGEHAND_GRACE": "2",
    "CHARGEHAND_RESTART_FIRST_PAUSE": "0.01", "CHARGEHAND_RESTART_LONGEST_PAUSE": "0.05",
    "CHARGEHAND_RESTART_RAPID_LIMIT": "1000000", "CHARGEHAND_RESTART_LIFETIME_LIMIT": "1000000",
    "CHARGEHAND_RESTART_BREAKER_WINDOW": "0", "CHARGEHAND_LIVENESS_BEAT": "0.5", "CHARGEHAND_LIVENESS_SILENT": "5",
    "CHARGEHAND_LIVENESS_TERMINATE": "0.5",
}  # fmt: skip
"""The settings of the run: no limit on restarts, and stopped workers are found within seconds."""
FILM = {"Content-Type": "video/mp4"}
SERVE = ("uvicorn", "adreel.app:app", "--timeout-graceful-shutdown", "5", "--log-level", "warning")


class Studio(World):
    """A data folder, and the processes that serve it."""

    stopped_codes: ClassVar[tuple[int, ...]] = (0, -15)
    """uvicorn ends itself with the signal that has stopped it."""

    def __init__(self, folder: Path, webhook: str) -> None:
        self.home, self.temporary = folder / "home", folder / "tmp"
        self.temporary.mkdir()
        own = {"ADREEL_HOME": str(self.home), "ADREEL_WEBHOOK": webhook, "TMPDIR": str(self.temporary)}
        self._variables = {**VARIABLES, **own}
        found = settings.read(self._variables)
        self.service = Service.on(found, crews.build(found))
        super().__init__(folder, "adreel", self.service.crews.hand)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = int(taken.getsockname()[1])
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers={"Authorization": f"Bearer {KEY}"}, trust_env=False
        )

    def __exit__(self, *words: object) -> None:
        super().__exit__(*words)
        self.client.close()

    def start_host(self) -> None:
        """Starts another server; its workers wait if the node of the previous server still runs."""
        self.host = self.start(
            "-m", *SERVE, "--port", str(self.port), log=f"host-{len(self._started)}", program=(sys.executable,),
            **self._variables,
        )  # fmt: skip

    def ask(self, method: str, path: str, timeout: float = QUICK, **options: Any) -> httpx.Response | None:
        """Returns the answer of the server; None if it was killed, or does not answer in time."""
        try:
            return self.client.request(method, path, timeout=timeout, **options)
        except httpx.TransportError:
            return None

    @contextmanager
    def upload_under_way(self, content: bytes) -> Generator[bool]:
        """Sends the first half of an upload, and ends the connection at the end of the block. Yields whether the server
        has a part of it."""
        before = len(self.incomplete())
        head = (
            f"POST /jobs?name=half.mp4 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: video/mp4\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        with socket.socket() as client:
            client.settimeout(QUICK)
            try:
                client.connect(("127.0.0.1", self.port))
                client.sendall(head.encode() + content[: len(content) // 2])
            except OSError:
                yield False
                return
            until = clock.monotonic() + QUICK
            while len(self.incomplete()) <= before and clock.monotonic() < until:
                clock.sleep(0.005)
            yield len(self.incomplete()) > before

    def incomplete(self) -> list[Path]:
        """Returns the uploads that are not complete."""
        folder = self.home / "uploads"
        return list(folder.iterdir()) if folder.is_dir() else []


class Uploader(threading.Thread):
    """Uploads films, one after another. An upload without an answer is repeated unless the store has the film."""

    def __init__(self, world: Studio) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._todo: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self.accepted: dict[str, str] = {}
        """The id of each film, by its name."""
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._todo.put(None)
        self.join(PATIENCE)

    def upload(self, name: str, content: bytes) -> None:
        """Uploads a film as soon as those before it are accepted."""
        self._todo.put((name, content))

    def run(self) -> None:
        while (todo := self._todo.get()) is not None:
            name, content = todo
            until = clock.monotonic() + PATIENCE
            while clock.monotonic() < until:
                if (film := self._try(name, content, until)) is not None:
                    self.accepted[name] = film
                    break
            else:
                self.wrong.append(f"{name} was not accepted within {PATIENCE:g} s")

    def _try(self, name: str, content: bytes, until: float) -> str | None:
        """Uploads a film once. Returns its id; None if it is not there after all."""
        path, world = self._world.folder / "ledger", self._world
        while world.ask("GET", "/healthz") is None and clock.monotonic() < until:
            clock.sleep(AGAIN)
        ledger.append(path, [("try", name)])
        answer = world.ask("POST", "/jobs", ANSWER, params={"name": name}, content=content, headers=FILM)
        if answer is not None and answer.status_code == 202:
            film = str(answer.json()["id"])
            ledger.append(path, [("ack", name, film)])
            return film
        ledger.append(path, [("unsure", name)])
        if answer is not None and answer.status_code < 500:
            self.wrong.append(f"{name} was refused: {answer.status_code} {answer.text}")
        self.counts["interrupted uploads"] += answer is None
        try:
            found = [row.id for row in world.service.films.find(text=name) if row.name == name]
        except StoreError as error:
            self.wrong.append(f"the store could not be read: {error}")
            return None
        self.counts["interrupted uploads whose film is there"] += len(found)
        return found[0] if found else None


class Webhook(ThreadingHTTPServer):
    """Receives the calls of Adreel's webhook, and counts them by their key: the film, and the number of its end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Told)
        self.calls: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Told(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        assert isinstance(self.server, Webhook)
        self.server.calls[str(self.headers.get("Idempotency-Key"))] += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return None
