"""What was heard, and the labels made from it: kept, derived again, corrected. Light: plain numbers.

Labels are always derived from stored scores, the label file, the calibration and what people said; nothing is
listened to here.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from tonearm import calibration as calibrating
from tonearm import catalogue, clock, tiers
from tonearm.calibration import Calibration, Tally
from tonearm.catalogue import Waiting
from tonearm.errors import TonearmError
from tonearm.heard import EMBEDDING, MODELS, Heard
from tonearm.labels import Book, Category, merge
from tonearm.library import Db, Library
from tonearm.tiers import Corrections, Given

Tick = Callable[[int, int, str], None]
"""Told how much is done, of how much, in which stage."""
PAGE = 200
SIZES = tuple(len(words) for words in MODELS.values())
"""How many scores each model gives."""
WIDTHS = (EMBEDDING,) * len(MODELS)
"""How many numbers each model's embedding has."""


class Derivation(msgspec.Struct, frozen=True):
    """What labels are made with, besides scores."""

    book: Book
    calibration: Calibration | None

    def labels(self, scores: dict[str, list[float]], corrections: Corrections) -> list[Given]:
        """The labels of one track."""
        return tiers.judge(self.book, merge(self.book, scores), self.calibration, corrections)


def derivation(library: Library) -> Derivation:
    """What labels are made with now."""
    return Derivation(library.book(), calibration(library))


def calibration(library: Library) -> Calibration | None:
    """The newest calibration."""
    found = library.one("SELECT body FROM calibration ORDER BY id DESC LIMIT 1")
    return None if found is None else msgspec.json.decode(found[0], type=Calibration)


def keep(library: Library, file: Waiting, heard: Heard, audio: bytes | None, took: float) -> list[Given] | None:
    """Keep what was heard, with its labels, and that the file needs nothing more; None if it changed meanwhile.

    While the label file cannot be used, labels stay as they are: they are derived when it is mended.
    """
    how = None if library.book_trouble() else derivation(library)
    with library.writing() as db:
        still = db.execute(
            "UPDATE file SET needs = NULL, tagged_ms = ?, took = ?, audio = ?, duration = ? "
            "WHERE id = ? AND round = ? AND needs = 'tag' RETURNING folder, path",
            (clock.now_ms(), took, audio, heard.duration, file.id, file.round),
        ).fetchall()
        if not still:
            return None
        ((folder, path),) = still
        db.execute("DELETE FROM trouble WHERE folder = ? AND path = ? AND stage = 'tag'", (folder, path))
        numbers = (_packed(heard.scores), _packed(heard.embedding))
        db.execute(
            "INSERT OR REPLACE INTO heard VALUES (?, ?, ?, ?, ?, ?)",
            (file.id, heard.listener, *numbers, heard.decoder, heard.patches),
        )
        given = [] if how is None else how.labels(heard.scores, _corrections(db, file.id))
        if how is not None:
            _put(db, file.id, given)
    return given


def refuse(library: Library, number: int, round: int, why: str, reason: str) -> bool:
    """The file cannot be heard: say why, and have nobody try again until somebody asks for it."""
    with library.writing() as db:
        found = db.execute(
            "UPDATE file SET needs = NULL WHERE id = ? AND round = ? AND needs = 'tag' RETURNING folder, path",
            (number, round),
        ).fetchall()
        for folder, path in found:
            catalogue.trouble(db, folder, path, "tag", why, reason)
    return bool(found)


def scores(library: Library, number: int) -> dict[str, list[float]] | None:
    """What the networks said of a track."""
    found = library.one("SELECT scores FROM heard WHERE file = ?", number)
    return None if found is None else unpacked(found[0], SIZES)


def embeddings(library: Library) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Where every track that is there stands among all music."""
    query = (
        "SELECT heard.file, embedding FROM heard JOIN file ON file.id = heard.file "
        "WHERE heard.file > ? AND missing_ms IS NULL ORDER BY heard.file LIMIT ?"
    )
    for number, blob in _pages(library, query):
        yield str(number), unpacked(blob, WIDTHS)


def labels(library: Library, number: int) -> list[Given]:
    """A track's labels, strictest first."""
    rows = library.rows(
        "SELECT name, category, tier, by, score, percentile FROM label WHERE file = ? "
        "ORDER BY CASE tier WHEN 'strict' THEN 0 WHEN 'regular' THEN 1 ELSE 2 END, by = 'model', score DESC",
        number,
    )
    return [
        Given(name=name, category=category, tier=tier, by=by, score=score, percentile=percentile)
        for name, category, tier, by, score, percentile in rows
    ]


def corrections(library: Library, number: int) -> Corrections:
    """What people said about a track."""
    found = library.one("SELECT body FROM correction WHERE file = ?", number)
    return tiers.NONE if found is None else msgspec.json.decode(found[0], type=Corrections)


def correct(library: Library, number: int, said: Corrections) -> list[Given]:
    """Keep what a person says about a track, and derive its labels again."""
    how = derivation(library)
    heard = scores(library, number)
    with library.writing() as db:
        db.execute("INSERT OR REPLACE INTO correction VALUES (?, ?)", (number, _json(said)))
        given = how.labels(heard or {}, said)
        _put(db, number, given)
    return given


def category_of(book: Book, name: str, given: str | None) -> Category:
    """The category of a label: of its file's, or the one that the person says."""
    if given is not None:
        return msgspec.convert(given, Category)
    if name not in book.labels:
        raise TonearmError(f"{name!r} is not in the label file: say what it is, e.g. --category mood")
    return book.labels[name].category


# calibration


class Recount(msgspec.Struct, frozen=True):
    """What a calibration came to."""

    tracks: int
    applied: bool
    drift: dict[str, float] | None
    """By how much each label moved since the calibration before, most first; None if there is none to compare with."""
    enough: bool


def is_due(library: Library) -> bool:
    """Whether enough tracks came since the last calibration: half as many again, or the line is empty."""
    tagged = library.number("SELECT count(*) FROM heard")
    last = library.number("SELECT tracks FROM calibration ORDER BY id DESC LIMIT 1")
    if tagged < calibrating.ENOUGH or tagged == last or library.book_trouble():
        return False
    return tagged >= last * 1.5 or not library.number(
        "SELECT count(*) FROM file WHERE needs IS NOT NULL AND missing_ms IS NULL"
    )


def recalibrate(library: Library, tick: Tick | None = None, *, force: bool = False) -> Recount:
    """Count all scores anew; if they moved far enough, or on request, derive all labels again."""
    book, old = library.book(), calibration(library)
    tally = Tally(book.fingerprint)
    total = max(1, library.number("SELECT count(*) FROM heard"))
    query = "SELECT file, scores FROM heard WHERE file > ? ORDER BY file LIMIT ?"
    for done, (_, blob) in enumerate(_pages(library, query)):
        tally.add(merge(book, unpacked(blob, SIZES)))
        if tick is not None and done % PAGE == 0:
            tick(done, total, "count")
    new = tally.calibration()
    drift = None if old is None or old.book != new.book else _most_first(calibrating.drift(old, new))
    usable = new.fits(book.fingerprint)
    stale = old is None or calibrating.is_stale(old, new) or (usable and not old.fits(book.fingerprint))
    if not (stale or force):
        return Recount(new.tracks, False, drift, usable)
    with library.writing() as db:
        db.execute(
            "INSERT INTO calibration (at_ms, tracks, moved, body) VALUES (?, ?, ?, ?)",
            (clock.now_ms(), new.tracks, max(drift.values(), default=0.0) if drift else None, _json(new)),
        )
        db.execute("DELETE FROM calibration WHERE id <= (SELECT max(id) FROM calibration) - 10")
    derive_again(library, tick)
    return Recount(new.tracks, True, drift, usable)


def _most_first(drift: dict[str, float]) -> dict[str, float]:
    return {label: round(moved, 4) for label, moved in sorted(drift.items(), key=lambda pair: (-pair[1], pair[0]))}


def _json(thing: msgspec.Struct) -> str:
    return msgspec.json.encode(thing).decode()


def derive_again(library: Library, tick: Tick | None = None) -> int:
    """Derive the labels of all tracks from what is stored. How many tracks."""
    how = derivation(library)
    total = max(1, library.number("SELECT count(*) FROM heard"))
    done = 0
    query = "SELECT file, scores FROM heard WHERE file > ? ORDER BY file LIMIT ?"
    tracks = _pages(library, query)
    while page := list(islice(tracks, PAGE)):
        with library.writing() as db:
            for number, blob in page:
                _put(db, number, how.labels(unpacked(blob, SIZES), _corrections(db, number)))
        done += len(page)
        if tick is not None:
            tick(done, total, "derive")
    return done


# numbers as they are stored


def unpacked(blob: bytes, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Numbers by model."""
    numbers = array("f", blob).tolist()
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    return {model: numbers[end - size : end] for model, end, size in zip(MODELS, ends, sizes, strict=True)}


def _packed(by_model: dict[str, list[float]]) -> bytes:
    return array("f", [number for model in MODELS for number in by_model[model]]).tobytes()


def _pages(library: Library, query: str) -> Iterator[tuple[Any, ...]]:
    after = 0
    while rows := library.rows(query, after, PAGE):
        yield from rows
        after = rows[-1][0]


def _corrections(db: Db, number: int) -> Corrections:
    found = db.execute("SELECT body FROM correction WHERE file = ?", (number,)).fetchall()
    return msgspec.json.decode(found[0][0], type=Corrections) if found else tiers.NONE


def _put(db: Db, number: int, given: Sequence[Given]) -> None:
    db.execute("DELETE FROM label WHERE file = ?", (number,))
    db.executemany(
        "INSERT INTO label VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(number, g.name, g.category, g.tier, g.by, g.score, g.percentile) for g in given],
    )
