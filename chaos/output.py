"""What all runs print, and where they work."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHOWN = 20
"""How many violations of a kind are printed."""


@contextmanager
def folder(name: str) -> Generator[Path]:
    """Creates a new directory; its content is kept only if KEEP names a destination."""
    with tempfile.TemporaryDirectory(prefix=f"chaos-{name}-") as path:
        try:
            yield Path(path)
        finally:
            if os.environ.get("KEEP"):
                shutil.copytree(path, Path(os.environ["KEEP"]) / name, ignore=shutil.ignore_patterns("*-sock"))


def table(rows: Mapping[str, Any]) -> None:
    """Prints the figures of a run."""
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        print(f"  {name:{width}}  {value:>8,}" if isinstance(value, int) else f"  {name:{width}}  {value}")


def violations(kind: str, lines: Iterable[str]) -> None:
    """Prints the first violations of a kind."""
    found = list(lines)
    for line in found[:SHOWN]:
        print(f"{kind.upper()}: {line[:500]}")
    if len(found) > SHOWN:
        print(f"{kind.upper()}: and {len(found) - SHOWN} more")
