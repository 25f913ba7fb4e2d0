"""Publishes the state of jobs for subscribers: from the node's own work, and from the store for all other changes.

Everything published was committed before. A read of the store never replaces an event that is newer than the read.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import msgspec

from chargehand import clock
from chargehand.live.bodies import JobBody, JobIdentity
from chargehand.live.broker import Broker
from chargehand.live.hiding import Hidden
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model import chores
from chargehand.model.batch import Batch, Result
from chargehand.model.job import FINISHED, JobRecord, Settlement, State
from chargehand.model.ledger import Begun, Ledger
from chargehand.model.search import Look as Search
from chargehand.model.topic import Patterns, is_flow, job_topic
from chargehand.protocol.worker import ProgressFrame

MOST_CHANGES = 500
"""Changed jobs that are kept until the next publication; of more, jobs that were never published are dropped."""
MOST_ASKED = 1000
"""Jobs read from the store at once."""

Change = Callable[[], JobBody]
"""Makes the body of a job; called only when it is published."""


class LiveJobs:
    """Collects changes of jobs and publishes them."""

    def __init__(self, broker: Broker, node: str, ledger: Ledger, hidden: Hidden | None = None) -> None:
        self._broker, self._node, self._ledger = broker, node, ledger
        self._own_hidden = self._hidden = hidden or {}
        """The fields that the crews of this node hide, and those of all nodes as far as they are known."""
        self._all = False
        self._ids: frozenset[str] = frozenset()
        self._changes: dict[str, Change] = {}
        """Changes of jobs that were published before."""
        self._new: OrderedDict[str, Change] = OrderedDict()
        """Changes of jobs that were never published: of many, only the last matter."""
        self._ask: dict[str, None] = {}
        """Jobs whose new state only the store knows."""
        self._asked: set[str] = set()
        """Jobs that are being read now because only the store knows their state."""
        self._meanwhile: set[str] = set()
        """Jobs that ended, unpublished, since the read began: what it returns for them is out of date."""
        self._new_list = False

    @property
    def waiting(self) -> int:
        """The number of changes to publish."""
        return len(self._changes) + len(self._new)

    def watch(self, patterns: Patterns | None) -> bool:
        """Set what all subscribers together want. Returns whether the store must be read for it."""
        every, ids = (patterns.jobs, patterns.ids) if patterns is not None else (False, frozenset[str]())
        new_list, new_ids = every and not self._all, ids - self._ids
        self._all, self._ids = every, ids
        self._new_list |= new_list
        if not every:
            self._broker.forget_work(lambda key: is_flow(key) or key[4:] in ids)
            for changes in (self._changes, self._new):
                for job_id in [job_id for job_id in changes if job_id not in ids]:
                    del changes[job_id]
        if new_list:
            for component, held in self._ledger.held.items():
                for claim in held.claims.values():
                    if self._known(claim.id) is None:  # otherwise its progress is known, too
                        self._change(claim.id, partial(JobBody.of_claim, claim, component, node=self._node))
        unknown = [job_id for job_id in new_ids if self._known(job_id) is None]
        return new_list or bool(unknown)

    # events of the node

    def _wanted(self, job_id: str) -> bool:
        return self._all or job_id in self._ids

    def _known(self, job_id: str) -> Change | None:
        """Returns what makes the newest known body of this job."""
        change = self._new.get(job_id) or self._changes.get(job_id)
        if change is None:
            event = self._broker.get(job_topic(job_id))
            body: JobBody | None = None if event is None else event.body
            change = None if body is None else lambda: body
        return change

    def _change(self, job_id: str, change: Change) -> None:
        if not self._wanted(job_id):
            return
        if self._broker.get(job_topic(job_id)) is not None:
            self._changes[job_id] = change
            return
        self._new[job_id] = change
        self._new.move_to_end(job_id)
        if len(self._new) > MOST_CHANGES:
            self._new.popitem(last=False)

    def ask(self, job_id: str) -> bool:
        """Note that the store must be asked about this job. Returns whether it is wanted."""
        if self._wanted(job_id):
            self._ask[job_id] = None
            if len(self._ask) > MOST_ASKED:
                del self._ask[next(iter(self._ask))]
            return True
        return False

    def written(self) -> None:
        """Another process has written: the list of jobs must be read again."""
        self._new_list |= self._all

    def began(self, component: str, todo: Begun) -> None:
        """A worker was handed a job, several jobs, or a look."""
        if not (self._all or self._ids) or isinstance(todo, Search):
            return
        for claim in todo if isinstance(todo, list) else (todo,):
            self._change(claim.id, partial(JobBody.of_claim, claim, component, node=self._node))

    def progressed(self, component: str, job: str | None, progress: ProgressFrame) -> None:
        """A worker reported progress."""
        held = self._ledger.held.get(component)
        claim = held and (held.claim if job is None else held.find(job))
        if claim is not None and self._wanted(claim.id):
            self._change(claim.id, partial(JobBody.of_claim, claim, component, progress, node=self._node))

    def committed(self, batch: Batch, result: Result) -> bool:
        """A batch was committed. Returns whether jobs must be read to know their new state."""
        if not (self._all or self._ids):
            return False
        for request, (_, enqueued) in zip(batch.requests, result.enqueued, strict=True):
            for job, done in zip(request.jobs, enqueued, strict=False):  # nothing is enqueued for a dropped request
                if done.created and self._known(job.id) is None:  # it may have started already
                    self._change(job.id, partial(JobBody.of_new, job))
        ask = [settlement.id for settlement in batch.settlements if not self._settled(settlement, result)]
        for chore, done in zip(batch.chores, result.done, strict=True):
            if isinstance(chore, chores.CancelJobs):
                ask += [job.id for job in done if job.at_once]
        wanted = [job_id for job_id in ask if self.ask(job_id)]
        return bool(wanted)

    def _settled(self, settlement: Settlement, result: Result) -> bool:
        """Returns whether the settlement tells the new state: a job that was asked to cancel is not queued again."""
        if not self._wanted(settlement.id):
            return True
        known = self._known(settlement.id)
        if known is None:
            self._meanwhile.add(settlement.id)
            return settlement.id not in self._ids  # it came and went, unpublished
        if settlement.state not in FINISHED or settlement.claim_name in result.lost:
            return False
        self._change(settlement.id, lambda: known().settled(settlement))
        return True

    def publish(self) -> None:
        """Publish the changes."""
        at_ms = clock.now_ms()
        changes = [*self._changes.items(), *self._new.items()]
        self._changes.clear()
        self._new.clear()
        for job_id, change in changes:
            body = change()
            body = body.hiding(self._hidden.get(body.queue))
            self._broker.publish(job_topic(job_id), job_topic(job_id), "job", body, at_ms)

    # the store

    def look(self, look: StoreLook, *, poll: bool) -> StoreLook:
        """Returns the read with the jobs that must be read added."""
        every = self._all and (poll or self._new_list)
        self._new_list = False
        self._asked, self._ask = set(self._ask), {}
        self._meanwhile.clear()
        ids = {*self._asked, *self._ids}
        if every:  # other processes may have changed what was published last
            ids |= {key[4:] for key in self._broker.keys("job:")}
        return msgspec.structs.replace(look, jobs=every, ids=tuple(sorted(ids)))

    def seen(self, seen: StoreView, version: int) -> None:
        """Take over the result of a read that was started at this version of the broker."""
        if seen.error is not None:
            self._ask = {**dict.fromkeys(self._asked), **self._ask}
            return
        if seen.hidden:
            self._hidden = {**seen.hidden, **self._own_hidden}
        held = {job_id for held in self._ledger.held.values() for job_id in held.claims} if seen.jobs else set[str]()
        for job in seen.jobs:
            fresher = any(job.id in known for known in (held, self._changes, self._new, self._meanwhile))
            if not fresher and self._wanted(job.id):
                self._read(job, version, listed=job.id in seen.listed)
        at_ms = clock.now_ms()
        for job_id in seen.gone:
            key = job_topic(job_id)
            if self._wanted(job_id):
                self._broker.remove(key, key, "job", JobIdentity(job_id), at_ms)

    def _read(self, job: JobRecord, version: int, *, listed: bool) -> None:
        key = job_topic(job.id)
        event = self._broker.get(key)
        if event is not None and event.version > version:
            return  # it was published after the read began
        ours = job.state is State.RUNNING and job.node == self._node
        if event is not None and ours and event.body.state is job.state:
            return  # the node knows the progress better
        aside = not listed and job.id not in self._asked and (event is None or event.aside)
        # The store has the progress that was written last, which need not be the last that was reported.
        ignoring = ("progress",) if job.state in FINISHED else ()
        body = JobBody.of_record(job)
        self._broker.publish(key, key, "job", body, clock.now_ms(), ignoring=ignoring, aside=aside)
