"""Makes the clock of a Python process wrong by the seconds in the file that CHAOS_CLOCK names; they may change.

Python imports this module at its start if its folder is in PYTHONPATH. The monotonic clock stays right.
"""

import os
import time

_FILE = os.environ["CHAOS_CLOCK"]
_READ_EVERY = 0.5
_true_ns = time.time_ns
_read_at = 0.0
_off_ns = 0


def time_ns() -> int:
    """Returns the wrong time in nanoseconds."""
    global _read_at, _off_ns
    now = time.monotonic()
    if now >= _read_at:
        _read_at = now + _READ_EVERY
        with open(_FILE) as file:
            _off_ns = int(file.read() or 0) * 10**9
    return _true_ns() + _off_ns


time.time_ns = time_ns
time.time = lambda: time_ns() / 1e9  # noqa: TID251 (it is replaced, not read)
