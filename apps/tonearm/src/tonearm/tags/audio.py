"""Computes a digest of the audio of a file that is independent of its tags."""

import os
from pathlib import Path

from tonearm.tags import formats
from tonearm.tags.kinds import kind_of
from tonearm.tags.place import FILE, regular


def digest(path: str | Path) -> bytes | None:
    """Returns the digest, or None for a file that cannot be separated into audio and tags."""
    try:
        with regular(os.open(path, FILE & ~os.O_NOFOLLOW)) as file:
            return formats.FAMILIES[kind := kind_of(file)].audio(file, kind)
    except Exception:  # mutagen raises many exception types on damaged files; these count as changed
        return None
