"""Records the processes that a node started, in a file beside the store, so that the next node can find and kill them.

Writing does not use the store and is not synced: the file matters only until the next boot, whose id it contains.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from chargehand import log
from chargehand.errors import StoreError
from chargehand.ids import new_id
from chargehand.processes import proc
from chargehand.processes.child import Child
from chargehand.processes.leftovers import Life, kill_leftovers
from chargehand.system import private

APP = "app"
"""The component of the node itself."""
LONGEST = 4096
"""The number of lines after which the file is rewritten without ended processes."""


class _File(msgspec.Struct, frozen=True):
    """The first line of a record: which file it was written to. In a copy it names another file."""

    device: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> "_File":
        return cls(found.st_dev, found.st_ino)


class ProcessRecord:
    """The record of one incarnation of a node and of the workers that it started."""

    def __init__(self, file: Path, store_mark: str) -> None:
        """`store_mark` is in the environment of every process that a node of this store starts."""
        self._path, self._store_mark = file, store_mark
        self.life = new_id()
        self.mark = f"{self._store_mark}/{self.life}"
        self._boot = proc.boot_id()
        self._lines = 0
        self.earlier_was_asked = True
        """Whether the node before this one was asked to stop, as far as its record says."""

    def end_earlier(self, limit: float) -> list[Life]:
        """Kills what earlier nodes of this store left, and starts a new record. Returns what cannot be killed."""
        lives, owner = self._read_all()
        self.earlier_was_asked = lives is None or any(life.component == APP for life in lives)
        # A record says what its owner may kill, and no more: root also reads records that other users wrote.
        of_user = None if owner in (None, 0, os.geteuid()) else owner
        unkillable = kill_leftovers(_running(lives or []), f"{self._store_mark}/", limit, of_user)
        self._write(unkillable)
        return unkillable

    def add(self, child: Child) -> None:
        """Records a process that was just started."""
        self.note(child.component, began=[(child.pid, child.start)])

    def drop(self, child: Child) -> None:
        """Records that a process and its descendants have ended: its pid may be reused."""
        self.note(child.component, ended=[(child.pid, child.start)])

    def note(
        self, component: str, *, began: Iterable[tuple[int, int]] = (), ended: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Records processes of a worker, by pid and start time: those to be ended, and those that have ended."""
        for over, processes in ((False, began), (True, ended)):
            for pid, start in processes:
                self._append(Life(boot=self._boot, pid=pid, start=start, component=component, over=over))

    def stopping(self) -> None:
        """Records that the node was asked to stop: if it is killed before it has stopped, its jobs are not to blame."""
        own = proc.stat(os.getpid())
        self.note(APP, ended=[(os.getpid(), own.start if own else 0)])

    def _append(self, life: Life) -> None:
        try:
            if self._lines >= LONGEST:
                self._write(_running(self._read_all()[0] or []))
            with open(private.open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
                _write_lines(file, [life])
        except (OSError, StoreError) as error:
            # A full disk must not stop supervision; the process can still be found by the mark in its environment.
            log.warning("a process could not be recorded", file=self._path, why=error)
        self._lines += 1

    def forget(self) -> None:
        """Deletes the record after a graceful shutdown."""
        self._path.unlink(missing_ok=True)

    def _read_all(self) -> tuple[list[Life] | None, int | None]:
        """Returns all recorded processes, each as it was recorded last, and the owner; None if there is no record.

        A copy of a record is none: its processes are those of the store that it was copied from.
        """
        try:
            text, found = private.read_file(self._path)
        except FileNotFoundError:
            return None, None
        first, *others = text.splitlines() or [b""]
        try:
            written_to = msgspec.json.decode(first, type=_File)
        except msgspec.DecodeError:  # of an earlier version
            others = [first, *others] if first else others
        else:
            if written_to != _File.of(found):
                log.warning("the record of processes is a copy, and was ignored", file=self._path)
                return None, None
        lives: dict[tuple[str, int, int], Life] = {}
        for line in others:
            try:
                life = msgspec.json.decode(line, type=Life)
            except msgspec.DecodeError:
                log.warning("an incomplete line in the record of processes was ignored", file=self._path)
                continue
            lives[life.boot, life.pid, life.start] = life
        return list(lives.values()), found.st_uid

    def _write(self, lives: list[Life]) -> None:
        """Replaces the record: the new file belongs to this user, whoever wrote the old one."""
        self._path.unlink(missing_ok=True)
        with open(private.open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            _write_lines(file, lives)
        self._lines = len(lives)


def _write_lines(file: BinaryIO, lives: Sequence[Life]) -> None:
    """Appends to a record that is open for writing; a record that is empty is given its first line, too."""
    found = os.fstat(file.fileno())
    lines = [*([] if found.st_size else [_File.of(found)]), *lives]
    file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def _running(lives: list[Life]) -> list[Life]:
    """Returns the processes that have not ended, as far as the record says."""
    return [life for life in lives if not life.over]
