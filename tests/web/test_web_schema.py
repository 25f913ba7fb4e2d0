"""The OpenAPI document is true: whatever is sent, right or wrong, no answer is one that it does not describe."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from webworld import AWAY, Web

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
EXAMPLES = 5
"""Requests for each route, right ones, and as many wrong ones."""
NO_NODE = ("/api/web/worker/", "/api/v1/workers/{component}/stack")
"""Without a node these answer 503, as they say."""
WANTED = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")


@pytest.fixture(scope="module")
def described(still: Web) -> Any:
    import schemathesis  # here, because every process of a run imports this module, and one of them runs these tests

    return schemathesis.openapi.from_dict(still.api.openapi())


ALIKE = tuple(f"/api/web/worker/{verb}" for verb in ("start", "resume", "restart", "reset"))
"""Made by the same lines as `stop`, which stands for them."""


def operations(described: Any) -> Iterator[Any]:
    for result in described.get_all_operations():
        if result.ok().path not in (*ALIKE, "/api/events"):  # a stream has no end
            yield result.ok()


def send(web: Web, case: Any, **how: Any) -> httpx.Response:
    wanted = case.as_transport_kwargs(base_url="http://localhost:8356")
    url = wanted.pop("url")
    sent = {name: str(text).encode("latin-1", "replace") for name, text in dict(wanted.pop("headers", {})).items()}
    body = {name: wanted[name] for name in ("json", "params") if wanted.get(name) is not None}
    if "data" in wanted:
        body["content"] = wanted["data"] if isinstance(wanted["data"], bytes | str) else str(wanted["data"])
    return web.ask(wanted["method"], url, headers={**sent, **how.pop("headers", {})}, **body, **how)


def check(case: Any, answer: httpx.Response) -> None:
    from schemathesis.checks import CHECKS

    expected = 503 if case.operation.path.startswith(NO_NODE) else 499
    assert answer.status_code <= expected, (case, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", (case, answer.text)
    case.validate_response(answer, checks=[CHECKS.get_one(name) for name in WANTED])


@pytest.mark.full
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_answer_is_one_that_is_not_described(still: Web, described: Any, mode: str) -> None:
    # spec: HT-1 HT-2 HT-3 HT-5 SE-3
    from schemathesis import GenerationMode

    assert {each.value for each in GenerationMode} == {"positive", "negative"}
    tried = 0
    for operation in operations(described):

        @seed(1)
        @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=SLOW)
        @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
        def ask(case: Any) -> None:
            nonlocal tried
            tried += 1
            answer = send(still, case)
            if case.operation.path == "/workers/ready":
                assert answer.status_code == 503
            else:
                check(case, answer)

        with suppress(Unsatisfiable):  # nothing about such a request can be wrong
            ask()
    assert tried > 60


@pytest.mark.full
def test_who_is_not_let_in_is_told_so_in_a_described_way(still: Web, described: Any) -> None:  # spec: SE-1 SE-2
    for operation in operations(described):
        if operation.path in ("/healthz", "/readyz", "/workers/ready", "/api/web/session"):
            continue

        @seed(1)
        @settings(max_examples=2, database=None, deadline=None, suppress_health_check=SLOW)
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            for how in ({"client": AWAY, "key": None}, {"headers": {"Authorization": b"Bearer ch_made-up"}}):
                answer = send(still, case, **how)
                assert answer.status_code in (401, 403), (case, answer.text)
                check(case, answer)

        ask()


def test_every_route_is_described_with_an_example_and_its_problems(still: Web) -> None:  # spec: HT-1
    document = still.api.openapi()
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            where = f"{method} {path}"
            assert route["description"], where
            good = [answer for status, answer in route["responses"].items() if status < "300"]
            assert good, where
            for answer in good:
                (content,) = answer["content"].values()
                assert "example" in content or path in ("/metrics", "/api/events"), where
            assert "application/problem+json" in route["responses"]["422"]["content"], where
            if "requestBody" in route:
                (content,) = route["requestBody"]["content"].values()
                assert content["schema"], where
