"""What people want to know: how far it is, how long it will take, which labels there are, what went wrong. Light."""

import os
from itertools import chain
from typing import Any

import msgspec

from chargehand import Chargehand, JobFilter, JobRecord, State
from tonearm import catalogue, hearing
from tonearm.library import Library, joined, shown

RECENT = 50
"""Songs whose time tells how long the others will take."""
NOT_BY_US = ("poison", "raised", "timed out", "no progress")
"""Why Chargehand sets a song aside; what the handler gives up on is in the library already."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A library at one moment."""

    files: int
    tagged: int
    waiting: int
    troubled: int
    missing: int
    seconds_each: float | None
    """Of one worker, for one song, as measured on the last ones."""
    kinds: dict[str, int]
    trying: bool
    scanned_ms: int | None
    calibrated: int
    writes_waiting: int
    written: int
    """Files that have labels in their own tags."""

    def eta(self, workers: int) -> float | None:
        """Seconds until all are heard, with so many workers; None while nothing was measured."""
        if not self.waiting:
            return 0.0
        return None if self.seconds_each is None else self.waiting * self.seconds_each / max(1, workers)


class Wrong(msgspec.Struct, frozen=True):
    """A file or folder that something is wrong with."""

    path: str
    stage: str
    why: str
    reason: str
    at_ms: int
    id: int | None


def progress(library: Library) -> Progress:
    """How far everything is."""
    here = "FROM file WHERE missing_ms IS NULL"
    took = library.one(
        "SELECT avg(took) FROM (SELECT took FROM file WHERE tagged_ms IS NOT NULL AND took IS NOT NULL "
        "ORDER BY tagged_ms DESC LIMIT ?)",
        RECENT,
    )
    only = "1" if library.setting("trying") else "2"
    scanned = library.one("SELECT min(coalesce(scanned_ms, 0)) FROM folder")
    kinds = library.rows(f"SELECT coalesce(kind, 'unknown'), count(*) {here} GROUP BY 1 ORDER BY 2 DESC")
    return Progress(
        files=library.number(f"SELECT count(*) {here}"),
        tagged=library.number(f"SELECT count(*) {here} AND tagged_ms IS NOT NULL AND needs IS NULL"),
        waiting=library.number(f"SELECT count(*) {here} AND needs IS NOT NULL AND place < ?", only),
        troubled=library.number("SELECT count(*) FROM trouble"),
        missing=library.number("SELECT count(*) FROM file WHERE missing_ms IS NOT NULL"),
        seconds_each=took[0] if took else None,
        kinds=dict(kinds),
        trying=library.setting("trying") is not None,
        scanned_ms=(scanned[0] or None) if scanned else None,
        calibrated=library.number("SELECT tracks FROM calibration ORDER BY id DESC LIMIT 1"),
        writes_waiting=library.number(f"SELECT count(*) {here} AND asked IS NOT NULL"),
        written=library.number(f"SELECT count(*) {here} AND written IS NOT NULL"),
    )


def troubles(library: Library, limit: int = 1000) -> list[Wrong]:
    """What is wrong, newest first."""
    rows = library.rows(
        "SELECT trouble.path, root, stage, why, reason, at_ms, file.id FROM trouble "
        "JOIN folder ON folder.id = trouble.folder "
        "LEFT JOIN file ON file.folder = trouble.folder AND file.path = trouble.path ORDER BY at_ms DESC LIMIT ?",
        limit,
    )
    return [Wrong(shown(joined(row[1], row[0])), *row[2:]) for row in rows]


def distribution(library: Library) -> list[dict[str, Any]]:
    """How many tracks have each label, by tier, the most common first."""
    rows = library.rows(
        "SELECT name, category, sum(tier = 'strict'), sum(tier <> 'loose'), count(*) FROM label "
        "JOIN file ON file.id = label.file WHERE missing_ms IS NULL GROUP BY name, category ORDER BY 5 DESC, 1"
    )
    return [dict(zip(("name", "category", "strict", "regular", "loose"), row, strict=True)) for row in rows]


def notice_failures(hand: Chargehand, library: Library) -> int:
    """Take over what Chargehand gave up on (a file that crashes its workers, say), so that it is listed here, too."""
    noticed = 0
    set_aside = [JobFilter(queue="tag", state=State.FAILED, reason=reason) for reason in NOT_BY_US]
    for job in chain.from_iterable(map(hand.jobs, [*set_aside, JobFilter(queue="tag", state=State.CANCELLED)])):
        which = catalogue.from_place(job.item or "")
        if which is None:
            continue
        noticed += hearing.refuse(library, *which, job.reason or job.state.value, _why(job))
    return noticed


def _why(job: JobRecord) -> str:
    if job.reason == "poison":
        return f"it crashed its worker {job.crashes} times"
    return job.summary or f"it was set aside: {job.reason or job.state.value}"


def retry(library: Library) -> int:
    """Have everything that could not be heard tried once more. How many files."""
    return catalogue.again(
        library, [wrong.id for wrong in troubles(library, 1_000_000) if wrong.stage == "tag" and wrong.id]
    )


def workers(hand: Chargehand, library: Library) -> list[dict[str, Any]]:
    """What each worker does now, and with which song; nothing while nobody works."""
    view = hand.status()
    return [] if view is None else [_worker(library, each) for each in view["workers"]]


def _worker(library: Library, each: dict[str, Any]) -> dict[str, Any]:
    wanted = ("component", "crew", "status", "pid", "restart_count", "text", "progress", "job_s", "memory")
    doing: str | None = each["current_job"]
    which = catalogue.from_place(doing.partition("/")[2]) if doing and each["crew"] == "tag" else None
    song = None if which is None else names(library, [which[0]]).get(which[0])
    return {**{name: each.get(name) for name in wanted}, "doing": doing, "song": song}


def names(library: Library, numbers: list[int]) -> dict[int, str]:
    """Files by their numbers, as people call them."""
    marks = ", ".join("?" * len(numbers))
    rows = library.rows(f"SELECT id, title, artist, path FROM file WHERE id IN ({marks})", *numbers)
    return {number: called(title, artist, path) for number, title, artist, path in rows}


def called(title: str | None, artist: str, path: bytes) -> str:
    """A track as people call it."""
    who = ", ".join(msgspec.json.decode(artist, type=list[str]))
    if not title:
        return shown(os.path.basename(path))
    return f"{who} – {title}" if who else title


def lasting(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
