"""Generates playlists: M3U8 for every player, smart playlists (.nsp) for Navidrome. Pure: no file access."""

import os.path
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from tonearm.tags import navidrome, rules
from tonearm.tags.rules import Rule


@dataclass(frozen=True, slots=True)
class Entry:
    """One track of a playlist."""

    path: str
    title: str | None = None
    artist: tuple[str, ...] = ()
    duration: float | None = None


@dataclass(frozen=True, slots=True)
class M3u:
    """The text of the playlist, and the paths that it cannot contain."""

    text: str
    left_out: tuple[str, ...]


def m3u8(name: str, entries: Iterable[Entry], *, folder: str | None = None) -> M3u:
    """Returns the playlist with paths relative to its future folder, or else with absolute paths."""
    lines = ["#EXTM3U", f"#PLAYLIST:{_one_line(name)}"]
    left_out: list[str] = []
    for entry in entries:
        path = os.path.relpath(entry.path, folder) if folder is not None else os.path.abspath(entry.path)
        if not _fits(path):
            left_out.append(entry.path)
            continue
        seconds = -1 if entry.duration is None else round(entry.duration)
        lines.append(f"#EXTINF:{seconds},{_shown(entry)}")
        lines.append(f"./{path}" if path.startswith(("#", " ")) else path)
    return M3u("\n".join(lines) + "\n", tuple(left_out))


def nsp(
    name: str,
    rule: Rule,
    *,
    comment: str = "",
    sort: str = "title",
    order: Literal["asc", "desc"] = "asc",
    limit: int | None = None,
) -> str:
    """Returns a smart playlist that Navidrome keeps up to date, based on the tags configured by the snippet."""
    found = _criteria(rules.positive(rule))
    top = found if found.keys() & {"all", "any"} else {"all": [found]}
    shown: dict[str, object] = {
        "name": name,
        "comment": comment or rules.text(rule),
        **top,
        "sort": sort,
        "order": order,
    }
    if limit is not None:
        shown["limit"] = limit
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n"


def _criteria(rule: Rule) -> dict[str, object]:
    match rule:
        case rules.Has(group, label):
            return {"is": {navidrome.field(group): label}}
        case rules.Not(rules.Has(group, label)):
            return {"isNot": {navidrome.field(group): label}}
        case rules.All(inner):
            return {"all": [_criteria(each) for each in inner]}
        case rules.Any(inner):
            return {"any": [_criteria(each) for each in inner]}
        case rules.Not():
            return _criteria(rules.positive(rule))


def _shown(entry: Entry) -> str:
    title = entry.title or os.path.splitext(os.path.basename(entry.path))[0]
    return _one_line(f"{', '.join(entry.artist)} - {title}" if entry.artist else title)


def _one_line(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _fits(path: str) -> bool:
    """Returns whether the path is one line of valid text: no other encodings, no line breaks."""
    return len(path.splitlines()) == 1 and not any("\ud800" <= letter <= "\udfff" for letter in path)
