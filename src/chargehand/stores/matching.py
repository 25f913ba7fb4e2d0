"""Conditions of the filter language as SQL. The stores give their columns; it runs no statement and knows no engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chargehand.codec import MARK
from chargehand.model.job_query import line_pattern, pattern
from chargehand.model.records import PAYLOAD, JobMatch
from chargehand.stores.rows import clean, readable

Condition = tuple[str, Sequence[Any]]
"""A condition with question marks, and its bindings."""
SEARCHED = ("id", "label", "key", "item", "error")
"""The fields in which free text is searched."""
_ESCAPED = ("label", "key", "item", "share", "sequence")
"""The fields with names of the application, which may contain escapes; they are compared as people see them."""


class Matching:
    """Makes conditions for one engine."""

    def __init__(
        self, columns: Mapping[str, str], like: str, regular: str, payload: Callable[[Sequence[str]], Condition],
        tagged: str, attempted: str,
    ) -> None:  # fmt: skip
        """`columns`: the SQL of each field; `like`: the operator that ignores case; `regular`: that of
        regular expressions; `payload`: the SQL of a value in
        the payload, as text; `tagged`: the condition that a job has a tag; `attempted`: the condition that an attempt
        of the job had a worker, with `{}` in place of what is asked of the columns node and worker."""
        self._columns, self._like, self._regular, self._payload = columns, like, regular, payload
        self._attempted = attempted
        self.tagged = tagged
        """The condition that a job has a tag."""

    def condition(self, match: JobMatch) -> Condition:
        """Returns the condition for one match."""
        if match.field == "tag":
            return self.tagged, (clean(match.text),)
        if match.field == "text":
            asked = [self._compared(self._shown(name), match) for name in SEARCHED]
            return f"({' OR '.join(sql for sql, _ in asked)})", [each for _, values in asked for each in values]
        if match.field == "cause":
            return f"{self._columns['error']} {self._regular} ?", (line_pattern(match.text),)
        if match.field in ("worker", "node"):
            return self._held(match)
        if match.field.startswith(PAYLOAD):
            value, bindings = self._payload(match.field[len(PAYLOAD) :].split("."))
            sql, values = self._compared(_readable(value), match)
            return sql, (*bindings, *values)
        return self._compared(self._shown(match.field), match)

    def _shown(self, name: str) -> str:
        column = self._columns[name]
        return _readable(column) if name in _ESCAPED else column

    def _held(self, match: JobMatch) -> Condition:
        """Returns the condition that a worker or node has the job, or that one of its attempts had it."""
        both = match.field == "worker" and "/" in match.text
        node, worker = self._columns["node"], self._columns["worker"]
        own = f"({node} || '/' || {worker})" if both else self._columns[match.field]
        theirs = "(a.node || '/' || a.worker)" if both else f"a.{match.field}"
        one, values = self._compared(own, match)
        two, others = self._compared(theirs, match)
        return f"({one} OR {self._attempted.format(two)})", (*values, *others)

    def _compared(self, value: str, match: JobMatch) -> Condition:
        if match.how == "is":
            return f"{value} = ?", (readable(match.text),)
        return f"{value} {self._like} ? ESCAPE '\\'", (readable(pattern(match)),)


def _readable(column: str) -> str:
    return f"replace({column}, '{MARK}', '\\')"


def joined(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Joins conditions with AND."""
    return " AND ".join(("1 = 1", *(sql for sql, _ in conditions))), [each for _, some in conditions for each in some]
