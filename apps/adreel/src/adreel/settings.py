"""Reads the settings of Adreel: environment, then `.env` of the folder of the start, then `.env` beside the package.

Names of Chargehand in these files (`EMBED_WORKERS`, `WORKER_PROCESSES`, `CHARGEHAND_…`) are read by Chargehand itself.
"""

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dotenv import dotenv_values

from adreel import names
from chargehand import ConfigurationError

PREFIX = "ADREEL_"
PACKAGE = Path(__file__).resolve().parent
DAY = 86_400.0
MOST_DAYS = 1_000_000.0
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_IGNORED = re.compile(rf"{PREFIX}(DEMO(_.*)?|TEST_.*|SERVICE_.*|PORT_\d+_.*)")
"""Variables of the command line, the demo and tests, and those that Kubernetes sets for a service of that name."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of Adreel; `known` lists their names."""

    home: Path
    """The data folder: store, uploads, films. On several machines, a folder that all of them share."""
    roots: tuple[Path, ...] = ()
    """Folders whose files may be submitted by their path."""
    max_upload: int = 2 << 30
    """The largest file that is accepted, in bytes."""
    max_files: int = 50
    """The largest number of files of one request."""
    min_free: int = 512 << 20
    """Bytes that stay free on the disk: an upload that would use them is refused."""
    upload_stall: float = 60.0
    """Seconds without a byte after which an upload is given up."""
    keep_uploads: float = 7 * DAY
    """Seconds after the end of an analysis for which the uploaded file is kept."""
    keep_results: float = 30 * DAY
    """Seconds after the end of an analysis for which the result is kept."""
    categories: Path | None = None
    """The file of categories; None: the one in the package."""
    webhook: str | None = None
    """The address that is called when an analysis has ended."""
    open: bool = False
    """Whether everybody who reaches the port may use everything except drain."""
    max_seconds: float = 4 * 3600.0
    """The longest film that is analysed."""
    max_pixels: int = 36_000_000
    """The largest frame that is decoded; 8K has 35.4 million pixels."""
    max_streams: int = 32
    """The largest number of streams of a film."""
    max_memory: int = 2 << 30
    """Bytes that a worker may allocate while it decodes."""
    port: int = 8356
    """The port of `adreel serve`."""
    url: str | None = None
    """The server that the commands use; None: that of this machine."""
    key: str | None = field(default=None, repr=False)
    """The key that the commands send; None: the token of this machine."""
    files: tuple[Path, ...] = field(default=(), compare=False)
    """The `.env` files that were read."""

    @property
    def uploads(self) -> Path:
        """Where incomplete uploads are."""
        return self.home / "uploads"

    @property
    def films(self) -> Path:
        """Where the files of each film are, in a folder named by its id."""
        return self.home / "films"

    def environment(self) -> dict[str, str]:
        """Returns these settings as environment variables, for the workers."""
        found = {"HOME": str(self.home), "ROOTS": os.pathsep.join(map(str, self.roots))}
        found |= {"CATEGORIES": str(self.categories or ""), "WEBHOOK": self.webhook or ""}
        found |= {"MAX_SECONDS": str(self.max_seconds), "MAX_PIXELS": str(self.max_pixels)}
        found |= {"MAX_STREAMS": str(self.max_streams), "MAX_MEMORY": str(self.max_memory)}
        found |= {"KEEP_UPLOADS": str(self.keep_uploads / DAY), "KEEP_RESULTS": str(self.keep_results / DAY)}
        return {PREFIX + name: text for name, text in found.items() if text}


def boolean(text: str) -> bool:
    """Parses 1, true, yes, 0, false or no in any case. Raises ValueError."""
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise ValueError
    return found


def size(text: str) -> int:
    """Parses a number of bytes such as `2 GiB`, `800 MB` or `1000000`. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError
    number = float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].upper()]
    if not 1 <= number < 1 << 63:  # also infinity
        raise ValueError
    return int(number)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) < 1:
        raise ValueError
    return int(text)


def _port(text: str) -> int:
    if not 0 < _whole(text) < 65536:
        raise ValueError
    return int(text)


def _seconds(text: str) -> float:
    found = float(text)
    if not 0 < found < 1e9:  # also NaN
        raise ValueError
    return found


def _days(text: str) -> float:
    found = float(text)
    if not 0 < found <= MOST_DAYS:  # also NaN
        raise ValueError
    return found * DAY


def _path(text: str) -> Path:
    try:
        found = Path(text).expanduser()
    except RuntimeError as error:  # `~name` of a user that does not exist
        raise ValueError from error
    if not found.is_absolute() or not names.is_text(found.resolve()):
        raise ValueError
    return found.resolve()


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(_path(part) for part in text.split(os.pathsep) if part.strip())


def address(text: str) -> str:
    """Parses an address of HTTP. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:  # `port` raises ValueError, too
        raise ValueError
    return text


def secret(text: str) -> str:
    """Parses a key as a header can carry it. Raises ValueError."""
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError
    return text


_FOLDER = "an absolute path in UTF-8, or one that begins with ~"
_NUMBER = "a number of seconds, more than 0"
_DAYS = f"a number of days, more than 0 and up to {MOST_DAYS:.0f}"
KNOWN: dict[str, tuple[Callable[[str], Any], str]] = {
    "home": (_path, _FOLDER),
    "roots": (_paths, f"absolute paths with {os.pathsep!r} between them"),
    "max_upload": (size, "a size of 1 byte or more such as '2 GiB'"),
    "max_files": (_whole, "a whole number, 1 or more"),
    "min_free": (size, "a size of 1 byte or more such as '512 MiB'"),
    "upload_stall": (_seconds, _NUMBER),
    "keep_uploads": (_days, _DAYS),
    "keep_results": (_days, _DAYS),
    "categories": (_path, _FOLDER),
    "webhook": (address, "an address such as https://example.org/done"),
    "open": (boolean, "1, true, yes, 0, false or no"),
    "max_seconds": (_seconds, _NUMBER),
    "max_pixels": (_whole, "a whole number, 1 or more"),
    "max_streams": (_whole, "a whole number, 1 or more"),
    "port": (_port, "a whole number, 1 to 65535"),
    "url": (address, "an address such as http://127.0.0.1:8356"),
    "key": (secret, "a key: printable ASCII characters without blanks"),
    "max_memory": (size, "a size of 1 byte or more such as '2 GiB'"),
}
"""How each setting is read, and what is allowed. Its name in the environment is in upper case, with ADREEL_ before."""


def read(environment: Mapping[str, str] = os.environ, *, package: Path = PACKAGE) -> Settings:
    """Returns the settings. Raises ConfigurationError, which names the setting, its origin and what is allowed."""
    found: dict[str, Any] = {}
    files = _files(package)
    for file in files:
        try:
            given = {name: text or "" for name, text in dotenv_values(file, interpolate=False).items()}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the settings in {file} cannot be read: {error}") from error
        found |= _parsed(given, f"in {file}")
    found |= _parsed(environment, "in the environment")
    found.setdefault("home", default_home(environment))
    return Settings(**found, files=tuple(reversed(files)))


def default_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns `adreel` in the data folder of the user."""
    data = environment.get("XDG_DATA_HOME", "")
    return (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "adreel"


def _files(package: Path) -> list[Path]:
    """Returns the `.env` files, the one that takes precedence last."""
    try:
        folders = [package, Path.cwd()]
    except OSError:  # the folder was deleted
        folders = [package]
    return [folder / ".env" for folder in dict.fromkeys(folders) if (folder / ".env").is_file()]


def _parsed(given: Mapping[str, str], origin: str) -> dict[str, Any]:
    """Returns the settings among these variables; an empty one counts as not set."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        if not name.startswith(PREFIX) or not text.strip() or _IGNORED.fullmatch(name):
            continue
        if name == f"{PREFIX}PORT" and text.startswith("tcp://"):
            continue  # Kubernetes sets it for a service of that name
        known = KNOWN.get(name.removeprefix(PREFIX).lower())
        if known is None:
            near = difflib.get_close_matches(name, [PREFIX + each.upper() for each in KNOWN], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigurationError(f"unknown setting {name} ({origin}){hint}")
        try:
            found[name.removeprefix(PREFIX).lower()] = known[0](text.strip())
        except ValueError:
            value = "not shown" if name == f"{PREFIX}KEY" else repr(text[:200])
            raise ConfigurationError(f"{name} is {value} ({origin}); must be {known[1]}") from None
    return found
