"""The stages of a film as people see them, from the jobs of its flow."""

from typing import Any

import msgspec

from adreel.records import STAGES, Refusal
from chargehand import Flow, FlowRecord, JobFilter, JobRecord, State

READING = "ocr"
"""The stage that has many jobs; each of the others has one."""


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stage of a film."""

    name: str
    state: str = "waiting"
    """`waiting`, `queued`, `running`, `done`, `failed` or `cancelled`; `skipped` if it was not reached."""
    done: float | None = None
    total: float | None = None
    detail: str | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    jobs: int = 0
    """The number of jobs of the stage, if it has several."""
    worker: str | None = None
    node: str | None = None
    attempts: int = 0
    """How often the stage failed, or killed its worker, so far."""
    error: str | None = None
    code: str | None = None


def shown_stages(flow: Flow, record: FlowRecord) -> tuple[Shown, ...]:
    """Returns the stages of a flow in their order."""
    found: dict[str, Shown] = {}
    singles = 0
    done = 0
    for name in STAGES:
        if name == READING:
            continue
        jobs = flow.jobs(JobFilter(queue=name, limit=1))
        if jobs:
            singles += 1
            done += jobs[0].state is State.DONE
            found[name] = _of_job(name, jobs[0])
    if "frames" in found:
        counts = record.counts
        every = counts.queued + counts.running + counts.done + counts.failed + counts.cancelled
        found[READING] = _reading(flow, found["frames"], every - singles, counts.done - done)
    return tuple(found[name] for name in STAGES if name in found)


def _of_job(name: str, job: JobRecord) -> Shown:
    progress = _progress(job)
    refusal = Refusal.parse(job.summary) if job.error else None
    state = job.state.value
    if job.reason == "predecessor":
        state = "skipped"
    elif job.state is State.QUEUED and job.waits_for:
        state = "waiting"
    failed = job.state is State.FAILED and state != "skipped"
    return Shown(
        name=name, state=state, done=progress.get("done"), total=progress.get("total"),
        detail=progress.get("detail") if job.state is State.RUNNING else None, started_ms=job.started_ms,
        finished_ms=job.finished_ms, worker=job.worker if job.state is State.RUNNING else None,
        node=job.node if job.state is State.RUNNING else None, attempts=job.failures + job.crashes,
        error=(refusal.text if refusal else _why(job)) if failed else None,
        code=(refusal.code.value if refusal else job.reason) if failed else None,
    )  # fmt: skip


def _progress(job: JobRecord) -> dict[str, Any]:
    """Returns the last progress of a job, as its handler reported it."""
    found: Any = job.progress
    if isinstance(found, msgspec.Raw):
        found = msgspec.json.decode(found)
    return msgspec.to_builtins(found) or {}


def _why(job: JobRecord) -> str:
    """Returns why a job failed, in one line."""
    return job.summary or job.reason or "failed"


def _reading(flow: Flow, before: Shown, jobs: int, done: int) -> Shown:
    """Returns the stage that has a job for each scene, or for a run of short scenes."""
    if not jobs:
        over = {"done": "done", "failed": "skipped", "skipped": "skipped", "cancelled": "cancelled"}
        return Shown(name=READING, state=over.get(before.state, "waiting"))
    if done == jobs:
        last = flow.jobs(JobFilter(queue=READING, limit=1))
        ended = max((job.finished_ms or 0 for job in last), default=0) or None
        return Shown(
            name=READING, state="done", done=done, total=jobs, jobs=jobs, started_ms=before.finished_ms,
            finished_ms=ended,
        )  # fmt: skip
    failed = flow.jobs(JobFilter(queue=READING, state=State.FAILED, limit=1))
    running = flow.jobs(JobFilter(queue=READING, state=State.RUNNING, limit=50))
    if failed and not running:
        return msgspec.structs.replace(_of_job(READING, failed[0]), done=done, total=jobs, jobs=jobs)
    parts = [_of_job(READING, job) for job in running]
    state = "running" if running or done else "queued"
    if not running and before.state == "cancelled":
        state = "cancelled"
    share = sum((part.done or 0) / part.total for part in parts if part.total)
    return Shown(
        name=READING, state=state, done=round(done + share, 3), total=jobs, jobs=jobs, started_ms=before.finished_ms,
        worker=", ".join(sorted(part.worker or "" for part in parts)) or None,
        node=parts[0].node if parts else None, attempts=sum(part.attempts for part in parts),
    )  # fmt: skip
