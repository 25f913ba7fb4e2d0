"""Turns SQLite's errors into StoreError with a text that names the file, the problem and the remedy."""

from pathlib import Path

import apsw

from chargehand.errors import StoreBusy, StoreError
from chargehand.stores.refusal import described
from chargehand.stores.sqlite import files

LONGEST_WAIT = 60.0
"""Seconds to wait for a program that writes without taking the write lock."""

NO_DATABASE = "{path} is not a database that Chargehand can use: it is not an SQLite file. Nothing was changed"
NO_STORE = (
    "{path} is not a store: it has no tables of Chargehand. Name the right file with --store or CHARGEHAND_URL; a node "
    "makes the tables when it starts (chargehand work APP). Nothing was changed"
)
_TEXTS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.NotADBError, NO_DATABASE),
    (apsw.CorruptError, "{path} is damaged ({error}): restore it from a backup. Nothing was changed"),
    (apsw.ReadOnlyError, "{path} cannot be written: the file, its folder or its disk is read-only"),
    (apsw.CantOpenError, "{path} cannot be opened ({error}): check that folder and file may be read and written"),
    (apsw.FullError, "the disk that holds {path} is full: make room; nothing that was acknowledged is lost"),
    (apsw.BusyError, "{path} has been locked for {wait:g} s by {holder}, which does not take Chargehand's lock first"),
    (apsw.LockedError, "{path} is locked by a reader inside this process"),
    (apsw.IOError, "{path} could not be read or written ({error}): is the disk full, gone or failing?"),
)
_CODES: dict[type[apsw.Error], str] = {apsw.CorruptError: "store-damaged", apsw.FullError: "disk-full"}
ENGINE = tuple(kind for kind, _ in _TEXTS)


class store_errors:  # noqa: N801 - used as a function; a class, because a generator costs several times as much
    """Raises StoreError instead of errors of SQLite and of the operating system."""

    __slots__ = ("_kinds", "_path")

    def __init__(self, path: Path, kinds: tuple[type[Exception], ...] = (*ENGINE, OSError)) -> None:
        self._path, self._kinds = path, kinds

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not isinstance(error, self._kinds):
            return
        path = self._path
        if isinstance(error, OSError):
            raise StoreError(described(error, path)) from error
        text = next(text for kind, text in _TEXTS if isinstance(error, kind))
        kind = StoreBusy if isinstance(error, apsw.BusyError) else StoreError
        holder = _holder(path) if kind is StoreBusy else ""
        code = next((code for cause, code in _CODES.items() if isinstance(error, cause)), None)
        raise kind(text.format(path=path, error=error, wait=LONGEST_WAIT, holder=holder), code) from error


def _holder(path: Path) -> str:
    """Names the process that holds SQLite's write lock, if the kernel lists it."""
    try:
        pids = files.lockers(Path(f"{path}-shm"), Path("/proc/locks").read_text(), files.WRITE_BYTE)
        return f"process {pids[0]} ({Path(f'/proc/{pids[0]}/comm').read_text().strip()})"
    except (OSError, IndexError):
        return "a program"
