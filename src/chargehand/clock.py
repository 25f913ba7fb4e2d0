"""The only reader of time. Nothing else may ask the operating system what time it is, or sleep."""

import time

monotonic = time.monotonic
"""Seconds that only go forward: for every duration inside one process."""

sleep = time.sleep  # noqa: TID251 (here, and nowhere else)
"""For loops that must wait for something which cannot be waited for; never to order two events."""


def now_ms() -> int:
    """Wall-clock time in whole milliseconds since 1970: for what is stored and shown."""
    return time.time_ns() // 1_000_000


def local_time(ms: int) -> str:
    """A moment as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
