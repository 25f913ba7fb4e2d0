"""The only module that reads the clock. Must not import anything heavy."""

import time

monotonic = time.monotonic
"""Returns monotonic seconds, for durations."""


def now_ms() -> int:
    """Returns milliseconds since 1970, for stored and displayed times."""
    return time.time_ns() // 1_000_000


def local_time(ms: int) -> str:
    """Formats a time in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
