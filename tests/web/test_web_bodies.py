"""Bodies: limited in size and time, and never decoded for long on the event loop."""

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from test_web_routes import every
from webworld import HOME, Web, problem

from chargehand.settings.http import HttpPolicy
from chargehand.web import bodies
from chargehand.web.auth import needs_of
from chargehand.web.gate import MOST_PARAMETERS
from chargehand.web.incoming import read_many
from chargehand.web.problems import MOST_FAULTS, Problem
from chargehand.web.requests import MOST_JOBS, JobIn, SignIn

SMALL = HttpPolicy().small_body_size
PIECE = 4096
MANY_FIELDS = b"{" + b",".join(b'"f%06d":1' % number for number in range(150_000)) + b"}"
JSON = {"Content-Type": "application/json"}


class Sender:
    """A client that sends a body piece by piece; `endless` without a length, `then` what follows the pieces."""

    def __init__(self, pieces: int, then: Callable[[], Any] | None = None) -> None:
        self._pieces, self._then = pieces, then
        self.taken = 0
        self.asked = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.taken // PIECE >= self._pieces:
            self.asked.set()
            await asyncio.Event().wait()
        self.taken += PIECE
        return {"type": "http.request", "body": b" " * PIECE, "more_body": True}


async def call(
    web: Web, sender: Sender, method: str, path: str, headers: dict[str, str] | None = None, key: str | None = None
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Returns status, problem document and headers of a request whose body the sender sends."""
    sent: list[dict[str, Any]] = []
    given = {"host": "localhost", "content-type": "application/json", **(headers or {})}
    if key is not None:
        given["authorization"] = f"Bearer {key}"
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": (HOME, 1),
        "server": ("localhost", 80), "headers": [(name.encode(), text.encode()) for name, text in given.items()],
    }  # fmt: skip

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async with asyncio.timeout(20):
        await web.api(scope, sender.receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    found = json.loads(body) if body.startswith(b"{") else {}
    return sent[0]["status"], found, {name.decode(): text.decode() for name, text in sent[0]["headers"]}


def test_a_request_of_nobody_is_not_read_beyond_a_few_kibibytes(web: Web) -> None:  # spec: SE-6
    web.key("read")  # so that nobody is let in without a key
    tried = 0
    for route in every(web.api.routes):
        path = route.path.replace("{", "").replace("}", "")
        for method in sorted(route.methods - {"HEAD"}):
            sender = Sender(pieces=2048)
            status, _, _ = web.run(call(web, sender, method, path))
            assert sender.taken <= (SMALL + PIECE if needs_of(route) in ("open", "known") else 0), (method, path)
            assert status < 500 or path in ("/readyz", "/workers/ready"), (method, path)
            tried += 1
    assert tried > 30


@pytest.mark.parametrize("length", [{"content-length": str(SMALL + 1)}, {}])
def test_sign_in_accepts_a_few_kibibytes(still: Web, length: dict[str, str]) -> None:  # spec: SE-6
    sender = Sender(pieces=2048)
    status, found, _ = still.run(call(still, sender, "POST", "/api/web/session", length))
    assert (status, found["type"]) == (413, "urn:chargehand:problem:too-large")
    assert sender.taken == (0 if length else SMALL + PIECE)


def test_only_routes_that_create_jobs_accept_large_bodies(still: Web) -> None:  # spec: SE-6
    padded = b" " * SMALL + b"{}"
    problem(still.ask("POST", "/api/web/worker/pause", content=padded, headers=JSON), 413, "too-large")
    body = {"crew": "plain", "payload": "x" * SMALL, "delay_ms": 3_600_000}
    still.post("/api/v1/jobs", body, 201)


def test_a_body_that_does_not_arrive_is_given_up(  # spec: SE-6
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARGEHAND_HTTP_BODY_TIME", "0.05")
    web = Web(folder)
    try:
        status, found, headers = web.run(call(web, Sender(pieces=1), "POST", "/api/web/session"))
        assert (status, found["type"]) == (408, "urn:chargehand:problem:too-slow")
        assert headers["connection"] == "close"
    finally:
        web.close()


def test_a_server_that_stops_does_not_wait_for_bodies(web: Web) -> None:  # spec: SE-6
    async def stop() -> None:
        senders = [Sender(pieces=1) for _ in range(3)]
        calls = [asyncio.create_task(call(web, sender, "POST", "/api/web/session")) for sender in senders]
        await asyncio.gather(*(sender.asked.wait() for sender in senders))
        web.site.close()
        web.site.close()  # a second signal
        for status, found, headers in await asyncio.gather(*calls):
            assert (status, found["type"]) == (503, "urn:chargehand:problem:stopping")
            assert headers["connection"] == "close"
        # A request that is complete is still answered.
        answer = await web.asks("POST", "/api/v1/jobs", json={"crew": "plain"})
        assert answer.status_code == 201

    web.run(stop())


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/bulk"])
def test_no_large_body_is_decoded_on_the_event_loop(  # spec: SE-6
    web: Web, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    decoded = bodies.decoded
    sizes: list[tuple[bool, int]] = []

    def watched(text: Any, *rest: Any) -> Any:
        sizes.append((threading.current_thread() is threading.main_thread(), memoryview(text).nbytes))
        return decoded(text, *rest)

    monkeypatch.setattr(bodies, "decoded", watched)
    job = {"crew": "plain", "payload": ["x" * 1000] * 200}
    web.post(path, {"jobs": [job, job]} if path.endswith("bulk") else job, 201)
    web.post("/api/v1/jobs", {"crew": "plain"}, 201)
    assert max(size for _, size in sizes) > 200_000
    assert all(size <= bodies.AT_ONCE for on_loop, size in sizes if on_loop)


@pytest.mark.parametrize(
    "body",
    [
        MANY_FIELDS,
        b'{"tags":[' + b"[]," * 500_000 + b"1]}",
        b'{"label":"' + b"x" * 1_500_000 + b'"}',
        b'{"payload":[' + b"[]," * 750_000 + b"1]}",
    ],
)
def test_nothing_is_built_from_what_is_refused(body: bytes) -> None:  # spec: SE-6
    assert len(body) > 1 << 20
    bodies.decode(b" " * bodies.AT_ONCE + b'{"crew":"a"}', JobIn)  # types that are made once
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as caught:
            bodies.decode(body, JobIn)
        copies = 1 if b"payload" in body else 0
        assert tracemalloc.get_traced_memory()[1] < copies * len(body) + 100_000
    finally:
        tracemalloc.stop()
    assert caught.value.status_code == 422
    assert len(caught.value.detail) < 1000


@pytest.mark.parametrize("item", [b"{}", b"1", b'{"crew":"plain"}'])
def test_too_many_jobs_are_refused_before_they_are_built(item: bytes) -> None:  # spec: SE-6
    most = MOST_JOBS * [item]
    bulk = Request({"type": "http", "headers": [(b"content-type", b"application/json")]})
    with pytest.raises(Problem):
        read_many(bulk, b'{"jobs":[]}')()  # makes types that are made once
    body = b'{"jobs":[' + b",".join(most * 20) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match="at most length 10000"):
            read_many(bulk, body)()
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    if item.startswith(b'{"crew'):
        assert len(read_many(bulk, b'{"jobs":[' + b",".join(most) + b"]}")()) == MOST_JOBS


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("delay", "did you mean delay_ms, in milliseconds?"),
        ("countdown", "did you mean delay_ms, in milliseconds?"),
        ("run_at", "did you mean run_at_ms, in milliseconds?"),
        ("task", "did you mean crew?"),
        ("args", "did you mean payload?"),
        ("prioriti", "did you mean priority?"),
    ],
)
def test_the_field_that_was_probably_meant_is_named(field: str, meant: str, still: Web) -> None:
    found = problem(still.ask("POST", "/api/v1/jobs", json={"crew": "tag", field: 1}), 422, "invalid-request")
    assert found["detail"] == f"body/{field}: there is no such field; {meant}"


def test_the_first_unknown_fields_are_named(still: Web) -> None:  # spec: SE-6
    body = {f"f{number}": 1 for number in range(1000)}
    found = problem(still.ask("POST", "/api/web/session", json=body), 422, "invalid-request")
    assert [fault["pointer"] for fault in found["errors"]] == [f"body/f{number}" for number in range(MOST_FAULTS)]
    found = problem(still.ask("POST", "/api/v1/jobs", content=MANY_FIELDS, headers=JSON), 422, "invalid-request")
    assert "f000000" in found["detail"]
    found = problem(
        still.ask("POST", "/api/v1/jobs/bulk", content=b'{"jobs":[' + MANY_FIELDS + b"]}", headers=JSON),
        422,
        "invalid-request",
    )
    assert "f000000" in found["detail"]
    assert found["errors"][0]["pointer"] == "body/jobs/0"


@pytest.mark.parametrize("padding", [0, bodies.AT_ONCE])
def test_a_body_is_decoded_alike_whatever_its_size(padding: int) -> None:
    space = b" " * padding
    assert bodies.decode(space + b'{"crew":"a","tags":["b"],"payload":{"c":[1]}}', JobIn) == {
        "crew": "a", "tags": ["b"], "payload": {"c": [1]},
    }  # fmt: skip
    assert bodies.decode(space + b'{"key":null}', SignIn) == {"key": None}
    assert bodies.decode(space + b"null", SignIn) is None
    for wrong in (b'{"key":}', b'{"kye":""}', b'{"key":"\\ud800"}', b"{", b"[" * 5000):
        with pytest.raises(Problem, match="422"):
            bodies.decode(space + wrong, SignIn)


def test_the_rest_of_a_refused_body_in_chunks_is_not_parsed(still: Web) -> None:  # spec: SE-6
    for path in ("/api/web/session", "/nothing"):
        for headers, connection in (({"transfer-encoding": "chunked"}, "close"), ({}, None)):
            _, _, answered = still.run(call(still, Sender(pieces=2048), "POST", path, headers))
            assert answered.get("connection") == connection


def test_a_payload_with_white_space_and_escapes_is_measured_without_them(still: Web) -> None:
    escaped = rb"\u00e9" * 450_000  # 900,000 bytes of UTF-8
    body = b'{"crew": "plain", "delay_ms": 3600000, "payload": ["' + escaped + b'"' + b" " * (4 << 20) + b"]}"
    answer = still.ask("POST", "/api/v1/jobs", content=body, headers=JSON)
    assert answer.status_code == 201, answer.text


def test_headers_are_limited_under_any_server(still: Web) -> None:  # spec: SE-6
    limit = HttpPolicy().header_size
    problem(still.ask("GET", "/healthz", headers={"Cookie": "a=b; " * (limit // 5)}), 431, "headers-too-large")
    problem(still.ask("GET", "/healthz?" + "a=b&" * (limit // 4)), 431, "headers-too-large")
    problem(still.ask("GET", "/healthz?" + "a&" * MOST_PARAMETERS), 400, "malformed-request")
    still.get("/healthz?" + "a&" * (MOST_PARAMETERS - 1))
    assert still.ask("GET", "/healthz", headers={"Cookie": "a=b; " * 1000}).status_code == 200
