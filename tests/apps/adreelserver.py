"""Servers of Adreel for tests: real ones, each in a process of its own, whose stages wait at gates."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from embedserver import Server

from adreel import clock, crews, settings
from adreel.catalogue import FilmRow
from adreel.service import Service
from chargehand.testing import eventually
from paths import token_of

MP4 = b"\x00\x00\x00\x18ftypisom" + b"film " * 4000
"""The beginning of a film, as far as an upload looks at it."""
APP = "uvicorn adreel_gated:app"
ENDED = ("done", "failed", "cancelled")


class Adreel(Server):
    """`uvicorn adreel_gated:app` on a data folder, and what tests ask of it."""

    def __init__(self, folder: Path, *words: str, command: str = APP, **environment: str) -> None:
        self.home = folder / "home"
        self.gates = self.home / "gates"
        self.gates.mkdir(parents=True, exist_ok=True)
        store = os.environ.get("CHARGEHAND_URL") or str(self.home / "adreel.db")
        places = {"ADREEL_HOME": str(self.home), "CHARGEHAND_URL": store}
        # These stages use nothing of what they declare: a machine or container with little memory can run them.
        memory = {"CHARGEHAND_STARTS_MEMORY": os.environ.get("CHARGEHAND_STARTS_MEMORY", "64 GiB")}
        super().__init__(folder, *words, command=command, **{**places, **memory, **environment})
        self.hand.close()
        own = {name: text for name, text in self.environment.items() if name.startswith("ADREEL_")}
        self.settings = settings.read(own)
        self.service = Service.on(self.settings, crews.build(self.settings))
        self.hand = self.service.crews.hand

    def ready(self) -> "Adreel":
        """Waits until it serves, and signs the client in with the token."""
        self.answers("/healthz")
        key = self.environment.get("CHARGEHAND_ADMIN_KEY") or token_of(self.home / "adreel.db")
        self.http.headers["Authorization"] = f"Bearer {key}"
        return self

    def upload(self, name: str = "a.mp4", body: bytes = MP4) -> dict[str, Any]:
        """Uploads a film and returns it."""
        answer = self.post(name, body)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def post(self, name: str = "a.mp4", body: Any = MP4) -> httpx.Response:
        return self.http.post("/jobs", params={"name": name}, content=body, headers={"Content-Type": "video/mp4"})

    def get(self, film: str) -> dict[str, Any]:
        answer = self.http.get(f"/jobs/{film}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def delete(self, film: str) -> int:
        return self.http.delete(f"/jobs/{film}").status_code

    def ends(self, film: str) -> dict[str, Any]:
        """Waits until the analysis of a film has ended."""
        eventually(lambda: self.get(film)["status"] in ENDED, 60, what="the film ends")
        return self.get(film)

    def explain(self) -> str:
        """Returns what helps to understand a failure, also: the gates, and every film that has not ended."""
        gates = sorted(gate.name for gate in self.gates.iterdir())
        films = [film for film in self.service.films.find(limit=100) if film.state not in ("done", "failed")]
        stages = [f"{film.name}: {self.http.get(f'/jobs/{film.id}').text}" for film in films]
        return "\n".join([super().explain(), f"gates: {gates}", *stages])

    def close_gate(self, stage: str) -> Path:
        """Lets films wait in this stage. Returns the gate; without it they go on."""
        (self.gates / f"at-{stage}").unlink(missing_ok=True)
        gate = self.gates / stage
        gate.touch()
        return gate

    def open_gates(self) -> None:
        """Lets every film go on."""
        for gate in self.gates.iterdir():
            gate.unlink(missing_ok=True)

    def waits_at(self, stage: str) -> None:
        """Waits until a film stands at the gate."""
        eventually((self.gates / f"at-{stage}").exists, 60, what=f"a film in the stage {stage}")

    def is_gone(self, film: FilmRow) -> bool:
        """Returns whether nothing is left of a film: neither answers nor files, rows nor jobs."""
        answer = self.http.get(f"/jobs/{film.id}").status_code
        flows = [record.id for record in self.hand.flows()]
        return (
            answer == 404
            and not (self.home / "films" / film.id).exists()
            and self.service.films.get(film.id) is None
            and not {film.flow, *film.earlier} & set(flows)
        )

    def row(self, film: str) -> FilmRow:
        found = self.service.films.get(film)
        assert found is not None
        return found


def add_films(service: Service, count: int) -> list[FilmRow]:
    """Adds the rows of films that ended, and returns them, the oldest first."""
    rows = [
        FilmRow(
            id=f"{number:021x}", name=f"film {number}.mp4", source=None, uploaded=True, size=1, submitted_ms=number,
            flow=f"flow {number}", state="done", ends=1, ended_ms=clock.now_ms(), category=None, error=None,
            outcome=None, deleting_ms=None,
        )
        for number in range(count)
    ]  # fmt: skip
    with service.films.transaction() as tx:
        for row in rows:
            service.films.add(tx, row)
    return rows


def parts(*files: tuple[str, bytes]) -> Any:
    """A form with these files."""
    return [("file", (name, body, "video/mp4")) for name, body in files]


def half_sent(server: Adreel, size: int = 1_000_000) -> socket.socket:
    """A client that has sent the beginning of an upload, and nothing more."""
    client = socket.create_connection(("127.0.0.1", server.port), 30)
    head = (
        f"POST /jobs?name=half.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Type: video/mp4\r\nContent-Length: {size}\r\n"
        f"Authorization: {server.http.headers['authorization']}\r\n\r\n"
    )
    client.sendall(head.encode() + MP4)
    return client


def incomplete(server: Adreel) -> list[Path]:
    """The uploads that are not complete."""
    folder = server.home / "uploads"
    return sorted(folder.iterdir()) if folder.exists() else []


def streamed(server: Adreel, film: str, then: Callable[[dict[str, Any]], None] = lambda _: None) -> list[Any]:
    """Reads the events of a film to their end: pairs of kind and body."""
    found: list[Any] = []
    with server.http.stream("GET", f"/jobs/{film}/events", timeout=60) as answer:
        assert answer.status_code == 200
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                body = json.loads(line.removeprefix("data: "))
                found.append((kind, body))
                then(body)
    return found
