"""Writes flows to PostgreSQL: begins, ends, cancels, retries and deletes them. `model.flows` decides.

Part of a transaction: it neither begins nor ends one.
"""

from contextlib import suppress

from chargehand.errors import Conflict, FlowNotFound, StoreBusy
from chargehand.model.flows import FlowCancelled, NewFlow, why_no_flow
from chargehand.model.records import CancelResult
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.adding import begin_values
from chargehand.stores.postgres.edges import Effects, lock
from chargehand.stores.postgres.jobs import PostgresJobs
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.sweeping import Sweeper

_SQL = statements.load("flows")
ADDERS = 5.0
"""Seconds for which the cancel of a flow waits for those that add jobs to it."""


class PostgresFlows:
    """Implements `chargehand.store.FlowWriting`."""

    def __init__(self, db: Session, now: int | None, jobs: PostgresJobs, effects: Effects, sweeper: Sweeper) -> None:
        self._db, self._now = db, now
        self._jobs, self._effects, self._sweeper = jobs, effects, sweeper

    def begin(self, flow: NewFlow) -> None:
        if self._db.rows(_SQL["begin"], begin_values(flow, self._now)):
            self._jobs.begun.add(flow.id)

    def cancel(self, flow_id: str) -> FlowCancelled:
        if self._change(flow_id):
            return FlowCancelled(0)
        with suppress(StoreBusy):
            lock(self._db, _SQL["shut"], (flow_id,), ADDERS)
        self._db.send(_SQL["cancel"], (self._now, flow_id))
        found: dict[str, CancelResult] = {}
        # A job for whose outcome this has waited may have spawned others, which were not seen before.
        while ids := [each for (each,) in self._db.rows(_SQL["live_of"], (flow_id,)) if each not in found]:
            seen = {each.id: each for each in self._jobs.cancel(ids)}
            found |= seen
            if len(seen) == len(ids):
                break
        return FlowCancelled(
            sum(each.at_once for each in found.values()), tuple(each for each in found.values() if not each.at_once)
        )

    def retry(self, flow_id: str) -> list[str]:
        ended = self._change(flow_id)
        retried = self._jobs.revive([int(seq) for (seq,) in self._db.rows(_SQL["bad_of"], (flow_id,))])
        if retried or not ended:
            self._db.send(_SQL["uncancel"], (flow_id,))
        return retried

    def delete(self, flow_id: str, limit: int) -> bool:
        if not self._change(flow_id):
            raise Conflict(f"flow {flow_id} has not ended: cancel it first, or wait for its end")
        ids = [str(job_id) for (job_id,) in self._db.rows(_SQL["ended_of"], (flow_id, limit))]
        self._jobs.delete(ids)
        return bool(self._db.rows(_SQL["delete_flow"], (flow_id,)))

    def sweep(self, limit: int) -> int:
        return self._sweeper.sweep(self._jobs, self._effects, limit)

    def _change(self, flow_id: str) -> bool:
        """Locks the flow. Returns whether it has ended. Raises FlowNotFound."""
        self._jobs.take_turns()
        for ended, _ in self._db.rows(_SQL["change"], (flow_id,)):
            return bool(ended)
        raise FlowNotFound(why_no_flow(flow_id, ended=False))
