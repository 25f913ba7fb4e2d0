"""Says in words that Chargehand needs Linux, before a function is called that other systems lack."""

import sys

from chargehand.errors import ConfigurationError


def require_linux() -> None:
    """Raises ConfigurationError on another system than Linux."""
    found: str = sys.platform  # a variable: type checkers take a comparison with sys.platform itself for constant
    if found != "linux":
        raise ConfigurationError(
            f"Chargehand needs Linux (pidfds, /proc, file locks), and this system is {found}: use Linux, a container, "
            "or WSL 2. chargehand.client works everywhere"
        )
