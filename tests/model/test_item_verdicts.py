"""Tests for the verdicts on items that a crew's `discover` found."""

import pytest

from chargehand.model.items import PastJob, Verdict, judge, judge_page, no_progress_error
from chargehand.model.job import Found, State
from chargehand.model.records import Discovery

NOW = 1_000_000
HOUR = 3_600_000


def done(ago_ms: int, retried: bool = False) -> PastJob:
    return PastJob(State.DONE, NOW - ago_ms, NOW - ago_ms - 1 if retried else None)


def verdict(*newest: PastJob, most_done: int = 3, window_ms: int = 1000, age_ms: int = 10) -> Verdict:
    return judge(newest, most_done, NOW - window_ms, NOW - age_ms)


def test_an_item_without_a_job_is_queued() -> None:
    assert verdict() == "queued"
    assert verdict(most_done=0) == "queued"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.QUEUED, "held"),
        (State.RUNNING, "held"),
        (State.FAILED, "set aside"),
        (State.CANCELLED, "set aside"),
        (State.DONE, "queued"),
    ],
)
def test_the_newest_job_decides(state: State, expected: Verdict) -> None:
    finished = NOW - 100 if state in (State.DONE, State.FAILED, State.CANCELLED) else None
    assert verdict(PastJob(state, finished, None), done(500)) == expected


@pytest.mark.parametrize(("ago_ms", "expected"), [(9, "held"), (10, "queued"), (11, "queued")])
def test_an_item_that_was_done_during_the_look_is_held(ago_ms: int, expected: Verdict) -> None:
    assert verdict(done(ago_ms), age_ms=10) == expected


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ((100, 200), "queued"),
        ((100, 200, 300), "no progress"),
        ((100, 200, 1000), "no progress"),
        ((100, 200, 1001), "queued"),
    ],
)
def test_an_item_that_is_done_too_often_within_the_window_makes_no_progress(
    ages: tuple[int, ...], expected: Verdict
) -> None:
    assert verdict(*(done(age) for age in ages)) == expected


def test_a_retry_by_a_person_starts_the_count_again() -> None:
    assert verdict(done(100), done(200, retried=True), done(300)) == "queued"
    assert verdict(done(100), done(200), done(300, retried=True)) == "no progress"


def test_an_item_that_a_page_repeats_gets_one_job() -> None:
    items = ("new", "stuck", "failed", "new", "stuck", "failed", "new")
    page = Discovery(
        queue="q", found=tuple(Found(item=item, payload="null") for item in items), priority=0, max_attempts=1,
        timeout_ms=None, most_done=1, window_ms=HOUR, age_ms=10,
    )  # fmt: skip
    past = {"new": [], "stuck": [done(100)], "failed": [PastJob(State.FAILED, NOW - 100, None)]}
    assert judge_page(page, items, [past[item] for item in items], NOW) == [
        "queued", "no progress", "set aside", "held", "set aside", "set aside", "held",
    ]  # fmt: skip
    assert no_progress_error(page) == "done 1 times within 3600 s, and found again each time"
