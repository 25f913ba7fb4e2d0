"""Parses the value of one setting, given as text or as a Python value. Raises ValueError if it is invalid."""

import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from chargehand.errors import ConfigurationError
from chargehand.model.job import NAME_LIMIT
from chargehand.settings import plan

SHORTEST_SECRET = 16
"""The minimum length of a key that a person chose (CHARGEHAND_ADMIN_KEY): a shorter one can be guessed."""
LONGEST_SHOWN = 200
"""The maximum length of an invalid value in an error message."""
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_HOST = re.compile(r"[^\s/:*?#@\[\].][^\s/:*?#@\[\]]*|(?=.*:.*:)[0-9A-Fa-f:.]+")
_ORIGIN = re.compile(r"https?://[^\s/,;'\"\\]+")


class Secret:
    """A string that `repr` does not show."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret(not shown)"


def shown(value: Any) -> str:
    """Returns a value as an error message shows it: cut, whatever its size, depth and number of digits."""
    try:
        found = repr(value)
    except (ValueError, RecursionError):  # too many digits, too deep
        found = f"a very large {type(value).__name__}"
    return found if len(found) <= LONGEST_SHOWN else f"{found[:LONGEST_SHOWN]}…"


def text(value: Any) -> str:
    """Parses a non-empty string."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value.strip()


def address(value: Any) -> str:
    """Parses the address of a store, which code may give as a path."""
    return text(os.fspath(cast("os.PathLike[str]", value)) if hasattr(value, "__fspath__") else value)


def name(value: Any) -> str:
    """Parses a printable string without blanks."""
    found = text(value)
    if len(found) > NAME_LIMIT or not found.isprintable() or " " in found:
        raise ValueError
    return found


def boolean(value: Any) -> bool:
    """Parses a boolean, in any case."""
    if isinstance(value, bool):
        return value
    found = _BOOLEANS.get(str(value).strip().lower())
    if found is None:
        raise ValueError
    return found


def whole(least: int, most: int) -> Callable[[Any], int]:
    """Returns a parser of whole numbers within these bounds."""

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,18}\s*", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def seconds(least: float) -> Callable[[Any], float]:
    """Returns a parser of numbers that are not less than this one."""

    def read(value: Any) -> float:
        found = float(value) if isinstance(value, str) else value
        if not isinstance(found, int | float) or isinstance(found, bool) or not math.isfinite(found) or found < least:
            raise ValueError
        return found

    return read


def size(value: Any) -> int | None:
    """Parses a number of bytes."""
    try:
        return plan.size("", int(value) if isinstance(value, str) and value.isdecimal() else value)
    except ConfigurationError:
        raise ValueError from None


def one_of(*words: str) -> Callable[[Any], str]:
    """Returns a parser that accepts one of these words, in any case."""
    known = {word.lower(): word for word in words}

    def read(value: Any) -> str:
        if str(value).strip().lower() not in known:
            raise ValueError
        return known[str(value).strip().lower()]

    return read


def names(value: Any) -> tuple[str, ...]:
    """Parses names from a list or from a string with commas."""
    parts: Any = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError
    return tuple(name(part) for part in cast("Iterable[Any]", parts) if part != "")


def hosts(value: Any) -> tuple[str, ...]:
    """Parses host names and addresses, as a Host header has them without its port, from a list or from a string."""
    found = names(value)
    if not all(_HOST.fullmatch(host) for host in found):
        raise ValueError
    return found


def origins(value: Any) -> tuple[str, ...]:
    """Parses origins from a list or from a string with commas."""
    found = tuple(each.rstrip("/") for each in names(value))
    if not all(_ORIGIN.fullmatch(origin) for origin in found):
        raise ValueError
    return found


def networks(value: Any) -> tuple[str, ...]:
    """Parses addresses and networks from a list or from a string with commas."""
    from chargehand.model.origin import networks as parse  # ipaddress is slow to import, and rarely needed

    found = names(value)
    parse(found)
    return found


def secret(value: Any) -> Secret:
    """Parses a string that is long enough not to be guessed."""
    found = text(value)
    if len(found) < SHORTEST_SECRET or not found.isascii() or not found.isprintable() or " " in found:
        raise ValueError
    return Secret(found)
