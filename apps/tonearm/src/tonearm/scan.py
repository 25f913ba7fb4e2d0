"""Scans a folder and updates the catalogue, in constant memory. Must not import numpy or a decoder.

A scan calls `stat` on every file, and opens a file only if it is new or changed (or in a full scan).
"""

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from tonearm import catalogue
from tonearm.catalogue import Found, Known
from tonearm.errors import TonearmError
from tonearm.library import Db, Folder, Library, shown
from tonearm.tags import Tags, Unreadable, read, sweep_folder
from tonearm.tags.audio import digest
from tonearm.tags.kinds import SUFFIXES
from tonearm.tags.place import TEMPORARY

BATCH = 256
END = 16384
"""Number of bytes at the beginning and at the end of a file that identify it."""
ENDINGS = tuple(suffix.encode() for suffix in SUFFIXES)

Thing = TypeVar("Thing")


class Report(msgspec.Struct):
    """The result of a scan."""

    files: int = 0
    new: int = 0
    changed: int = 0
    retagged: int = 0
    """Files with changed tags only, which are not analysed again."""
    moved: int = 0
    missing: int = 0
    unreadable: int = 0
    swept: int = 0


class Seen(NamedTuple):
    """A file found by the walk."""

    path: bytes
    stat: os.stat_result


class Trouble(NamedTuple):
    """A path that the walk could not read, or does not follow."""

    path: bytes
    why: str
    reason: str


def scan(
    library: Library, folder: Folder, *, full: bool = False, progress: Callable[[int, str], None] | None = None
) -> Report:
    """Updates the catalogue. An exception raised by `progress` ends the scan; the files found so far are kept."""
    if not os.path.isdir(folder.root):
        raise TonearmError(f"{shown(folder.root)} does not exist: is its disk mounted? Nothing was changed")
    report = Report()
    number = catalogue.begin_scan(library, folder)
    unread: list[bytes] = []
    for batch in _batches(_walk(folder.root, report), BATCH):
        seen = [each for each in batch if isinstance(each, Seen)]
        troubles = [each for each in batch if isinstance(each, Trouble)]
        unread += [each.path for each in troubles if each.why == "unread"]
        _take_in(library, folder, number, seen, troubles, report, full=full)
        if progress is not None:
            progress(report.files, shown(seen[-1].path) if seen else "")
    if not report.files and not full:
        had = library.number("SELECT count(*) FROM file WHERE folder = ? AND missing_ms IS NULL", folder.id)
        if had:
            raise TonearmError(
                f"{shown(folder.root)} is empty, but had {had} files: is its disk mounted? "
                "Nothing was changed. If the files were deleted, scan with --full"
            )
    report.missing = catalogue.end_scan(library, folder, number, unread)
    return report


def _take_in(
    library: Library,
    folder: Folder,
    number: int,
    seen: list[Seen],
    troubles: list[Trouble],
    report: Report,
    *,
    full: bool,
) -> None:
    known = catalogue.known(library, folder, [each.path for each in seen])
    same: list[Known] = []
    looked: list[tuple[Known | None, Found, bool]] = []
    taken: set[int] = set()
    for each in seen:
        was = known.get(each.path)
        if was is not None and not full and _as_before(was, each.stat):
            same.append(was)
        else:
            looked.append(_compare(library, folder, was, _look(folder.root, each), taken, report))
    with library.writing() as db:
        catalogue.touch(db, same, number)
        for was, found, same_audio in looked:
            if was is None:
                catalogue.add(db, folder, found, number)
            else:
                catalogue.change(db, folder, was, found, number, same_audio=same_audio)
        for path, why, reason in troubles:
            catalogue.trouble(db, folder.id, path, "scan", why, reason, number)
        _keep_troubles(db, folder, same, number)
    report.files += len(seen)
    report.unreadable += len(troubles)


def _keep_troubles(db: Db, folder: Folder, same: list[Known], number: int) -> None:
    """Keeps the recorded errors of unchanged files."""
    db.executemany(
        "UPDATE trouble SET scan = ? WHERE folder = ? AND path = ?", [(number, folder.id, file.path) for file in same]
    )


def _compare(
    library: Library, folder: Folder, was: Known | None, found: Found, taken: set[int], report: Report
) -> tuple[Known | None, Found, bool]:
    """Returns the catalogue entry of an opened file, and whether its audio is unchanged."""
    report.unreadable += found.unreadable is not None
    if was is None:
        was = catalogue.left_behind(library, found)
        if was is None or was.id in taken:  # a copy of a moved file: one of the two is new
            report.new += 1
            return None, found, False
        taken.add(was.id)
        report.moved += 1
        return was, found, True
    if was.ends == found.ends and was.size == found.size:
        return was, found, True
    if was.tagged and was.audio is not None and digest(folder.path / os.fsdecode(found.path)) == was.audio:
        report.retagged += 1
        return was, found, True
    report.changed += 1
    return was, found, False


def _as_before(was: Known, now: os.stat_result) -> bool:
    return (was.size, was.mtime_ns, was.inode) == (now.st_size, now.st_mtime_ns, now.st_ino)


def _look(root: bytes, seen: Seen) -> Found:
    """Opens a file and reads its tags and ends, or records the error."""
    full = os.path.join(root, seen.path)
    tags: Tags | None = None
    ends, reason = b"", None
    try:
        ends = ends_of(full, seen.stat.st_size)
        said = read(os.fsdecode(full)) if seen.stat.st_size else Unreadable("the file is empty")
        tags, reason = (None, said.reason) if isinstance(said, Unreadable) else (said, None)
    except OSError as error:
        reason = error.strerror or str(error)
    now = seen.stat
    return Found(
        path=seen.path,
        size=now.st_size,
        mtime_ns=now.st_mtime_ns,
        inode=now.st_ino,
        links=now.st_nlink,
        ends=ends,
        tags=tags,
        unreadable=reason,
    )


def ends_of(path: bytes, size: int) -> bytes:
    """Returns a digest of the beginning and end of a file."""
    with open(path, "rb", buffering=0) as file:
        told = hashlib.blake2b(file.read(END), digest_size=16)
        if size > END:
            file.seek(max(END, size - END))
            told.update(file.read(END))
    return told.digest()


def _walk(root: bytes, report: Report) -> Generator[Seen | Trouble]:
    """Yields every file with the name of an audio file, and every path that could not be read. Skips hidden paths."""
    left = [b""]
    while left:
        inside = left.pop()
        here = os.path.join(root, inside) if inside else root
        leftovers = False
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    path = os.path.join(inside, entry.name)
                    leftovers |= TEMPORARY.fullmatch(os.fsdecode(entry.name)) is not None
                    if entry.name.startswith(b"."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        left.append(path)
                    elif (met := _meet(root, path, entry)) is not None:
                        yield met
        except OSError as error:
            yield Trouble(inside, "unread", f"cannot read the folder: {error.strerror or error}")
        if leftovers:
            report.swept += len(sweep_folder(os.fsdecode(here)).removed)


def _meet(root: bytes, path: bytes, entry: "os.DirEntry[bytes]") -> Seen | Trouble | None:
    is_music = entry.name.lower().endswith(ENDINGS)
    try:
        if entry.is_symlink():
            return _follow(root, path, is_music=is_music)
        if not is_music:
            return None
        found = entry.stat(follow_symlinks=False)
        return Seen(path, found) if stat.S_ISREG(found.st_mode) else Trouble(path, "odd", "not a regular file")
    except OSError as error:
        return Trouble(path, "unreadable", error.strerror or str(error)) if is_music else None


def _follow(root: bytes, path: bytes, *, is_music: bool) -> Trouble | None:
    """Handles a symbolic link. A target inside the folder is found there; another one is reported, not followed."""
    target = os.path.realpath(os.path.join(root, path))
    is_folder = os.path.isdir(target)
    if not (is_music or is_folder) or os.path.commonpath((root, target)) == root:
        if is_music and not os.path.lexists(target):
            return Trouble(path, "unreadable", f"a link to {shown(target)}, which does not exist")
        return None
    advice = "add that folder" if is_folder else "move the file here, or add its folder"
    return Trouble(path, "outside", f"a link to {shown(target)}, outside the folder: {advice}")


def _batches(things: Iterable[Thing], size: int) -> Iterator[list[Thing]]:
    each = iter(things)
    while batch := list(islice(each, size)):
        yield batch
