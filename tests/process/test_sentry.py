"""The recipe for Sentry in the documentation, as it stands there: a worker sends what a handler raises."""

import gzip
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import snippets
from chargehand import Chargehand, JobFailed
from chargehand.testing import eventually
from paths import ROOT

NAME = "# songs/sentry.py\n"


@contextmanager
def receiver() -> Generator[tuple[int, list[dict[str, Any]]]]:
    """Serves what Sentry serves to its clients. Yields the port, and the events that it has received."""
    events: list[dict[str, Any]] = []

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            items = [json.loads(line) for line in body.splitlines() if line.startswith(b"{")]
            events.extend(item for item in items if "exception" in item)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Receive) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_port, events
        finally:
            server.shutdown()
            serving.join()


def test_what_a_handler_raises_is_sent_to_sentry(
    hand: Chargehand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: HK-1
    (recipe,) = [each.code for each in snippets.of_page(ROOT / "docs" / "hooks.md") if each.code.startswith(NAME)]
    (tmp_path / "songs").mkdir()
    (tmp_path / "songs" / "sentry.py").write_text(recipe)
    monkeypatch.syspath_prepend(str(tmp_path))
    with receiver() as (port, events):
        dsn = f"http://key@127.0.0.1:{port}/1"
        faulty = hand.crew(
            "faulty", "chargehand.testing.faults:Faulty", workers=1, max_attempts=1, environment={"SENTRY_DSN": dsn}
        )
        hand.hooks(on_failure="songs.sentry:failed")
        with hand.running():
            bad = faulty.enqueue({"fault": "raise", "text": "no such song", "secret": "s3cr3t"})
            with pytest.raises(JobFailed):
                bad.wait(30)
            (event,) = eventually(lambda: list(events))
    assert event["tags"] == {"queue": "faulty", "job": bad.id, "attempt": 1}
    assert "no such song" in event["exception"]["values"][-1]["value"]
    assert "s3cr3t" not in json.dumps(event)
