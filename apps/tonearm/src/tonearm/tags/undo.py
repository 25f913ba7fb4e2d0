"""Removes the whole namespace from a file, and exactly the added values from standard tags.

The added values are recorded in the file itself (`tonearm:added`), so undo works after a move, on another machine and
without a database. Later changes by users stay.
"""

from dataclasses import replace
from pathlib import Path

from tonearm.tags.outcome import Outcome
from tonearm.tags.plan import to_undo
from tonearm.tags.settings import Settings
from tonearm.tags.write import rewrite


def undo(path: str | Path, settings: Settings | None = None, *, root: str | Path) -> Outcome:
    """Restores the tags from before the first write; leaves a file unchanged that was never written."""
    return rewrite(path, to_undo, replace(settings or Settings(), onto=()), root=root)
