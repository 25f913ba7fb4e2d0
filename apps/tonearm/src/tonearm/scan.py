"""Looks through a folder and brings the catalogue up to date. Light; streaming: its memory does not grow with files.

Files are stat'ed always, opened only if they are new or changed (or in a full scan).
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
"""Bytes of a file's beginning and of its end that tell it from others."""
ENDINGS = tuple(suffix.encode() for suffix in SUFFIXES)

Thing = TypeVar("Thing")


class Report(msgspec.Struct):
    """What a scan found."""

    files: int = 0
    new: int = 0
    changed: int = 0
    retagged: int = 0
    """Changed in their tags alone: not to be heard again."""
    moved: int = 0
    missing: int = 0
    unreadable: int = 0
    swept: int = 0


class Seen(NamedTuple):
    """A file that a walk has met."""

    path: bytes
    stat: os.stat_result


class Trouble(NamedTuple):
    """Something that a walk could not look at, or will not."""

    path: bytes
    why: str
    reason: str


def scan(
    library: Library, folder: Folder, *, full: bool = False, progress: Callable[[int, str], None] | None = None
) -> Report:
    """Bring the catalogue up to date; whatever `progress` raises ends the scan, and what was found so far stays."""
    if not os.path.isdir(folder.root):
        raise TonearmError(f"{shown(folder.root)} is not there: is its disk mounted? Nothing was changed")
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
                f"{shown(folder.root)} is empty, and had {had} files: is its disk mounted? "
                "Nothing was changed; if they are gone for good, scan with --full"
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
    """What was wrong with files that are as they were is still wrong with them."""
    db.executemany(
        "UPDATE trouble SET scan = ? WHERE folder = ? AND path = ?", [(number, folder.id, file.path) for file in same]
    )


def _compare(
    library: Library, folder: Folder, was: Known | None, found: Found, taken: set[int], report: Report
) -> tuple[Known | None, Found, bool]:
    """What the catalogue knew of a file that was looked into, and whether its audio is the same as then."""
    report.unreadable += found.unreadable is not None
    if was is None:
        was = catalogue.left_behind(library, found)
        if was is None or was.id in taken:  # a copy of a file that was moved: one of them is new
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
    """Open a file: its tags, its ends, or why not."""
    full = os.path.join(root, seen.path)
    tags: Tags | None = None
    ends, reason = b"", None
    try:
        ends = ends_of(full, seen.stat.st_size)
        said = read(os.fsdecode(full)) if seen.stat.st_size else Unreadable("it is empty")
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
    """A digest of a file's beginning and end."""
    with open(path, "rb", buffering=0) as file:
        told = hashlib.blake2b(file.read(END), digest_size=16)
        if size > END:
            file.seek(max(END, size - END))
            told.update(file.read(END))
    return told.digest()


def _walk(root: bytes, report: Report) -> Generator[Seen | Trouble]:
    """Every file that is music by its name, and everything that could not be looked at; hidden things are left out."""
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
            yield Trouble(inside, "unread", f"the folder cannot be read: {error.strerror or error}")
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
        return Seen(path, found) if stat.S_ISREG(found.st_mode) else Trouble(path, "odd", "it is not a regular file")
    except OSError as error:
        return Trouble(path, "unreadable", error.strerror or str(error)) if is_music else None


def _follow(root: bytes, path: bytes, *, is_music: bool) -> Trouble | None:
    """What is linked inside the folder is met where it lies; what lies elsewhere is listed, and left alone."""
    target = os.path.realpath(os.path.join(root, path))
    is_folder = os.path.isdir(target)
    if not (is_music or is_folder) or os.path.commonpath((root, target)) == root:
        if is_music and not os.path.lexists(target):
            return Trouble(path, "unreadable", f"a link to {shown(target)}, which is not there")
        return None
    advice = "add that folder by itself" if is_folder else "move the file here, or add its own folder"
    return Trouble(path, "outside", f"a link to {shown(target)}, outside the folder: {advice}")


def _batches(things: Iterable[Thing], size: int) -> Iterator[list[Thing]]:
    each = iter(things)
    while batch := list(islice(each, size)):
        yield batch
