"""Decides what becomes of the items that a crew's `discover` found, from the jobs that each item has had.

An item gets no job beside one that is queued or running, nor after one that failed or was cancelled. So all of its jobs
but the newest are done, and the few newest are enough to decide.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from chargehand.model.job import State
from chargehand.model.records import Discovery

Verdict = Literal["queued", "held", "set aside", "no progress"]
"""Queue a job; it has a live one; it waits for a person; give it a failed job, because it makes no progress."""

_REPEATED: dict[Verdict, Verdict] = {
    "queued": "held", "held": "held", "set aside": "set aside", "no progress": "set aside",
}  # fmt: skip
"""The verdict on an item that the same page has once more."""


class PastJob(msgspec.Struct, frozen=True, array_like=True):
    """A job that an item has had."""

    state: State
    finished_ms: int | None
    retried_ms: int | None


def jobs_needed(page: Discovery) -> int:
    """Returns how many of the newest jobs of each item `judge_page` needs."""
    return max(1, page.most_done)


def judge_page(page: Discovery, items: Sequence[str], pasts: Sequence[Sequence[PastJob]], now_ms: int) -> list[Verdict]:
    """Returns the verdict on each item; `pasts` has the newest jobs of each, newest first."""
    verdicts: list[Verdict] = []
    repeated: dict[str, Verdict] = {}
    since_ms, looked_ms = now_ms - page.window_ms, now_ms - page.age_ms
    for item, past in zip(items, pasts, strict=True):
        verdict = repeated.get(item) or judge(past, page.most_done, since_ms, looked_ms)
        repeated[item] = _REPEATED[verdict]
        verdicts.append(verdict)
    return verdicts


def judge(newest: Sequence[PastJob], most_done: int, since_ms: int, looked_ms: int) -> Verdict:
    """Returns the verdict on an item that has had these jobs, newest first.

    Jobs that were done after `since_ms` count as repetitions. The look began at `looked_ms`.
    """
    if newest and newest[0].state in (State.QUEUED, State.RUNNING):
        return "held"
    if newest and newest[0].state is not State.DONE:
        return "set aside"
    if newest and (newest[0].finished_ms or 0) > looked_ms:
        return "held"  # the look may have read the item while the job was still running
    done = 0
    for job in newest:
        done += job.state is State.DONE and (job.finished_ms or 0) >= since_ms
        if job.retried_ms is not None:
            break
    return "no progress" if newest and done >= most_done else "queued"


def no_progress_error(page: Discovery) -> str:
    """Returns the error of the failed job of an item that makes no progress."""
    return f"done {page.most_done} times within {page.window_ms / 1000:g} s, and found again each time"
