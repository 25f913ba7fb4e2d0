"""What is read from the store for readers: which queues, jobs and flows to read, and what was found."""

import msgspec

from chargehand.live import hiding
from chargehand.model.flows import FlowFilter, FlowRecord
from chargehand.model.job import JobRecord
from chargehand.model.records import Counts, HealthRow, JobFilter, NodeRow
from chargehand.store import Store

LAST = 100
"""The number of newest jobs, and of newest flows, that are read in addition to the running ones."""


class StoreLook(msgspec.Struct, frozen=True, kw_only=True):
    """What to read."""

    queues: bool = True
    jobs: bool = False
    """The running jobs and the newest ones."""
    ids: tuple[str, ...] = ()
    """Further jobs by their id."""
    flows: bool = False
    """The flows that have not ended, and the newest ones."""
    flow_ids: tuple[str, ...] = ()
    """Further flows by their id."""
    crews: bool = False
    """The queues that have a crew."""
    fleet: bool = False
    """The nodes and their workers."""
    only_if_changed: bool = False
    """Read only if another process has written since the last read."""
    mark: int = 0
    """A number that is returned with what was read."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    look: StoreLook
    counts: tuple[Counts, ...] | None = None
    waiting: tuple[tuple[str, int], ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    """Oldest first, as readers are shown them."""
    hidden: hiding.Hidden = msgspec.field(default_factory=dict[str, frozenset[str]])
    """The fields that the crews of all nodes hide."""
    listed: frozenset[str] = frozenset()
    """The ids of those jobs that run or are among the newest."""
    gone: tuple[str, ...] = ()
    """The ids that were asked for and do not exist."""
    flows: tuple[FlowRecord, ...] = ()
    """Oldest first."""
    gone_flows: tuple[str, ...] = ()
    """The ids of flows that were asked for and do not exist."""
    served: tuple[str, ...] = ()
    fleet: tuple[tuple[NodeRow, ...], tuple[HealthRow, ...]] | None = None
    """The nodes, and the components of all of them."""
    error: str | None = None
    """Why nothing could be read."""


def take(store: Store, look: StoreLook) -> StoreView:
    """Reads the store."""
    if look.only_if_changed and not store.changed():
        return StoreView(look=look)
    newest = store.jobs.find(JobFilter(limit=LAST)) if look.jobs else []
    found = {job.id: job for job in reversed(newest)}
    listed = {*found, *(claim.id for claim in (store.jobs.claims() if look.jobs else ()))}
    gone: list[str] = []
    wanted = [job_id for job_id in dict.fromkeys((*look.ids, *listed)) if job_id not in found]
    if len(wanted) > 1:  # with one query: the store may be a server elsewhere
        page = store.jobs.find(JobFilter(ids=tuple(wanted), limit=len(wanted)))
        found |= {job.id: job for job in reversed(page)}
    for job_id in wanted:
        if job_id not in found:
            job = store.jobs.get(job_id)  # by an alias
            if job is not None:
                found[job_id] = job
            else:
                gone.append(job_id)
    flows, gone_flows = _flows(store, look)
    hidden = hiding.together(store.fleet.crews()) if look.jobs or look.ids else {}
    return StoreView(
        look=look,
        flows=flows,
        gone_flows=gone_flows,
        counts=tuple(store.jobs.counts()) if look.queues else None,
        waiting=tuple(store.jobs.waiting()) if look.queues else (),
        jobs=tuple(hiding.shown(job, hidden) for job in found.values()),
        hidden=hidden,
        listed=frozenset(listed),
        gone=tuple(gone),
        served=tuple(crew.queue for crew in store.fleet.crews(living=True)) if look.crews else (),
        fleet=(tuple(store.fleet.nodes()), tuple(store.fleet.health())) if look.fleet else None,
    )


def _flows(store: Store, look: StoreLook) -> tuple[tuple[FlowRecord, ...], tuple[str, ...]]:
    """Reads the wanted flows. Returns them, and the ids of those that do not exist."""
    newest = store.flows.find(FlowFilter(limit=LAST)) if look.flows else []
    found = {flow.id: flow for flow in newest}
    if len(newest) == LAST:  # the older ones may go on
        found |= {flow.id: flow for flow in store.flows.find(FlowFilter(state="running", limit=LAST))}
    gone: list[str] = []
    for flow_id in look.flow_ids:
        if flow_id not in found:
            flow = store.flows.get(flow_id)
            if flow is None:
                gone.append(flow_id)
            else:
                found[flow_id] = flow
    return tuple(sorted(found.values(), key=lambda flow: flow.created_ms)), tuple(gone)
