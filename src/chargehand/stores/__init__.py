"""The stores: one file each, all of them keeping the contract in `chargehand.store`."""

from pathlib import Path
from urllib.parse import unquote

from chargehand.errors import ConfigurationError
from chargehand.store import Store


def sqlite_path(url: str) -> Path:
    """The file that a store's address names; an address of another kind is refused in words."""
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
    return Path(text).expanduser().resolve()  # one file, one set of locks, whatever links lead to it


def open_store(url: str, *, create: bool = True, node: bool = False, synchronous: str = "full") -> Store:
    """The store at this address, checked and migrated. `node`: the caller is the node, which tends the file.

    `synchronous`: "full", or "normal", where a power cut may take back what was acknowledged last.
    """
    from chargehand.stores.sqlite import SqliteStore

    return SqliteStore(sqlite_path(url), create=create, tend=node, synchronous=synchronous)
