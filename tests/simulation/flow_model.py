"""A model of flows in memory: which job waits for which, and what the end or the retry of one means for the others.

It is written from the specification (FL-1 to FL-4, FL-6) and knows nothing of a store. It does not know the order in
which jobs are claimed, and of sequences only what must never happen.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from chargehand.model.flows import FlowCounts
from chargehand.model.job import State

BAD = (State.FAILED, State.CANCELLED)
LIVE = (State.QUEUED, State.RUNNING)


@dataclass
class Member:
    """The expected state of one job."""

    id: str
    after: tuple[str, ...] = ()
    strict: bool = True
    flow: str | None = None
    parent: str | None = None
    sequence: str | None = None
    state: State = State.QUEUED
    reason: str | None = None
    waits: set[str] = field(default_factory=set[str])
    """The predecessors, and their descendants, that have not ended."""
    to_cancel: bool = False
    retried: bool = False

    @property
    def live(self) -> bool:
        return self.state in LIVE


@dataclass
class Whole:
    """The expected state of one flow."""

    id: str
    ended: bool = False
    ends: int = 0
    cancelled: bool = False


class Model:
    """All jobs and flows."""

    def __init__(self) -> None:
        self.jobs: dict[str, Member] = {}
        self.flows: dict[str, Whole] = {}
        self.changed: set[str] = set()
        """Jobs that failed, were cancelled or live again because of others, until somebody clears it."""
        self.released: set[str] = set()
        """Jobs that wait for none any more, because others ended, until somebody clears it."""
        self.over: list[str] = []
        """Flows that ended, until somebody clears it."""
        self._children: dict[str, list[str]] = {}
        self._followers: dict[str, list[str]] = {}
        self._members: dict[str, list[Member]] = {}

    # reading

    def needed(self, one: Member) -> Iterator[Member]:
        """Yields the predecessors of a job and all that these have spawned."""
        wanted = [*one.after]
        for each in wanted:
            yield self.jobs[each]
            wanted += [child for child in self._children.get(each, ()) if child not in wanted and child != one.id]

    def blamed(self, one: Member) -> list[Member]:
        """Returns the predecessors for whose sake a strict job cannot run."""
        return [each for each in self.needed(one) if each.state in BAD] if one.strict else []

    def followers(self, of: Member) -> list[Member]:
        """Returns the jobs after this one, or after a job that spawned it."""
        found: dict[str, Member] = {}
        at: Member | None = of
        while at is not None:
            found |= {each: self.jobs[each] for each in self._followers.get(at.id, ())}
            at = None if at.parent is None else self.jobs[at.parent]
        return [one for one in found.values() if one is not of]

    def members(self, flow: str) -> list[Member]:
        return self._members.get(flow, [])

    def counts(self, flow: str) -> FlowCounts:
        members = self.members(flow)
        by_state = {str(state): sum(one.state is state for one in members) for state in State}
        return FlowCounts(following=sum(bool(one.waits) for one in members), **by_state)

    def claimable(self) -> list[Member]:
        """Returns the jobs that wait for no predecessor; a sequence may hold some of them."""
        return [one for one in self.jobs.values() if one.state is State.QUEUED and not one.waits]

    def held(self, one: Member) -> bool:
        """Whether a job of the same sequence is surely before this one."""
        if one.sequence is None:
            return False
        line = [each for each in self.jobs.values() if each.sequence == one.sequence and each.live]
        if any(each.state is State.RUNNING for each in line if each is not one):
            return True
        return not one.retried and any(not each.retried for each in line[: line.index(one)])

    def flow_of(self, one: Member) -> Whole | None:
        return None if one.flow is None else self.flows[one.flow]

    # new jobs

    def begin(self, flow: str, jobs: Iterable[Member] = ()) -> None:
        self.flows[flow] = Whole(flow)
        for one in jobs:
            self.add(one)
        self.end_flows()

    def add(self, one: Member) -> None:
        """Adds a job. One whose predecessor has ended badly fails at once."""
        self.jobs[one.id] = one
        for each in one.after:
            self._followers.setdefault(each, []).append(one.id)
        if one.parent is not None:
            self._children.setdefault(one.parent, []).append(one.id)
        if one.flow is not None:
            self._members.setdefault(one.flow, []).append(one)
        if (flow := self.flow_of(one)) is not None and flow.cancelled:
            one.state, one.reason = State.CANCELLED, "cancelled"
        elif self.blamed(one):
            one.state, one.reason = State.FAILED, "predecessor"
        else:
            self._wait(one)
        if not one.live:
            self.changed.add(one.id)

    def _wait(self, one: Member) -> None:
        """Lets a queued job wait for those of its predecessors that live."""
        one.waits = {each.id for each in self.needed(one) if each.live}

    # ends

    def end(self, one: Member, state: State, reason: str | None, follow: Collection[Member] = ()) -> None:
        """Ends a job; what it has enqueued or spawned is added before."""
        for each in follow:
            self.add(each)
            if each.parent == one.id and each.live:
                for follower in self.followers(each):
                    if one.id in follower.waits:
                        follower.waits.add(each.id)
        one.state, one.reason = state, reason
        self._free([one, *(each for each in follow if not each.live)])
        self.end_flows()

    def _free(self, ended: list[Member]) -> None:
        """Releases or fails what waited for these jobs."""
        for gone in ended:
            gone.waits = set()
            for follower in self.followers(gone):
                if follower.state is not State.QUEUED:
                    continue
                waited = gone.id in follower.waits
                follower.waits.discard(gone.id)
                if self.blamed(follower):
                    follower.state, follower.reason = State.FAILED, "predecessor"
                    self.changed.add(follower.id)
                    ended.append(follower)
                elif waited and not follower.waits:
                    self.released.add(follower.id)

    def cancel(self, ids: Collection[str]) -> None:
        """Cancels queued jobs and marks running ones."""
        named = [self.jobs[each] for each in ids]
        for one in named:
            one.to_cancel |= one.state is State.RUNNING
        queued = [one for one in named if one.state is State.QUEUED]
        for one in queued:
            one.state, one.reason = State.CANCELLED, "cancelled"
        self.changed.update(one.id for one in queued)
        self._free(queued)
        self.end_flows()

    def cancel_flow(self, flow: str) -> None:
        if not self.flows[flow].ended:
            self.flows[flow].cancelled = True
        self.cancel([one.id for one in self.members(flow) if one.live])

    def end_flows(self) -> None:
        for flow in self.flows.values():
            if not flow.ended and not any(one.live for one in self.members(flow.id)):
                flow.ended, flow.ends = True, flow.ends + 1
                self.over.append(flow.id)

    # retries

    def plan(self, named: Collection[Member]) -> list[Member]:
        """Returns the jobs that are queued again if these are: themselves, and those that failed for their sake."""
        again = list(named)
        for one in again:
            for follower in self.followers(one):
                bad = [each for each in self.blamed(follower) if each not in again]
                if follower not in again and follower.reason == "predecessor" and not bad:
                    again.append(follower)
        return again

    def refused(self, named: Collection[Member]) -> bool:
        """Whether one of these jobs cannot be retried, because of a predecessor that is not."""
        return any(each not in named for one in named for each in self.blamed(one))

    def retry(self, named: Collection[Member]) -> None:
        """Queues these jobs again, and what failed for their sake."""
        again = self.plan(named)
        for one in again:
            one.state, one.reason, one.to_cancel, one.retried = State.QUEUED, None, False, True
            if (flow := self.flow_of(one)) is not None:
                flow.ended = False
        for one in again:
            self._wait(one)
        self.changed.update(one.id for one in again)

    def retriable(self, flow: str) -> list[Member]:
        """Returns the members that a retry of the flow queues again."""
        able = [one for one in self.members(flow) if one.state in BAD]
        for one in able:  # jobs that do not belong to it may be between them
            able += [each for each in self.followers(one) if each.reason == "predecessor" and each not in able]
        while self.refused(able):
            able = [one for one in able if all(each in able for each in self.blamed(one))]
        return [one for one in able if one.flow == flow]

    def retry_flow(self, flow: str) -> None:
        chosen = self.retriable(flow)
        if chosen or not self.flows[flow].ended:
            self.flows[flow].cancelled = False
        self.retry(chosen)
