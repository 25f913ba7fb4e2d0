"""Where the tests' application code is, and how another process is told."""

import os
from pathlib import Path

from chargehand.testing import eventually

ROOT = Path(__file__).parent.parent
HANDLERS = ROOT / "tests" / "handlers"
"""Applications and handlers that tests run in other processes."""


def python_path(*folders: Path) -> str:
    """PYTHONPATH for another process: these folders, the tests' handlers, and the package that this process uses."""
    return os.pathsep.join(filter(None, (*map(str, folders), str(HANDLERS), os.environ.get("PYTHONPATH"))))


def token_of(store: Path) -> str:
    """The token that the server of this store has made, or makes."""
    file = Path(f"{store}-token")
    return str(eventually(lambda: file.exists() and file.read_text().strip(), 30, what="a token"))
