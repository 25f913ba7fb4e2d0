"""Operations on flows: reading them, and cancelling, retrying and deleting each as one."""

from chargehand.host.actor import log_deeds
from chargehand.host.readings import Readings
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.flows import (
    FlowCancelled,
    FlowStage,
    FlowTotals,
    PredecessorFilter,
    Related,
    Relations,
    links,
)
from chargehand.model.job import JobRecord

AT_ONCE = 500
"""Jobs of a flow that one transaction deletes."""
SHOWN = 100
"""Predecessors, followers and children of a job that are shown."""


class FlowOperations(Readings):
    """Everything that can be done with the flows of one store."""

    # reading

    def stages(self, flow_id: str) -> list[FlowStage]:
        with self.stores.use() as store:
            return store.flows.stages(flow_id)

    def flow_totals(self) -> FlowTotals:
        """Returns how many flows are in each state."""
        with self.stores.use() as store:
            return store.flows.totals()

    def followers(self, job_id: str, limit: int = SHOWN) -> list[JobRecord]:
        """Returns the first jobs that wait for a job, or waited for it, oldest first."""
        with self.stores.use() as store:
            return store.jobs.followers(job_id, limit)

    def children(self, job_id: str, limit: int = SHOWN) -> list[JobRecord]:
        """Returns the first jobs that a job spawned, oldest first."""
        with self.stores.use() as store:
            return store.jobs.children(job_id, limit)

    def related(self, job_id: str) -> Related:
        """Returns how many predecessors, followers and children a job has."""
        with self.stores.use() as store:
            return store.jobs.related(job_id)

    def relations(self, job_id: str) -> Relations:
        related, first = self.related(job_id), PredecessorFilter(job=job_id, limit=SHOWN, texts=False)
        return Relations(
            related=related,
            predecessors=links(self.predecessors(first) if related.predecessors else ()),
            followers=links(self.followers(job_id) if related.followers else ()),
            children=links(self.children(job_id) if related.children else ()),
        )

    # changing

    def cancel_flow(self, flow_id: str) -> Answer:
        with self.stores.use(create=False) as store:
            with store.transaction() as tx:
                found = tx.flows.cancel(flow_id)
                if found.at_once or found.running:
                    log_deeds(tx, "cancel", [f"flow:{flow_id}"], _cancelled(found))
            record = store.flows.get(flow_id)
        self.calls.hint(None)  # the node reads which of its jobs are to be cancelled
        if found.running:
            return Answer(flow_id, f"{_cancelled(found)}; workers that do not stop are replaced", AnswerCode.CANCELLING)
        if found.at_once:
            return Answer(flow_id, _cancelled(found), AnswerCode.CANCELLED)
        state = "deleted" if record is None else record.state
        return Answer(flow_id, f"has ended already: it is {state}", AnswerCode.NOT_CANCELLED)

    def retry_flow(self, flow_id: str) -> Answer:
        with self.stores.use(create=False) as store, store.transaction() as tx:
            queued = tx.flows.retry(flow_id)
            if queued:
                log_deeds(tx, "retry", [f"flow:{flow_id}"], _jobs(len(queued)))
        self.calls.hint(None)
        if queued:
            return Answer(flow_id, f"{_jobs(len(queued), 'is', 'are')} queued again", AnswerCode.QUEUED)
        return Answer(flow_id, "has no failed or cancelled job that can be queued again", AnswerCode.NOT_RETRIED)

    def delete_flow(self, flow_id: str) -> Answer:
        gone = False
        with self.stores.use(create=False) as store:
            while not gone:  # each transaction holds the write lock of the store for a short time
                with store.transaction() as tx:
                    gone = tx.flows.delete(flow_id, AT_ONCE)
                    if gone:
                        log_deeds(tx, "delete", [f"flow:{flow_id}"])
        self.calls.hint(None, deleted=True)
        return Answer(flow_id, "is deleted, with its jobs", AnswerCode.DELETED)


def _cancelled(found: FlowCancelled) -> str:
    """Returns what became of the jobs of a flow that was cancelled."""
    parts: list[str] = []
    if found.at_once:
        parts.append(f"{_jobs(found.at_once, 'is', 'are')} cancelled")
    if found.running:
        parts.append(f"{_jobs(len(found.running), 'runs and was', 'run and were')} asked to stop")
    return ", ".join(parts)


def _jobs(count: int, one: str = "", several: str = "") -> str:
    verb = one if count == 1 else several
    return f"{count:,} {'job' if count == 1 else 'jobs'}{verb and ' '}{verb}"
