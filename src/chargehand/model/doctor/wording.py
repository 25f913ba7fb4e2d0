"""Formats numbers and stack traces for findings."""

import re

SIGNALS = {4: "illegal instruction", 6: "abort", 7: "bus error", 8: "arithmetic error", 9: "killed", 11: "segfault"}
"""Common names of fatal signals."""
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+)', re.MULTILINE)
_PACKAGE = re.compile(r"/(?:(?:site|dist)-packages|lib/python3[^/]*)/(?!(?:site|dist)-packages)([^/]+?)(?:/|\.py$)")


def length(seconds: float) -> str:
    """Formats a duration: 42 seconds, 38 minutes, 3.5 hours, 4 days."""
    for unit, size, from_ in (("day", 86_400, 2), ("hour", 3_600, 2), ("minute", 60, 2), ("second", 1, 0)):
        if seconds >= size * from_:
            amount = seconds / size
            text = f"{amount:.1f}".removesuffix(".0") if unit == "hour" and amount < 10 else f"{amount:.0f}"
            return f"{text} {unit}" + ("" if text == "1" else "s")
    return f"{max(seconds, 0):.0f} seconds"


def times(count: int) -> str:
    """Formats a number of times."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def jobs(count: int) -> str:
    """Formats a number of jobs."""
    return f"{count:,} job" + ("" if count == 1 else "s")


def in_future(count: int) -> str:
    """Formats a number of jobs that are not due yet."""
    return f"{jobs(count)} scheduled for later"


def size(count: int) -> str:
    """Formats a number of bytes."""
    for unit, many in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= many:
            return f"{count / many:.1f} {unit}"
    return f"{count} bytes"


def place_in(stacks: str) -> str:
    """Returns where a process crashed, from faulthandler's output: the package, or the file and line."""
    for marked in ("Current thread", "Thread"):
        begins = stacks.find(marked)
        found = _FRAME.search(stacks[begins:].partition("\n\n")[0]) if begins >= 0 else None
        if found is not None:
            package = _PACKAGE.search(found[1])
            return package[1] if package else f"{found[1].rpartition('/')[2]}, line {found[2]}"
    return ""
