"""What became of one file: written, unchanged, or refused with a reason. One file never stops the others."""

import errno
from dataclasses import dataclass
from typing import Literal

from tonearm.tags.plan import Plan

Why = Literal[
    "unreadable",  # not audio of a format we know, or damaged
    "hard-linked",  # it has other names; replacing it would part it from them
    "outside",  # it lies outside the library
    "read-only",  # file or folder may not be written
    "vanished",  # it is no longer there
    "changed",  # somebody changed it meanwhile
    "busy",  # another process is writing it
    "no-space",
    "not-kept",  # something else would have changed: audio, a foreign tag, the owner
    "trouble",  # the file system said no, for a reason of its own
]


@dataclass(frozen=True, slots=True)
class Refused:
    """The file is exactly as it was; why, and in words."""

    why: Why
    reason: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The file already says what it should; it was not touched."""


@dataclass(frozen=True, slots=True)
class Written:
    """The file was replaced; its new size and times, so that a scan does not take it for a stranger's change."""

    plan: Plan
    size: int
    mtime_ns: int
    inode: int


Outcome = Written | Unchanged | Refused


class Refusal(Exception):
    """Inside this package: on its way to become a Refused."""

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
    "vanished": "it is no longer there; scan again",
    "read-only": "allow writing to the file and its folder, or leave it out",
    "no-space": "free some space in its folder: a copy of the file must fit",
    "outside": "a link on its way was changed meanwhile; scan again",
}


def from_error(error: OSError) -> Refused:
    """What the file system said, as a reason."""
    why = BY_NUMBER.get(error.errno or 0, "trouble")
    said = error.strerror or str(error)
    return Refused(why, f"{said}: {REMEDY[why]}" if why in REMEDY else said)
