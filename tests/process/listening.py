"""Clients of the event stream: a server with real sockets, and unmodified programs that listen to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import httpx
from httpx_sse import EventSource
from world import World

from chargehand import clock
from chargehand.testing import eventually
from paths import python_path, token_of


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Served:
    """The application under uvicorn, as somebody starts it."""

    def __init__(self, world: World) -> None:
        self.world, self.port = world, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        path = python_path()
        env = {**os.environ, "CHARGEHAND_URL": str(self.world.store), "PYTHONPATH": path}
        command = ["-m", "uvicorn", "events_app:app", "--port", str(self.port), "--timeout-graceful-shutdown", "1"]
        with open(self.world.folder / "uvicorn.log", "ab") as log:
            self.process = subprocess.Popen([sys.executable, *command], env=env, stdout=log, stderr=log)
        eventually(self.up, 30, what="the server is up")
        self.token = token_of(self.world.store)

    def up(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/chargehand/healthz").status_code == 200
        return False

    def events(self, topics: str) -> str:
        return f"{self.url}/chargehand/api/events?topics={topics}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)


class Table:
    """What somebody knows who was told these events."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {}
        self.heard: list[dict[str, Any]] = []
        self.last: str | None = None

    def hear(self, event: dict[str, Any], event_id: str | None = None) -> None:
        self.heard.append(event)
        self.last = event_id or self.last
        kind = event["type"].removesuffix("_update")
        if kind == "resync":
            self.things.clear()
            return
        name = event[kind].get("id") or event[kind].get("component") or event["topic"]
        if event.get("removed"):
            self.things.pop(name, None)
        else:
            self.things[name] = event[kind]

    def is_now(self, name: str, /, **wanted: Any) -> bool:
        """Whether the newest that was heard of it is so."""
        known = self.things.get(name)
        return known is not None and wanted == {field: known[field] for field in wanted}

    def wait(self, name: str, /, **wanted: Any) -> dict[str, Any]:
        try:
            eventually(lambda: self.is_now(name, **wanted), 30, what=f"{name} {wanted}")
        except AssertionError as error:
            error.add_note(f"it is {self.things.get(name)}")
            raise
        return self.things[name]


class Listener(Table):
    """httpx-sse in a thread; it comes back by itself when the stream ends, as a browser does."""

    def __init__(self, url: str, last: str | None = None, token: str | None = None) -> None:
        super().__init__()
        self.url, self.last, self.over = url, last, False
        self.key = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self.statuses: list[int] = []
        self.response: httpx.Response | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        with httpx.Client(timeout=None, trust_env=False) as client:
            while not self.over:
                with suppress(httpx.HTTPError, httpx.StreamError, OSError):
                    self.listen(client)
                clock.sleep(0.02)

    def listen(self, client: httpx.Client) -> None:
        headers = {**self.key, **({"Last-Event-ID": self.last} if self.last else {})}
        with client.stream("GET", self.url, headers=headers) as self.response:
            self.statuses.append(self.response.status_code)
            for told in EventSource(self.response).iter_sse():
                if self.over:
                    return
                self.hear(json.loads(told.data), told.id)

    def end(self) -> None:
        """Hang up, in the middle of the stream."""
        self.over = True
        eventually(self._ended, what="the listener ends")

    def _ended(self) -> bool:
        """It may be about to listen again: then that stream is ended, too."""
        stream = None if self.response is None else self.response.extensions.get("network_stream")
        sock = None if stream is None else stream.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(0.01)
        return not self.thread.is_alive()
