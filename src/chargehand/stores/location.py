"""The identity of a store: made from its address once, and used wherever a store is named, locked or reached."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import msgspec

from chargehand import log
from chargehand.errors import ConfigurationError, StoreError
from chargehand.stores.beside import FOLDER, NODE, STATE, Beside, is_of_node
from chargehand.stores.postgres.address import EXAMPLE, Address, is_postgres, parse
from chargehand.stores.refusal import described
from chargehand.system import private
from chargehand.system.job_files import BESIDE
from chargehand.system.sha256 import sha256

LONGEST_NAME = 255 - len("-journal")
"""Bytes of a file's name: files beside it have longer ones."""
LONGEST_PATH = 4000


class Location(Beside, msgspec.Struct, frozen=True):
    """Where a store is, and the files through which its processes on this machine find each other."""

    path: Path
    """The database file; for a store on a server, a name in a folder of this user's state, where no file is: one for
    each node, by its name. The files below stand beside it: they have its name and a suffix."""
    server: Address | None = None
    """The server that holds the store; None for an SQLite store."""

    @property
    def url(self) -> str:
        """The address that opens the store. It may contain a password: show `str(location)` instead."""
        return str(self.path) if self.server is None else self.server.url

    @property
    def written(self) -> Path | None:
        """The file that every write to the store changes; None for a store on a server."""
        return Path(f"{self.path}-wal") if self.server is None else None

    @property
    def of_other_nodes(self) -> "list[Location]":
        """The locations of all other nodes of this store that have run on this machine. It reads from the disk."""
        if self.server is None:
            return []
        try:
            found = {file.removesuffix(NODE) for file in os.listdir(self.path.parent) if file.endswith(NODE)}
        except OSError:  # there is no such folder yet
            return []
        names = sorted(name for name in found - {self.path.name} if is_of_node(name))
        return [Location(self.path.with_name(name), self.server) for name in names]

    def job_files(self, given: str | None) -> str | None:
        """Returns the folder for the files of flows and jobs: the one that was given, with every link followed, or one
        beside the file of the store. None for a store on a server: its nodes may be on several machines."""
        if given is not None:
            return os.path.realpath(os.path.expanduser(given))
        return f"{self.path}{BESIDE}" if self.server is None else None

    def files_owner(self, root: str | None) -> str | None:
        """Returns the name of this store among those that may have the same folder for files of flows and jobs; None if
        the folder is its own. It reads from the disk."""
        if root is None or root == self.job_files(None):
            return None
        what = str(self)
        if self.server is None:  # containers have the same path for different files
            with suppress(OSError):
                what = f"{what} {self.path.stat().st_ino}"
        return sha256(os.fsencode(what)).hexdigest()[:16]

    def secure(self) -> None:
        """Makes all files of the store private to this user. Raises StoreError if another user could replace them."""
        if self.server is not None:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"{described(error, self.path.parent)}; the control socket and the locks of nodes are below "
                    f"{self.path.parents[2]}: set XDG_STATE_HOME to a folder that this process may write to"
                ) from error
        private.check_folder(self.path.parent)
        open_before = private.secure(self.files())
        if open_before:
            log.warning(
                "other users could open files of the store; now only this user can",
                event=log.Event.FILES_SECURED, files=[file.name for file in open_before], store=self,
            )  # fmt: skip

    def exists(self) -> bool:
        """Returns whether there is a store. Only opening it shows that for a store on a server."""
        return self.server is not None or self.path.exists()

    def resolved(self) -> "Location":
        """Returns the location with every link followed. It reads from the disk, which may hang."""
        return Location(Path(os.path.realpath(self.path)), self.server)

    def __str__(self) -> str:
        return str(self.path) if self.server is None else self.server.shown


def locate(url: str, node: str | None = None) -> Location:
    """Returns the location of a store: one file with one set of locks, whatever links lead to it. On a server, a store
    has such a set for each node of this machine: `node` is its name.

    Raises ConfigurationError for an address of an unknown kind, and StoreError for a name that cannot be used.
    """
    if is_postgres(url):
        found = _on_server(url, node)
        found.secure()
        return found.resolved()
    named = Path(_file_of(url)).expanduser()
    if os.path.islink(named):
        private.check_folder(named.absolute().parent)
    path = Path(os.path.realpath(named))
    _check_encoding(path)
    if os.path.islink(path):
        raise StoreError(f"{path} is a symbolic link that refers to itself: name the file of the store")
    folders = max(len(os.fsencode(part)) for part in path.parts[:-1])
    for what, found, most in (
        ("path", len(os.fsencode(path)), LONGEST_PATH),
        ("name", len(os.fsencode(path.name)), LONGEST_NAME),
        ("folder's name", folders, 255),
    ):
        if found > most:
            raise StoreError(
                f"the store's {what} is too long, {found} bytes (allowed are {most}): {str(path)[:60]}…; choose another"
            )
    return Location(path)


def locate_unread(url: str, node: str | None = None) -> Location:
    """Returns the location of a store without reading from a disk, which may hang: no link is followed.

    Raises StoreError for a path that is not UTF-8.
    """
    if is_postgres(url):
        return _on_server(url, node)
    path = Path(os.path.abspath(os.path.expanduser(_file_of(url))))
    _check_encoding(path)
    return Location(path)


def _on_server(url: str, node: str | None = None) -> Location:
    """Returns the location of a store on a server: the files of its processes are in a folder of this user's state."""
    server = parse(url)
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    name = STATE if node is None else f"node-{sha256(node.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return Location(Path(state).expanduser().absolute() / FOLDER / server.digest / name, server)


def _check_encoding(path: Path) -> None:
    """Raises StoreError for a path that is not UTF-8 in this process: the engine and JSON cannot name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        shown = os.fsencode(path).decode("ascii", "backslashreplace")
        if encoding == "utf-8":
            raise StoreError(f"the store's path is not valid UTF-8: {shown}; choose another") from None
        raise StoreError(
            f"the store's path has characters that the encoding of this process ({encoding}) lacks: {shown}; "
            "set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8"
        ) from None


def location_of_node_lock(file: str) -> Location | None:
    """Returns the location of the store whose node lock this file is; None if it is another file."""
    return Location(Path(file.removesuffix(NODE))) if file.endswith(NODE) else None


def _file_of(url: str) -> str:
    """Returns the file that an address names, as it is written there."""
    scheme, colon, rest = url.partition(":")
    if not colon or not ("://" in url or scheme.lower() == "sqlite"):
        scheme, rest = "", url
    if scheme.lower() not in ("", "sqlite"):
        raise ConfigurationError(
            f"store '{scheme}:…': {scheme!r} is not supported; give a path, sqlite:///path/to/file.db or {EXAMPLE} "
            "(CHARGEHAND_URL)"
        )
    text = unquote(rest.removeprefix("//")) if scheme else rest
    if scheme and text.startswith("//"):
        text = text[1:]
    if not text or text.endswith("/"):
        raise ConfigurationError(
            f"store {url!r} names no file; give a path, sqlite:///path/to/file.db or postgresql://user@host/database"
        )
    if text.rpartition("/")[2] == ":memory:":
        raise ConfigurationError(
            f"store {url!r} is not in memory: workers are other processes; give a path, in tests that of a temporary "
            "file, such as Chargehand(tmp_path / 'test.db')"
        )
    return text
