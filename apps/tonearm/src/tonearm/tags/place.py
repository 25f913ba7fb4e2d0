"""Opens a file without leaving the library, and replaces it atomically."""

import errno
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal

from tonearm.tags.outcome import Refusal

TEMPORARY = re.compile(r"\.tonearm-[0-9a-f]{16}\.part")
"""Prefix and suffix of temporary files: hidden, without an audio extension, and unique to Tonearm."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class Place:
    """An open file, its open folder, and its status when it was opened."""

    folder: int
    name: str
    file: BinaryIO
    seen: os.stat_result

    def unchanged(self) -> bool:
        """Returns whether the path still refers to the same, unchanged file."""
        now = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return _marks(now) == _marks(self.seen)


@contextmanager
def opened_inside(root: str, path: str) -> Generator[Place]:
    """Opens the file at a path, following links, if it is inside the root. Raises Refusal or OSError.

    From the root on, every folder is opened relative to its parent without following links. If another process replaces
    a folder by a link in the meantime, this fails instead of opening a file elsewhere.
    """
    real_root = os.path.realpath(root, strict=True)
    real = os.path.realpath(os.path.join(real_root, path), strict=True)
    if os.path.commonpath((real_root, real)) != real_root or real == real_root:
        raise Refusal("outside", f"the path leads to {real}, outside {real_root}")
    *folders, name = os.path.relpath(real, real_root).split(os.sep)
    folder = os.open(real_root, FOLDER)
    try:
        for step in folders:
            inner = os.open(step, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        with regular(os.open(name, FILE, dir_fd=folder)) as file:
            yield Place(folder, name, file, os.fstat(file.fileno()))
    finally:
        os.close(folder)


def regular(descriptor: int) -> BinaryIO:
    """Opens the file for reading. Raises Refusal for a folder, a pipe or a device."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise Refusal("unreadable", "not a regular file")


def may_replace(place: Place, *, hard_links: bool) -> None:
    """Raises Refusal if the file has other hard links or is read-only."""
    if place.seen.st_nlink > 1 and not hard_links:
        others = place.seen.st_nlink - 1
        raise Refusal(
            "hard-linked", f"the file has {others} more hard link{'s' * (others > 1)}, which would keep the old content"
        )
    writable = os.access(place.name, os.W_OK, dir_fd=place.folder, effective_ids=True)
    if not place.seen.st_mode & 0o222 or not writable:
        raise Refusal("read-only", "the file is read-only; allow writing, or exclude it")
    if not os.fstat(place.folder).st_mode & 0o222:  # root could write it, against the intention of the owner
        raise Refusal("read-only", "the folder is read-only; allow writing, or exclude it")


def replace(
    place: Place, fill: Callable[[BinaryIO], None], check: Callable[[BinaryIO], None], *, keep_mtime: bool
) -> None:
    """Replaces a file: writes the new content, verifies it, copies owner and permissions, syncs, and renames."""
    if lock(place.file.fileno()) == "busy":
        raise Refusal("busy", "another process is writing the file")
    name, out = _temporary(place.folder)
    try:
        with out:
            _prepare(place, out, fill, keep_mtime=keep_mtime)
            with regular(os.open(name, FILE, dir_fd=place.folder)) as again:
                check(again)
            os.fsync(out.fileno())
            if not place.unchanged():
                raise Refusal("changed", "another program changed the file in the meantime; it was left unchanged")
            os.rename(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place.folder)
        raise
    os.fsync(place.folder)


def rehearse(
    place: Place, fill: Callable[[BinaryIO], None], check: Callable[[BinaryIO], None], *, keep_mtime: bool
) -> None:
    """Does everything that `replace` does, in a file without a name, and leaves the original as it is."""
    with _nameless(place.folder) as out:
        _prepare(place, out, fill, keep_mtime=keep_mtime)
        check(out)


def _prepare(place: Place, out: BinaryIO, fill: Callable[[BinaryIO], None], *, keep_mtime: bool) -> None:
    fill(out)
    out.flush()
    _dress(out.fileno(), place, keep_mtime=keep_mtime)


def _nameless(folder: int) -> BinaryIO:
    """Opens a new file without a name in the folder, or elsewhere if its file system does not support that."""
    try:
        return open(os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder), "w+b")
    except OSError as error:
        if error.errno not in NO_NAMELESS:
            raise
        return tempfile.TemporaryFile()


def lock(descriptor: int) -> Literal["held", "busy", "unknown"]:
    """Tries to lock the file; the result is unknown on file systems without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "busy"
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return "unknown"
    return "held"


def _temporary(folder: int) -> tuple[str, BinaryIO]:
    """Creates a new file in the folder, locked while it is open, so that a sweep recognises a live writer."""
    while True:
        name = f".tonearm-{secrets.token_hex(8)}.part"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        # Between the two calls a sweep may have removed the file as a leftover: try again.
        if lock(descriptor) != "busy" and os.fstat(descriptor).st_nlink:
            return name, open(descriptor, "w+b")
        os.close(descriptor)


def _dress(descriptor: int, place: Place, *, keep_mtime: bool) -> None:
    """Copies owner, permissions and attributes of the old file. Raises Refusal if that fails."""
    seen = place.seen
    fresh = os.fstat(descriptor)
    if (fresh.st_uid, fresh.st_gid) != (seen.st_uid, seen.st_gid):
        try:
            os.fchown(descriptor, seen.st_uid, seen.st_gid)
        except PermissionError:
            reason = (
                f"the file belongs to {seen.st_uid}:{seen.st_gid}, and would belong to {fresh.st_uid}:{fresh.st_gid}"
            )
            raise Refusal("not-kept", f"{reason}; run as its owner") from None
    os.fchmod(descriptor, stat.S_IMODE(seen.st_mode))
    for name, value in _attributes(place.file.fileno()):
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            if not name.startswith("security."):  # attributes that the security policy of the system sets itself
                raise Refusal("not-kept", f"cannot keep the attribute {name}: {error.strerror}") from error
    if keep_mtime:
        os.utime(descriptor, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _attributes(descriptor: int) -> list[tuple[str, bytes]]:
    try:
        return [(name, os.getxattr(descriptor, name)) for name in os.listxattr(descriptor)]
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            return []
        raise


def _marks(seen: os.stat_result) -> tuple[int, ...]:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
