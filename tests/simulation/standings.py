"""Counts starts one by one, as a rate means them; the stores compute the same from running totals."""

from collections.abc import Sequence

from chargehand.model.rates import Rate, Standing


def standing(rate: Rate, starts: Sequence[tuple[int, int]], now_ms: int) -> Standing:
    """Returns the standing from all starts as pairs of time and number, oldest first."""
    recent = [(at_ms, count) for at_ms, count in starts if at_ms > now_ms - rate.period_ms and count]
    started = sum(count for _, count in recent)
    too_many, passed = max(0, started - rate.count), 0
    for at_ms, count in recent:
        passed += count
        if passed > too_many:
            return Standing(rate, started, at_ms)
    return Standing(rate, started, None)
