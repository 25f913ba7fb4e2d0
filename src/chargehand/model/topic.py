"""Topics, topic patterns and events of the live state.

Pure. An event carries the complete state of one object, so that the latest event always suffices.
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
DEFAULT = (ALL_QUEUES, "queue:*:status", "worker:*:status", "node:*:status", HEALTH)
"""All topics except those of jobs and flows."""
FORMS = (
    "queue:status", "queue:*:status", "queue:jobs", "job:*", "flow:*", "worker:*:*:status", "node:*:status",
    "system:health",
)  # fmt: skip
"""Every topic has one of these forms; `*` stands for one or more segments."""
MOST_PATTERNS = 100
LONGEST = 300
RESYNC = "resync"
"""The type of the event after which a subscriber discards its state, because the full state follows."""
_DONE = frozenset(state.value for state in FINISHED)

_encoder = msgspec.json.Encoder()


class Event:
    """The state of one object at one version; shared by all subscribers and encoded once."""

    __slots__ = ("_encoded", "_sse", "aside", "body", "key", "lasts", "removed", "rest", "topic", "type", "version")

    def __init__(
        self, version: int, key: str, topic: str, type: str, rest: bytes, *,
        lasts: bool = True, removed: bool = False, aside: bool = False, body: Any = None,
    ) -> None:  # fmt: skip
        self.version, self.key, self.topic, self.type = version, key, topic, type
        self.rest = rest
        """The event as JSON without its topic: `,"type":…}`."""
        self.lasts = lasts
        """Whether the event belongs to the state until it is removed; jobs that are not running, and flows that have
        ended, do not."""
        self.removed = removed
        self.aside = aside
        """Whether the job or flow is known only because a subscriber follows its id; it is sent to no other."""
        self.body = body
        self._encoded: dict[str, bytes] = {}
        self._sse: dict[str, bytes] = {}

    def encoded(self, topic: str) -> bytes:
        """Returns the event as JSON under this topic."""
        text = self._encoded.get(topic)
        if text is None:
            text = self._encoded[topic] = b'{"topic":' + _encoder.encode(topic) + self.rest
        return text

    def read(self, topic: str) -> dict[str, Any]:
        """Returns the event as plain data."""
        return msgspec.json.decode(self.encoded(topic))

    def sse(self, life: str, topic: str) -> bytes:
        """Returns the event as a server-sent event, whose id is the subscriber's position in the stream."""
        text = self._sse.get(topic)
        if text is None:
            head = f"id: {event_id(life, self.version)}\nevent: {self.type}\ndata: ".encode()
            text = self._sse[topic] = head + self.encoded(topic) + b"\n\n"
        return text


def rest_of(type: str, at_ms: int, name: str, body: Any, *, removed: bool = False) -> bytes:
    """Encodes an event without its topic."""
    fields: dict[str, Any] = {"type": type, "timestamp_ms": at_ms}
    if removed:
        fields["removed"] = True
    return b"," + _encoder.encode({**fields, name: body})[1:]


def resync(at_ms: int) -> bytes:
    """Encodes the event that makes a subscriber discard its state."""
    return b'{"topic":"*"' + rest_of(RESYNC, at_ms, "reason", "the full state follows")


# the topic of an object


def queue_topic(queue: str | None) -> str:
    """Returns the topic of a queue, or of all queues together."""
    return ALL_QUEUES if queue is None else f"queue:{queue}:status"


def job_topic(job_id: str) -> str:
    """Returns the topic of a job."""
    return f"job:{job_id}"


def flow_topic(flow_id: str) -> str:
    """Returns the topic of a flow."""
    return f"flow:{flow_id}"


def worker_topic(component: str) -> str:
    """Returns the topic of a worker."""
    return f"{component}:status"


def node_topic(name: str) -> str:
    """Returns the topic of a node."""
    return f"node:{name}:status"


def has_ended(event: dict[str, Any]) -> bool:
    """Whether this is the last event of a job or a flow: it has ended or was removed."""
    kind = event["type"].removesuffix("_update")
    return kind in ("job", "flow") and (event.get("removed", False) or event[kind]["state"] in _DONE)


def is_work(key: str) -> bool:
    """Whether this is the key of a job or a flow, of which there may be many."""
    return key.startswith(("job:", "flow:"))


def is_flow(key: str) -> bool:
    """Whether this is the key of a flow."""
    return key.startswith("flow:")


# matching


@lru_cache(maxsize=4096)
def matches(pattern: str, topic: str) -> bool:
    """Whether the pattern matches the topic."""
    return _matches(tuple(pattern.split(":")), tuple(topic.split(":")))


def _matches(pattern: Sequence[str], topic: Sequence[str]) -> bool:
    if not pattern or not topic:
        return not pattern and not topic
    if pattern[0] != "*":
        return pattern[0] == topic[0] and _matches(pattern[1:], topic[1:])
    return _matches(pattern[1:], topic[1:]) or _matches(pattern, topic[1:])


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a topic exists that both patterns match."""
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
    """The topics that a subscriber wants."""

    texts: tuple[str, ...]
    ids: frozenset[str]
    """Individual jobs."""
    of_jobs: tuple[str, ...]
    """Patterns that match the topics of individual jobs, such as `job:*`."""
    list_jobs: bool
    """Whether jobs are wanted under the topic of all jobs."""
    flow_ids: frozenset[str] = frozenset()
    """Individual flows."""
    flows: bool = False
    """Whether flows are wanted that are not named individually."""

    @property
    def jobs(self) -> bool:
        """Whether jobs are wanted that are not named individually."""
        return self.list_jobs or bool(self.of_jobs)

    @property
    def named(self) -> list[str]:
        """The topics of the individual jobs and flows."""
        return [*map(job_topic, self.ids), *map(flow_topic, self.flow_ids)]

    def keeps(self, key: str) -> bool:
        """Whether the state of this job or flow is wanted."""
        if is_flow(key):
            return self.flows or key[5:] in self.flow_ids
        return self.jobs or key[4:] in self.ids

    def topic_of(self, event: Event) -> str | None:
        """Returns the topic under which this subscriber receives the event; None if it does not."""
        if not event.key.startswith("job:"):
            if event.aside and event.topic[5:] not in self.flow_ids:
                return None
            return event.topic if any(matches(pattern, event.topic) for pattern in self.texts) else None
        if event.topic[4:] in self.ids:
            return event.topic
        if event.aside:
            return None
        if self.of_jobs and any(matches(pattern, event.topic) for pattern in self.of_jobs):
            return event.topic
        return ALL_JOBS if self.list_jobs else None


def parse(topics: Iterable[str], most: int = MOST_PATTERNS) -> Patterns:
    """Parses topics and patterns. Raises TopicError."""
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
        flow_ids=frozenset(
            text[5:] for text, segments in split.items() if segments[0] == "flow" and "*" not in segments
        ),
        flows=any("*" in segments and _meet(segments, ("flow", "*")) for segments in split.values()),
    )


def union(many: Iterable[Patterns]) -> Patterns | None:
    """Returns the topics that any of them wants; None if there are none."""
    groups = list(many)
    if not groups:
        return None
    return Patterns(
        texts=tuple(dict.fromkeys(text for group in groups for text in group.texts)),
        ids=frozenset(job_id for group in groups for job_id in group.ids),
        of_jobs=tuple(dict.fromkeys(text for group in groups for text in group.of_jobs)),
        list_jobs=any(group.list_jobs for group in groups),
        flow_ids=frozenset(flow_id for group in groups for flow_id in group.flow_ids),
        flows=any(group.flows for group in groups),
    )


def event_id(life: str, version: int) -> str:
    """Returns the id of a subscriber's position in the stream."""
    return f"{life}-{version}"


def read_id(text: str | None) -> tuple[str, int] | None:
    """Parses such an id; None if it is invalid."""
    life, _, version = (text or "").rpartition("-")
    return (life, int(version)) if life and version.isascii() and version.isdigit() and len(version) < 19 else None
