"""The only module of the service half that reads the clock or sleeps. Must not import anything heavy."""

import time

monotonic = time.monotonic
"""Returns monotonic seconds, for durations."""
sleep = time.sleep  # noqa: TID251 (here, and nowhere else)
"""Waits."""


def now_ms() -> int:
    """Returns milliseconds since 1970, for stored and displayed times."""
    return time.time_ns() // 1_000_000
