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


def hour(ms: int) -> str:
    """A moment as people say it: the hour and minute, with the date if it is not today's."""
    then, today = time.localtime(ms / 1000), time.localtime()
    same = then[:3] == today[:3]
    return time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", then)


def utc_time(seconds: float) -> str:
    """A moment as machines read it (RFC 3339), to the millisecond."""
    whole = int(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1000):03}Z"
