"""Finds tracks by label, text or rule, for the command line and the page. Must not import numpy or a decoder."""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from tonearm import clock, hearing
from tonearm.errors import TonearmError
from tonearm.labels import TIERS, Tier
from tonearm.library import Folder, Library, joined, shown
from tonearm.report import called
from tonearm.tags import rules
from tonearm.tags.playlist import Entry
from tonearm.tiers import SHOWN

_ROW = (
    "SELECT file.id, title, artist, album, year, genre, kind, duration, path, root, tagged_ms, needs, written_ms "
    "FROM file JOIN folder ON folder.id = file.folder WHERE missing_ms IS NULL"
)


def folder(each: Folder) -> dict[str, Any]:
    """Returns a folder as a JSON-compatible dict."""
    when = None if each.scanned_ms is None else clock.local_time(each.scanned_ms)
    return {"id": each.id, "root": shown(each.root), "mode": each.mode, "scanned": when}


def tracks(library: Library, *, label: str = "", text: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """Returns tracks that show this label and have this text in tags or path, newest first; empty values match all."""
    wheres, values = [_ROW], list[Any]()
    if label:
        wheres.append(f"file.id IN (SELECT label.file FROM label WHERE name = ? AND tier IN {_within(SHOWN)})")
        values.append(label)
    if text:
        wheres.append("instr(lower(coalesce(title, '') || artist || coalesce(album, '') || CAST(path AS TEXT)), ?)")
        values.append(text.lower())
    rows = library.rows(f"{' AND '.join(wheres)} ORDER BY tagged_ms DESC NULLS LAST, file.id LIMIT ?", *values, limit)
    return [_shown(library, row) for row in rows]


def track(library: Library, number: int) -> dict[str, Any] | None:
    """Returns one track with its labels, or None."""
    row = library.one(f"{_ROW} AND file.id = ?", number)
    return None if row is None else _shown(library, row)


def find(library: Library, text: str) -> int:
    """Returns the id of the track given by its id, its path, or a text that matches only this track."""
    if text.isdigit() and track(library, int(text)) is not None:
        return int(text)
    real = os.path.realpath(os.fsencode(text))
    for each in library.folders():
        if real.startswith(each.root + b"/"):
            found = library.one(
                "SELECT id FROM file WHERE folder = ? AND path = ?", each.id, real[len(each.root) + 1 :]
            )
            if found is not None:
                return int(found[0])
    some = tracks(library, text=text, limit=3)
    if len(some) == 1:
        return int(some[0]["id"])
    said = f"{text!r} matches several tracks: " + ", ".join(f"{each['id']} ({each['name']})" for each in some)
    raise TonearmError(f"{said}; give the track's number" if some else f"the library has no track {text!r}")


def rule(library: Library, text: str) -> rules.Rule:
    """Parses a rule. Raises TextError if it is malformed or contains an unknown category or label."""
    parsed = rules.parse(text)
    known: dict[str, set[str]] = {}
    for label in library.book().labels.values():
        known.setdefault(label.category, set()).add(label.name)
    for category, name in library.rows("SELECT DISTINCT category, name FROM label"):  # also labels added by users
        known.setdefault(category, set()).add(name)
    rules.check(parsed, known)
    return parsed


def _within(tier: Tier) -> str:
    """Returns a tier and the stricter ones as a list for a query."""
    return f"({', '.join(repr(each) for each in TIERS[: TIERS.index(tier) + 1])})"


def matching(library: Library, rule: rules.Rule, tier: Tier = SHOWN) -> Iterator[Entry]:
    """Yields the tracks that match a rule by their labels of this tier or a stricter one."""
    rows = library.rows(f"{_ROW} AND tagged_ms IS NOT NULL ORDER BY file.id")
    for number, title, artist, _album, _year, _genre, _kind, duration, path, root, *_ in rows:
        groups: dict[str, list[str]] = {}
        given = library.rows(f"SELECT category, name FROM label WHERE file = ? AND tier IN {_within(tier)}", number)
        for category, name in given:
            groups.setdefault(category, []).append(name)
        if rules.matches(rule, groups):
            who = tuple(msgspec.json.decode(artist, type=list[str]))
            yield Entry(os.fsdecode(joined(root, path)), title, who, duration)


def no_match(library: Library, rule: rules.Rule) -> str:
    """Returns the reason why a valid rule matches no track."""
    if not library.number("SELECT count(*) FROM file WHERE tagged_ms IS NOT NULL AND missing_ms IS NULL"):
        return "no song has been analysed yet: start `tonearm serve`"
    return f"no track matches {rules.text(rule)}: `tonearm labels list` shows how many tracks have each label"


def _shown(library: Library, row: tuple[Any, ...]) -> dict[str, Any]:
    number, title, artist, album, year, genre, kind, duration, path, root, tagged, needs, written = row
    return {
        "id": number,
        "name": called(title, artist, path),
        "album": album,
        "year": year,
        "genre": msgspec.json.decode(genre),
        "kind": kind,
        "duration": duration,
        "path": shown(joined(root, path)),
        "state": "waiting" if needs else "tagged" if tagged else "not heard",
        "written": None if written is None else clock.local_time(written),
        "labels": [msgspec.to_builtins(label) for label in hearing.labels(library, number)],
    }
