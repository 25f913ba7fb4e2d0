"""The callers that wait for a job to end, on the node's control socket."""

from chargehand.node.loop import Channel
from chargehand.node.replies import reply
from chargehand.protocol.control import MOST_FOLLOWED


class Followers:
    """Keeps who waits for which job, and answers each once when the job has ended."""

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

    def ended(self, job_id: str) -> None:
        """Answer those that wait for this job: it has ended for good."""
        for channel, call in self.by_job.pop(job_id, ()):
            self._followed.get(channel, set()).discard(job_id)
            reply((channel, call), ended=True)
