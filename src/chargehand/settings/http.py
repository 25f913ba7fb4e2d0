"""The limits of the HTTP interface, as settings."""

from typing import Annotated

import msgspec

Bytes = Annotated[int, msgspec.Meta(ge=0)]
"""A size: a number of bytes, or a text such as '8 MiB'."""


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What one HTTP client may send, and how long it may take. Times are seconds, sizes are bytes."""

    body_size: Bytes = 8 << 20
    """The largest body of a request that creates jobs."""
    small_body_size: Bytes = 16 << 10
    """The largest body of any other request; routes that are open to all accept no larger one."""
    header_size: Bytes = 32 << 10
    """The largest request line and headers together."""
    body_time: float = 30.0
    """The time limit for the body of a request, from its headers to its end."""
    header_time: float = 10.0
    """`chargehand serve`: the time limit for the headers, from the connection or the first byte to their end."""
    send_time: float = 30.0
    """`chargehand serve`: a client must read `send_size` bytes, or all that wait for it, in this time."""
    send_size: Bytes = 64 << 10
    """`chargehand serve`: what a client must read in `send_time`."""
    idle_time: float = 5.0
    """`chargehand serve`: how long a connection is kept open between two requests."""
    connections: int = 500
    """`chargehand serve`: the most connections; further ones replace those that have waited longest for a request."""
