"""The options of a job: one list, which the other places follow."""

import inspect
import json
from datetime import UTC, datetime
from typing import Any, get_type_hints

import pytest

from chargehand.cli.jobs import enqueue
from chargehand.client import NewJobOptions
from chargehand.crew import JobOptions
from chargehand.errors import PayloadError
from chargehand.model.job import OPTIONS, JobSpec, NewJob
from chargehand.settings.plan import CrewPlan, new_job
from chargehand.web.requests import JobIn, options_of

PLAN = CrewPlan(name="tag", queue="tag", handler="m:H")
NAMES = [option.name for option in OPTIONS]


def test_the_keywords_of_python_callers_are_the_options() -> None:
    assert {name.removesuffix("_ms") for name in NAMES} == set(JobOptions.__annotations__)


def test_the_keywords_of_the_client_are_the_options() -> None:
    hints = get_type_hints(NewJobOptions)
    assert set(hints) == set(NAMES)
    spelled: dict[Any, Any] = {str: str, int: int, bool: bool, tuple: list[str], dict: dict[str, Any]}
    kinds = {option.name: (spelled[option.kind], spelled[option.kind] | None) for option in OPTIONS}
    assert all(hints[name] in kinds[name] for name in NAMES)


def test_the_request_body_has_the_options_and_its_target() -> None:
    fields = JobIn.model_json_schema()["properties"]
    assert list(fields) == ["crew", "queue", "payload", *NAMES]
    assert all(fields[option.name]["description"] == option.description for option in OPTIONS)


def test_a_request_passes_on_only_what_it_contains() -> None:
    body = JobIn.model_validate_json(json.dumps({"crew": "tag", "label": "x", "timeout_ms": None}))
    assert options_of(body) == {"label": "x", "timeout_ms": None}
    job = new_job(PLAN, "1", **options_of(body))
    assert job == NewJob(id=job.id, queue="tag", payload="1", label="x", timeout_ms=None)


def test_the_flags_of_the_command_line_are_options() -> None:
    others = {"crew", "payload", "application", "store", "wait", "json"}
    assert set(inspect.signature(enqueue).parameters) - others <= set(JobOptions.__annotations__)


def test_every_option_is_described_and_allows_its_default() -> None:
    for option in OPTIONS:
        assert option.description.endswith(".")
        option.check(getattr(JobSpec(), option.name))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"colour": 1},
            "unknown option colour; there are: after, delay, expires, flow, if_failed, key, label, limit_key",
        ),
        ({"run_at": datetime(2026, 1, 1)}, "run_at is .*; must be a datetime with a time zone"),
        ({"run_at": 5}, "run_at is 5; must be a datetime"),
        ({"label": 5}, "label is 5; must be a string"),
        ({"tags": "nightly"}, "tags is 'nightly'; must be a list of strings"),
        ({"tags": [1]}, "tags contains 1; each must be a string of 1 to 100 characters"),
        ({"tags": ["x" * 101]}, "each must be a string of 1 to 100 characters"),
        ({"tags": ["a\n"]}, "tags"),
        ({"tags": [str(n) for n in range(21)]}, "the number of tags is 21"),
        ({"run_at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 1}, "cannot be combined"),
        ({"meta": "x"}, "meta is 'x'; must be an object"),
        ({"meta": ["x"]}, "meta is .*; must be an object"),
        ({"meta": {"x": "y" * 4096}}, "meta has 4,104 bytes of JSON; the maximum is 4,096"),
        ({"meta": {"x": object()}}, "meta cannot be written as JSON"),
        ({"meta": {"x": float("nan")}}, "meta cannot be written as JSON"),
        ({"meta": {"x": 10**700}}, "meta has a number of more than 640 digits"),
        ({"traceparent": "00-0"}, "traceparent is '00-0'; expected the header of W3C Trace Context"),
        ({"traceparent": "00-" + "0" * 32 + "-00f067aa0ba902b7-01"}, "expected the header of W3C"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PayloadError, match=words):
        new_job(PLAN, "1", **options)


def test_none_is_the_crews_value_but_for_the_timeout() -> None:
    job = new_job(
        CrewPlan(name="a", queue="a", handler="m:H", priority=4, timeout_ms=9), "1", priority=None, timeout=None
    )
    assert (job.priority, job.timeout_ms, job.delay_ms) == (4, None, 0)
