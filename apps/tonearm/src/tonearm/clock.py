"""What time it is. Light."""

import time

monotonic = time.monotonic
"""Seconds that only go forward: for durations."""


def now_ms() -> int:
    """Milliseconds since 1970: for what is stored and shown."""
    return time.time_ns() // 1_000_000


def local_time(ms: int) -> str:
    """A moment as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
