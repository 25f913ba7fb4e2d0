"""The folders of flows and jobs: `flows/<id>`, `jobs/<id>`, and `scratch/<id>.<claim>` for one attempt, below one root.

Nothing here follows a link below the root, or touches anything outside it. A worker loads this module when a job first
uses a folder.

Several stores may have one root. There `owners/<store>` has an empty file for each folder that belongs to the store, so
that nobody removes the folders of another one.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from chargehand import clock
from chargehand.errors import ChargehandError, ConfigurationError, FolderFull, PayloadError

FLOWS, JOBS, SCRATCH = "flows", "jobs", "scratch"
OWNERS = "owners"
BESIDE = "-files"
"""The suffix of the root beside the file of an SQLite store."""
LONGEST_NAME = 255
QUICK, REST = 0.005, 20
"""The size of a folder is measured whenever it is used, if that takes at most QUICK seconds; otherwise after REST times
the duration of the last measurement."""
MOST_MEASURED = 100
_WRONG_PLACE = {
    errno.EACCES, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Errors of the root, which no later attempt avoids; others, such as a full disk, may pass."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")

NOT_SET = (
    "job.folder and job.scratch need a folder that all nodes of the store share: set CHARGEHAND_FILES to its path on "
    "every machine"
)


class JobFiles:
    """Makes and removes the folders of jobs."""

    def __init__(self, root: str | None, limit: int | None = None, owner: str | None = None) -> None:
        """`limit` is the maximum size of each folder in bytes, `owner` the name of the store among those that may have
        the same root. Without a root, every use is refused."""
        self._root, self._limit, self._owner = root, limit, owner
        self._marked: set[tuple[str, str]] = set()
        """The folders that are known to be marked as those of the store."""
        self._measured: dict[Path, tuple[int, float]] = {}
        """The size of folders, and when each is measured again."""

    def folder(self, flow: str | None, job: str) -> Path:
        """Returns the folder of a flow, or of a job without one.

        Raises FolderFull; PayloadError if the id is too long; ChargehandError if this folder cannot be made, and
        ConfigurationError if none can: that ends the worker, and the others only this attempt.
        """
        return self._made(JOBS if flow is None else FLOWS, name_of(job if flow is None else flow))

    def scratch(self, job: str, claim: int) -> Path:
        """Returns the folder of one attempt. Raises the same errors."""
        return self._made(SCRATCH, attempt_name(job, claim))

    def _made(self, kind: str, name: str) -> Path:
        if self._root is None:
            raise ConfigurationError(NOT_SET)
        path = Path(self._root, kind, name)
        try:
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            if not _make(path.parent):
                raise ConfigurationError(
                    f"{path.parent} is not a folder: remove it, or choose another CHARGEHAND_FILES"
                )
            if self._owner is not None and (kind, name) not in self._marked:
                mark(self._root, self._owner, kind, [name])  # before: a worker that dies leaves no folder of nobody
                if len(self._marked) >= MOST_MEASURED:
                    self._marked.clear()
                self._marked.add((kind, name))
            if not _make(path):
                raise ChargehandError(f"{path} is not a folder: remove it, and retry the job")
        except OSError as error:
            why = f"the folder {path} cannot be made: {error.strerror or error}"
            if error.errno in _WRONG_PLACE:
                raise ConfigurationError(f"{why}; CHARGEHAND_FILES names another place") from error
            raise ChargehandError(why) from error
        self._check_size(path)
        return path

    def _check_size(self, path: Path) -> None:
        if self._limit is None:
            return
        now = clock.monotonic()
        measured = self._measured.get(path)
        if measured is None or now >= measured[1] or measured[0] >= self._limit:
            size = size_of(path)
            took = clock.monotonic() - now
            if len(self._measured) >= MOST_MEASURED:
                self._measured.clear()
            measured = self._measured[path] = size, now + (REST * took if took > QUICK else 0)
        if measured[0] >= self._limit:
            raise FolderFull(
                f"the files in {path} have {measured[0]:,} bytes; CHARGEHAND_FILES_LIMIT allows {self._limit:,}: "
                "remove files that are not needed, or raise the limit"
            )

    def remove_scratch(self, job: str, claim: int) -> None:
        """Removes the folder of an attempt, as far as that is possible; the node removes the rest later."""
        if self._root is not None:
            name = attempt_name(job, claim)
            remove_owned(self._root, self._owner, SCRATCH, [name])
            self._marked.discard((SCRATCH, name))


def _make(path: Path) -> bool:
    """Makes a private folder unless the path exists. Returns whether it is a folder, and no link to one."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return stat.S_ISDIR(os.lstat(path).st_mode)


def attempt_name(job: str, claim: int | str) -> str:
    """Returns the name of the folder of an attempt. Jobs that are claimed together have the same claim number."""
    return f"{name_of(job)}.{claim}"


def name_of(owner: str) -> str:
    """Returns the name of a folder for the id of a flow or job: characters with a meaning in paths are escaped.

    Raises PayloadError if it is too long for a file system.
    """
    if _PLAIN.issuperset(owner):
        name = owner
    else:
        data = owner.encode(errors="surrogatepass")
        name = "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in data)
    if not 0 < len(name) <= LONGEST_NAME:
        raise PayloadError(f"the id {owner[:60]!r}… is too long for the name of a folder: choose a shorter id")
    return name


def owner_of(name: str) -> str | None:
    """Returns the id for which a folder has this name; None if none has."""
    data = bytearray()
    rest = name
    try:
        while rest:
            if rest[0] == "%":
                data.append(int(rest[1:3], 16))
                rest = rest[3:]
            else:
                data += rest[0].encode()
                rest = rest[1:]
        owner = data.decode(errors="surrogatepass")
        return owner if name_of(owner) == name else None
    except (ValueError, PayloadError):
        return None


def size_of(path: Path) -> int:
    """Returns the size of all files in a folder, in bytes; links count as themselves."""
    total = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):  # it may be removed meanwhile
                if entry.is_dir(follow_symlinks=False):
                    total += size_of(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def names(root: str, kind: str) -> list[str]:
    """Returns the names of the folders of one kind; none if there is no root."""
    try:
        with _opened(root, kind) as folder:
            return sorted(os.listdir(folder))
    except OSError:
        return []


def remove(root: str, kind: str, which: Sequence[str], report: Callable[[str, OSError], None] | None = None) -> int:
    """Removes folders of one kind with all that is in them. Returns how many are gone; reports what stays."""
    gone = 0
    try:
        with _opened(root, kind) as folder:
            for name in which:
                try:
                    _remove(folder, name)
                    gone += 1
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if report is not None:
                        report(name, error)
    except OSError:  # there are no such folders
        return gone
    return gone


def mark(root: str, owner: str, kind: str, which: Sequence[str]) -> None:
    """Notes that folders belong to a store. Raises OSError."""
    folder = os.path.join(root, OWNERS, owner, kind)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in which:
        os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def marked(root: str, owner: str, kind: str) -> list[str]:
    """Returns the names of the folders of one kind that belong to a store, and of some that are gone."""
    return names(os.path.join(root, OWNERS, owner), kind)


def remove_owned(
    root: str, owner: str | None, kind: str, which: Sequence[str], report: Callable[[str, OSError], None] | None = None
) -> int:
    """Removes folders as `remove` does, and the notes that they belong to a store, if they are gone."""
    gone = remove(root, kind, which, report)
    if owner is not None:
        left = {name for name in which if os.path.lexists(os.path.join(root, kind, name))}
        remove(os.path.join(root, OWNERS, owner), kind, [name for name in which if name not in left])
    return gone


def _remove(folder: int, name: str) -> None:
    if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    try:
        shutil.rmtree(name, dir_fd=folder)  # it never follows a link
    except (RecursionError, OSError) as error:  # before Python 3.13 it has a call and a descriptor for every level
        if isinstance(error, OSError) and error.errno != errno.EMFILE:
            raise
        _flatten(folder, name)
        shutil.rmtree(name, dir_fd=folder)


def _flatten(folder: int, name: str) -> None:
    """Moves all folders inside a folder to its first level."""
    top = os.open(name, _OPEN, dir_fd=folder)
    try:
        pending = _folders(top)
        while pending:
            inner = os.open(pending.pop(), _OPEN, dir_fd=top)
            try:
                for each in _folders(inner):
                    moved = os.urandom(16).hex()
                    os.rename(each, moved, src_dir_fd=inner, dst_dir_fd=top)
                    pending.append(moved)
            finally:
                os.close(inner)
    finally:
        os.close(top)


def _folders(folder: int) -> list[str]:
    """Returns the names of the folders in a folder."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


@contextmanager
def _opened(root: str, kind: str) -> Generator[int]:
    """Yields a descriptor of the folder with all folders of one kind; raises OSError if that is a link."""
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        inner = os.open(kind, _OPEN, dir_fd=top)
    finally:
        os.close(top)
    try:
        yield inner
    finally:
        os.close(inner)
