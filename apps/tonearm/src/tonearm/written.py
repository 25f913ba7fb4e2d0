"""Writes labels into files and removes them, as requested, and records it in a journal."""

import hashlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from tonearm import catalogue, clock, hearing
from tonearm.heard import LISTENER
from tonearm.library import Folder, Library
from tonearm.scan import ends_of
from tonearm.tags import Labels, Outcome, Plan, Refused, Unchanged, Written, preview, undo, write
from tonearm.tiers import within

Asked = Literal["write", "undo"]


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
    """Requests that all outdated files of a folder are written, or all written files cleaned; returns their number."""
    which = "written IS NOT NULL" if what == "undo" else "tagged_ms IS NOT NULL AND needs IS NULL"
    with library.writing() as db:
        db.execute(
            f"UPDATE file SET asked = ?, turn = turn + 1 WHERE folder = ? AND missing_ms IS NULL AND {which}",
            (what, folder.id),
        )
        return db.changes()


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
    given = within(hearing.labels(library, number), folder.tier)
    groups: dict[str, tuple[str, ...]] = {}
    for label in given:
        groups[label.category] = (*groups.get(label.category, ()), label.name)
    return Labels(groups, {g.name: g.score for g in given if g.score is not None}, LISTENER)


def dry(library: Library, number: int, path: bytes, folder: Folder) -> Plan | Refused:
    """Returns what writing would change, without writing."""
    return preview(
        folder.path / os.fsdecode(path), labels_of(library, number, folder), folder.settings(), root=folder.path
    )


def perform(library: Library, todo: Task) -> Outcome:
    """Writes or cleans one file and records it; a repetition finds it done."""
    settings = todo.folder.settings()
    if todo.asked == "undo":
        outcome, digest = undo(todo.file, settings, root=todo.folder.path), None
    else:
        labels = labels_of(library, todo.id, todo.folder)
        outcome = write(todo.file, labels, settings, root=todo.folder.path)
        digest = hashlib.sha256(repr((labels, settings)).encode()).hexdigest()[:16]
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
