"""Reports progress, remaining time, labels and errors. Must not import numpy or a decoder."""

import os
from itertools import chain
from typing import Any

import msgspec

from chargehand import Chargehand, JobFilter, JobRecord, State
from tonearm import catalogue, hearing
from tonearm.library import Library, joined, shown

RECENT = 50
"""Number of last tracks that the estimate of the remaining time is based on."""
NOT_BY_US = ("poison", "raised", "timed out", "no progress")
"""Failure reasons set by Chargehand. Failures that the handler reports are recorded in the library by the handler."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a library at one moment."""

    files: int
    tagged: int
    waiting: int
    troubled: int
    missing: int
    seconds_each: float | None
    """Mean seconds that one worker took for one of the last tracks."""
    kinds: dict[str, int]
    trying: bool
    scanned_ms: int | None
    calibrated: int
    writes_waiting: int
    written: int
    """Number of files with labels in their tags."""

    def eta(self, workers: int) -> float | None:
        """Returns the estimated seconds until all files are analysed by this number of workers, or None if unknown."""
        if not self.waiting:
            return 0.0
        return None if self.seconds_each is None else self.waiting * self.seconds_each / max(1, workers)


class Wrong(msgspec.Struct, frozen=True):
    """A file or folder with an error."""

    path: str
    stage: str
    why: str
    reason: str
    at_ms: int
    id: int | None


def progress(library: Library) -> Progress:
    """Returns the progress of the whole library."""
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
        written=library.number(f"SELECT count(*) {here} AND written <> ''"),
    )


def troubles(library: Library, limit: int = 1000) -> list[Wrong]:
    """Returns the recorded errors, newest first."""
    rows = library.rows(
        "SELECT trouble.path, root, stage, why, reason, at_ms, file.id FROM trouble "
        "JOIN folder ON folder.id = trouble.folder "
        "LEFT JOIN file ON file.folder = trouble.folder AND file.path = trouble.path ORDER BY at_ms DESC LIMIT ?",
        limit,
    )
    return [Wrong(shown(joined(row[1], row[0])), *row[2:]) for row in rows]


def distribution(library: Library) -> list[dict[str, Any]]:
    """Returns the number of tracks with each label, by tier, most common first."""
    rows = library.rows(
        "SELECT name, category, sum(tier = 'strict'), sum(tier <> 'loose'), count(*) FROM label "
        "JOIN file ON file.id = label.file WHERE missing_ms IS NULL GROUP BY name, category ORDER BY 4 DESC, 5 DESC, 1"
    )
    return [dict(zip(("name", "category", "strict", "regular", "loose"), row, strict=True)) for row in rows]


def notice_failures(hand: Chargehand, library: Library) -> int:
    """Records jobs that Chargehand has failed (for example files that crash workers) as errors of the library."""
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
        return f"the file crashed its worker {job.crashes} times"
    return job.summary or f"the job failed: {job.reason or job.state.value}"


def retry(library: Library) -> int:
    """Queues all files that could not be analysed again and returns their number."""
    return catalogue.again(
        library, [wrong.id for wrong in troubles(library, 1_000_000) if wrong.stage == "tag" and wrong.id]
    )


def workers(hand: Chargehand, library: Library) -> list[dict[str, Any]]:
    """Returns what each worker does now; empty if no node runs."""
    view = hand.status()
    return [] if view is None else [_worker(library, each) for each in view["workers"]]


def _worker(library: Library, each: dict[str, Any]) -> dict[str, Any]:
    wanted = ("component", "crew", "status", "pid", "restart_count", "text", "progress", "job_s", "memory")
    doing: str | None = each["current_job"]
    which = catalogue.from_place(doing.partition("/")[2]) if doing and each["crew"] == "tag" else None
    song = None if which is None else names(library, [which[0]]).get(which[0])
    return {**{name: each.get(name) for name in wanted}, "doing": doing, "song": song}


def names(library: Library, numbers: list[int]) -> dict[int, str]:
    """Returns the display names of files by id."""
    marks = ", ".join("?" * len(numbers))
    rows = library.rows(f"SELECT id, title, artist, path FROM file WHERE id IN ({marks})", *numbers)
    return {number: called(title, artist, path) for number, title, artist, path in rows}


def called(title: str | None, artist: str, path: bytes) -> str:
    """Returns the display name of a track."""
    who = ", ".join(msgspec.json.decode(artist, type=list[str]))
    if not title:
        return shown(os.path.basename(path))
    return f"{who} – {title}" if who else title


def lasting(seconds: float) -> str:
    """Formats a duration."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
