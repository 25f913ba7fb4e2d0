"""Taking everything back: the namespace whole, and of the standard tags exactly what was put there.

What was put there is remembered in the file itself (`tonearm:added`), so that undo works after a move, on another
machine and without a database. What people have changed since then stays.
"""

from dataclasses import replace
from pathlib import Path

from tonearm.tags.outcome import Outcome
from tonearm.tags.plan import to_undo
from tonearm.tags.settings import Settings
from tonearm.tags.write import rewrite


def undo(path: str | Path, settings: Settings | None = None, *, root: str | Path) -> Outcome:
    """Make the file say what it said before Tonearm wrote into it; unchanged if it never did."""
    return rewrite(path, to_undo, replace(settings or Settings(), onto=()), root=root)
