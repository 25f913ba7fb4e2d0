"""The outcome for one file: written, unchanged, or refused with a reason. One file never stops the others."""

import errno
from dataclasses import dataclass
from typing import Literal

from tonearm.tags.plan import Plan

Why = Literal[
    "unreadable",  # not audio of a supported format, or damaged
    "hard-linked",  # the file has other hard links; replacing it would separate it from them
    "outside",  # the file is outside the library
    "read-only",  # no permission to write the file or its folder
    "vanished",  # the file no longer exists
    "changed",  # another program changed the file in the meantime
    "busy",  # another process is writing the file
    "no-space",
    "not-kept",  # something else would have changed: audio, a foreign tag, the owner
    "trouble",  # another error of the file system
]


@dataclass(frozen=True, slots=True)
class Refused:
    """The file was left unchanged, with a reason."""

    why: Why
    reason: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The file is already up to date and was not written."""


@dataclass(frozen=True, slots=True)
class Written:
    """The file was replaced. Contains its new size and times, so that a scan does not treat it as changed."""

    plan: Plan
    size: int
    mtime_ns: int
    inode: int


Outcome = Written | Unchanged | Refused


class Refusal(Exception):
    """Raised inside this package and converted to Refused."""

    def __init__(self, why: Why, reason: str) -> None:
        super().__init__(reason)
        self.refused = Refused(why, reason)


BY_NUMBER: dict[int, Why] = {
    errno.ENOENT: "vanished", errno.ENOTDIR: "vanished", errno.ESTALE: "vanished",
    errno.EACCES: "read-only", errno.EPERM: "read-only", errno.EROFS: "read-only",
    errno.ENOSPC: "no-space", errno.EDQUOT: "no-space", errno.EFBIG: "no-space",
    errno.ELOOP: "outside",
}  # fmt: skip

REMEDY: dict[Why, str] = {
    "vanished": "scan the folder again",
    "read-only": "allow writing to the file and its folder, or exclude it",
    "no-space": "free space in the folder for a copy of the file",
    "outside": "a link in the path changed; scan the folder again",
}


def from_error(error: OSError) -> Refused:
    """Converts an error of the file system to a reason."""
    why = BY_NUMBER.get(error.errno or 0, "trouble")
    said = error.strerror or str(error)
    return Refused(why, f"{said}: {REMEDY[why]}" if why in REMEDY else said)
