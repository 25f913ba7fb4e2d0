"""Topics, patterns and what events say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.errors import TopicError
from chargehand.model import topic
from chargehand.model.topic import Event, Patterns, event_id, has_ended, matches, parse, read_id, rest_of, union

SEGMENTS = st.lists(st.sampled_from(["queue", "job", "a", "b", "*"]), min_size=1, max_size=5)


def by_hand(pattern: list[str], segments: list[str]) -> bool:
    """The same by trying every length for every star."""
    if not pattern:
        return not segments
    head, *rest = pattern
    if head != "*":
        return bool(segments) and segments[0] == head and by_hand(rest, segments[1:])
    return any(by_hand(rest, segments[length:]) for length in range(1, len(segments) + 1))


@pytest.mark.parametrize(
    ("pattern", "name", "wanted"),
    [
        ("worker:*:status", "worker:tag:0:status", True),
        ("worker:tag:*:status", "worker:tag:0:status", True),
        ("worker:tag:*:status", "worker:scan:0:status", False),
        ("queue:*:status", "queue:tag:status", True),
        ("queue:*:status", "queue:status", False),
        ("queue:*:status", "queue:a:b:status", True),
        ("queue:*", "queue:jobs", True),
        ("*", "system:health", True),
        ("queue:status", "queue:status", True),
    ],
)
def test_a_star_is_one_segment_or_more(pattern: str, name: str, wanted: bool) -> None:  # spec: EV-1
    assert matches(pattern, name) is wanted


@given(SEGMENTS, st.lists(st.sampled_from(["queue", "job", "a", "b"]), min_size=1, max_size=6))
def test_matching_is_what_trying_everything_finds(pattern: list[str], segments: list[str]) -> None:  # spec: EV-1
    assert matches(":".join(pattern), ":".join(segments)) is by_hand(pattern, segments)


@pytest.mark.parametrize(
    "text", ["foo", "queue", "worker:tag:0", "system:*:x", "", "queue::status", "job:", "a:*", "*:*:*:*:*"]
)
def test_what_can_never_be_a_topic_is_refused_in_words(text: str) -> None:
    with pytest.raises(TopicError, match=r"there is no topic .* there are: queue:status"):
        parse([text])


def test_too_many_too_long_or_unprintable() -> None:
    with pytest.raises(TopicError, match="the maximum is 100"):
        parse([f"job:{number}" for number in range(101)])
    with pytest.raises(TopicError, match="at most 300"):
        parse(["job:" + "x" * 300])
    with pytest.raises(TopicError, match="control characters"):
        parse(["job:\x07x"])


@pytest.mark.parametrize(
    "text", ["queue:status", "queue:a:status", "queue:*", "job:x", "job:*", "worker:a:0:status", "*", "*:status"]
)
def test_what_can_be_a_topic_is_taken(text: str) -> None:
    assert parse([text]).texts == (text,)


def test_without_topics_it_is_everything_but_the_jobs() -> None:
    patterns = parse([])
    assert not patterns.jobs
    assert [patterns.topic_of(thing(name)) for name in ("queue:status", "worker:a:0:status", "system:health")] == [
        "queue:status",
        "worker:a:0:status",
        "system:health",
    ]


def thing(name: str, *, aside: bool = False) -> Event:
    return Event(1, name, name, "x_update", rest_of("x_update", 1, "x", {}), aside=aside)


@pytest.mark.parametrize(
    ("topics", "told", "told_aside"),
    [
        (["queue:jobs"], "queue:jobs", None),
        (["queue:*"], "queue:jobs", None),
        (["job:7"], "job:7", "job:7"),
        (["job:*"], "job:7", None),
        (["*"], "job:7", None),
        (["queue:jobs", "job:7"], "job:7", "job:7"),
        (["queue:jobs", "job:8"], "queue:jobs", None),
        (["job:8", "worker:*:status"], None, None),
    ],
)
def test_under_which_topic_a_job_is_told(topics: list[str], told: str | None, told_aside: str | None) -> None:
    """What somebody asked for by its id is told to that one, and not to those who look at all jobs."""
    assert parse(topics).topic_of(thing("job:7")) == told
    assert parse(topics).topic_of(thing("job:7", aside=True)) == told_aside


def test_an_event_says_its_topic_type_time_and_body() -> None:  # spec: EV-3
    rest = rest_of("job_update", 5, "job", {"id": "7", "state": "done"})
    event = Event(3, "job:7", "job:7", "job_update", rest)
    wanted = {"topic": "queue:jobs", "type": "job_update", "timestamp_ms": 5, "job": {"id": "7", "state": "done"}}
    assert event.read("queue:jobs") == wanted
    assert list(event.read("job:7")) == ["topic", "type", "timestamp_ms", "job"]
    told = event.sse("life", "job:7").decode()
    assert told.splitlines()[:2] == ["id: life-3", "event: job_update"]
    assert json.loads(told.splitlines()[2].removeprefix("data: ")) == {**wanted, "topic": "job:7"}
    assert has_ended(wanted)
    assert not has_ended({**wanted, "job": {"id": "7", "state": "queued"}})
    assert json.loads(topic.resync(9)) == {
        "topic": "*", "type": "resync", "timestamp_ms": 9, "reason": "the full state follows"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("life-7", ("life", 7)),
        ("a-b-0", ("a-b", 0)),
        (None, None),
        ("", None),
        ("life", None),
        ("life-", None),
        ("life-x", None),
        ("-7", None),
        ("life-²", None),
        ("life-" + "9" * 30, None),
    ],
)
def test_ids_are_read_with_care(text: str | None, wanted: tuple[str, int] | None) -> None:  # spec: EV-5
    assert read_id(text) == wanted
    assert wanted is None or event_id(*wanted) == text


def test_what_all_want_together() -> None:
    assert union([]) is None
    both = union([parse(["job:7"]), parse(["queue:jobs", "job:*"])])
    assert both == Patterns(("job:7", "queue:jobs", "job:*"), frozenset({"7"}), ("job:*",), True)
