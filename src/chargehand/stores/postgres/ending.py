"""Ends flows in PostgreSQL when their last job has ended; `model.flows` decides how. Part of a transaction."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from chargehand.errors import StoreBusy
from chargehand.ids import NewIds
from chargehand.model.flows import FlowCounts, FlowEnd, end_of, job_of_end, state_of
from chargehand.model.job import NewJob
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.adding import as_json
from chargehand.stores.postgres.edges import Effects, patience
from chargehand.stores.postgres.session import Session

_SQL = statements.load("flows")
_job = msgspec.json.Decoder(NewJob)


class Ending:
    """Ends flows, and enqueues the jobs that they name for their ends."""

    def __init__(
        self,
        db: Session,
        now: int | None,
        new_ids: NewIds,
        effects: Effects,
        enqueue: Callable[[Sequence[NewJob]], object],
    ) -> None:
        self._db, self._now, self._new_ids = db, now, new_ids
        self._effects, self._enqueue = effects, enqueue

    def end(self, flows: Collection[str]) -> None:
        """Ends those of these flows that have no live job.

        A flow that another transaction has locked, or adds jobs to, is left to that one, or to a sweep.
        """
        if not flows:
            return
        asked = sorted(flows)
        try:
            with self._db.attempt(patience(self._db)):
                self._db.send(_SQL["lock_flows"], (asked,))
        except StoreBusy:
            return
        # Statements after the lock: they see the ends that others have committed before they gave the lock free.
        idle = self._db.send(_SQL["ended"], (self._now, asked))
        counted = self._db.send(_SQL["count_ends"], (asked,))
        if not (rows := idle.fetchall()):
            return
        counts, reasons = _by_flow(counted.fetchall())
        ended: list[tuple[str, int, int, str, str | None]] = []
        for flow, name, created_ms, cancelled, number, on_end, now_ms in rows:
            found = FlowCounts(**counts.get(flow, {}))
            if found.live:
                continue  # somebody added a job while the flow was being locked
            job_id: str | None = None
            if on_end is not None:
                end = end_of(
                    flow, name, found, reasons.get(flow, {}), cancelled=cancelled, end=number, created_ms=created_ms,
                    ended_ms=now_ms,
                )  # fmt: skip
                job_id = self._call(_job.decode(on_end), end)
            ended.append((flow, now_ms, number, state_of(found, cancelled=cancelled), job_id))
        self._effects.ended_flows += [flow for flow, *_ in ended]
        if ended:
            self._db.send(_SQL["end"], tuple(map(list, zip(*ended, strict=True))))

    def send(self, flows: Collection[str]) -> Callable[[], set[str]]:
        """Sends the statements that end those of these flows that name no job for their end, at the end of a pipeline.
        The result notes which have ended, and returns those that `end` must look at."""
        asked = as_json(sorted(flows))
        locked = self._db.send(_SQL["lock_idle"], (asked,))
        ended = self._db.send(_SQL["end_idle"], (self._now, asked))

        def noted() -> set[str]:
            self._effects.ended_flows += [str(flow) for (flow,) in ended.fetchall()]
            return {str(flow) for flow, calls in locked.fetchall() if calls}

        return noted

    def _call(self, on_end: NewJob, end: FlowEnd) -> str:
        """Enqueues the job that a flow names for its end. Returns its id."""
        job = job_of_end(on_end, end, next(self._new_ids(1)))
        self._enqueue([job])
        self._effects.woken.add(job.queue)
        return job.id


def _by_flow(rows: Iterable[tuple[Any, ...]]) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Returns how many jobs of each flow are in each state, and how many ended badly for each reason."""
    counts: dict[str, dict[str, int]] = {}
    reasons: dict[str, dict[str, int]] = {}
    for flow, state, reason, count in rows:
        for found, name in ((counts, state), (reasons, reason)):
            if name is not None:
                of_flow = found.setdefault(flow, {})
                of_flow[name] = of_flow.get(name, 0) + int(count)
    return counts, reasons
