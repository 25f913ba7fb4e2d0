"""The callers that wait for a job or a flow to end, on the node's control socket."""

from collections.abc import Sequence

from chargehand.model.job import FINISHED
from chargehand.model.records import JobFilter
from chargehand.node.loop import Channel
from chargehand.node.replies import reply
from chargehand.protocol.control import MOST_FOLLOWED
from chargehand.store import Store

AT_ONCE = 500
"""Jobs that are read at once."""


FLOW = "flow:"
"""Precedes the id of a flow that is waited for, among the ids of jobs."""


class Followers:
    """Keeps who waits for which job or flow, and answers each once when it has ended."""

    def __init__(self) -> None:
        self.by_job: dict[str, list[tuple[Channel, int]]] = {}
        """The calls that wait for each job. The ledger looks here to settle awaited jobs sooner."""
        self._followed: dict[Channel, set[str]] = {}

    def add(self, channel: Channel, call: int, job_id: str) -> None:
        """Answer this call when the job has ended. ValueError if the connection follows it already, or too many."""
        followed = self._followed.setdefault(channel, set())
        if job_id in followed or len(followed) >= MOST_FOLLOWED:
            raise ValueError(f"one connection follows the same job twice, or more than {MOST_FOLLOWED} jobs")
        followed.add(job_id)
        self.by_job.setdefault(job_id, []).append((channel, call))

    def remove(self, channel: Channel, job_id: str) -> None:
        """Forget one call."""
        kept = [follower for follower in self.by_job.pop(job_id, ()) if follower[0] is not channel]
        if kept:
            self.by_job[job_id] = kept
        self._followed.get(channel, set()).discard(job_id)

    def disconnected(self, channel: Channel) -> None:
        """Forget every call of this connection."""
        for job_id in self._followed.pop(channel, set()):
            self.remove(channel, job_id)

    def flow_ended(self, flow_id: str) -> None:
        """Answer those that wait for the end of this flow."""
        if self.by_job:
            self.ended(f"{FLOW}{flow_id}")

    def ended(self, job_id: str) -> None:
        """Answer those that wait for this job: it has ended for good."""
        for channel, call in self.by_job.pop(job_id, ()):
            self._followed.get(channel, set()).discard(job_id)
            reply((channel, call), ended=True)


def ended(store: Store, awaited: Sequence[str]) -> list[str]:
    """Returns those of the awaited jobs and flows that have ended, or do not exist."""
    flows = [each for each in awaited if each.startswith(FLOW)]
    jobs = [each for each in awaited if not each.startswith(FLOW)]
    live: set[str] = set()
    for start in range(0, len(jobs), AT_ONCE):
        some = tuple(jobs[start : start + AT_ONCE])
        live |= {job.id for job in store.jobs.find(JobFilter(ids=some, limit=len(some))) if job.state not in FINISHED}
    for flow in flows:
        record = store.flows.get(flow.removeprefix(FLOW))
        if record is not None and record.ended_ms is None:
            live.add(flow)
    return [each for each in awaited if each not in live and not _is_alias(store, each)]


def _is_alias(store: Store, job_id: str) -> bool:
    """Returns whether a job that was not found under this id lives under another one."""
    if job_id.startswith(FLOW):
        return False
    job = store.jobs.get(job_id)
    return job is not None and job.state not in FINISHED
