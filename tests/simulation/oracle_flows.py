"""What must be true of flows, written from the specification (FL-1 to FL-4, FL-6): who waits for whom, what the end of
a job means for others, and that every flow ends.

`flow_model` says what follows from what happens; the store must say the same after every commit.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from clockwork import Broken
from flow_model import Member, Model
from oracle_items import ItemPromises
from oracle_jobs import End, Truth

from chargehand.model.batch import Batch, Result
from chargehand.model.flows import FlowCancelled, FlowEnd, FlowRecord, NewFlow
from chargehand.model.job import Claim, NewJob, Settlement, State
from chargehand.model.records import CancelResult

_ROWS = "SELECT id, seq, error, parent, flow FROM chargehand_job WHERE id IN (SELECT value FROM json_each(?))"


class FlowPromises(ItemPromises):
    """See the module. In histories without flows it does nothing."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.flows = Model()
        self.begun: dict[str, NewFlow] = {}
        self._places: dict[str, int] = {}
        """The place of each flow: that of its first job."""
        self._follow: tuple[NewJob, ...] = ()
        """What the settlement that is looked at has enqueued or spawned."""
        self._hooks: dict[str, list[str]] = {}
        """The jobs that were enqueued for the ends of each flow."""
        self._ended: list[str] = []
        """The flows that ended in the commit that is looked at."""

    @property
    def _plain(self) -> bool:
        return not self._world.profile.flows

    # new jobs

    def enqueued(self, job: NewJob) -> None:
        if self._plain:
            super().enqueued(job)
            return
        self.flows.add(self._member(job, None))
        self.flows.end_flows()
        self._mirror()

    def flow_begun(self, flow: NewFlow, jobs: Sequence[NewJob]) -> None:
        """Somebody made a flow with its first jobs."""
        self.begun[flow.id] = flow
        self._world.note(f"flow {flow.id} begins: {', '.join(_told(job) for job in jobs)}")
        self.flows.begin(flow.id, [self._member(job, None) for job in jobs])
        self._mirror()

    def _member(self, job: NewJob, settled: Member | None) -> Member:
        """Makes the truth about a new job, which a caller or a job that was settled has enqueued."""
        ((seq,),) = self._world.stage.store._db.execute("SELECT seq FROM chargehand_job WHERE id = ?", (job.id,))
        super().enqueued(job)
        flow = None if job.flow is None else self.begun[job.flow]
        self.jobs[job.id].order = (-job.priority, seq)
        if flow is not None:
            place = self._places.setdefault(flow.id, seq)
            by_member = settled is not None and settled.flow == flow.id
            if not flow.arrival and (job.after or by_member):
                self.jobs[job.id].order = (-job.priority, place, seq)
        sequence = None if job.sequence is None else f"{job.queue}/{job.sequence}"
        parent = settled.id if settled is not None and job.child else None
        return Member(job.id, job.after, job.if_failed == "fail", job.flow, parent, sequence)

    # ends

    def _settled(self, settlement: Settlement) -> None:
        self._follow = settlement.follow
        super()._settled(settlement)

    def _follows(self, job: Truth, end: End) -> None:
        super()._follows(job, end)
        if self._plain:
            return
        follow, self._follow = self._follow, ()
        one = self.flows.jobs[job.id]
        if job.state == "queued":
            one.state = State.QUEUED
            return
        added = [self._member(new, one) for new in follow]
        self._world.tally["jobs"] += len(added)
        self._world.tally["jobs spawned"] += sum(new.child for new in follow)
        if added:
            self._world.note(f"job {job.id} leaves {', '.join(_told(new) for new in follow)}")
        self.flows.end(one, State(job.state), job.reason, added)
        self._mirror()

    def cancelled(self, job_id: str, found: Sequence[CancelResult]) -> None:
        super().cancelled(job_id, found)
        if not self._plain:
            self.flows.cancel([job_id])
            self._mirror()

    def flow_cancelled(self, flow_id: str, done: FlowCancelled) -> None:
        """Somebody cancelled a flow: nothing of it waits any more."""
        members = self.flows.members(flow_id)
        running = [self.jobs[one.id] for one in members if one.state is State.RUNNING]
        queued = sum(one.state is State.QUEUED for one in members)
        self._world.note(f"flow {flow_id} is cancelled: {queued} wait, {len(running)} run")
        self._world.tally["flows cancelled"] += 1
        told = {(each.id, each.claim) for each in done.running}
        self.check(told == {(job.id, job.number) for job in running}, f"flow {flow_id}: {running} run, told: {told}")
        self.check(done.at_once == queued, f"flow {flow_id}: {queued} waited, {done.at_once} were cancelled")
        for job in running:
            job.cancel_at = self._world.now if job.cancel_at is None else job.cancel_at
        self.flows.cancel_flow(flow_id)
        self._mirror()
        waits = [one.id for one in members if one.state is State.QUEUED]
        self.check(not waits, f"flow {flow_id} was cancelled, but {waits} wait")

    def _mirror(self) -> None:
        """Brings to the truth about each job what the model says of those that others have changed."""
        now = self._world.now_ms()
        changed, self.flows.changed = self.flows.changed, set()
        for one in map(self.flows.jobs.__getitem__, sorted(changed)):
            job = self.jobs[one.id]
            if one.state is State.QUEUED and job.state != "queued":
                job.attempts = job.crashes = job.interruptions = 0
                job.cancel_at, job.retried = None, True
                job.due = (now, max(now, job.due[1]))
            if one.state is not State.QUEUED:
                self.suspects.discard(one.id)
                self._world.tally[f"{one.state} because of others"] += job.state == "queued"
            job.state, job.reason = one.state.value, one.reason
        self._flows_ended()
        if changed:
            self._world.note(f"changed by others: {', '.join(f'{each} {self.jobs[each].state}' for each in changed)}")
            self.compare(changed)

    def _flows_ended(self) -> None:
        """A flow has ended: the store says so, and the job of its end is there."""
        over, self.flows.over = self.flows.over, []
        for flow_id in over:
            self._ended.append(flow_id)
            found, whole = self._stored(flow_id), self.flows.flows[flow_id]
            self._world.note(f"flow {flow_id} ends as {found.state}")
            self._world.tally[f"flows {found.state}"] += 1
            self.check(found.ends == whole.ends, f"flow {flow_id} has ended {whole.ends} times, not {found.ends}")
            on_end = self.begun[flow_id].on_end
            self.check(
                (found.on_end is not None) == (on_end is not None), f"flow {flow_id}: its end has {found.on_end}"
            )
            if on_end is not None and found.on_end is not None:
                self.check(found.on_end not in self.jobs, f"flow {flow_id}: the job of its last end is an old one")
                self._hooks.setdefault(flow_id, []).append(found.on_end)
                self._told_end(found.on_end, flow_id)
                hook = msgspec.structs.replace(on_end, id=found.on_end)
                self.flows.add(self._member(hook, None))
                self.flows.released.add(hook.id)

    def _told_end(self, job_id: str, flow_id: str) -> None:
        job = self._world.stage.store.jobs.get(job_id)
        assert job is not None
        end = msgspec.json.decode(job.payload, type=FlowEnd)
        whole, counts = self.flows.flows[flow_id], self.flows.counts(flow_id)
        self.check((end.flow, end.end) == (flow_id, whole.ends), f"flow {flow_id} ends, and its job is told {end}")
        self.check(end.counts == counts, f"flow {flow_id} ends with {counts}, and its job is told {end.counts}")
        wanted = "failed" if counts.failed else "cancelled" if counts.cancelled else "done"
        wanted = "cancelled" if whole.cancelled else wanted
        self.check(end.state == wanted, f"flow {flow_id} is {wanted}, and its job is told {end.state}")
        self.check(job.flow is None, f"job {job_id} of the end of flow {flow_id} is a member of {job.flow}")

    # retries

    def retried(self, job_id: str, done: bool) -> None:
        super().retried(job_id, done)
        if done and not self._plain:
            refused = self.flows.refused([self.flows.jobs[job_id]])
            self.check(not refused, f"job {job_id} is retried, though predecessors have not ended well")
            self._retried([job_id])

    def _retried(self, ids: Sequence[str]) -> None:
        self.flows.retry([self.flows.jobs[each] for each in ids])
        for each in self.flows.changed:
            self.trials.failures.pop(each, None)
        self._world.tally["followers revived"] += len(self.flows.changed) - len(ids)
        self._mirror()

    def conflict(self, job_id: str) -> None:
        """The store refuses to retry a job."""
        one = self.flows.jobs.get(job_id)
        fine = one is not None and self.flows.refused([one])
        self.check(fine, f"job {job_id} cannot be retried, but no predecessor is in its way")
        self._world.tally["retries refused"] += 1

    def flow_retried(self, flow_id: str, ids: Sequence[str]) -> None:
        """Somebody retried a flow."""
        self._world.note(f"flow {flow_id} is retried: {ids}")
        self._world.tally["flows retried"] += 1
        wanted = {one.id for one in self.flows.retriable(flow_id)}
        self.check(wanted == set(ids), f"flow {flow_id} is retried: {ids} instead of {sorted(wanted)}")
        if wanted or not self.flows.flows[flow_id].ended:
            self.flows.flows[flow_id].cancelled = False
        self._retried(sorted(wanted))

    # claims

    def waits(self, job: Truth) -> bool:
        """Whether the job waits for others."""
        one = self.flows.jobs.get(job.id)
        return one is not None and (bool(one.waits) or self.flows.held(one))

    def unsure(self, job: Truth) -> bool:
        """Whether the job may wait: the order of a sequence after retries, and of suspects, is the store's."""
        one = self.flows.jobs.get(job.id)
        if one is not None and job.id in self.suspects and len(self.suspects) > 1:
            return True
        if one is None or one.sequence is None:
            return False
        line = [each for each in self.flows.jobs.values() if each.sequence == one.sequence]
        return any(each.retried and each.live for each in line)

    def _granted(self, crew: str, claims: tuple[Claim, ...], limit: int) -> None:
        super()._granted(crew, claims, limit)
        for claim in () if self._plain else claims:
            one = self.flows.jobs[claim.id]
            one.state = State.RUNNING
            needed = list(self.flows.needed(one))
            # A job that runs all the same is released once; it does not wait again if a predecessor is retried then.
            again = not one.strict and any(each.retried for each in needed)
            early = [each.id for each in needed if each.live and not again]
            bad = [each.id for each in self.flows.blamed(one)]
            self.check(not early, f"job {claim.id} starts before {early} have ended")
            self.check(not bad, f"job {claim.id} starts, though {bad} did not end well")
            self._world.tally["followers started"] += bool(one.after)

    def committed(self, batch: Batch, result: Result) -> None:
        self._ended.clear()
        self.flows.released.clear()
        super().committed(batch, result)
        if self._plain:
            return
        now = self._world.now_ms()
        self.check(sorted(result.ended_flows) == sorted(self._ended), f"{self._ended} end, told: {result.ended_flows}")
        free = [self.jobs[each] for each in self.flows.released if self.flows.jobs[each].sequence is None]
        ready = {job.queue for job in free if job.due[1] <= now}
        self.check(ready <= result.woken, f"jobs of {ready} can be claimed, and the node is told of {result.woken}")
        self._counts()

    # the store against the model

    def compare(self, ids: set[str]) -> None:
        super().compare(ids)
        if self._plain or not ids:
            return
        for job_id, _, error, parent, flow in self._world.stage.store._db.execute(_ROWS, (json.dumps(sorted(ids)),)):
            one = self.flows.jobs[job_id]
            self.check((parent, flow) == (one.parent, one.flow), f"job {job_id} is of {parent} and {flow}: {one}")
            if one.reason == "predecessor":
                named = [each.id for each in self.flows.needed(one) if f"predecessor {each.id} " in (error or "")]
                self.check(bool(named), f"job {job_id} failed for another: {error}")

    def _stored(self, flow_id: str) -> FlowRecord:
        found = self._world.stage.store.flows.get(flow_id)
        if found is None:
            raise Broken(f"flow {flow_id} is gone")
        return found

    def _counts(self) -> None:
        """Checks that every flow has the counts of its jobs."""
        for flow in self.flows.flows.values():
            found = self._stored(flow.id)
            counts = self.flows.counts(flow.id)
            if any(one.sequence is not None for one in self.flows.members(flow.id)):
                counts = msgspec.structs.replace(counts, following=found.counts.following)
            if found.counts.running <= counts.running:  # claims that are held ahead are shown as queued (WK-14)
                ahead = counts.running - found.counts.running
                counts = msgspec.structs.replace(counts, queued=counts.queued + ahead, running=found.counts.running)
            self.check(found.counts == counts, f"flow {flow.id} has {counts}, told: {found.counts}")
            self.check((found.ended_ms is not None) == flow.ended, f"flow {flow.id} has ended: {flow.ended}")

    def final(self, poison: set[str]) -> None:
        super().final(poison)
        self._counts()
        for flow in self.flows.flows.values():
            self.check(flow.ended, f"flow {flow.id} has not ended")
            hooks = 0 if self.begun[flow.id].on_end is None else flow.ends
            self.check(len(self._hooks.get(flow.id, [])) == hooks, f"flow {flow.id}: {flow.ends} ends, {hooks} jobs")


def _told(job: NewJob) -> str:
    options = [f"after {','.join(job.after)}" if job.after else "", "" if job.if_failed == "fail" else "anyway"]
    options += ["child" if job.child else "", f"sequence {job.sequence}" if job.sequence else ""]
    return f"{job.id} ({' '.join(filter(None, options))})" if any(options) else job.id
