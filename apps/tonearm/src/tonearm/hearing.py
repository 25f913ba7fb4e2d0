"""Stores analysis results and the labels derived from them. Must not import numpy.

Labels are derived from stored scores, the label file, the calibration and user corrections. No audio is read here.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from tonearm import calibration as calibrating
from tonearm import catalogue, clock, tiers, wanted
from tonearm.calibration import Calibration, Tally
from tonearm.catalogue import Waiting
from tonearm.errors import TonearmError
from tonearm.heard import EMBEDDING, MODELS, Heard
from tonearm.labels import Book, Category, merge
from tonearm.library import Db, Library
from tonearm.tiers import Corrections, Given

Tick = Callable[[int, int, str], None]
"""Progress callback: done, total, stage."""
PAGE = 200
SIZES = tuple(len(words) for words in MODELS.values())
"""Number of scores of each model."""
WIDTHS = (EMBEDDING,) * len(MODELS)
"""Embedding size of each model."""


class Derivation(msgspec.Struct, frozen=True):
    """Everything that labels are derived from, except scores."""

    book: Book
    calibration: Calibration | None

    def labels(self, scores: dict[str, list[float]], corrections: Corrections) -> list[Given]:
        """Returns the labels of one track."""
        return tiers.judge(self.book, merge(self.book, scores), self.calibration, corrections)


def derivation(library: Library) -> Derivation:
    """Returns the current inputs for deriving labels."""
    return Derivation(library.book(), calibration(library))


def certainty(library: Library) -> str | None:
    """Returns which scores are certain enough for a label to be shown; None while the label file is invalid."""
    return None if library.book_trouble() else tiers.certainty(library.book(), calibration(library))


def calibration(library: Library) -> Calibration | None:
    """Returns the newest calibration, or None."""
    found = library.one("SELECT body FROM calibration ORDER BY id DESC LIMIT 1")
    return None if found is None else msgspec.json.decode(found[0], type=Calibration)


def keep(library: Library, file: Waiting, heard: Heard, audio: bytes | None, took: float) -> list[Given] | None:
    """Stores an analysis and its labels and returns the labels, or None if the file changed in the meantime.

    While the label file is invalid, labels stay unchanged; they are derived when the label file is valid again.
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
            _put(library, db, file.id, given)
    return given


def refuse(library: Library, number: int, round: int, why: str, reason: str) -> bool:
    """Records that a file cannot be analysed, and why. It is not tried again until the user asks for it."""
    with library.writing() as db:
        found = db.execute(
            "UPDATE file SET needs = NULL WHERE id = ? AND round = ? AND needs = 'tag' RETURNING folder, path",
            (number, round),
        ).fetchall()
        for folder, path in found:
            catalogue.trouble(db, folder, path, "tag", why, reason)
    return bool(found)


def scores(library: Library, number: int) -> dict[str, list[float]] | None:
    """Returns the scores of a track."""
    found = library.one("SELECT scores FROM heard WHERE file = ?", number)
    return None if found is None else unpacked(found[0], SIZES)


def embeddings(library: Library) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Yields the embeddings of all tracks that are not missing."""
    query = (
        "SELECT heard.file, embedding FROM heard JOIN file ON file.id = heard.file "
        "WHERE heard.file > ? AND missing_ms IS NULL ORDER BY heard.file LIMIT ?"
    )
    for number, blob in _pages(library, query):
        yield str(number), unpacked(blob, WIDTHS)


def labels(library: Library, number: int) -> list[Given]:
    """Returns the labels of a track, strictest tier first."""
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
    """Returns the user corrections of a track."""
    found = library.one("SELECT body FROM correction WHERE file = ?", number)
    return tiers.NONE if found is None else msgspec.json.decode(found[0], type=Corrections)


def correct(library: Library, number: int, said: Corrections) -> list[Given]:
    """Stores a user correction and derives the labels of the track again."""
    how = derivation(library)
    heard = scores(library, number)
    with library.writing() as db:
        db.execute("INSERT OR REPLACE INTO correction VALUES (?, ?)", (number, _json(said)))
        given = how.labels(heard or {}, said)
        _put(library, db, number, given)
    return given


def category_of(book: Book, name: str, given: str | None) -> Category:
    """Returns the category of a label from the label file, or the given one."""
    if given is not None:
        return msgspec.convert(given, Category)
    if name not in book.labels:
        raise TonearmError(f"{name!r} is not in the label file: give its category, e.g. --category mood")
    return book.labels[name].category


# calibration


class Recount(msgspec.Struct, frozen=True):
    """The result of a calibration."""

    tracks: int
    applied: bool
    drift: dict[str, float] | None
    """How far each label moved since the previous calibration, largest first; None without a comparable calibration."""
    enough: bool


def is_due(library: Library) -> bool:
    """Returns whether a calibration is due: half as many new tracks as in the last one, or no file is waiting."""
    tagged = library.number("SELECT count(*) FROM heard")
    last = library.number("SELECT tracks FROM calibration ORDER BY id DESC LIMIT 1")
    if tagged < calibrating.ENOUGH or tagged == last or library.book_trouble():
        return False
    return tagged >= last * 1.5 or not library.number(
        "SELECT count(*) FROM file WHERE needs IS NOT NULL AND missing_ms IS NULL"
    )


def recalibrate(library: Library, tick: Tick | None = None, *, force: bool = False) -> Recount:
    """Calibrates; derives all labels again if scores moved far enough, or if forced."""
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
    """Derives the labels of all tracks from stored scores and returns the number of tracks."""
    how = derivation(library)
    total = max(1, library.number("SELECT count(*) FROM heard"))
    done = 0
    query = "SELECT file, scores FROM heard WHERE file > ? ORDER BY file LIMIT ?"
    tracks = _pages(library, query)
    while page := list(islice(tracks, PAGE)):
        with library.writing() as db:
            for number, blob in page:
                _put(library, db, number, how.labels(unpacked(blob, SIZES), _corrections(db, number)))
        done += len(page)
        if tick is not None:
            tick(done, total, "derive")
    return done


# stored numbers


def unpacked(blob: bytes, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Unpacks stored numbers by model."""
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


def _put(library: Library, db: Db, number: int, given: Sequence[Given]) -> None:
    """Stores the labels of a track; if its folder has a write mode, requests that outdated tags are written."""
    db.execute("DELETE FROM label WHERE file = ?", (number,))
    db.executemany(
        "INSERT INTO label VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(number, g.name, g.category, g.tier, g.by, g.score, g.percentile) for g in given],
    )
    found = db.execute(
        "SELECT folder, written FROM file WHERE id = ? AND tagged_ms IS NOT NULL AND needs IS NULL", (number,)
    ).fetchall()
    for folder_id, written in found:
        folder = library.folder(folder_id)
        if folder is None or folder.mode == "none":
            continue
        # The labels are read back, because their order is part of the digest.
        now = wanted.labels(labels(library, number), folder.tier)
        if wanted.digest(now, folder.settings()) != (written or ""):
            db.execute("UPDATE file SET asked = 'write', turn = turn + 1 WHERE id = ?", (number,))
