"""Opens the files beside a store for this user alone: mode 0600, no links, and no file that another user has planted.

Root may use any user's files. What is refused is refused with StoreError, in words.
"""

import errno
import os
import pwd
import socket
import stat
import struct
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from chargehand.errors import StoreError
from chargehand.model.folder import Flaw, flaw_of

PRIVATE = 0o600
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISLNK, "symbolic link"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISFIFO, "pipe"),
)


def user(uid: int) -> str:
    """Returns the name of a user, or the number if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def kind_of(mode: int) -> str:
    """Returns the type of a file in words."""
    return next((word for test, word in _KINDS if test(mode)), "device or socket")


# the folder


def check_folder(folder: Path) -> None:
    """Raises StoreError for a folder in which other users can replace files; a missing folder is no error."""
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        return
    match flaw_of(found.st_mode, found.st_uid, os.geteuid()):
        case Flaw.EVERYBODY:
            shared = found.st_mode & stat.S_ISVTX  # such as /tmp
            raise StoreError(
                f"every user may write to the folder {folder}, and so could replace the store: "
                + (
                    f"make a folder in it for the store (mkdir -m 700 {folder}/NAME)"
                    if shared
                    else f"chmod o-w {folder}"
                )
            )
        case Flaw.FOREIGN:
            owner, me = user(found.st_uid), user(os.geteuid())
            raise StoreError(
                f"the folder {folder} belongs to {owner}, who could replace the store, and this process runs as {me}: "
                f"use a folder of {me}, or run it as {owner}"
            )
        case Flaw.GROUP | None:
            return


# files


def open_file(path: Path, flags: int) -> int:
    """Returns a descriptor of a file beside the store; with O_CREAT it is made with mode 0600.

    Raises StoreError for a link, for anything but a file, and for a file of another user.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, PRIVATE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            _check(path, os.lstat(path))
        raise
    try:
        _tighten(descriptor, _check(path, os.fstat(descriptor)))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_file(path: Path) -> tuple[bytes, os.stat_result]:
    """Returns the content of a file beside the store, and its attributes. Raises as `open_file` does."""
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read(), os.fstat(file.fileno())


def secure(paths: Iterable[Path]) -> list[Path]:
    """Makes the files that exist private, without opening them. Returns those that other users could open before.

    A file is not opened for it, because closing a descriptor would drop the locks of this process on the file.
    Raises StoreError as `open_file` does.
    """
    open_before: list[Path] = []
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if _tighten(descriptor, _check(path, os.fstat(descriptor))):
                open_before.append(path)
        finally:
            os.close(descriptor)
    return open_before


def check_files(paths: Iterable[Path]) -> None:
    """Raises StoreError for the first of the files that `open_file` would refuse. Changes nothing."""
    for path in paths:
        with suppress(FileNotFoundError):
            _check(path, os.lstat(path))


def _check(path: Path, found: os.stat_result) -> os.stat_result:
    """Raises StoreError unless it is a plain file with one name, of this user or root; to root, of any user."""
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is a {kind_of(found.st_mode)}, not a file: Chargehand does not use it; remove it")
    if found.st_nlink > 1:
        raise StoreError(
            f"{path} is a hard link, one of {found.st_nlink} names of the same file: Chargehand does not use it; "
            "remove the other names, or put a copy in its place"
        )
    me = os.geteuid()
    if found.st_uid not in (me, 0) and me != 0:
        raise StoreError(
            f"{path} belongs to {user(found.st_uid)}, and this process runs as {user(me)}: remove it, or run the "
            f"process as {user(found.st_uid)}"
        )
    return found


def _tighten(descriptor: int, found: os.stat_result) -> bool:
    """Takes the permissions of others from an open file. Returns whether there were any to take."""
    if not found.st_mode & 0o7177 or os.geteuid() not in (0, found.st_uid):
        return False
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", found.st_mode & PRIVATE)
    except OSError:  # a file system without permissions, or a read-only one
        return False
    return True


# the socket


@contextmanager
def socket_address(path: Path) -> Generator[str]:
    """Yields an address of the socket at this path for `connect`, which would follow a link. Raises OSError."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def peer_of(sock: socket.socket) -> int:
    """Returns the user of the process at the other end of a Unix socket, as the kernel knows it."""
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid


def may_serve(uid: int, store: Path) -> bool:
    """Returns whether a node of this user may serve this process: its own, root, or to root the store's owner."""
    me = os.geteuid()
    if uid in (me, 0):
        return True
    try:
        return me == 0 and os.lstat(store).st_uid == uid
    except FileNotFoundError:
        return False


def may_call(uid: int) -> bool:
    """Returns whether a node of this process may serve a caller of this user."""
    return uid in (os.geteuid(), 0)
