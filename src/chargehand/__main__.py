"""`python -m chargehand` and the console script: runs the command line, or says which extra it needs."""

import sys

from chargehand.errors import EXIT_CONFIGURATION, EXIT_INTERRUPTED, ConfigurationError
from chargehand.system.linux import require_linux

_NO_EXTRA = """\
chargehand: the command line needs an extra: pip install 'chargehand[cli]'
            (pipx install 'chargehand[cli]', or uvx --from 'chargehand[cli]' chargehand)
"""


def main() -> None:
    """Runs the command line. Exits with status 2 if its packages are not installed."""
    try:
        from chargehand.cli.main import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            _require_linux()
            raise
        sys.stderr.write(_NO_EXTRA)
        sys.exit(EXIT_CONFIGURATION)
    except ConfigurationError as error:  # another package of the extra
        sys.stderr.write(f"chargehand: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    run()


def _require_linux() -> None:
    """Exits with a message on another system than Linux."""
    try:
        require_linux()
    except ConfigurationError as error:
        sys.stderr.write(f"chargehand: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
