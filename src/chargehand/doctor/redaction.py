"""Removes from a bug report what handlers and their callers wrote, and whatever looks like a secret. Pure.

Texts of errors, output of workers, names of items, progress and reasons in words are replaced by their length: they may
quote payloads. Codes, numbers, stacks (files, lines and functions) and the node's own messages stay.
"""

import re
from typing import Any

from chargehand import log

HIDDEN = "***"
SHORTEST = 6
"""The minimum length of a value that is replaced everywhere; a shorter one may be an ordinary word."""
SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|DSN|AUTH|COOKIE|PRIVATE", re.IGNORECASE)
"""Names of environment variables with values that are secret."""
FREE = frozenset(
    {"text", "error", "reason", "reasons", "lines", "frames", "progress", "label", "item", "payload", "result"}
    | {"metadata", "breakers", "blind", "follows"}
)
"""Names of fields with text of a handler, or with text that may quote it."""
JOBS = frozenset({"job", "current_job", "batch_jobs", "about"})
"""Names of fields with ids of jobs: that of an item contains the name of the item."""
_CODE = re.compile(r"[a-z][a-z_-]*")
_EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception)(?=[:(]|$)")
_ITEM = re.compile(r"(?<=[^/])/.*", re.DOTALL)
_QUOTED = re.compile(r" (?:error|why|reason|text|line|label|item|detail|what)=.*", re.DOTALL)
"""From the first field of a log line that may quote a handler to its end."""
_ALWAYS_QUOTED = re.compile(r" (?:error|label|item)=.*", re.DOTALL)
_NAMES = "password|passwd|secret|token|api_?key|credential"
_PATTERNS = (
    (re.compile(r"(?i)\b(postgres(?:ql)?://[^\s/:@]*):\S*@"), rf"\1:{HIDDEN}@"),  # it may contain / and @, too
    (re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)@"), rf"\1:{HIDDEN}@"),  # passwords in addresses
    (re.compile(r"\bch_[\w-]{6,}"), HIDDEN),  # keys of Chargehand
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]+\.[\w-]*"), HIDDEN),  # JSON web tokens
    (re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|$)", re.DOTALL), HIDDEN),
    (re.compile(rf"(?i)\b([\w-]*(?:{_NAMES})[\w-]*[\"']?\s*[=:]\s*[\"']?)[^\s\"'&]{{3,}}"), rf"\1{HIDDEN}"),
)


class Hiding:
    """Replaces secrets in nested data: values of environment variables that are secret, and what looks like one."""

    def __init__(self, environment: dict[str, str]) -> None:
        values = {value for name, value in environment.items() if SECRET_NAME.search(name) and len(value) >= SHORTEST}
        self._secrets = sorted(values, key=len, reverse=True)

    def __call__(self, value: Any) -> Any:
        """Returns the value with all secrets replaced."""
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, HIDDEN)
                for pattern, instead in _PATTERNS:
                    value = pattern.sub(instead, value)
                return value
            case dict():
                return {self(name): self(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case list() | tuple():
                return [self(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value


def without_words(value: Any) -> Any:
    """Returns nested data without the words of handlers and their callers."""
    match value:
        case dict():
            return {name: _field(name, each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [without_words(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def _field(name: Any, value: Any) -> Any:
    if name == "reason" and isinstance(value, str) and _CODE.fullmatch(value):
        return value
    if name in FREE:
        return _counted(value)
    return _shortened(value) if name in JOBS else without_words(value)


def _counted(value: Any) -> Any:
    """Replaces every text by its length, and by the class of the exception if it begins with one."""
    match value:
        case str():
            exception = _EXCEPTION.match(value)
            return f"{exception[0] + ' ' if exception else ''}({len(value)} characters)"
        case dict():
            return {name: _counted(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [_counted(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def _shortened(value: Any) -> Any:
    """Returns ids of jobs without the names of items."""
    match value:
        case str():
            return _ITEM.sub("/…", value) if not value.startswith("/") else value
        case list() | tuple():
            return [_shortened(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return without_words(value)


def log_line(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns a line of the node's log without what a worker wrote, and without the reasons that may quote it."""
    text = str(entry.get("text", ""))
    about_work = entry.get("component") or entry.get("job") or " crew=" in text
    output = log.Event.WORKER_OUTPUT
    if entry.get("event", output if entry.get("component") else None) == output:  # an older node names no event
        text = _counted(text)
    else:
        text = (_QUOTED if about_work else _ALWAYS_QUOTED).sub(f" {HIDDEN}", text)
    return {**entry, "text": text, "job": _shortened(entry.get("job"))}
