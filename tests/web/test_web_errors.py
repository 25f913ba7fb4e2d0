"""What is wrong with requests is answered as problem documents, changes nothing, and tells no secrets."""

import json
import logging
from typing import Any

import pytest
from fastapi import Depends
from webworld import Web, problem

from chargehand.codec import DEPTH_LIMIT
from chargehand.errors import PayloadError
from chargehand.model.records import JobFilter
from chargehand.settings.http import HttpPolicy
from chargehand.web.answers import cursor
from chargehand.web.auth import requires

LIMIT = HttpPolicy().body_size
JSON = {"Content-Type": "application/json"}


def unchanged(web: Web) -> bool:
    return not web.hand.jobs(JobFilter()) and not web.hand.operations() and not web.hand.pauses()


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/api/v1/nothing", 404, "no-such-path"),
        ("GET", "/api/v1/jobs/../../etc/passwd", 404, "no-such-path"),
        ("GET", "/api/v1/jobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404, "no-such-path"),
        ("GET", "/api/v1/jobs/..%00", 404, "job-not-found"),
        ("GET", "/api/v1/jobs/" + "x" * 201, 422, "invalid-request"),
        ("GET", "/api/v1/jobs/nothing", 404, "job-not-found"),
        ("GET", "/api/v1/crashes/nothing", 404, "crash-not-found"),
        ("GET", "/api/v1/health/nothing", 404, "no-such-component"),
        ("GET", "/api/v1/workers/nothing/history", 404, "no-such-component"),
        ("POST", "/api/v1/jobs/nothing/retry", 404, "job-not-found"),
        ("POST", "/api/v1/jobs/nothing/cancel", 404, "job-not-found"),
        ("POST", "/api/v1/queues/nothing/retry-failed", 404, "no-such-queue"),
        ("POST", "/api/v1/queues/nothing/clear-failed", 404, "no-such-queue"),
        ("PUT", "/api/v1/jobs", 405, "method-not-allowed"),
        ("DELETE", "/api/v1/queues", 405, "method-not-allowed"),
        ("GET", "/api/web/worker/stop", 405, "method-not-allowed"),
        ("GET", "/api/v1/jobs?limit=0", 422, "invalid-request"),
        ("GET", "/api/v1/jobs?stat=failed", 422, "invalid-request"),
        ("POST", "/api/v1/queues/tagging/clear-failed?older_than=7d", 422, "invalid-request"),
        ("GET", "/api/events?topic=jobs", 422, "invalid-request"),
        ("GET", "/api/v1/jobs?limit=501", 422, "invalid-request"),
        ("GET", "/api/v1/jobs?limit=1e9", 422, "invalid-request"),
        ("GET", "/api/v1/jobs?state=lost", 422, "invalid-request"),
        ("GET", "/api/v1/jobs?text=" + "x" * 1001, 422, "invalid-request"),
        ("GET", "/api/v1/jobs?after=nonsense", 422, "invalid-request"),
        ("GET", "/api/v1/jobs?after=%ff", 422, "invalid-request"),
        ("GET", f"/api/v1/jobs?after={cursor('a text')}", 422, "invalid-request"),
        ("GET", f"/api/v1/jobs?after={cursor(1 << 70)}", 422, "invalid-request"),
        ("GET", f"/api/v1/claims?after={cursor(1)}", 422, "invalid-request"),
        ("GET", "/api/v1/operations?limit=100000000000000000000", 422, "invalid-request"),
        ("POST", "/api/web/worker/stop", 503, "no-node"),
        ("GET", "/api/v1/workers/worker:do:0/stack", 503, "no-node"),
        ("POST", "/api/web/worker/scale", 422, "invalid-request"),
    ],
)  # fmt: skip
def test_each_refusal_has_its_status_and_is_a_problem_document(
    still: Web, method: str, path: str, status: int, kind: str
) -> None:
    answer = still.ask(method, path)
    found = problem(answer, status, kind)
    assert "/etc" not in found["detail"]
    if status == 405:
        assert answer.headers["allow"]
    assert unchanged(still)


def test_a_slip_in_a_parameters_name_is_told_with_the_names_that_there_are(still: Web) -> None:  # spec: HT-3
    found = problem(still.ask("GET", "/api/v1/jobs?stat=failed&limit=3&qeue=a"), 422, "invalid-request")
    assert [fault["pointer"] for fault in found["errors"]] == ["query/stat", "query/qeue"]
    assert "there are: filter, queue, state, reason, tag, text, flow, older_ms, sort, limit, after" in found["detail"]


def test_a_refused_method_names_every_method_of_the_path(still: Web) -> None:  # spec: HT-3
    for path, methods in (
        ("/api/v1/jobs", "DELETE, GET, POST, HEAD"),
        ("/api/v1/jobs/x", "DELETE, GET, HEAD"),
        ("/api/web/session", "DELETE, GET, POST, HEAD"),
        ("/api/web/worker/stop", "POST"),
    ):
        answer = still.ask("PATCH", path)
        problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == methods


def test_head_is_answered_like_get_without_a_body(still: Web) -> None:  # spec: HT-3
    for path in ("/healthz", "/readyz", "/api/v1/queues", "/api/v1/jobs/unknown", "/dashboard", "/api/v1/jobs?stat=x"):
        head, get = still.ask("HEAD", path), still.ask("GET", path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
    assert problem(still.ask("GET", "/api/web/worker/stop"), 405, "method-not-allowed")
    assert still.ask("HEAD", "/api/web/worker/stop").status_code == 405
    stream = still.ask("HEAD", "/api/events")  # ends, though its body never would
    assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def sent_with(still: Web, version: str, *headers: tuple[bytes, bytes]) -> int:
    """The status of a probe with exactly these headers."""
    scope = {
        "type": "http", "http_version": version, "method": "GET", "path": "/healthz", "raw_path": b"/healthz",
        "query_string": b"", "headers": list(headers), "scheme": "http", "server": ("127.0.0.1", 8356),
        "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    started: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            started.append(message["status"])

    still.run(still.api(scope, receive, send))  # pyright: ignore[reportArgumentType]
    return started[0]


def test_a_probe_in_http_1_0_needs_no_host(still: Web) -> None:  # spec: HT-3
    """HTTP/1.0 has no Host header, and load balancers still speak it; HTTP/1.1 requires exactly one."""
    assert sent_with(still, "1.0") == 200
    assert sent_with(still, "1.1") == 400
    assert sent_with(still, "1.0", (b"host", b"a\x00b")) == 400
    assert sent_with(still, "1.0", (b"host", b"a"), (b"host", b"b")) == 400
    assert sent_with(still, "1.0", (b"content-length", b"x")) == 400


def test_a_probe_may_be_asked_in_any_way(still: Web) -> None:
    assert still.ask("GET", "/healthz?_=17").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/api/v1/jobs", {}, "body"),
        ("/api/v1/jobs", [], "body"),
        ("/api/v1/jobs", {"crew": "tag", "queue": "tagging"}, "body"),
        ("/api/v1/jobs", {"crew": "tag", "payload": {"path": "a"}, "suprise": 1}, "body/suprise"),
        ("/api/v1/jobs", {"crew": "tag", "payload": {"path": 1}}, "body/payload/path"),
        ("/api/v1/jobs", {"crew": "tag", "payload": 7}, "body/payload"),
        ("/api/v1/jobs", {"crew": "tag", "payload": {"path": "a"}, "priority": "high"}, "body/priority"),
        ("/api/v1/jobs", {"crew": "tag", "payload": {"path": "a"}, "priority": 1 << 80}, "body/priority"),
        ("/api/v1/jobs", {"crew": "tag", "payload": {"path": "a"}, "timeout_ms": 0}, "body/timeout_ms"),
        ("/api/v1/jobs", {"crew": "plain", "label": "a\nb"}, "body/label"),
        ("/api/v1/jobs", {"crew": "plain", "label": ""}, "body/label"),
        ("/api/v1/jobs", {"crew": "nobody"}, "body/crew"),
        ("/api/v1/jobs", {"queue": "nowhere"}, "body/queue"),
        ("/api/v1/jobs/bulk", {"jobs": []}, "body/jobs"),
        ("/api/v1/jobs/bulk", {"jobs": [{"crew": "plain"}, {"crew": "tag", "payload": 1}]}, "body/jobs/1/payload"),
        ("/api/v1/jobs/bulk", {"jobs": [{"crew": "plain"}] * 10_001}, "body/jobs"),
        ("/api/web/worker/pause", {"for_s": -1}, "body/for_s"),
        ("/api/web/worker/pause", {"reason": "x" * 1001}, "body/reason"),
        ("/api/web/worker/scale", {"scope": "tag", "count": -1}, "body/count"),
        ("/api/web/worker/scale", {"scope": "tag", "count": True}, "body/count"),
        ("/api/v1/claims/x/release", {"claim": "one"}, "body/claim"),
    ],
)
def test_a_wrong_body_is_told_where_it_is_wrong(still: Web, path: str, body: Any, place: str) -> None:
    answer = still.ask("POST", path, json=body)
    assert answer.status_code == 422, answer.text
    assert next(fault["pointer"] for fault in answer.json()["errors"]) == place
    assert "Value error" not in answer.text  # the words of a library
    assert len(answer.content) < 10_000
    assert unchanged(still)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b'{"crew": "plain", "payload": NaN}',
        b'{"crew": "plain", "payload": 1e999}',
        b'{"crew": "plain", "payload": "\\ud800"}',
        b'{"crew": "plain", "label": "\\ud800"}',
        b'{"crew": "\\ud800"}',
        b'{"crew": "plain", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"crew": "plain", "payload": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b'{"crew": "plain", "payload": "' + b"x" * (1 << 20) + b'"}',
        b'{"crew": "plain", "priority": ' + b"9" * 5_000 + b"}",
    ],
)
def test_no_body_makes_the_server_fail(still: Web, body: bytes) -> None:  # spec: SE-3
    many = b'{"jobs": [' + body + b"]}"
    for path, sent in (("", body), ("/bulk", body), ("/bulk", many)):
        answer = still.ask("POST", f"/api/v1/jobs{path}", content=sent, headers=JSON)
        assert answer.status_code in (400, 422), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) < 10_000
    assert unchanged(still)


@pytest.mark.parametrize("path", ["", "/bulk"])
def test_a_body_that_does_not_say_that_it_is_json_is_told_so(still: Web, path: str) -> None:  # spec: HT-3
    answer = still.ask(
        "POST", f"/api/v1/jobs{path}", content=b'{"crew": "plain"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 422
    assert answer.json()["detail"] == "body: Content-Type is not application/json"


def test_a_payload_as_deep_as_it_may_be_goes_through(web: Web) -> None:  # spec: SE-3
    deep = "[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT
    answer = web.ask("POST", "/api/v1/jobs", content=f'{{"crew": "plain", "payload": {deep}}}', headers=JSON)
    assert answer.status_code == 201, answer.text
    assert web.get(f"/api/v1/jobs/{answer.json()['id']}")["payload"] == json.loads(deep)
    for made in (
        web.client().enqueue("plain", json.loads(deep)),
        *web.client().enqueue_many([{"crew": "plain", "payload": json.loads(deep)}] * 2),
    ):
        assert bytes(web.client().job(made.id).payload) == deep.encode()


TOO_MUCH = [
    "[" * 101 + "]" * 101,
    "[" * 104 + "]" * 104,
    '{"a":[' * 400 + "1" + "]}" * 400,
    '[["a"],' * 5_000 + "1" + "]" * 5_000,
    "[" * 100_000,
    "[" + "9" * 641 + "]",
    "9" * 5_000,
]


@pytest.mark.parametrize("payload", TOO_MUCH)
def test_a_payload_beyond_the_limits_is_refused_in_words(still: Web, payload: str) -> None:  # spec: SE-3
    one = f'{{"crew": "plain", "payload": {payload}}}'
    words = "has a number of more than 640 digits: " if "9" in payload else "is nested more than 100 levels deep: "
    for path, sent in (("", one), ("/bulk", f'{{"jobs": [{one}]}}')):
        answer = still.ask("POST", f"/api/v1/jobs{path}", content=sent, headers=JSON)
        assert words in problem(answer, 422, "payload")["detail"]
    assert unchanged(still)


def test_a_value_beyond_the_limits_is_refused_in_words_by_the_client_and_on_every_route(
    still: Web,
) -> None:  # spec: SE-3
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(PayloadError, match="the request is nested more than 100 levels deep"):
        still.client().enqueue("plain", deep)
    answer = still.ask(
        "POST", "/api/web/worker/pause", content='{"reason": ' + "[" * 5_000 + "]" * 5_000 + "}", headers=JSON
    )
    assert problem(answer, 422, "payload")["errors"][0]["pointer"] == "body"


def test_json_must_say_that_it_is_json(still: Web) -> None:  # spec: SE-2
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = still.ask("POST", "/api/v1/jobs", content=b'{"crew": "plain"}', headers={"Content-Type": kind})
        problem(answer, 422, "invalid-request")
    assert unchanged(still)


def test_too_large_a_body_is_refused_whether_or_not_it_says_so(still: Web) -> None:  # spec: SE-3
    problem(still.ask("POST", "/api/v1/jobs", content=b"x" * (LIMIT + 1), headers=JSON), 413, "too-large")

    async def pieces() -> Any:
        for _ in range(LIMIT // 65536 + 2):
            yield b" " * 65536

    problem(still.ask("POST", "/api/v1/jobs", content=pieces(), headers=JSON), 413, "too-large")
    for length in ("-1", "1e3", "x", "9" * 50):
        answer = still.ask("POST", "/api/v1/jobs", content=b"{}", headers={**JSON, "Content-Length": length})
        assert answer.status_code in (400, 413)
    assert unchanged(still)


@pytest.mark.parametrize("host", ["", "a b", "localhost:80:80", "evil/../x", "localhost@evil", "[::1", "x" * 300])
def test_a_malformed_host_is_refused(still: Web, host: str) -> None:  # spec: SE-1
    for path in ("/healthz", "/api/v1/info"):
        problem(still.ask("GET", path, headers={"Host": host}), 400, "malformed-request")


def test_a_request_keeps_the_id_it_was_given_if_that_is_one(still: Web) -> None:
    answer = still.ask("GET", "/nothing", headers={"X-Request-ID": "from-the-proxy.1"})
    assert problem(answer, 404, "no-such-path")["request_id"] == "from-the-proxy.1"
    for strange in ("a b", "x" * 65, "<script>", 'a"b'):
        answer = still.ask("GET", "/healthz", headers={"X-Request-ID": strange})
        assert answer.headers["x-request-id"] != strange
    first, second = (still.ask("GET", "/healthz").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_what_nobody_foresaw_is_logged_and_not_shown(web: Web, caplog: pytest.LogCaptureFixture) -> None:  # spec: SE-4
    async def fail() -> None:
        raise RuntimeError("the password is swordfish")

    web.api.add_api_route("/fail", fail, dependencies=[Depends(requires("read"))])
    with caplog.at_level(logging.ERROR, "chargehand"):
        answer = web.ask("GET", "/fail")
    found = problem(answer, 500, "unforeseen")
    assert "swordfish" not in answer.text
    (told, *_) = (record for record in caplog.records if record.name.startswith("chargehand"))
    assert found["request_id"] in str(told.__dict__["facts"])
    assert "swordfish" in (told.exc_text or "")
    assert web.ask("GET", "/healthz").status_code == 200


def test_every_answer_keeps_browsers_from_guessing_framing_and_keeping(still: Web) -> None:  # spec: SE-4
    for path in ("/healthz", "/nothing", "/api/v1/jobs"):
        headers = still.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


def test_no_other_site_is_allowed_unless_it_is_named(still: Web) -> None:  # spec: CF-1
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in still.ask("OPTIONS", "/api/v1/jobs", headers=preflight).headers
