"""The filter language of jobs: what each word means, and what is refused in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand import ConfigurationError
from chargehand.model.job import State
from chargehand.model.job_query import FIELDS, merged, parse, pattern, text_of
from chargehand.model.records import JobFilter, JobMatch


def test_every_word_means_one_condition() -> None:  # spec: DB-3 HT-3 CL-5
    found = parse(
        'queue:tag state:failed error:"CUDA error" worker:tag:0 since:1h payload.path:~flac tags:nightly tags:big '
        'flow:f1 reason:timed-out label:a*b key:k share:c-7 node:n until:90s older:2d truncated "two words"'
    )
    assert found == JobFilter(
        queue="tag",
        state=State.FAILED,
        reason="timed out",
        tag="nightly",
        flow="f1",
        since_ms=3_600_000,
        until_ms=90_000,
        older_ms=2 * 86_400_000,
        matches=(
            JobMatch("error", "CUDA error", "part"),
            JobMatch("worker", "worker:tag:0"),
            JobMatch("payload.path", "flac", "part"),
            JobMatch("tag", "big"),
            JobMatch("label", "a*b", "like"),
            JobMatch("key", "k"),
            JobMatch("share", "c-7"),
            JobMatch("node", "n"),
            JobMatch("text", "truncated", "part"),
            JobMatch("text", "two words", "part"),
        ),
    )
    assert parse("  ") == JobFilter()


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("tag:0", "worker:tag:0"), ("worker:tag:0", "worker:tag:0"), ("n/tag:0", "n/worker:tag:0"),
        ("tag", "worker:tag:*"), ("n/tag", "n/worker:tag:*"),
    ],
)  # fmt: skip
def test_a_worker_may_be_named_as_it_is_shown(text: str, stored: str) -> None:
    (match,) = parse(f"worker:{text}").matches
    assert match == JobMatch("worker", stored, "like" if "*" in stored else "is")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stat:failed", "no field 'stat'; did you mean state:?"),
        ("ValueError: truncated", 'A text that contains a colon needs quotes: "ValueError: …"'),
        ("queue:", "no value for queue"),
        ("queue: tag", "no value for queue"),
        ("state:broken", "there is no state 'broken'; there are: queued, running, done, failed, cancelled"),
        ("since:soon", "since:soon is not a length of time of up to 10 years, such as 90s, 10m"),
        ("since:99999w", "is not a length of time"),
        ("queue:a queue:b", "gives queue twice"),
        ("queue:~a", "queue:~a: queue is compared as a whole; leave out the ~"),
        ("payload.:x", "write payload.KEY:VALUE"),
        ("payload.a..b:x", "write payload.KEY:VALUE"),
        ('error:"CUDA', 'no closing quote after "CUDA'),
        ('label:""', "no value for label"),
        ("x " * 51, "more than 50 words"),
        ("x" * 2001, "has 2001 characters"),
        (f"payload.{'a.' * 20}a:1", "a path of 21 keys"),
    ],
)
def test_a_wrong_word_is_refused_with_its_remedy(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse(text)
    assert says in str(error.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
MATCHES = st.one_of(
    st.builds(lambda name, text: JobMatch(name, text, "like" if "*" in text else "is"), st.sampled_from(
        ["label", "key", "share", "sequence", "item", "payload.a", "payload.a.0", "node"]), TEXTS),
    st.builds(JobMatch, st.sampled_from(["error", "text", "id", "label"]), TEXTS, st.just("part")),
)  # fmt: skip
NUMBERS = st.none() | st.integers(0, 10**9)
FILTERS = st.builds(
    JobFilter,
    queue=st.none() | TEXTS,
    state=st.none() | st.sampled_from(State),
    tag=st.none() | TEXTS,
    flow=st.none() | TEXTS,
    since_ms=NUMBERS,
    older_ms=NUMBERS,
    matches=st.lists(MATCHES, max_size=4, unique=True).map(tuple),
)


@given(FILTERS)
def test_a_filter_survives_as_text(which: JobFilter) -> None:
    """Links, the operator log and the command line over HTTP pass filters as text."""
    assert parse(text_of(which)) == which


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_is_refused_in_words(text: str) -> None:
    try:
        found = parse(text)
    except ConfigurationError:
        return
    assert parse(text_of(found)) == found


def test_two_filters_are_joined_unless_they_contradict_each_other() -> None:
    assert merged(parse("queue:a x"), parse("state:done y")) == parse("queue:a state:done x y")
    assert merged(parse("queue:a"), parse("queue:a")) == parse("queue:a")
    with pytest.raises(ConfigurationError, match="gives queue twice: a and b"):
        merged(parse("queue:a"), parse("queue:b"))


def test_what_a_pattern_must_not_mean_is_escaped() -> None:
    assert pattern(JobMatch("label", "50%_\\*", "like")) == "50\\%\\_\\\\%"
    assert pattern(JobMatch("label", "a", "part")) == "%a%"


def test_every_field_has_an_example_that_is_understood() -> None:
    for field in FIELDS:
        assert parse(field.example) != JobFilter()
        assert field.example.startswith(field.name)
