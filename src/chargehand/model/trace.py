"""Trace context as W3C defines it: the header `traceparent`. Pure."""

import re

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
EXPECTED = "expected the header of W3C Trace Context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def trace_id(traceparent: object) -> str | None:
    """Returns the id of the trace; None if this is not a valid header of version 00."""
    found = _FORM.fullmatch(traceparent) if isinstance(traceparent, str) else None
    return None if found is None else found[1]
