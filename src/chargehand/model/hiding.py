"""Hides values of payloads, results, `meta` and log records by the names of their fields, as crews ask for it. Pure.

Only what readers are shown is changed: handlers and callers who wait for a result receive everything. Workers load this
module, so it imports nothing.
"""

from collections.abc import Collection
from typing import Any, cast

HIDDEN = "(hidden)"
"""What is shown instead of a value."""


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
