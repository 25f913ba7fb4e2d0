"""Says in words why the operating system refuses a file: which file, why, and the remedy."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from chargehand.errors import StoreError
from chargehand.system.private import user

_REMEDIES = {
    errno.EROFS: "Chargehand locks a store even to read it: mount the file system writable, or move the store",
    errno.ENOSPC: "free disk space; nothing that was acknowledged is lost",
    errno.EDQUOT: "free disk space, or raise the quota; nothing that was acknowledged is lost",
    errno.EMFILE: "close files, or raise the limit (ulimit -n)",
    errno.ENFILE: "close files, or raise the limit of the machine (fs.file-max)",
    errno.ELOOP: "remove the symbolic link that refers to itself",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another path",
    errno.EIO: "check the disk (dmesg)",
}


@contextmanager
def refusals(path: Path) -> Generator[None]:
    """Raises StoreError instead of errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise StoreError(described(error, path)) from error


def described(error: OSError, path: Path | None = None) -> str:
    """Returns the error as one sentence: the file (by default `path`), the reason, and the remedy."""
    named = isinstance(error.filename, str | bytes)
    at = Path(os.fsdecode(error.filename)) if named else path
    why = error.strerror or str(error)
    text = why if at is None else f"{at} cannot be used: {why}"
    remedy = _REMEDIES.get(error.errno or 0)
    if isinstance(error, PermissionError) and at is not None:
        remedy = _permission(at)
    return text if remedy is None else f"{text}; {remedy}"


def _permission(path: Path) -> str:
    """Returns to whom the file belongs, or the folder that refuses the access, and the remedy."""
    refusing = next((each for each in reversed(path.absolute().parents) if not os.access(each, os.X_OK)), path)
    owner, me = owner_of(refusing), user(os.geteuid())
    if owner is None:  # it does not exist and may not be created
        refusing = path.parent
        owner = owner_of(refusing)
    what = "it" if refusing == path else f"the folder {refusing}"
    return f"{what} belongs to {owner}, and this process runs as {me}: run it as {owner}, or grant {me} permission"


def owner_of(path: Path) -> str | None:
    """Returns the user to whom a file belongs; None if it does not exist or its folder may not be searched."""
    try:
        return user(os.stat(path).st_uid)
    except OSError:
        return None
