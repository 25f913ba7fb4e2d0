"""Judges the folder of a store: whether users other than its owner could replace the files in it. Pure."""

from enum import StrEnum

_GROUP, _EVERYBODY = 0o020, 0o002


class Flaw(StrEnum):
    """Why the files in a folder are not safe from other users."""

    EVERYBODY = "everybody"
    """Every user may write to it; a sticky bit does not change that new files can be planted."""
    FOREIGN = "foreign"
    """Another user than this one and root owns it."""
    GROUP = "group"
    """The members of its group may write to it. The store is used nevertheless."""


def flaw_of(mode: int, owner: int, me: int) -> Flaw | None:
    """Returns what is wrong with a folder for this user; None if nothing is. Root may use any user's folder."""
    if mode & _EVERYBODY:
        return Flaw.EVERYBODY
    if owner not in (me, 0) and me != 0:
        return Flaw.FOREIGN
    return Flaw.GROUP if mode & _GROUP else None
