"""`python -m adreel.worker`: the workers without the API, as `chargehand work` runs them.

If a node of this machine serves the store already, such as that of an API with embedded workers, this one says so and
waits for its turn.
"""

import os
import sys


def main() -> None:
    """Replaces this process by the workers."""
    os.execv(sys.executable, [sys.executable, "-m", "chargehand", "work", "adreel.node:hand", *sys.argv[1:]])


if __name__ == "__main__":
    main()
