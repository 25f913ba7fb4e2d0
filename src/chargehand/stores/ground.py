"""What lies under a store's file: which file system, who else has it open. Facts only; the store decides."""

import os
from pathlib import Path

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "ncpfs", "gfs2", "ocfs2", "virtiofs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs"}
)


def filesystem_of(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds the path, from the text of /proc/self/mountinfo; '' if unknown."""
    best, kind = -1, ""
    target = str(path)
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = fields[4].encode().decode("unicode_escape")
        inside = point == "/" or target == point or target.startswith(point + "/")
        if inside and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind


def is_network(path: Path) -> str | None:
    """The type of the network file system that the path is on, if it is on one."""
    with open("/proc/self/mountinfo") as lines:
        kind = filesystem_of(path.resolve(), lines.read())
    return kind if kind in NETWORK else None


def descriptors_on(path: Path) -> int:
    """How many descriptors of this process are open on the file."""
    try:
        wanted = os.stat(path)
    except FileNotFoundError:
        return 0
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue  # it was the descriptor of this very listing, or a thread closed it
        count += (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
    return count
