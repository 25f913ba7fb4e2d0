"""Reads `.env` files: one KEY=VALUE per line, with quotes, comments and `export`; nothing is executed or expanded.

Errors name the file and the line but never quote the line, because such files hold secrets.
"""

import re
from pathlib import Path

from chargehand.errors import ConfigurationError

_ENTRY = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*
    (?:'(?P<plain>[^']*)' | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<bare>[^\n'"][^\n]*)?)
    [ \t]*(?:[ \t]\#[^\n]*)?(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_NOTHING = re.compile(r"[ \t]*(?:#[^\n]*)?\n|[ \t]*(?:#[^\n]*)?\Z")
Lines = dict[str, tuple[str, int]]
"""Variables by name, each with its text and its line number."""
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read(path: Path) -> Lines:
    """Returns the variables that the file sets, each with its line number; an empty dict if the file does not exist."""
    try:
        text = path.read_text("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    found: dict[str, tuple[str, int]] = {}
    at = 0
    while at < len(text):
        if skipped := _NOTHING.match(text, at):
            at = skipped.end()
            continue
        line = text.count("\n", 0, at) + 1
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise ConfigurationError(f"{path}, line {line}: expected NAME=VALUE; quote a value that contains a quote")
        found[entry["name"]] = (_value(entry), line)
        at = entry.end()
    return found


def _value(entry: re.Match[str]) -> str:
    """Returns the value of an entry without quotes, escapes and comments."""
    if entry["plain"] is not None:
        return entry["plain"]
    if entry["quoted"] is not None:
        return re.sub(r"\\(.)", lambda it: _ESCAPES.get(it[1], it[1]), entry["quoted"], flags=re.DOTALL)
    return re.sub(r"(?:^|[ \t]+)#.*", "", entry["bare"] or "").strip()
