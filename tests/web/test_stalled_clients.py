"""`chargehand serve` among clients that stall: it stops when it is asked to."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from embedserver import Server, large_files, not_reading, stalled

from chargehand.model.access import Scope
from chargehand.testing import eventually

MANY = 50


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    limits = {f"CHARGEHAND_HTTP_{name}_TIME": "600" for name in ("HEADER", "BODY", "SEND", "IDLE")}
    made = Server(
        tmp_path, command="chargehand serve service_jobs:hand", WORKER_PROCESSES="1", CHARGEHAND_GRACE="1", **limits
    )
    yield made
    made.close()


def test_stalled_clients_do_not_keep_serve_from_stopping(server: Server) -> None:  # spec: SE-6
    """Nothing but the grace period ends these connections: all time limits are long."""
    server.answers("/healthz")
    key, _ = server.hand.make_key("test", [Scope.READ])
    head = f"Host: localhost\r\nAuthorization: Bearer {key}\r\n"
    kinds = [
        "",
        "GET /healthz HTTP/1.1\r\nHost: loc",
        f"POST /api/web/session HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        f"POST /api/web/session HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n",
        large_files("", head),
        f"GET /api/events HTTP/1.1\r\n{head}\r\n",
    ]
    gate = server.folder / "gate"
    crew = server.hand.crew("tag", "service_handlers:Tagger")
    crew.enqueue({"path": "a", "gate": str(gate)})
    server.started(gate)
    waiting = crew.enqueue({"path": "b"})
    with ExitStack() as clients:
        for kind in kinds * MANY:
            clients.enter_context(stalled(server.port, kind))
        eventually(lambda: not_reading(server.port) >= MANY, what="clients that do not read")
        assert server.http.get("/healthz").status_code == 200
        server.signal(signal.SIGTERM)
        eventually(lambda: (server.hand.status() or {}).get("stopping"), what="the node stops")
        gate.touch()  # the worker is free
        assert server.ended() == 0
    assert server.hand.job(waiting.id).state == "queued"
    assert server.hand.attempts(waiting.id) == []
    assert "Traceback" not in server.log.read_text()
