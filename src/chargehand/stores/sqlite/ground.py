"""What lies under a store's file: which file system, who else has it open. Facts only; the store decides.

Closing any descriptor of a file drops all locks that this process has on it: nothing here opens a database in use.
"""

import os
import re
from pathlib import Path

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "ncpfs", "gfs2", "ocfs2", "virtiofs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs"}
)


_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the kernel writes blanks and backslashes in a path; the rest of it is as it is."""


def filesystem_of(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds the path, from the text of /proc/self/mountinfo; '' if unknown."""
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
    """The type of the network file system that the path is on, if it is on one."""
    with open("/proc/self/mountinfo") as lines:
        kind = filesystem_of(path.resolve(), lines.read())
    return kind if kind in NETWORK else None


def beginning_of(path: Path) -> bytes:
    """The first 16 bytes of the file, if there is one. Only for a file that this process has not open: see above."""
    try:
        with open(path, "rb") as file:
            return file.read(16)
    except FileNotFoundError:
        return b""


def descriptors_on(path: Path) -> set[int]:
    """The descriptors of this process that are open on the file."""
    try:
        wanted = os.stat(path)
    except FileNotFoundError:
        return set()
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            seen = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue  # it was the descriptor of this very listing, or a thread closed it
        if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
            found.add(int(name))
    return found
