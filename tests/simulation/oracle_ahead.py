"""What must be true of claims that no worker has yet (WK-14), from the specification.

A claim is held ahead for a moment only, and gives way to a more urgent job that the node knows of.
"""

from typing import TYPE_CHECKING

from clockwork import Broken

from chargehand.model.batch import Batch, Result
from chargehand.model.job import Claim

if TYPE_CHECKING:
    from oracle_jobs import JobPromises
    from stage import World

LONGEST_AHEAD = 0.25
"""Seconds that a claim may be held ahead: 25 ms of work, or 100 ms if jobs then take longer, and a late job's 25 ms."""
AFTER_TROUBLE = 6.0
"""Seconds after which a store that failed has been tried again."""


class AheadPromises:
    """Checks the claims that are held ahead, and the order in which jobs are handed out."""

    def __init__(self, world: "World", jobs: "JobPromises") -> None:
        self._world, self._jobs = world, jobs
        self._submitted_at: float | None = None
        """When the batch in flight was submitted."""
        self._since: dict[tuple[str, int], float] = {}
        """Since when the node has had the claims that it has not handed out."""
        self._told: set[str] = set()
        """Jobs of which the node was told, and after which it has not asked the store yet."""
        self._asked: set[str] = set()
        """Jobs of which the node was told before it submitted the batch in flight."""
        self._found: set[str] = set()
        """Jobs that waited when the node last asked the store: it makes room for them with the next batch."""
        self._claimed: set[str] = set()
        """Jobs for which the batch in flight makes room."""
        self._known: set[str] = set()
        """Jobs for which room was made: nothing less urgent goes before them."""

    def node_starts(self) -> None:
        self._since.clear()
        for jobs in (self._told, self._asked, self._found, self._claimed, self._known):
            jobs.clear()

    def told(self, ids: list[str]) -> None:
        """The node receives a hint about these jobs."""
        now = self._world.now_ms()
        self._told.update(job_id for job_id in ids if self._jobs.jobs[job_id].due[1] <= now)

    def submitted(self) -> None:
        self._claimed, self._found = self._found, set()
        self._asked, self._told = self._told, set()

    def failed(self) -> None:
        self._told |= self._asked | self._claimed
        self._asked, self._claimed = set(), set()

    def committed(self, result: Result) -> None:
        """What is claimed waits no more; a store that is paused tells nothing about what waits."""
        jobs = self._jobs.jobs
        for found in (self._asked, self._claimed):
            found -= {job_id for job_id in found if self._jobs.pause_ends(jobs[job_id].queue)}
        taken = {claim.id for grant in result.grants for claim in grant.claims}
        for found in (self._told, self._asked, self._found, self._claimed, self._known):
            found -= taken

    def confirmed(self, batch: Batch, result: Result) -> None:
        """The node learns what was committed."""
        for claim in (claim for grant in result.grants for claim in grant.claims):
            self._since[claim.id, claim.number] = self._world.now
        self._known |= self._claimed
        self._found, self._asked, self._claimed = self._asked, set(), set()

    def left(self, job_id: str, number: int) -> None:
        """A claim is handed out, or has ended."""
        self._since.pop((job_id, number), None)

    def handed(self, claim: Claim) -> None:
        """A worker gets a job: nothing more urgent waits of which the node knows."""
        self.left(claim.id, claim.number)
        jobs, now = self._jobs.jobs, self._world.now_ms()
        self._known = {job_id for job_id in self._known if jobs[job_id].state == "queued"}
        for job in (jobs[job_id] for job_id in self._known):
            urgent = job.order[0] < jobs[claim.id].order[0] and job.due[1] <= now
            if job.queue == claim.queue and urgent and not self._jobs.pause_ends(job.queue):
                raise Broken(f"job {claim.id} is handed out, but the node knows that {job.id} is more urgent")

    def stepped(self, *, in_flight: bool, late: float) -> None:
        """The node has made a step: what it then still holds ahead is for a worker that is about to be free."""
        now = self._world.now
        if late > 0:  # the node itself was held up
            self._since = {claim: min(since + late, now) for claim, since in self._since.items()}
        if in_flight:
            self._submitted_at = now if self._submitted_at is None else self._submitted_at
        elif self._submitted_at is not None:  # nothing could be returned while a batch was in flight
            late, self._submitted_at = now - self._submitted_at, None
            self._since = {claim: min(since + late, now) for claim, since in self._since.items()}
        if now < self._world.store_fails_until + AFTER_TROUBLE:
            self._since = dict.fromkeys(self._since, now)
        if in_flight or not self._since:
            return
        for (job_id, _), since in self._since.items():
            _, wait = self._world.profile.batching.get(self._jobs.jobs[job_id].queue, (1, 0.0))
            if now - since > LONGEST_AHEAD + wait:
                raise Broken(f"job {job_id} has been held for {now - since:.3f} s, and no worker has it")
