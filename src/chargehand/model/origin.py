"""Decides from where a request came, and whether sign-ins from there are refused for a while. Pure.

An address is a fact for the operator log and for the limit of bad sign-ins. Nobody is allowed anything because of it.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
UNKNOWN = "unknown"
BAD_SIGN_INS = 10
"""Bad sign-ins of one origin within WINDOW after which its further ones are refused."""
WINDOW = 60.0
MOST_ORIGINS = 1000
"""Origins whose bad sign-ins are counted; the one that failed first is forgotten for a new one."""
_V6_SITE = 64
"""Bits of an IPv6 address that name a site: one client has all addresses with the same."""


def origin_of(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Returns the address that a request came from, or `unknown`.

    `peer` is the address that the server names, `forwarded` the X-Forwarded-For headers, `trusted` the proxies whose
    headers are believed. Servers such as uvicorn replace the address of the peer by one of the header, by settings of
    their own: an address that the header has, too, is known only if proxies are trusted here.
    """
    address = _address(peer or "")
    if address is None:
        return UNKNOWN
    listed = [_address(part) for header in forwarded for part in header.split(",")]
    if not trusted:
        return UNKNOWN if address in listed else str(address)
    for client in reversed(listed):
        if not _among(address, trusted) or client is None:
            break
        address = client
    return str(address)


def _address(text: str) -> Address | None:
    """Returns the address in a text, without port and brackets; IPv4 instead of IPv4-mapped. None if it is none."""
    found = text.strip()
    if found.startswith("["):
        found = found[1:].partition("]")[0]
    elif found.count(":") == 1:
        found = found.partition(":")[0]
    try:
        parsed = ip_address(found)
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address):
        return parsed.ipv4_mapped or IPv6Address(int(parsed))  # without a zone, which is any text
    return parsed


def _among(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Returns addresses and networks. Raises ValueError for what is neither."""
    return tuple(ip_network(text, strict=False) for text in texts)


def group_of(origin: str) -> str:
    """Returns what is counted as one origin: an IPv4 address, an IPv6 site, or `unknown`."""
    address = _address(origin)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), _V6_SITE), strict=False))
    return str(address) if address is not None else UNKNOWN


class Verdict(msgspec.Struct, frozen=True):
    """What follows from a bad sign-in: whether it is written to the operator log, and whether refusals begin."""

    logged: bool
    begins: bool


class BadSignIns:
    """Counts bad sign-ins. Times are seconds of a monotonic clock."""

    def __init__(self, most: int = BAD_SIGN_INS, window: float = WINDOW, origins: int = MOST_ORIGINS) -> None:
        self._most, self._window, self._origins = most, window, origins
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._refusing: dict[str, float] = {}
        """Since when an origin is refused; until a whole window has passed, that is not reported again."""

    def wait(self, origin: str, now: float) -> float:
        """Returns in how many seconds a sign-in of this origin is checked again; 0 if now."""
        found = self._failed.get(group_of(origin))
        if found is None or len(found) < self._most:
            return 0.0
        return max(0.0, found[0] + self._window - now)

    def failed(self, origin: str, now: float) -> Verdict:
        """Counts a bad sign-in."""
        group = group_of(origin)
        if self.wait(origin, now) > 0:
            return Verdict(logged=False, begins=False)
        if group not in self._failed and len(self._failed) >= self._origins:
            forgotten, _ = self._failed.popitem(last=False)
            self._refusing.pop(forgotten, None)
        found = self._failed.setdefault(group, deque(maxlen=self._most))
        found.append(now)
        if self.wait(origin, now) <= 0:
            return Verdict(logged=True, begins=False)
        begins = now - self._refusing.get(group, -self._window) >= self._window
        if begins:
            self._refusing[group] = now
        return Verdict(logged=True, begins=begins)
