"""A digest of a file's audio that no change of tags changes."""

import os
from pathlib import Path

from tonearm.tags import formats
from tonearm.tags.kinds import kind_of
from tonearm.tags.place import FILE, regular


def digest(path: str | Path) -> bytes | None:
    """The digest; None for a file that cannot be told apart into audio and tags."""
    try:
        with regular(os.open(path, FILE & ~os.O_NOFOLLOW)) as file:
            return formats.FAMILIES[kind := kind_of(file)].audio(file, kind)
    except Exception:  # mutagen raises many kinds of errors on damaged files: they then count as changed
        return None
