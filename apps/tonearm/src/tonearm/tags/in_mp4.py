"""Tonearm's tags in MP4: freeform atoms `----:com.apple.iTunes:tonearm:genre`.

They do not use a domain of their own: readers based on ffmpeg drop the domain, so `----:org.tonearm:genre` would hide
the existing genre.
"""

import shutil
from collections.abc import Iterable
from typing import Any, BinaryIO

from mutagen.mp4 import MP4FreeForm

from tonearm.tags import atoms
from tonearm.tags.kinds import Kind, opened
from tonearm.tags.plan import Existing, Plan, Values

FREEFORM = "----:com.apple.iTunes:"
NAMESPACE = FREEFORM + "tonearm:"
NATIVE = {"GENRE": "\xa9gen", "GROUPING": "\xa9grp"}


def look(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Existing:
    """Returns the current tags."""
    found: dict[str, Any] = dict(opened(file, kind).tags or {})
    own: dict[str, Values] = {}
    standard: dict[str, Values] = {}
    for key, values in found.items():
        if name := _own_name(key):
            own[name] = (*own.get(name, ()), *_texts(values))
    for tag in tags:
        standard[tag] = tuple(t for key in _keys(found, tag) for t in _texts(found[key]) if t)
    return Existing(own, standard)


def foreign(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> tuple[dict[str, str], set[bytes]]:
    """Returns all tags, as mutagen reads them, except Tonearm's and these, and the names of the atoms."""
    found: dict[str, Any] = dict(opened(file, kind).tags or {})
    touched = {key for tag in tags for key in _keys(found, tag)}
    kept = {key: repr(value) for key, value in found.items() if not _own_name(key) and key not in touched}
    # mutagen writes a numeric genre as text; freeform atoms are identified by their names above
    names = {atom.name for atom in atoms.tags(file)} - {b"----", b"gnre", b"\xa9gen", b"\xa9grp"}
    return kept, names


def compose(source: BinaryIO, out: BinaryIO, kind: Kind, existing: Existing, plan: Plan) -> None:
    """Writes the file as planned."""
    source.seek(0)
    shutil.copyfileobj(source, out, 1 << 20)
    file = opened(out, kind)
    if file.tags is None:
        file.add_tags()
    tags: Any = file.tags
    for key in [key for key in tags if _own_name(key)]:
        del tags[key]
    for name, values in plan.standard.items():
        if existing.standard.get(name, ()) != values:
            _put(tags, name, values)
    for name in sorted(plan.own):
        tags[NAMESPACE + name] = [MP4FreeForm(value.encode()) for value in plan.own[name]]
    out.seek(0)
    file.save(out)


def audio(file: BinaryIO, kind: Kind) -> bytes:
    """Returns a digest of everything except the tags."""
    return atoms.audio(file)


def _put(tags: Any, name: str, values: Values) -> None:
    keys = _keys(tags, name)
    for key in keys:
        del tags[key]
    key = keys[0] if keys else NATIVE.get(name, FREEFORM + name)
    if values:
        tags[key] = [MP4FreeForm(value.encode()) for value in values] if key.startswith("----") else list(values)


def _keys(tags: Iterable[str], name: str) -> list[str]:
    wanted = NATIVE.get(name, FREEFORM + name).lower()
    return [key for key in tags if key.lower() == wanted]


def _own_name(key: str) -> str | None:
    ours = key.lower().startswith(NAMESPACE.lower())
    return key.lower().removeprefix(NAMESPACE.lower()) if ours else None


def _texts(values: Any) -> list[str]:
    return [bytes(v).decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
