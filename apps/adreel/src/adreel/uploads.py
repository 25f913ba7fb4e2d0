"""Receives files: streamed to disk in constant memory, limited in size, checked by content, locked while they arrive.

An incomplete upload is a file in the folder `uploads`, locked by the process that receives it. A file without a lock
belongs to a process that has crashed, and is removed at the next start of any node.
"""

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from adreel import clock, names
from adreel.errors import DISK_FULL, STORAGE, Refused
from adreel.settings import Settings

BUFFER = 1 << 20
"""Bytes that are collected before a thread writes them."""
PART = ".part"
"""The ending of the names of incomplete uploads."""
SOURCE = "source"
"""The name, without its ending, of an uploaded file in the folder of its film."""
ABANDONED = 86_400.0
"""Seconds after which an upload counts as abandoned, where the file system has no locks."""
log = logging.getLogger("adreel")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Upload:
    """One file that arrives: `write` its parts, `finish` it, then `keep` it in the folder of its film.

    Leaving the block removes a file that was not kept. One that was kept, of a film that was not committed, is left to
    the sweep, because whether it was committed may be unknown.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self.name = names.shown(name)
        self.suffix = names.suffix(self.name)
        self.size = 0
        self._parts: list[bytes] = []
        self._waiting = 0
        self._head = b""
        self.path = settings.uploads / f"{names.new_id()}{PART}"
        self._kept = False
        with refusing_disk_errors():
            self._file = _locked(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept:
            with suppress(OSError):  # the sweep removes it when the folder can be written again
                self.path.unlink(missing_ok=True)
        os.close(self._file)  # the lock ends last: until then nobody takes the file for abandoned

    async def write(self, part: bytes) -> None:
        """Adds a part. Raises Refused if the file becomes too large, is no film, or if the disk is full."""
        self.size += len(part)
        if self.size > self._settings.max_upload:
            raise too_large(self._settings.max_upload)
        if len(self._head) < names.HEAD:
            self._head += part[: names.HEAD - len(self._head)]
            if len(self._head) == names.HEAD:
                check_content(self._head)
        self._parts.append(part)
        self._waiting += len(part)
        if self._waiting >= BUFFER:
            await self._flush()

    async def _flush(self) -> None:
        parts, self._parts, self._waiting = self._parts, [], 0
        await asyncio.to_thread(self._store, parts)

    def _store(self, parts: list[bytes]) -> None:
        with refusing_disk_errors():
            check_space(self._settings)
            data = memoryview(b"".join(parts))
            while data:
                data = data[os.write(self._file, data) :]

    async def finish(self) -> None:
        """Writes the rest to the disk, durably. Raises Refused if the file is empty or no film."""
        if not self.size:
            raise Refused(422, "empty", "the file is empty")
        check_content(self._head)
        await self._flush()
        with refusing_disk_errors():
            await asyncio.to_thread(os.fsync, self._file)

    def keep(self, film: str) -> Path:
        """Moves the file into the folder of its film. Returns its path there. Raises Refused if the disk is full."""
        folder = self._settings.films / film
        path = folder / f"{SOURCE}{self.suffix}"
        with refusing_disk_errors():
            while not self._kept:
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    self.path.rename(path)
                except FileNotFoundError:
                    if not self.path.exists():
                        raise
                    continue  # a sweep has removed the folder while it was empty
                self._kept = True
            for each in (folder, self._settings.films):
                _sync(each)
        return path


async def received(stream: AsyncIterator[bytes], settings: Settings, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Yields the parts of a body. Raises Refused if none comes for too long, or if the server stops."""
    ends = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            part = asyncio.ensure_future(anext(stream, None))
            try:
                await asyncio.wait({part, ends}, timeout=settings.upload_stall, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not part.done():
                    part.cancel()
                    await asyncio.gather(part, return_exceptions=True)
            if part.cancelled():
                if ends.done():
                    raise Refused(503, "stopping", "the server is stopping")
                raise Refused(408, "too-slow", f"no data arrived for {settings.upload_stall:g} s")
            found = part.result()
            if found is None:
                return
            yield found
    finally:
        ends.cancel()


def too_large(limit: int) -> Refused:
    """Returns the refusal of a file that exceeds the limit."""
    return Refused(413, "too-large", f"the file is larger than the limit of {limit:,} bytes (ADREEL_MAX_UPLOAD)")


def check_content(head: bytes) -> None:
    """Raises Refused unless the file begins as a film does."""
    if names.container(head) is None:
        raise Refused(415, "not-a-film", f"the file is not a film: its content is not {names.CONTAINERS}")


def check_space(settings: Settings, more: int = 0) -> None:
    """Raises Refused if less would be free on the disk, with so many bytes more, than must stay free."""
    with refusing_disk_errors():
        space = os.statvfs(settings.home)
    if space.f_bavail * space.f_frsize < settings.min_free + more:
        raise Refused(507, DISK_FULL, "the disk of the server is full (ADREEL_MIN_FREE); nothing was kept")


@contextmanager
def refusing_disk_errors() -> Generator[None]:
    """Raises Refused instead of the errors of a disk that is full, or of a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Refused(507, DISK_FULL, "the disk of the server is full; nothing was kept") from error
        log.error("the data folder cannot be used: %s", error)  # the text has paths
        raise Refused(503, STORAGE, "the data folder of the server cannot be used; its log has the reason") from error


def below_root(given: str, settings: Settings) -> Path:
    """Returns the file that a path names, links resolved. Raises Refused unless it is a film below a root."""
    if not settings.roots:
        raise Refused(403, "no-roots", "no folder is configured from which paths may be submitted (ADREEL_ROOTS)")
    unknown = Refused(404, "no-such-file", f"there is no file {names.shown(given)!r} below the configured roots")
    for root in settings.roots:
        try:
            path = (root / given).resolve(strict=True)
            if not path.is_relative_to(root) or not stat.S_ISREG(path.stat().st_mode):
                continue
            with path.open("rb") as file:
                head = file.read(names.HEAD)
        except (OSError, ValueError, RuntimeError):  # ValueError: NUL in a path; RuntimeError: a loop of links
            continue
        if not names.is_text(path):
            raise Refused(422, "invalid-name", f"the name of {names.shown(path.name)!r} is not UTF-8: rename the file")
        check_content(head)
        if path.stat().st_size > settings.max_upload:
            raise too_large(settings.max_upload)
        return path
    raise unknown


def sweep(settings: Settings, exists: Callable[[str], bool]) -> list[Path]:
    """Removes what crashed processes have left: incomplete uploads, and folders of films that do not exist.

    Only what bears an id is removed: a data folder may have held something else before. What another process is
    receiving has a lock, and stays. `exists` is asked after the lock was seen to be free: by then a film that was
    received meanwhile is in the catalogue. Returns what was removed.
    """
    removed: list[Path] = []
    for path in _entries(settings.uploads):
        if path.suffix == PART and names.is_id(path.stem) and _is_abandoned(path):
            with _leaving(path):
                path.unlink(missing_ok=True)
                removed.append(path)
    for folder in _entries(settings.films):
        if not names.is_id(folder.name):
            continue
        with _leaving(folder):
            files = _entries(folder)
            received = all(_is_abandoned(path) for path in files if path.name.startswith(SOURCE))
            if received and not exists(folder.name) and _removed(folder, files):
                removed.append(folder)
    return removed


@contextmanager
def _leaving(path: Path) -> Generator[None]:
    """Leaves what cannot be removed to the next sweep: it must not keep the server from starting."""
    try:
        yield
    except OSError as error:
        log.warning("what a crash may have left in %s cannot be removed: %s", path, error)


def _removed(folder: Path, files: Sequence[Path]) -> bool:
    """Removes the folder of a film that does not exist, in which these files were. Returns whether it is gone.

    An upload moves its file into a folder that it has just made: an empty folder is only removed while it is empty.
    """
    if files or folder.is_symlink():
        remove_tree(folder)
        return True
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def remove_tree(folder: Path) -> None:
    """Removes a folder with all that is in it, though another process may be doing the same."""

    def ignore(function: object, path: str, error: tuple[Any, Any, Any]) -> None:
        if not isinstance(error[1], FileNotFoundError):
            raise error[1]

    if folder.is_symlink():
        folder.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, onerror=ignore)  # `onexc` is newer than Python 3.11


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _locked(path: Path) -> int:
    """Makes a file that this process locks, and returns its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # the file system has no locks: age decides
                raise
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # a sweep has removed the file before it was locked


def _is_abandoned(path: Path) -> bool:
    """Returns whether no process receives this file any more."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # a link, a folder: nothing that an upload has made
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return clock.now_ms() / 1000 - os.fstat(file).st_mtime > ABANDONED
    finally:
        os.close(file)
    return True


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
