"""Reads and writes the files of a library: found, changed, moved or missing, and waiting for analysis or writing."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tonearm import clock
from tonearm.library import Db, Folder, Library, joined, shown
from tonearm.tags import Tags

LAST_NS = 10**19 - 1


class Known(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a catalogued file that a scan needs."""

    id: int
    path: bytes
    size: int
    mtime_ns: int
    inode: int
    ends: bytes
    audio: bytes | None
    round: int
    tagged: bool
    missing: bool


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A new or changed file that a scan has opened."""

    path: bytes
    size: int
    mtime_ns: int
    inode: int
    links: int
    ends: bytes
    tags: Tags | None
    unreadable: str | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A file that waits for analysis."""

    id: int
    root: bytes
    path: bytes
    round: int

    @property
    def file(self) -> Path:
        """Returns the absolute path of the file."""
        return Path(os.fsdecode(os.path.join(self.root, self.path)))


_KNOWN = "id, path, size, mtime_ns, inode, ends, audio, round, tagged_ms IS NOT NULL, missing_ms IS NOT NULL"


def place(mtime_ns: int, number: int, round: int, *, first: bool = False) -> str:
    """Returns the sort key of a file that waits for analysis: preferred files first, then the newest. Never reuses a
    key.
    """
    return f"{0 if first else 1}{LAST_NS - max(0, mtime_ns):019d}.{number}.{round}"


def known(library: Library, folder: Folder, paths: Sequence[bytes]) -> dict[bytes, Known]:
    """Returns those of the paths that are in the catalogue."""
    marks = ", ".join("?" * len(paths))
    rows = library.rows(f"SELECT {_KNOWN} FROM file WHERE folder = ? AND path IN ({marks})", folder.id, *paths)
    return {row[1]: _known(row) for row in rows}


def left_behind(library: Library, found: Found) -> Known | None:
    """Returns the missing file with the same size, time, beginning and end: it was moved to this path."""
    query = f"SELECT {_KNOWN}, (SELECT root FROM folder WHERE folder.id = file.folder) FROM file"
    alike = "WHERE size = ? AND mtime_ns = ? AND ends = ? LIMIT 20"
    for row in library.rows(f"{query} {alike}", found.size, found.mtime_ns, found.ends):
        if not os.path.lexists(joined(row[-1], row[1])):
            return _known(row[:-1])
    return None


def add(db: Db, folder: Folder, found: Found, scan: int) -> None:
    """Adds a new file."""
    db.execute(
        "INSERT INTO file (folder, path, size, mtime_ns, inode, links, ends, seen, needs) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (folder.id, *_stat(found), scan, _needs(found)),
    )
    number = db.last_insert_rowid()
    db.execute("UPDATE file SET place = ? WHERE id = ?", (place(found.mtime_ns, number, 0), number))
    _describe(db, number, found)
    _note(db, folder, found, scan)


def change(db: Db, folder: Folder, was: Known, found: Found, scan: int, *, same_audio: bool) -> None:
    """Updates a changed or moved file. A file with the same audio is not analysed again."""
    db.execute(
        "UPDATE file SET folder = ?, path = ?, size = ?, mtime_ns = ?, inode = ?, links = ?, ends = ?, seen = ?, "
        "missing_ms = NULL WHERE id = ?",
        (folder.id, *_stat(found), scan, was.id),
    )
    if not same_audio:
        line = place(found.mtime_ns, was.id, was.round + 1)
        db.execute(
            "UPDATE file SET needs = ?, round = round + 1, place = ? WHERE id = ?", (_needs(found), line, was.id)
        )
    if was.path != found.path:
        db.execute("DELETE FROM trouble WHERE folder = ? AND path = ?", (folder.id, was.path))
    _describe(db, was.id, found)
    _note(db, folder, found, scan)


def touch(db: Db, files: Iterable[Known], scan: int) -> None:
    """Marks unchanged files as seen by this scan."""
    db.executemany("UPDATE file SET seen = ?, missing_ms = NULL WHERE id = ?", [(scan, file.id) for file in files])


def trouble(db: Db, folder: int, path: bytes, stage: str, why: str, reason: str, scan: int = 0) -> None:
    """Records an error of a file or folder, replacing an earlier one."""
    db.execute(
        "INSERT OR REPLACE INTO trouble VALUES (?, ?, ?, ?, ?, ?, ?)",
        (folder, path, stage, why, reason.encode("utf-8", "backslashreplace").decode(), scan, clock.now_ms()),
    )


def begin_scan(library: Library, folder: Folder) -> int:
    """Starts a new scan and returns its number."""
    with library.writing() as db:
        db.execute("UPDATE folder SET scan = scan + 1 WHERE id = ?", (folder.id,))
        ((number,),) = db.execute("SELECT scan FROM folder WHERE id = ?", (folder.id,)).fetchall()
    return int(number)


def end_scan(library: Library, folder: Folder, scan: int, unread: Sequence[bytes]) -> int:
    """Marks files as missing that the scan did not find, except below unreadable folders; returns their number."""
    spared = [(path.rstrip(b"/") + b"/" if path else b"") for path in unread]
    with library.writing() as db:
        gone = [
            number
            for number, path in db.execute(
                "SELECT id, path FROM file WHERE folder = ? AND seen < ? AND missing_ms IS NULL", (folder.id, scan)
            ).fetchall()
            if not any(path.startswith(folder_path) for folder_path in spared)
        ]
        now = clock.now_ms()
        db.executemany("UPDATE file SET missing_ms = ? WHERE id = ?", [(now, number) for number in gone])
        db.execute("DELETE FROM trouble WHERE folder = ? AND stage = 'scan' AND scan < ?", (folder.id, scan))
        db.execute(
            "DELETE FROM trouble WHERE folder = ?1 AND stage <> 'scan' AND path NOT IN "
            "(SELECT path FROM file WHERE folder = ?1 AND missing_ms IS NULL)",
            (folder.id,),
        )
        db.execute("UPDATE folder SET scanned_ms = ? WHERE id = ?", (now, folder.id))
    return len(gone)


def waiting(library: Library, number: int, round: int) -> Waiting | None:
    """Returns the file if it still waits for analysis in that round."""
    found = library.one(
        "SELECT file.id, root, path, round FROM file JOIN folder ON folder.id = file.folder "
        "WHERE file.id = ? AND round = ? AND needs = 'tag' AND missing_ms IS NULL",
        number,
        round,
    )
    return None if found is None else Waiting(*found)


def in_line(library: Library, after: str, limit: int) -> list[tuple[str, int, int, str]]:
    """Returns the next waiting files as key, id, round and display name. During a trial, returns only its files."""
    only = "1" if library.setting("trying") else "2"
    rows = library.rows(
        "SELECT place, id, round, path FROM file "
        "WHERE needs IS NOT NULL AND missing_ms IS NULL AND place > ? AND place < ? ORDER BY place LIMIT ?",
        after,
        only,
        limit,
    )
    return [(key, number, turn, shown(os.path.basename(path))) for key, number, turn, path in rows]


def from_place(key: str) -> tuple[int, int] | None:
    """Returns the file id and the round of a sort key, or None."""
    parts = key.split(".")
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return int(parts[1]), int(parts[2])


def again(library: Library, numbers: Iterable[int], *, first: bool = False) -> int:
    """Queues files for a new analysis and returns their number. Existing labels stay until then."""
    with library.writing() as db:
        done = 0
        for number in numbers:
            found = db.execute("SELECT mtime_ns, round, folder, path FROM file WHERE id = ?", (number,)).fetchall()
            for mtime_ns, turn, folder, path in found:
                line = place(mtime_ns, number, turn + 1, first=first)
                db.execute("UPDATE file SET needs = 'tag', round = round + 1, place = ? WHERE id = ?", (line, number))
                db.execute("DELETE FROM trouble WHERE folder = ? AND path = ? AND stage = 'tag'", (folder, path))
                done += 1
    return done


def varied(library: Library, count: int) -> list[int]:
    """Returns waiting files from as many different folders as possible."""
    by_folder: dict[bytes, list[int]] = {}
    for number, path in library.rows(
        "SELECT id, path FROM file WHERE needs IS NOT NULL AND missing_ms IS NULL ORDER BY ends"
    ):
        some = by_folder.setdefault(os.path.dirname(path), [])
        if len(some) < count:
            some.append(number)
    chosen: list[int] = []
    while by_folder and len(chosen) < count:
        for name in list(by_folder):
            chosen.append(by_folder[name].pop())
            if not by_folder[name]:
                del by_folder[name]
    return chosen[:count]


def _known(row: tuple[Any, ...]) -> Known:
    values: list[Any] = [*row[:8], bool(row[8]), bool(row[9])]
    return Known(*values)


def _stat(found: Found) -> tuple[Any, ...]:
    return found.path, found.size, found.mtime_ns, found.inode, found.links, found.ends


def _needs(found: Found) -> str | None:
    return "tag" if found.size else None


def _describe(db: Db, number: int, found: Found) -> None:
    if found.tags is None:
        return
    tags = found.tags
    texts = [_text(tags.title), _json(tags.artist), _text(tags.album), tags.year, _json(tags.genre)]
    db.execute(
        "UPDATE file SET kind = ?, title = ?, artist = ?, album = ?, year = ?, genre = ?, duration = ? WHERE id = ?",
        (tags.kind, *texts, tags.duration, number),
    )


def _note(db: Db, folder: Folder, found: Found, scan: int) -> None:
    if found.unreadable is None:
        db.execute("DELETE FROM trouble WHERE folder = ? AND path = ?", (folder.id, found.path))
    else:
        trouble(db, folder.id, found.path, "scan", "unreadable", found.unreadable, scan)


def _text(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _json(texts: Sequence[str]) -> str:
    return msgspec.json.encode([_text(text) for text in texts]).decode()
