"""What is shown of queues, jobs and workers in events: the same whether the node knows it or the store is read for it.

It reads and describes; it decides nothing and keeps nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chargehand.model.figures import Figures, eta, rounded, together
from chargehand.model.job import Claim, JobRecord, NewJob, Settlement, State, cut
from chargehand.model.records import Counts, JobFilter
from chargehand.store import Store

LAST = 100
"""Jobs that are read beside those that run: the newest."""
RESULT_SHOWN = 2048
"""Bytes of a result; a longer one is left out."""
ERROR_SHOWN = 2000
"""Characters of an error; of a longer one beginning and end are shown."""
DETAIL_SHOWN = 300


class StoreLook(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read."""

    queues: bool = True
    jobs: bool = False
    """What runs, and the newest."""
    ids: tuple[str, ...] = ()
    """These jobs, too."""
    crews: bool = False
    """Which queues are served."""
    only_if_stirred: bool = False
    """Only if somebody has written since the last time."""
    mark: int = 0
    """Comes back with the picture."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    look: StoreLook
    counts: tuple[Counts, ...] | None = None
    waiting: tuple[tuple[str, int], ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    """Oldest first."""
    listed: frozenset[str] = frozenset()
    """Those of them that run, or are among the newest."""
    gone: tuple[str, ...] = ()
    """Of those that were asked for by their id, those that are not there."""
    served: tuple[str, ...] = ()
    error: str | None = None
    """Why nothing could be read."""


def take(store: Store, look: StoreLook) -> StoreView:
    """Look at the store."""
    if look.only_if_stirred and not store.stirred():
        return StoreView(look=look)
    newest = store.jobs.find(JobFilter(limit=LAST)) if look.jobs else []
    found = {job.id: job for job in reversed(newest)}
    listed = {*found, *(claim.id for claim in (store.jobs.claims() if look.jobs else ()))}
    gone: list[str] = []
    for job_id in dict.fromkeys((*look.ids, *listed)):
        if job_id not in found:
            job = store.jobs.get(job_id)
            if job is not None:
                found[job_id] = job
            else:
                gone.append(job_id)
    return StoreView(
        look=look,
        counts=tuple(store.jobs.counts()) if look.queues else None,
        waiting=tuple(store.jobs.waiting()) if look.queues else (),
        jobs=tuple(found.values()),
        listed=frozenset(listed),
        gone=tuple(gone),
        served=tuple(crew.queue for crew in store.fleet.crews()) if look.crews else (),
    )


# jobs


def job_of_record(job: JobRecord) -> dict[str, Any]:
    """A job as the store has it."""
    running = job.state is State.RUNNING
    return _job(
        job.id, job.queue, job.label, job.item, job.state, job.reason, job.attempts, job.crashes,
        worker=job.worker if running else None,
        progress=None if job.progress is None else short_progress(msgspec.json.decode(job.progress)),
        error=job.error, result=None if job.result is None else bytes(job.result).decode(),
    )  # fmt: skip


def job_of_new(job: NewJob) -> dict[str, Any]:
    """A job that was just enqueued."""
    return _job(job.id, job.queue, job.label, None, State.QUEUED, None, 0, 0)


def job_of_claim(claim: Claim, worker: str | None, progress: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A job that a worker of this node has in hand."""
    return _job(
        claim.id, claim.queue, claim.label, claim.item, State.RUNNING, None, claim.attempts, claim.crashes,
        worker=worker, progress=None if progress is None else short_progress(progress),
    )  # fmt: skip


def job_settled(before: Mapping[str, Any], settlement: Settlement) -> dict[str, Any]:
    """A job that has just ended for good."""
    return _job(
        settlement.id, settlement.queue, before["label"], before["item"], settlement.state, settlement.reason,
        before["attempts"] + settlement.attempts, before["crashes"] + settlement.crashes,
        progress=before["progress"], error=settlement.error, result=settlement.result,
    )  # fmt: skip


def _job(
    id: str, queue: str, label: str | None, item: str | None, state: State, reason: str | None, attempts: int,
    crashes: int, *, worker: str | None = None, progress: Any = None, error: str | None = None,
    result: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    too_long: list[str] = []
    if error is not None and len(error) > ERROR_SHOWN:
        too_long.append("error")
        error = cut(error, ERROR_SHOWN)
    shown: Any = None
    if result is not None and len(result) > RESULT_SHOWN:
        too_long.append("result")
    elif result is not None:
        shown = msgspec.json.decode(result)
    return {
        "id": id, "queue": queue, "label": label, "item": item, "state": state.value, "reason": reason,
        "attempts": attempts, "crashes": crashes, "worker": worker, "progress": progress, "error": error,
        "result": shown, "cut": too_long,
    }  # fmt: skip


def short_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Progress whose words are no longer than can be shown."""
    names = ("done", "total", "stage", "detail")
    fields = {name: progress.get(name) for name in names}
    return {n: value[:DETAIL_SHOWN] if isinstance(value, str) else value for n, value in fields.items()}


# queues


def queues(
    counts: Sequence[Counts],
    waiting: Iterable[tuple[str, int]],
    served: Iterable[str],
    figures: Mapping[str, Figures],
    now: float,
) -> list[dict[str, Any]]:
    """Every queue that has jobs or is served, by name; and all together, last."""
    by_name = {count.queue: count for count in counts}
    waits = dict(waiting)
    names = sorted({*by_name, *served})
    each = [_queue(name, by_name.get(name) or Counts(queue=name), waits, figures.get(name), now) for name in names]
    return [*each, together(each)]


def _queue(name: str, count: Counts, waits: Mapping[str, int], figures: Figures | None, now: float) -> dict[str, Any]:
    rate = 0.0 if figures is None else figures.rate(now)
    body = msgspec.to_builtins(count)
    del body["queue"]
    last = body.pop("last_done_ms")
    return {
        "name": name,
        **body,
        "rate": rounded(rate),
        "mean_duration_s": None if figures is None else rounded(figures.mean(now)),
        "eta_s": rounded(eta(count.queued - count.future, rate)),
        "oldest_wait_s": waits[name] / 1000 if name in waits else None,
        "last_done_ms": last,
    }


# workers


def roughly(memory: int | None) -> int | None:
    """Memory in steps of a few per cent: every page more would be news."""
    if not memory:
        return memory
    step = max(1 << 20, 1 << max(0, memory.bit_length() - 6))
    return memory // step * step
