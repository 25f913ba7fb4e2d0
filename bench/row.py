"""One measured figure beside its limit and its goal, and the register of the functions that measure them."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured. `limit` was measured in the same run by bare means; None where there is none."""

    name: str
    value: float
    unit: str
    limit: float | None
    goal: float
    more_is_better: bool = False
    note: str = ""
    """What limits it; shown only if the goal is missed."""

    @property
    def meets(self) -> bool:
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal

    @property
    def ratio(self) -> float | None:
        """The value against the limit; None where that says nothing."""
        return self.value / self.limit if self.limit else None

    def as_json(self) -> dict[str, Any]:
        """What `latest.json` keeps of it."""
        plain: dict[str, Any] = {
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "limit": None if self.limit is None else rounded(self.limit),
            "goal": rounded(self.goal),
            "meets": self.meets,
        }
        return plain if self.meets or not self.note else {**plain, "note": self.note}


Measure = Callable[[], Iterable[Row]]
register: dict[Measure, tuple[str, ...]] = {}
"""Who measures which rows, in the order in which they are to be run."""


def measures(*names: str) -> Callable[[Measure], Measure]:
    """Enter a function into the register: it gives exactly the rows of these names."""

    def enter(measure: Measure) -> Measure:
        register[measure] = names
        return measure

    return enter


def rounded(value: float) -> float:
    """Three figures are more than two runs agree on."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def p99(samples: Sequence[float]) -> float:
    """What 99 of 100 stay within."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.99))]
