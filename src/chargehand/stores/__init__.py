"""The stores: one file each, all of them keeping the contract in `chargehand.store`."""

import os
from pathlib import Path
from urllib.parse import unquote

from chargehand.errors import ConfigurationError, StoreError
from chargehand.store import Store

LONGEST_NAME = 255 - len("-journal")
"""Bytes of a file's name: files beside it have longer ones."""
LONGEST_PATH = 4000


def sqlite_address(url: str) -> str:
    """The file that a store's address names, as it stands there; an address of another kind is refused in words."""
    scheme, colon, rest = url.partition(":")
    if not colon or not ("://" in url or scheme.lower() == "sqlite"):
        scheme, rest = "", url
    if scheme.lower() not in ("", "sqlite"):
        raise ConfigurationError(
            f"store {url!r}: {scheme!r} is not supported; give a path or sqlite:///path/to/file.db (CHARGEHAND_URL)"
        )
    text = unquote(rest.removeprefix("//")) if scheme else rest
    if scheme and text.startswith("//"):
        text = text[1:]
    if not text or text.endswith("/"):
        raise ConfigurationError(f"store {url!r} names no file; give a path or sqlite:///path/to/file.db")
    return text


def sqlite_path(url: str) -> Path:
    """The same as one file with one set of locks, whatever links lead to it. StoreError if its name is too long."""
    path = Path(sqlite_address(url)).expanduser()
    path = path.resolve()
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
    return path


def open_store(url: str, *, create: bool = True, node: bool = False, synchronous: str = "full") -> Store:
    """The store at this address, checked and migrated. `node`: the caller is the node, which tends the file.

    `synchronous`: "full", or "normal", where a power cut may take back what was acknowledged last.
    """
    from chargehand.stores.sqlite.store import SqliteStore

    return SqliteStore(sqlite_path(url), create=create, tend=node, synchronous=synchronous)
