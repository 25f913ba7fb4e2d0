"""Facts about the file of an SQLite store: its file system, its kind, and which processes have it open or locked.

Nothing here decides anything. Closing any descriptor of a file drops all locks that this process has on it, so nothing
here opens a database that is in use.
"""

import fcntl
import os
import re
import struct
from pathlib import Path
from typing import Any

from chargehand.model.folder import Flaw, flaw_of
from chargehand.stores.location import Location
from chargehand.system import private

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "ncpfs", "gfs2", "ocfs2", "virtiofs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs"}
)
WRITE_BYTE = 120
"""The byte of SQLite's shared-memory file that a writer locks."""
RESERVED_BYTE, SHARED_BYTE = 0x40000001, 0x40000002
"""The bytes of the database that a writer locks which does not use the shared-memory file, or locks out readers."""
MAGIC = b"SQLite format 3\0"
_WAL_MAGICS = (0x377F0682, 0x377F0683)
DELETED = " (deleted)"
"""What the kernel appends to the name of a deleted file."""
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the kernel writes blanks and backslashes in a path; the rest is not escaped."""
_FLOCK = "@hhqqi4x"
"""The kernel's struct flock: type, whence, start, length, pid."""
_LOCK = re.compile(
    r"^\d+: (?P<kind>FLOCK|POSIX) +\w+ +(?P<how>READ|WRITE) +(?P<pid>-?\d+) +[0-9a-f]+:[0-9a-f]+:(?P<inode>\d+) "
    r"(?P<first>\d+) (?P<last>\d+|EOF)$",
    re.MULTILINE,
)


# the file system and the file


def filesystem(location: Location) -> str:
    """Returns the type of the file system that holds the store, without reading from it; '' if unknown."""
    return filesystem_of(location.path, _mounts())


def _mounts() -> str:
    with open("/proc/self/mountinfo") as lines:
        return lines.read()


def filesystem_of(path: Path, mountinfo: str) -> str:
    """Returns the type of the file system that holds the path, from the text of /proc/self/mountinfo; '' if unknown."""
    best, kind = -1, ""
    target = str(path)
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = point == "/" or target == point or target.startswith(point + "/")
        if inside and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind


def is_network(path: Path) -> str | None:
    """Returns the type of the network file system that the path is on; None if it is on a local one."""
    kind = filesystem_of(path.resolve(), _mounts())
    return kind if kind in NETWORK else None


def file_facts(location: Location) -> dict[str, Any]:
    """Returns whether the store exists, its kind and size, the free bytes of its disk, and the error of looking."""
    found: dict[str, Any] = {"exists": True, "kind": "file", "error": None}
    try:
        room = os.statvfs(location.path.parent)
        found["free"] = room.f_bavail * room.f_frsize
        folder = os.stat(location.path.parent)
        found["shared"] = flaw_of(folder.st_mode, folder.st_uid, os.geteuid()) is Flaw.GROUP
        seen = os.stat(location.path)
        found |= {"kind": private.kind_of(seen.st_mode), "size": seen.st_size}
    except FileNotFoundError:
        found["exists"] = False
    except OSError as error:
        found["error"] = error.strerror or str(error)
    return found


def is_accessible(location: Location) -> bool:
    """Returns whether this user may read and write the file and its lock."""
    files = (location.path, location.lock)
    return all(os.access(file, os.R_OK | os.W_OK) for file in files if file.exists())


def identity_of(path: str | Path) -> tuple[int, int] | None:
    """Returns device and inode of the file at this path; None if there is none."""
    try:
        seen = os.stat(path)
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino


def beginning_of(path: Path) -> bytes:
    """Returns the first 16 bytes of the file, if there is one. Never call it for a file that this process has open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(16)


def header_facts(location: Location) -> dict[str, Any]:
    """Returns what the headers of the database and its write-ahead log show. Only for a process that uses no store."""
    with open(location.path, "rb") as file:
        head = file.read(100)
    found: dict[str, Any] = {"expected": None, "header_damaged": False}
    if len(head) == 100 and head.startswith(MAGIC):
        (size,) = struct.unpack(">H", head[16:18])
        size = 65536 if size == 1 else size
        found["header_damaged"] = size < 512 or size & (size - 1) != 0
        pages, changed, valid_for = (struct.unpack(">I", head[at : at + 4])[0] for at in (28, 24, 92))
        if not found["header_damaged"] and changed == valid_for:
            found["expected"] = pages * size
    return {**found, "log_damaged": _is_log_damaged(Path(f"{location.path}-wal"))}


def _is_log_damaged(log: Path) -> bool:
    """Returns whether the write-ahead log does not begin with a valid header, so that SQLite ignores what it holds."""
    try:
        with open(log, "rb") as file:
            head = file.read(32)
    except OSError:
        return False  # there is none
    return bool(head) and (len(head) < 32 or struct.unpack(">I", head[:4])[0] not in _WAL_MAGICS)


# who has it open or locked


def descriptors_on(path: Path) -> set[int]:
    """Returns the descriptors of this process that are open on the file."""
    wanted = identity_of(path)
    if wanted is None:
        return set()
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if identity_of(f"/proc/self/fd/{name}") == wanted:
                found.add(int(name))
        except OSError:
            continue  # another thread closed it
    return found


def is_replaced(location: Location, pid: int, links: dict[str, str]) -> bool:
    """Returns whether a process uses a file that is no longer the one at the store's path.

    `links` has the targets of the process's descriptors, by number.
    """
    if str(location.lock) not in (target.removesuffix(DELETED) for target in links.values()):
        return False  # the process has not opened the store yet, or we may not see it
    there = identity_of(location.path)
    if there is None:
        return True
    for name in links:
        try:
            if identity_of(f"/proc/{pid}/fd/{name}") == there:
                return False
        except OSError:
            continue  # closed meanwhile
    return True


def is_write_lock_free(location: Location) -> bool:
    """Returns whether the write lock can be taken, and SQLite's own. Only for a process that uses no store.

    The kernel lists only the holders in this container, but refuses the lock in any case.
    """
    try:
        descriptor = os.open(location.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True  # no process has created it yet, or this user may not open it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return _is_byte_free(_shared_memory(location), WRITE_BYTE)


def _is_byte_free(path: Path, byte: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0)
        return struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK
    finally:
        os.close(descriptor)


def engine_writers(location: Location, locks: str) -> list[int]:
    """Returns the pids that hold SQLite's own write lock on the store, from the text of /proc/locks."""
    in_database = (pid for byte in (RESERVED_BYTE, SHARED_BYTE) for pid in lockers(location.path, locks, byte))
    return [*lockers(_shared_memory(location), locks, WRITE_BYTE), *in_database]


def _shared_memory(location: Location) -> Path:
    return Path(f"{location.path}-shm")


def deleted_beside(location: Location, pid: int, links: dict[str, str]) -> str | None:
    """Returns which of SQLite's files beside the store was deleted while a process uses it; None if none was.

    `links` has the targets of the process's descriptors, by number.
    """
    for name in (f"{location.path}-wal", f"{location.path}-shm"):
        for number in (number for number, target in links.items() if target == f"{name}{DELETED}"):
            try:
                if identity_of(f"/proc/{pid}/fd/{number}") != identity_of(name):
                    return name
            except OSError:
                continue  # closed meanwhile
    return None


def lockers(path: Path, locks: str, byte: int | None = None) -> list[int]:
    """Returns the pids that have locked a file, or as SQLite does a byte of it, for writing."""
    try:
        inode = os.stat(path).st_ino
    except OSError:
        return []  # no process has created it yet
    kind = "FLOCK" if byte is None else "POSIX"
    found: list[int] = []
    for line in _LOCK.finditer(locks):
        if (line["kind"], line["how"], int(line["inode"])) != (kind, "WRITE", inode):
            continue
        last = float("inf") if line["last"] == "EOF" else int(line["last"])
        if byte is None or int(line["first"]) <= byte <= last:
            found.append(int(line["pid"]))
    return found
