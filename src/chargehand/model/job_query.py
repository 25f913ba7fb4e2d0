"""The filter language of jobs, as people write it on the jobs page, on the command line and over HTTP: `queue:tag
state:failed error:"CUDA" since:1h`, and free text. Pure.

`parse` makes a JobFilter of a text, and `text_of` a text of a JobFilter.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.model.job import State
from chargehand.model.records import PAYLOAD, JobFilter, JobMatch

MOST_CHARACTERS = 2000
MOST_WORDS = 50
MOST_STEPS = 20
"""The number of keys in a path into the payload."""
_CHANGING = (
    r"(0x[0-9a-fA-F]+(?![0-9a-fA-F])"  # an address
    r"|(?<![0-9A-Za-z_])[0-9a-fA-F]{8,}(?![0-9A-Za-z_])"  # an id
    r"|(?<![0-9])[0-9]+(\.[0-9]+)*(?!\.?[0-9])"  # a number
    r"{path})"
)
"""What `*` stands for in a line of an error. Each can begin and end only at one place, so that no text makes the search
slow."""
_PATH = r"""|[^'"\s/]*/[^'"\n]*"""
_STARS = re.compile(r"\*+")
LONGEST_MS = 3650 * 86_400_000
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_NAME = re.compile(r"([A-Za-z_]\w*(?:\.[^\s:\"]*)?):")
_BARE = re.compile(r"\S+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PLAIN = re.compile(r'[^\s"]+')
"""A value that needs no quotes."""


class Word(msgspec.Struct, frozen=True):
    """One word of a filter: a field with a value, or free text if `name` is None."""

    name: str | None
    value: str
    like: bool
    """Whether the value is only a part (`~`)."""


class FieldHelp(msgspec.Struct, frozen=True):
    """What a field of the language means, for documents and completion."""

    name: str
    meaning: str
    example: str


FIELDS = (
    FieldHelp("queue", "the queue", "queue:tag"),
    FieldHelp("state", "queued, running, done, failed or cancelled", "state:failed"),
    FieldHelp("reason", "why it failed or was cancelled: raised, timed-out, poison, gave-up, …", "reason:poison"),
    FieldHelp("error", "a part of the error", 'error:"CUDA out of memory"'),
    FieldHelp(
        "cause",
        "a whole line of the error; * is a number, an id or a path in quotes",
        'cause:"ValueError: song * is cut"',
    ),
    FieldHelp("tags", "a tag; several words ask for all of them", "tags:nightly"),
    FieldHelp("since", "created at most so long ago: 90s, 10m, 1.5h, 2d, 1w", "since:1h"),
    FieldHelp("until", "created at least so long ago", "until:1d"),
    FieldHelp("older", "finished at least so long ago", "older:7d"),
    FieldHelp("worker", "a worker that has or had the job", "worker:tag:0"),
    FieldHelp("node", "the node that has or had the job", "node:studio"),
    FieldHelp("payload.", "a value in the payload, by its keys", "payload.path:~flac"),
    FieldHelp("label", "the label", "label:~summer"),
    FieldHelp("id", "the id, or its end", "id:2e3f4a5b"),
    FieldHelp("key", "the unique key", "key:a.flac"),
    FieldHelp("flow", "the id of the flow", "flow:0199c3b1e2f04c7d8a9b0c1d2e3f4a5b"),
    FieldHelp("share", "the share", "share:customer-7"),
    FieldHelp("sequence", "the sequence", "sequence:album-3"),
    FieldHelp("item", "the item's key in the application's tables", "item:~album"),
)
_NAMES = tuple(each.name for each in FIELDS)
_ALIASES = {"tag": "tags", "text": "text"}
_WORKER = "worker:"
_ALWAYS_PART = ("error", "text", "id")
_MATCHED = ("label", "id", "key", "share", "sequence", "item", "error", "cause", "text", "worker", "node")


def parse(text: str) -> JobFilter:
    """Returns the filter that a text describes. Raises ConfigurationError, which names the word and the remedy."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigurationError(f"the filter has {len(text)} characters; the most is {MOST_CHARACTERS}")
    given: dict[str, Any] = {}
    matches: list[JobMatch] = []
    for number, word in enumerate(_words(text)):
        if number == MOST_WORDS:
            raise ConfigurationError(f"the filter has more than {MOST_WORDS} words")
        if word.name is None:
            matches.append(JobMatch("text", word.value, "part"))
        elif word.name == "tags" and "tag" in given:
            matches.append(JobMatch("tag", _exact(word)))
        elif word.name in _SINGLE:
            field, of = _SINGLE[word.name]
            if field in given:
                raise ConfigurationError(f"the filter gives {word.name} twice; a job has only one {word.name}")
            given[field] = of(word)
        else:
            matches.append(_match(word))
    return JobFilter(**given, matches=tuple(dict.fromkeys(matches)))


def _words(text: str) -> Iterator[Word]:
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        name: str | None = None
        like = False
        found = _NAME.match(text, at)
        if found:
            name, at = _known(found.group(1)), found.end()
            if text[at : at + 1] == "~":
                like, at = True, at + 1
        value, at = _value(text, at)
        if not value:
            where = "" if name is None else f" for {name}"
            raise ConfigurationError(f"the filter has no value{where}; write {name or 'text'}:VALUE without a space")
        yield Word(name, value, like)


def _value(text: str, at: int) -> tuple[str, int]:
    """Returns the value that begins at a position, and where it ends."""
    if text[at : at + 1] == '"':
        found = _QUOTED.match(text, at)
        if found is None:
            raise ConfigurationError(f"the filter has no closing quote after {text[at : at + 40]}")
        return re.sub(r'\\(["\\])', r"\1", found.group(1)), found.end()
    found = _BARE.match(text, at)
    return ("", at) if found is None else (found.group(), found.end())


def _known(name: str) -> str:
    """Returns the name of a field in its usual form. Raises ConfigurationError if there is none."""
    lower = name.lower()
    if lower.startswith(PAYLOAD):
        steps = name[len(PAYLOAD) :].split(".")
        if not all(steps):
            raise ConfigurationError(f"the filter has {name}: without a key; write payload.KEY:VALUE")
        if len(steps) > MOST_STEPS:
            raise ConfigurationError(f"the filter has a path of {len(steps)} keys; the most is {MOST_STEPS}")
        return PAYLOAD + name[len(PAYLOAD) :]
    lower = _ALIASES.get(lower, lower)
    if lower in _SINGLE or lower in _MATCHED:
        return lower
    near = get_close_matches(lower, [each for each in _NAMES if each != PAYLOAD], 1)
    meant = f"; did you mean {near[0]}:?" if near else ""
    fields = ", ".join(each if each != PAYLOAD else "payload.KEY" for each in _NAMES)
    raise ConfigurationError(
        f"a filter of jobs has no field {name!r}{meant} (fields: {fields}). "
        f'A text that contains a colon needs quotes: "{name}: …"'
    )


def _match(word: Word) -> JobMatch:
    name = str(word.name)
    if name == "cause":
        return JobMatch(name, _exact(word))
    value = _worker(word.value) if name == "worker" and not word.like else word.value
    how = "part" if word.like or name in _ALWAYS_PART else "like" if "*" in value else "is"
    return JobMatch(name, value, how)


def _worker(name: str) -> str:
    """Returns `tag:0` and `studio/tag:0` as stored: `worker:tag:0`, with the node in front; of a crew, all workers."""
    node, slash, worker = name.rpartition("/")
    full = worker if worker.startswith(_WORKER) else f"{_WORKER}{worker}"
    return f"{node}{slash}{full}" + ("" if ":" in full[len(_WORKER) :] else ":*")


def _exact(word: Word) -> str:
    if word.like:
        raise ConfigurationError(f"{word.name}:~{word.value}: {word.name} is compared as a whole; leave out the ~")
    return word.value


def _state(word: Word) -> State:
    value = _exact(word).lower()
    try:
        return State(value)
    except ValueError:
        states = ", ".join(State)
        raise ConfigurationError(f"there is no state {word.value!r}; there are: {states}") from None


def _reason(word: Word) -> str:
    return _exact(word).replace("-", " ").lower()


def _duration(word: Word) -> int:
    found = _DURATION.fullmatch(_exact(word))
    length = round(float(found.group(1)) * _UNITS[found.group(2)]) if found else -1
    if not 0 <= length <= LONGEST_MS:
        raise ConfigurationError(
            f"{word.name}:{word.value} is not a length of time of up to 10 years, such as 90s, 10m, 1.5h, 2d or 1w"
        )
    return length


_SINGLE: dict[str, tuple[str, Callable[[Word], Any]]] = {
    "queue": ("queue", _exact),
    "state": ("state", _state),
    "reason": ("reason", _reason),
    "tags": ("tag", _exact),
    "flow": ("flow", _exact),
    "since": ("since_ms", _duration),
    "until": ("until_ms", _duration),
    "older": ("older_ms", _duration),
}
"""Fields that a job has once: the field of JobFilter, and what makes its value."""


def text_of(which: JobFilter) -> str:
    """Returns the filter as text: `parse` makes the same filter of it, without the place and size of the page."""
    words: list[str] = []
    for name, (field, of) in _SINGLE.items():
        value = getattr(which, field)
        if value is not None:
            words.append(f"{name}:{_length(value) if of is _duration else _quoted(str(value))}")
    if which.text:
        words.append(f"text:{_quoted(which.text)}")
    words += [_text_of(match) for match in which.matches]
    return " ".join(words)


def _text_of(match: JobMatch) -> str:
    name = "tags" if match.field == "tag" else match.field
    sign = "~" if match.how == "part" and name not in _ALWAYS_PART else ""
    text = match.text.removeprefix(_WORKER) if name == "worker" and not sign else match.text
    return f"{name}:{sign}{_quoted(text)}"


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value) and not value.startswith("~"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _length(ms: int) -> str:
    for unit in ("w", "d", "h", "m"):
        if ms and ms % _UNITS[unit] == 0:
            return f"{ms // _UNITS[unit]}{unit}"
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms / 1000:.3f}s"


def merged(first: JobFilter, second: JobFilter) -> JobFilter:
    """Returns the filter of the jobs that match both. Raises ConfigurationError if both give the same field."""
    changes: dict[str, Any] = {"matches": first.matches + second.matches}
    for field in (*(field for field, _ in _SINGLE.values()), "text"):
        one, two = getattr(first, field), getattr(second, field)
        if one is not None and two is not None and one != two:
            raise ConfigurationError(f"the filter gives {field} twice: {one} and {two}")
        changes[field] = one if two is None else two
    return msgspec.structs.replace(first, **changes)


def line_pattern(cause: str) -> str:
    """Returns a regular expression, for Python and for PostgreSQL, of texts with this line. `*` stands for an address,
    an id, a number, or a path in quotes; `…` at the end for the rest of the line."""
    begin = cause.removesuffix("…")
    first, *others = _STARS.split(begin)
    made = [r"(^|\n)[ \t]*", re.escape(first)]
    for before, after in pairwise((first, *others)):
        in_quotes = before[-1:] in ("'", '"') and after[:1] == before[-1:]
        made += _CHANGING.replace("{path}", _PATH if in_quotes else ""), re.escape(after)
    return "".join(made) + (r"[ \t\r]*(\n|$)" if begin == cause else "")


def pattern(match: JobMatch) -> str:
    r"""Returns the text of a match as a pattern of LIKE, with the escape `\`."""
    escaped = match.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
    return escaped if match.how == "like" else f"%{escaped}%"
