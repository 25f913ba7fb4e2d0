"""One measured value with its limit and its goal, and the registry of the measuring functions."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement. `limit` was measured in the same run with minimal means; None if there is none."""

    name: str
    value: float | None
    """None: it could not be measured, and the note says why."""
    unit: str
    limit: float | None
    goal: float | None
    """None: the value is only reported."""
    more_is_better: bool = False
    note: str = ""
    """The bottleneck; shown only if the goal is missed, or if there is none."""

    @property
    def meets(self) -> bool | None:
        """Returns whether the goal is met; None if there is none."""
        if self.goal is None:
            return None
        if self.value is None:
            return False
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal

    @property
    def ratio(self) -> float | None:
        """Returns the value divided by the limit, or None."""
        return self.value / self.limit if self.limit and self.value is not None else None

    def as_json(self) -> dict[str, Any]:
        """Returns the entry for `latest.json`."""
        plain: dict[str, Any] = {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            "limit": _rounded(self.limit),
            "goal": _rounded(self.goal),
            "meets": self.meets,
        }
        return plain if self.meets or not self.note else {**plain, "note": self.note}


Measure = Callable[[], Iterable[Row]]
register: dict[Measure, tuple[str, ...]] = {}
"""Measuring functions with the names of their rows, in the order of execution."""


def measures(*names: str) -> Callable[[Measure], Measure]:
    """Registers a function that returns exactly the rows with these names."""

    def enter(measure: Measure) -> Measure:
        register[measure] = names
        return measure

    return enter


def rounded(value: float) -> float:
    """Rounds to three digits: repeated runs agree on fewer."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def p50(samples: Sequence[float]) -> float:
    """Returns the median."""
    return statistics.median(samples)


def p99(samples: Sequence[float]) -> float:
    """Returns the 99th percentile."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.99))]
