"""The only module that reads the time or sleeps."""

import time

monotonic = time.monotonic
"""Seconds on a monotonic clock, for durations within one process."""

sleep = time.sleep  # noqa: TID251 (here, and nowhere else)
"""Sleeps; only for loops that poll something that cannot be waited for, never to order two events."""


def now_ms() -> int:
    """Returns the wall-clock time in milliseconds since 1970, for values that are stored or shown."""
    return time.time_ns() // 1_000_000


def local_time(ms: int) -> str:
    """Formats a time as local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))


def hour(ms: int) -> str:
    """Formats a time as local hour and minute, with the date unless it is today's."""
    then, today = time.localtime(ms / 1000), time.localtime()
    same = then[:3] == today[:3]
    return time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", then)


def utc_time(seconds: float) -> str:
    """Formats a time as RFC 3339 in UTC, to the millisecond."""
    whole = int(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1000):03}Z"
