"""Writes labels into files and removes them, as requested, and records it in a journal."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from tonearm import catalogue, clock, hearing, wanted
from tonearm.library import Db, Folder, Library
from tonearm.scan import ends_of
from tonearm.tags import Labels, Outcome, Plan, Refused, Unchanged, Written, preview, undo, write

Asked = Literal["write", "undo"]
CHOSEN: dict[Asked, str] = {
    "write": "tagged_ms IS NOT NULL AND needs IS NULL AND missing_ms IS NULL",
    "undo": "written <> '' AND missing_ms IS NULL",
}
"""The files that a request applies to."""


class Task(msgspec.Struct, frozen=True):
    """A file that waits for writing or cleaning."""

    id: int
    folder: Folder
    path: bytes
    turn: int
    asked: Asked

    @property
    def file(self) -> Path:
        """Returns the absolute path of the file."""
        return self.folder.path / os.fsdecode(self.path)


def ask(library: Library, folder: Folder, what: Asked) -> int:
    """Requests that all analysed files of a folder are written, or all written files cleaned; returns their number.

    A request to write stays in force for files that are analysed later, as long as the folder has a write mode. A
    request to clean ends the write mode.
    """
    with library.writing() as db:
        db.execute(f"UPDATE file SET asked = ?, turn = turn + 1 WHERE folder = ? AND {CHOSEN[what]}", (what, folder.id))
        asked = db.changes()
        if what == "undo":
            _end(db, folder)
    return asked


def end(library: Library, folder: Folder) -> None:
    """Ends the write mode of a folder. Files keep the tags that they have."""
    with library.writing() as db:
        _end(db, folder)


def _end(db: Db, folder: Folder) -> None:
    db.execute("UPDATE folder SET mode = 'none' WHERE id = ?", (folder.id,))
    db.execute("UPDATE file SET asked = NULL WHERE folder = ? AND asked = 'write'", (folder.id,))


def is_waiting(library: Library) -> bool:
    """Returns whether a file waits for writing or cleaning."""
    return bool(in_line(library, 0, 1))


def in_line(library: Library, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """Returns the next requested files: id, turn, path."""
    rows = library.rows(
        "SELECT id, turn, path FROM file WHERE asked IS NOT NULL AND missing_ms IS NULL AND id > ? ORDER BY id LIMIT ?",
        after,
        limit,
    )
    return [(number, turn, path) for number, turn, path in rows]


def task(library: Library, number: int) -> Task | None:
    """Returns the request for a file, or None."""
    found = library.one("SELECT folder, path, turn, asked FROM file WHERE id = ? AND asked IS NOT NULL", number)
    folder = library.folder(found[0]) if found else None
    return None if found is None or folder is None else Task(number, folder, *found[1:])


def labels_of(library: Library, number: int, folder: Folder) -> Labels:
    """Returns the labels of a track in the form in which they are written."""
    return wanted.labels(hearing.labels(library, number), folder.tier)


def dry(library: Library, folder: Folder) -> Iterator[tuple[bytes, Plan | Refused]]:
    """Yields what a request to write would change in each of its files, or why it would refuse, without writing."""
    for number, path in library.rows(
        f"SELECT id, path FROM file WHERE folder = ? AND {CHOSEN['write']} ORDER BY path", folder.id
    ):
        labels = labels_of(library, number, folder)
        yield path, preview(folder.path / os.fsdecode(path), labels, folder.settings(), root=folder.path)


def perform(library: Library, todo: Task) -> Outcome:
    """Writes or cleans one file and records it; a repetition finds it done."""
    settings = todo.folder.settings()
    if todo.asked == "undo":
        outcome, digest = undo(todo.file, settings, root=todo.folder.path), None
    else:
        labels = labels_of(library, todo.id, todo.folder)
        outcome = write(todo.file, labels, settings, root=todo.folder.path)
        digest = wanted.digest(labels, settings)
    _keep(library, todo, outcome, digest)
    return outcome


def _keep(library: Library, todo: Task, outcome: Outcome, digest: str | None) -> None:
    now = clock.now_ms()
    with library.writing() as db:
        db.execute("UPDATE file SET asked = NULL WHERE id = ? AND turn = ?", (todo.id, todo.turn))
        match outcome:
            case Refused(why, reason):
                catalogue.trouble(db, todo.folder.id, todo.path, "write", why, reason)
                return
            case Written(plan, size, mtime_ns, inode):
                changes = msgspec.json.encode(plan.data()).decode()
                db.execute(
                    "INSERT INTO journal (file, at_ms, what, changes) VALUES (?, ?, ?, ?)",
                    (todo.id, now, todo.asked, changes),
                )
                ends = ends_of(os.fsencode(todo.file), size)
                db.execute(
                    "UPDATE file SET size = ?, mtime_ns = ?, inode = ?, ends = ? WHERE id = ?",
                    (size, mtime_ns, inode, ends, todo.id),
                )
            case Unchanged():
                pass
        db.execute("UPDATE file SET written = ?, written_ms = ? WHERE id = ?", (digest, now, todo.id))
        db.execute("DELETE FROM trouble WHERE folder = ? AND path = ? AND stage = 'write'", (todo.folder.id, todo.path))
