"""Names the extra of the package that a missing module belongs to."""

from collections.abc import Generator
from contextlib import contextmanager

from chargehand.errors import ConfigurationError


@contextmanager
def required(extra: str, what: str) -> Generator[None]:
    """Raises ConfigurationError, which names the extra that `what` needs, if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"{error}: {what} needs an extra: pip install 'chargehand[{extra}]'") from None
