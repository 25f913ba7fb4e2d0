"""Groups failed jobs by what went wrong: the exception's own line, or how and where the worker crashed. Pure.

Numbers, addresses and paths differ from job to job, and do not tell groups apart. Each group has the filter that
selects its jobs.
"""

import re
from collections.abc import Iterable

import msgspec

from chargehand.errors import STACKS_FOLLOW
from chargehand.model.error_line import error_line
from chargehand.model.job import State
from chargehand.model.job_query import line_pattern, text_of
from chargehand.model.records import FailedJob, JobFilter, JobMatch

MOST_GROUPS = 50
LONGEST = 160
"""The number of characters of a cause by which jobs are grouped."""
_CHANGING = re.compile(r"""
    0x[0-9a-fA-F]+                      # an address
  | \b[0-9a-fA-F]{8,}\b                 # an id or a digest
  | (?<=['"]) (?:[^'"\s]*/[^'"]*) (?=['"])   # a path in quotes
  | \d+(?:\.\d+)*
""", re.VERBOSE)  # fmt: skip
_FRAME = re.compile(r'File "([^"\n]*)", line \d+,? in ([^\n]+)')
_EMPTY = re.compile(r"[*\s:'\"]*")


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs with the same cause."""

    cause: str
    """The cause of the newest of them, in one line."""
    where: str | None
    """For crashes: the function and file in which the worker crashed, if it is known."""
    count: int
    queues: tuple[str, ...]
    newest: str
    """The id of the newest of them."""
    last_ms: int | None
    """When the last of them finished."""
    filter: str
    """Selects these jobs, in the filter language."""


def grouped(jobs: Iterable[FailedJob], which: JobFilter) -> list[FailureGroup]:
    """Returns the groups of failed jobs that `which` selected, the largest first, MOST_GROUPS at most."""
    found: dict[tuple[str | None, str], list[FailedJob]] = {}
    for job in jobs:
        found.setdefault((job.reason, signature(job.error)), []).append(job)
    largest = sorted(found.items(), key=lambda item: -len(item[1]))[:MOST_GROUPS]
    return [_group(members, reason, pattern, which) for (reason, pattern), members in largest]


def _group(jobs: list[FailedJob], reason: str | None, pattern: str, which: JobFilter) -> FailureGroup:
    line = _line(jobs)
    matches = (line,) if line else (JobMatch("error", pattern, "part"),) if pattern else ()
    chosen = msgspec.structs.replace(
        which,
        state=State.FAILED,
        reason=which.reason if reason is None else reason,
        matches=tuple(dict.fromkeys((*which.matches, *matches))),
    )
    cause = error_line((jobs[0].error or "").partition(STACKS_FOLLOW)[0])
    return FailureGroup(
        cause=str(reason or "no error was recorded") if cause is None else cause.line,
        where=crashed_in(jobs[0].error),
        count=len(jobs),
        queues=tuple(sorted({job.queue for job in jobs})),
        newest=jobs[0].id,
        last_ms=max((job.finished_ms for job in jobs if job.finished_ms is not None), default=None),
        filter=text_of(chosen),
    )


def _line(jobs: list[FailedJob]) -> JobMatch | None:
    """Returns the match of the line that the errors of these jobs have in common, if it selects all of them."""
    texts = [job.error or "" for job in jobs]
    lines = {_CHANGING.sub("*", _cut(_first_line(text))) for text in texts}
    if len(lines) != 1 or not (line := lines.pop()).strip("* …") or any(map(_crash_frame, texts)):
        return None
    found = re.compile(line_pattern(line))
    return JobMatch("cause", line) if all(map(found.search, texts)) else None


def _cut(line: str) -> str:
    """Returns a line, or its beginning with a mark that it goes on."""
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rstrip('…')}…"


def signature(error: str | None) -> str:
    """Returns what errors with one cause have in common, as a text of the filter language: `*` stands for what differs.

    Empty if the error says nothing.
    """
    cause = _first_line(error)
    pattern = _CHANGING.sub("*", cause[:LONGEST])
    pattern = pattern.rstrip("* ")
    if _EMPTY.fullmatch(pattern):
        return ""
    found = _crash_frame(error)
    return pattern.rstrip("*") + (f"*{found[0]}*in {found[1]}" if found else "")


def _first_line(error: str | None) -> str:
    """Returns the cause as it stands in the error; `*` where other text is between its parts."""
    found = error_line((error or "").partition(STACKS_FOLLOW)[0])
    return "" if found is None else found.line.replace(", first ", "*")


def crashed_in(error: str | None) -> str | None:
    """Returns in which function of which file a worker crashed, if its stacks are known."""
    found = _crash_frame(error)
    return f"{found[1]} in {found[0]}" if found else None


def _crash_frame(error: str | None) -> tuple[str, str] | None:
    """Returns the file name and the function of the innermost frame of the thread that crashed."""
    stacks = (error or "").partition(STACKS_FOLLOW)[2]
    for marked in ("Current thread", "Thread", 'File "'):
        begins = stacks.find(marked)
        found = _FRAME.search(stacks[begins:].partition("\n\n")[0]) if begins >= 0 else None
        if found is not None:
            return found[1].rpartition("/")[2], found[2].strip()
    return None
