"""Hides values of payloads, results, `meta` and log records by the names of their fields, as crews ask for it. Pure.

Errors and messages are shown without the values that the payload has in these fields. Only what readers are shown is
changed: handlers, and callers who wait for a result, receive everything. Workers load this module if their crew hides
fields, so it imports nothing.
"""

from collections.abc import Collection, Iterator
from typing import Any, cast

HIDDEN = "(hidden)"
"""What is shown instead of a value."""
SHORTEST = 6
"""The minimum length of a value that is hidden within texts; a shorter one may be an ordinary word."""

_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {
    ord(each): rf"\{name}" for each, name in zip('"\\\n\r\t\b\f', '"\\nrtbf', strict=True)
}


def without(value: Any, names: Collection[str]) -> Any:
    """Returns plain data without the values of these fields, at any depth; `names` are in lower case."""
    if isinstance(value, dict):
        fields = cast(dict[Any, Any], value)
        return {
            name: HIDDEN if isinstance(name, str) and name.lower() in names else without(each, names)
            for name, each in fields.items()
        }
    if isinstance(value, list | tuple):
        return [without(each, names) for each in cast(list[Any], value)]
    return value


def text_without(text: str, payload: Any, names: Collection[str]) -> str:
    """Returns a text, such as an error, without the values that these fields have in the payload.

    Values are also hidden where `repr` or JSON has escaped them, and line by line, because tracebacks indent lines.
    """
    values = {
        form
        for value in _values(payload, names, inside=False)
        for each in (value, *map(str.strip, value.splitlines()))
        if len(each) >= SHORTEST
        for form in _forms(each)
    }
    for each in sorted(values, key=len, reverse=True):
        text = text.replace(each, HIDDEN)
    return text


def _forms(value: str) -> tuple[str, ...]:
    """Returns a text as it is, and as `repr`, `ascii` and JSON write it."""
    if value.isascii() and value.isalnum():
        return (value,)
    escaped = value.translate(_JSON_ESCAPES)
    in_ascii = "".join(each if each.isascii() else _utf_16(each) for each in escaped)
    return (value, repr(value)[1:-1], ascii(value)[1:-1], escaped, in_ascii)


def _utf_16(character: str) -> str:
    """Returns a character as JSON writes it in ASCII."""
    digits = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


def _values(value: Any, names: Collection[str], *, inside: bool) -> Iterator[str]:
    """Yields the texts and numbers in these fields."""
    if isinstance(value, dict):
        for name, each in cast(dict[Any, Any], value).items():
            yield from _values(each, names, inside=inside or (isinstance(name, str) and name.lower() in names))
    elif isinstance(value, list | tuple):
        for each in cast(list[Any], value):
            yield from _values(each, names, inside=inside)
    elif inside and isinstance(value, str | int | float):
        yield str(value)
