"""Topics, patterns of topics, and events: what is said of live state, and who wants to hear it.

Pure. An event carries the whole state of one thing, so that the newest is always enough.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from chargehand.errors import TopicError
from chargehand.model.job import FINISHED

ALL_QUEUES = "queue:status"
ALL_JOBS = "queue:jobs"
HEALTH = "system:health"
DEFAULT = (ALL_QUEUES, "queue:*:status", "worker:*:status", HEALTH)
"""Everything but the jobs."""
FORMS = ("queue:status", "queue:*:status", "queue:jobs", "job:*", "worker:*:*:status", "system:health")
"""Every topic is of one of these forms; `*` stands for one or more segments."""
MOST_PATTERNS = 100
LONGEST = 300
RESYNC = "resync"
"""The type of the event that says: forget what you know, the full state follows."""
_DONE = frozenset(state.value for state in FINISHED)

_encoder = msgspec.json.Encoder()


class Event:
    """The state of one thing as it was at one version. Shared by all who are told, and encoded once."""

    __slots__ = ("_sse", "_told", "aside", "body", "key", "lasts", "removed", "rest", "topic", "type", "version")

    def __init__(
        self, version: int, key: str, topic: str, type: str, rest: bytes, *,
        lasts: bool = True, removed: bool = False, aside: bool = False, body: Any = None,
    ) -> None:  # fmt: skip
        self.version, self.key, self.topic, self.type = version, key, topic, type
        self.rest = rest
        """The event as JSON, after its topic: `,"type":…}`."""
        self.lasts = lasts
        """Whether it belongs to the state for as long as it is not removed; jobs that do not run are let go of."""
        self.removed = removed
        self.aside = aside
        """A job that is known only because somebody asked for it by its id, and is told to nobody else."""
        self.body = body
        self._told: dict[str, bytes] = {}
        self._sse: dict[str, bytes] = {}

    def told(self, topic: str) -> bytes:
        """The event as JSON, under this topic."""
        text = self._told.get(topic)
        if text is None:
            text = self._told[topic] = b'{"topic":' + _encoder.encode(topic) + self.rest
        return text

    def read(self, topic: str) -> dict[str, Any]:
        """The event as plain data."""
        return msgspec.json.decode(self.told(topic))

    def sse(self, life: str, topic: str) -> bytes:
        """The event as one of a stream of server-sent events; its id says where whoever got it stands."""
        text = self._sse.get(topic)
        if text is None:
            head = f"id: {event_id(life, self.version)}\nevent: {self.type}\ndata: ".encode()
            text = self._sse[topic] = head + self.told(topic) + b"\n\n"
        return text


def rest_of(type: str, at_ms: int, name: str, body: Any, *, removed: bool = False) -> bytes:
    """An event as JSON, after its topic."""
    fields: dict[str, Any] = {"type": type, "timestamp_ms": at_ms}
    if removed:
        fields["removed"] = True
    return b"," + _encoder.encode({**fields, name: body})[1:]


def resync(at_ms: int) -> bytes:
    """What a subscriber is told that may know something that is no longer so."""
    return b'{"topic":"*"' + rest_of(RESYNC, at_ms, "reason", "the full state follows")


# which topic


def queue_topic(queue: str | None) -> str:
    """The topic of one queue, or of all together."""
    return ALL_QUEUES if queue is None else f"queue:{queue}:status"


def job_topic(job_id: str) -> str:
    """The topic of one job."""
    return f"job:{job_id}"


def worker_topic(component: str) -> str:
    """The topic of one worker."""
    return f"{component}:status"


def lasting(job: dict[str, Any]) -> bool:
    """Whether a job's state is kept for as long as it is so: it runs."""
    return job["state"] == "running"


def has_ended(event: dict[str, Any]) -> bool:
    """Whether this is the last event of a job: it has ended for good, or is no more."""
    return event["type"] == "job_update" and (event.get("removed", False) or event["job"]["state"] in _DONE)


# who wants what


@lru_cache(maxsize=4096)
def matches(pattern: str, topic: str) -> bool:
    """Whether the topic is one of those that the pattern stands for."""
    return _matches(tuple(pattern.split(":")), tuple(topic.split(":")))


def _matches(pattern: Sequence[str], topic: Sequence[str]) -> bool:
    if not pattern or not topic:
        return not pattern and not topic
    if pattern[0] != "*":
        return pattern[0] == topic[0] and _matches(pattern[1:], topic[1:])
    return _matches(pattern[1:], topic[1:]) or _matches(pattern, topic[1:])


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether some topic is matched by both patterns."""
    if not one or not other:
        return not one and not other
    if one[0] == other[0] == "*":
        return _meet(one[1:], other[1:]) or _meet(one, other[1:]) or _meet(one[1:], other)
    if one[0] == "*":
        return _meet(one[1:], other[1:]) or _meet(one, other[1:])
    if other[0] == "*":
        return _meet(other, one)
    return one[0] == other[0] and _meet(one[1:], other[1:])


class Patterns(msgspec.Struct, frozen=True):
    """What somebody wants to hear of."""

    texts: tuple[str, ...]
    ids: frozenset[str]
    """Single jobs."""
    of_jobs: tuple[str, ...]
    """Patterns that stand for jobs under their own topics, such as `job:*`."""
    list_jobs: bool
    """Jobs under the topic of all of them."""

    @property
    def jobs(self) -> bool:
        """Whether it is about jobs that are not named here."""
        return self.list_jobs or bool(self.of_jobs)

    def topic_of(self, event: Event) -> str | None:
        """Under which topic this subscriber is told of the event; None if not at all."""
        if not event.key.startswith("job:"):
            return event.topic if any(matches(pattern, event.topic) for pattern in self.texts) else None
        if event.topic[4:] in self.ids:
            return event.topic
        if event.aside:
            return None
        if self.of_jobs and any(matches(pattern, event.topic) for pattern in self.of_jobs):
            return event.topic
        return ALL_JOBS if self.list_jobs else None


def parse(topics: Iterable[str], most: int = MOST_PATTERNS) -> Patterns:
    """Topics and patterns as somebody wrote them; a TopicError that says what is wrong, and what there is."""
    texts = tuple(dict.fromkeys(text.strip() for text in topics)) or DEFAULT
    if len(texts) > most:
        raise TopicError(f"{len(texts)} topics; the maximum is {most}")
    split = {text: text.split(":") for text in texts}
    for text, segments in split.items():
        if len(text) > LONGEST or not text.isprintable():
            raise TopicError(
                f"invalid topic of {len(text)} characters; must have at most {LONGEST}, without control characters"
            )
        if "" in segments or segments.count("*") > 4 or not any(_meet(segments, form.split(":")) for form in FORMS):
            raise TopicError(f"there is no topic {text!r}; there are: {', '.join(FORMS)}; * is one segment or more")
    return Patterns(
        texts=texts,
        ids=frozenset(text[4:] for text, segments in split.items() if segments[0] == "job" and "*" not in segments),
        of_jobs=tuple(text for text, segments in split.items() if "*" in segments and _meet(segments, ("job", "*"))),
        list_jobs=any(matches(text, ALL_JOBS) for text in texts),
    )


def union(many: Iterable[Patterns]) -> Patterns | None:
    """What all of them together want; None if there is nobody."""
    groups = list(many)
    if not groups:
        return None
    return Patterns(
        texts=tuple(dict.fromkeys(text for group in groups for text in group.texts)),
        ids=frozenset(job_id for group in groups for job_id in group.ids),
        of_jobs=tuple(dict.fromkeys(text for group in groups for text in group.of_jobs)),
        list_jobs=any(group.list_jobs for group in groups),
    )


def event_id(life: str, version: int) -> str:
    """Where a subscriber stands, as it says it when it comes back."""
    return f"{life}-{version}"


def read_id(text: str | None) -> tuple[str, int] | None:
    """What such an id says; None if it says nothing."""
    life, _, version = (text or "").rpartition("-")
    return (life, int(version)) if life and version.isascii() and version.isdigit() and len(version) < 19 else None
