"""A file in a library: opened so that nobody can lead us out of it, and replaced whole or not at all."""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal

from tonearm.tags.outcome import Refusal

TEMPORARY = re.compile(r"\.tonearm-[0-9a-f]{16}\.part")
"""What our temporary files are called: hidden, not audio by name, and nobody else's."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class Place:
    """An open file, the open folder it stands in, and what it looked like when it was opened."""

    folder: int
    name: str
    file: BinaryIO
    seen: os.stat_result

    def unchanged(self) -> bool:
        """Whether the same file still stands there, as we read it."""
        now = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return _marks(now) == _marks(self.seen)


@contextmanager
def opened_inside(root: str, path: str) -> Generator[Place]:
    """The file that the path leads to, links followed, if it lies in the root; Refusal or OSError otherwise.

    From the root on every folder is opened by its name in the one before, and no link is followed:
    who swaps a folder for a link meanwhile gets an error instead of a file elsewhere.
    """
    real_root = os.path.realpath(root, strict=True)
    real = os.path.realpath(os.path.join(real_root, path), strict=True)
    if os.path.commonpath((real_root, real)) != real_root or real == real_root:
        raise Refusal("outside", f"it leads to {real}, outside {real_root}")
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
    """The open file to read from; Refusal if it is a folder, a pipe or a device."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise Refusal("unreadable", "it is not a regular file")


def may_replace(place: Place, *, hard_links: bool) -> None:
    """Refusal if the file has other names, or somebody made it read-only."""
    if place.seen.st_nlink > 1 and not hard_links:
        others = place.seen.st_nlink - 1
        raise Refusal("hard-linked", f"it has {others} more name{'s' * (others > 1)}, which would keep the old content")
    writable = os.access(place.name, os.W_OK, dir_fd=place.folder, effective_ids=True)
    if not place.seen.st_mode & 0o222 or not writable:
        raise Refusal("read-only", "the file is read-only; allow writing, or leave it out")
    if not os.fstat(place.folder).st_mode & 0o222:  # root could, and would be told so by nobody
        raise Refusal("read-only", "its folder is read-only; allow writing, or leave it out")


def replace(
    place: Place, fill: Callable[[BinaryIO], None], check: Callable[[BinaryIO], None], *, keep_mtime: bool
) -> None:
    """Put a new file in the old one's place: filled, checked, dressed like the old, and on disk before it counts."""
    if lock(place.file.fileno()) == "busy":
        raise Refusal("busy", "another process is writing it")
    name, out = _temporary(place.folder)
    try:
        with out:
            fill(out)
            out.flush()
            _dress(out.fileno(), place, keep_mtime=keep_mtime)
            with regular(os.open(name, FILE, dir_fd=place.folder)) as again:
                check(again)
            os.fsync(out.fileno())
            if not place.unchanged():
                raise Refusal("changed", "somebody changed it meanwhile; it is left to them")
            os.rename(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place.folder)
        raise
    os.fsync(place.folder)


def lock(descriptor: int) -> Literal["held", "busy", "unknown"]:
    """Try to get the file's lock; unknown where the file system has none."""
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
    """A new file in the folder, locked for as long as it is open: that is how a sweeper knows that somebody writes."""
    while True:
        name = f".tonearm-{secrets.token_hex(8)}.part"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        # between the two calls a sweeper may have taken it for a leftover: then once more
        if lock(descriptor) != "busy" and os.fstat(descriptor).st_nlink:
            return name, open(descriptor, "w+b")
        os.close(descriptor)


def _dress(descriptor: int, place: Place, *, keep_mtime: bool) -> None:
    """Owner, permissions and attributes as on the old file; Refusal if they cannot be kept."""
    seen = place.seen
    fresh = os.fstat(descriptor)
    if (fresh.st_uid, fresh.st_gid) != (seen.st_uid, seen.st_gid):
        try:
            os.fchown(descriptor, seen.st_uid, seen.st_gid)
        except PermissionError:
            reason = f"it belongs to {seen.st_uid}:{seen.st_gid}, and would belong to {fresh.st_uid}:{fresh.st_gid}"
            raise Refusal("not-kept", f"{reason}; run as its owner") from None
    os.fchmod(descriptor, stat.S_IMODE(seen.st_mode))
    for name, value in _attributes(place.file.fileno()):
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            if not name.startswith("security."):  # those the system's policy sets by itself
                raise Refusal("not-kept", f"its attribute {name} cannot be kept: {error.strerror}") from error
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
