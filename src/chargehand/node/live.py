"""Publishes the live state of the node in a broker: workers, jobs, flows, queues and the verdict.

Without subscribers it only counts what the figures need, and reads the queues now and then while they change, so that
the charts have a past. It never waits: the reader thread reads what only the store knows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chargehand import clock
from chargehand.live import hiding
from chargehand.live.bodies import HealthBody, QueueBody, QueueIdentity, WorkerBody, queue_bodies, worker_body
from chargehand.live.broker import Broker
from chargehand.live.components import GONE, Component, addressed, component_of, nodes_of, shares, worker_of
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model.batch import Batch, Result
from chargehand.model.figures import Figures, Share, rounded, together
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.health import APP, judge
from chargehand.model.job import State
from chargehand.model.ledger import Begun, Ledger
from chargehand.model.past import NEVER, Past
from chargehand.model.records import Counts, HealthRow, NodeRow
from chargehand.model.topic import HEALTH, Patterns, node_topic, queue_topic, worker_topic
from chargehand.node.handle import Handle
from chargehand.node.live_flows import LiveFlows
from chargehand.node.live_jobs import LiveJobs
from chargehand.node.reader import Reader
from chargehand.settings.plan import NodePlan

WORK_GAP, WORK_AHEAD = 0.25, 1.0
"""Average seconds between two events of a worker that differ only in its work, and the burst after a quiet time, in
seconds' worth of events. A change of status is published at once."""
FIRST_GAP, LONGEST_GAP = 0.02, 0.25
"""Least and most seconds between two publications: longer when many jobs changed, or when the last one took long."""
MANY = 100
"""Changed jobs from which on events are published less often."""
LOOK_GAP = 0.25
"""Least seconds between two reads of the store; also at least four times as long as the last one took."""
POLL = 2.0
"""Seconds between two checks whether another process has written; a process on this machine also sends a hint."""
FLEET_POLL = 1.0
"""Seconds between two reads of the nodes, their workers and the followed jobs in a store that several nodes share."""

Beside = tuple[dict[str, str], str | None, dict[str, str], tuple[str, ...]]
"""Problems beside the workers: queues that no worker serves, each with the reason; why the store fails; crews whose
`discover` fails, each with the reason; nodes that are gone."""


class Live:
    """Turns what happens in the node into published state."""

    def __init__(
        self,
        life: str,
        plan: NodePlan,
        fleet: Fleet,
        ledger: Ledger,
        handles: Mapping[str, Handle],
        reader: Reader,
        system: Callable[[], Beside],
        *,
        shared: bool = False,
    ) -> None:
        """`shared`: other nodes may use the store; what they do is read from it."""
        self._plan, self._fleet, self._ledger, self._handles = plan, fleet, ledger, handles
        self._reader, self._system, self._shared = reader, system, shared
        self.broker = Broker(life)
        hidden = hiding.together((), ((crew.queue, crew.hide) for crew in plan.crews))
        self.jobs = LiveJobs(self.broker, plan.node, ledger, hidden)
        self.flows = LiveFlows(self.broker)
        self.watched = False
        """Whether there are subscribers."""
        self.past = Past()
        self._figures: dict[str, Figures] = {crew.queue: Figures() for crew in plan.crews}
        self._wall = clock.now_ms() - clock.monotonic() * 1000
        """The difference between the wall clock and the monotonic clock, in milliseconds, fixed at the start."""
        self._workers: dict[str, WorkerBody] = {}
        self._urgent: set[str] = set()
        self._busy: set[str] = set()
        self._paid_until: dict[str, float] = {}
        """Until when each worker's budget of events is used up."""
        self._busy_at = self._publish_at = 0.0
        self._counts: tuple[tuple[Counts, ...], tuple[tuple[str, int], ...]] | None = None
        self._others: dict[str, WorkerBody] = {}
        """The workers of other nodes, by the keys under which they are published."""
        self._shares: dict[str, list[Share]] = {}
        """By queue: the throughput in each other node."""
        self._served = frozenset(crew.queue for crew in plan.crews)
        """The queues of the crews of all nodes that live."""
        self._gone: tuple[str, ...] | None = None
        """The nodes that are gone, as they were read last; None: not yet."""
        self._beside: Beside | None = None
        self._stirred = False
        self._awaited = False
        """Whether a new subscriber waits for the next read."""
        self._look_at = self._poll_at = self._ends_at = 0.0
        self._fleet_at = 0.0 if shared else NEVER
        self._asked: tuple[int, int] | None = None
        """The read in progress: its number, and the broker's version when it was started."""
        self._looks = 0
        self.looked = 0
        """The number of the last completed read."""

    # subscriptions

    def watch(self, patterns: Patterns | None, now: float) -> int:
        """Set what all subscribers together want; None if there are none. Returns the read after which it is known."""
        news = self.flows.watch(patterns) | self.jobs.watch(patterns)
        if patterns is None:
            self.watched = False
            self._reader.rest()
            self._asked = None
            self._shares, self._gone = {}, None  # nobody reads them from now on
            return 0
        if not self.watched:
            self.watched, self._asked = True, None  # a read for the past alone would be in the way
            self._urgent.update(self._fleet.places, self._workers)
            self._poll_at, self._look_at = now + POLL, now
            self._fleet_at = now if self._shared else NEVER
            news = True
        if news:
            self._stirred, self._awaited, self._look_at = True, True, now
        return self._looks + 1 if news or self._stirred else self._looks

    # events of the node; all of them are cheap without subscribers

    def changed(self, component: str) -> None:
        """The status of a worker may have changed."""
        if self.watched:
            self._urgent.add(component)

    def worked(self, component: str) -> None:
        """The job or progress of a worker may have changed."""
        if self.watched:
            self._busy.add(component)
            self._busy_at = min(self._busy_at, self._paid_until.get(component, 0.0) - WORK_AHEAD)

    def began(self, component: str, todo: Begun) -> None:
        """A worker was handed a job, several jobs, or a look."""
        if self.watched:
            self.worked(component)
            self.jobs.began(component, todo)

    def heard(self, component: str, job: str | None, progress: Any) -> None:
        """A worker sent a health frame; `progress` is given only if it changed."""
        if self.watched:
            self.worked(component)
            if progress is not None:
                self.jobs.progressed(component, job, progress)

    def settled(self, job_id: str) -> None:
        """A worker settled this job in its own transaction."""
        if self.watched:
            self._stirred |= self.jobs.ask(job_id)
            self.flows.written()
            self._stirred |= self.flows.waiting

    def written(self, now: float) -> None:
        """Another process has written into the store."""
        self.past.stir(now)
        if self.watched:
            self._stirred = True
            self.jobs.written()
            self.flows.written()

    def ended(self, flows: Sequence[str]) -> None:
        """Flows have ended after the turn that ended their last jobs."""
        self.flows.ended(flows)

    def committed(self, batch: Batch, result: Result, now: float) -> None:
        """A batch was committed."""
        claimed = False
        for grant in result.grants:
            if grant.claims:
                claimed = True
                self._figures_of(grant.claims[0].queue).began(now)
        ended: dict[str, tuple[int, int]] = {}
        for settlement in batch.settlements:
            if settlement.outcome == "done" or (settlement.outcome and settlement.state is not State.QUEUED):
                count, took_ms = ended.get(settlement.queue, (0, 0))
                ended[settlement.queue] = count + 1, took_ms + settlement.duration_ms
        for queue, (count, took_ms) in ended.items():
            self._figures_of(queue).ended(count, took_ms / 1000, now)
        # Not every grant: an idle node claims in vain with each of its beats.
        work = bool(batch.settlements or batch.requests or claimed or result.changed)
        if work:
            self.past.stir(now)
        if self.watched:
            self._stirred |= work
            self._stirred |= self.jobs.committed(batch, result)
            self.flows.committed(batch, result)

    def _figures_of(self, queue: str) -> Figures:
        found = self._figures.get(queue)
        if found is None:
            found = self._figures[queue] = Figures()
        return found

    # deadlines

    def due(self) -> float:
        """Returns when `step` has something to do."""
        if not self.watched:
            return self.past.due() if self._asked is None else NEVER
        if self._urgent:
            return 0.0
        moments = [self._poll_at, self.past.due()]
        if self._asked is None:
            moments.append(self._fleet_at)
        if self._busy or self.jobs.waiting:
            busy_at = self._busy_at if self._busy and not self.jobs.waiting else 0.0
            moments.append(max(self._publish_at, busy_at))
        if self._stirred and self._asked is None:
            moments.append(self._look_at)
        if self.flows.urgent and self._asked is None:
            moments.append(self._ends_at)
        return min(moments)

    def step(self, now: float) -> None:
        """Publish what is due, and start a read of the store if one is due."""
        if not self.watched:
            self._looks += 1
            self._asked = (self._looks, self.broker.version)
            self._reader.ask(StoreLook(mark=self._looks))
            return
        if now >= self.past.due():
            self._keep(now)
        if self._urgent:
            self._publish_workers(list(self._urgent), now)
            self._urgent.clear()
            self._publish_health()
        elif self._beside != self._system():
            self._publish_health()
        if (self._busy or self.jobs.waiting) and now >= self._publish_at:
            self._publish_work(now)
        stirred = self._stirred and now >= self._look_at
        if self._asked is None and (stirred or now >= min(self._poll_at, self._fleet_at)):
            self._look(now)
        elif self._asked is None and self.flows.urgent and now >= self._ends_at and not self._awaited:
            self._look_at_ends()

    def _publish_work(self, now: float) -> None:
        began, many = clock.monotonic(), self.jobs.waiting > MANY
        if now >= self._busy_at:
            ready = [c for c in self._busy if self._paid_until.get(c, 0.0) - WORK_AHEAD <= now]
            self._publish_workers(ready, now)
            self._busy.difference_update(ready)
            self._busy_at = min((self._paid_until[c] - WORK_AHEAD for c in self._busy), default=float("inf"))
        self.jobs.publish()
        took = clock.monotonic() - began
        self._publish_at = now + (LONGEST_GAP if many else min(max(FIRST_GAP, 8 * took), LONGEST_GAP))

    def _publish_workers(self, components: list[str], now: float) -> None:
        at_ms = clock.now_ms()
        for component in components:
            key = f"{worker_topic(component)}@{self._plan.node}"
            place = self._fleet.places.get(component)
            if place is None:
                known = self._workers.pop(component, None)
                self._paid_until.pop(component, None)
                if known is not None:
                    self.broker.remove(key, worker_topic(component), "worker", known.identity, at_ms)
                continue
            held = self._ledger.held.get(component)
            process, policy = self._handles.get(component), self._plan.restart
            body = worker_body(place, process, held, policy, now, node=self._plan.node, wall=self._wall)
            self._workers[component] = body
            if self.broker.publish(key, worker_topic(component), "worker", body, at_ms):
                self._paid_until[component] = max(now, self._paid_until.get(component, 0.0)) + WORK_GAP

    def _publish_health(self) -> None:
        unserved, failing, blind, noticed = self._beside = self._system()
        gone = noticed if self._gone is None else self._gone
        own = [self._workers[component] for component in self._fleet.places if component in self._workers]
        others = [worker for worker in self._others.values() if worker.node not in gone]
        found = judge(addressed([*own, *others]), unserved, store_failing=failing, blind=blind, gone=gone)
        self.broker.publish(HEALTH, HEALTH, "health", HealthBody.of(found), clock.now_ms())

    def _publish_fleet(self, nodes: Sequence[NodeRow], rows: Sequence[HealthRow]) -> None:
        """Publishes all nodes, and the workers of the others: this node knows its own better than the store."""
        here = self._plan.node
        components = [component_of(row) for row in rows if row.node != here or row.component == APP]
        bodies = nodes_of(nodes, [*components, *self._workers.values()])
        before = self._gone, self._others
        self._gone = tuple(body.name for body in bodies if body.status == GONE)
        theirs = (crew.queue for node in nodes if node.lives for crew in node.crews)
        self._served = frozenset((*(crew.queue for crew in self._plan.crews), *theirs))
        self._publish_others([each for each in components if each.node != here])
        if before != (self._gone, self._others):
            self._publish_health()
        at_ms = clock.now_ms()
        topics: set[str] = set()
        for body in bodies:
            topic = node_topic(body.name)
            topics.add(topic)
            self.broker.publish(topic, topic, "node", body, at_ms, ignoring=("beat_age_ms",))
        for topic in set(self.broker.keys("node:")) - topics:
            known = self.broker.get(topic)
            assert known is not None
            self.broker.remove(topic, topic, "node", known.body.identity, at_ms)

    def _publish_others(self, components: Sequence[Component]) -> None:
        before, at_ms = self._others, clock.now_ms()
        self._shares = shares(components)
        bodies = [worker_of(each) for each in components if each.component != APP]
        self._others = {f"{worker_topic(body.component)}@{body.node}": body for body in bodies}
        for key, body in self._others.items():
            self.broker.publish(key, worker_topic(body.component), "worker", body, at_ms)
        for key in before.keys() - self._others.keys():
            gone = before[key]
            self.broker.remove(key, worker_topic(gone.component), "worker", gone.identity, at_ms)

    # the store

    def _look(self, now: float) -> None:
        self._looks += 1
        self._asked = (self._looks, self.broker.version)
        poll, fleet = now >= self._poll_at, now >= self._fleet_at
        stirred = self._stirred and (poll or self._awaited or now >= self._look_at)
        look = StoreLook(
            queues=poll or stirred, fleet=fleet, only_if_changed=not (stirred or fleet), mark=self._looks
        )  # fmt: skip
        look = self.flows.look(look, poll=poll or fleet)
        self._reader.ask(self.jobs.look(look, poll=poll or fleet))
        if poll or stirred:
            self._stirred, self._awaited, self._poll_at = False, False, now + POLL
        if fleet:
            self._fleet_at = now + FLEET_POLL

    def _look_at_ends(self) -> None:
        """Reads the flows that have ended, before the next read of everything: their ends are published at once."""
        self._looks += 1
        self._asked = (self._looks, self.broker.version)
        self._reader.ask(self.flows.look(StoreLook(queues=False, mark=self._looks), poll=False))

    def seen(self, seen: StoreView, took: float, now: float) -> None:
        """Take over the result of a read."""
        if self._asked is None or seen.look.mark != self._asked[0]:
            return  # the subscribers left meanwhile
        (self.looked, version), self._asked = self._asked, None
        self._ends_at = now + max(FIRST_GAP, 4 * took)
        if self.watched and not (seen.look.queues or seen.look.fleet):
            self.flows.seen(seen)  # only about ends
            return
        self._look_at = now + max(LOOK_GAP, 4 * took)
        if seen.error is not None:
            self._stirred, self._look_at = True, now + POLL  # the change that caused the read has not been seen
        if seen.counts is not None:
            self._counts = (seen.counts, seen.waiting)
        if not self.watched:
            self._reader.rest()
            self._keep(now, took)
            return
        self.jobs.seen(seen, version)
        self.flows.seen(seen)
        self._stirred |= self.flows.waiting
        if seen.fleet is not None:
            self._publish_fleet(*seen.fleet)
        if seen.counts is not None or any(figures.moved(now) for figures in self._figures.values()):
            self._publish_queues(now)

    def _queues(self, now: float) -> list[QueueBody]:
        """Returns the body of every queue; empty before the first read."""
        own = {queue: [self._share(queue, figures, now)] for queue, figures in self._figures.items()}
        queues = {*own, *self._shares}
        throughput = {queue: together((*own.get(queue, ()), *self._shares.get(queue, ()))) for queue in queues}
        return [] if self._counts is None else queue_bodies(*self._counts, self._served, throughput)

    def rates(self, now: float) -> dict[str, Share]:
        """Returns by queue the throughput in this node, if there was any lately."""
        found = {queue: self._share(queue, figures, now) for queue, figures in self._figures.items()}
        return {
            queue: Share(rounded(share.rate) or 0.0, rounded(share.mean), share.waits, share.runs)
            for queue, share in found.items()
            if share.rate or share.waits or share.runs
        }

    def _share(self, queue: str, figures: Figures, now: float) -> Share:
        return figures.share(now, self._ledger.tally.durations(queue))

    def _keep(self, now: float, took: float = 0.0) -> None:
        self.past.keep(self._queues(now), clock.now_ms(), now, took)

    def _publish_queues(self, now: float) -> None:
        if self._counts is None:
            return
        at_ms = clock.now_ms()
        topics: set[str] = set()
        for body in self._queues(now):
            topic = queue_topic(body.name)
            topics.add(topic)
            self.broker.publish(topic, topic, "queue", body, at_ms, ignoring=("oldest_wait_s",))
        for topic in set(self.broker.keys("queue:")) - topics:
            name = topic.removeprefix("queue:").removesuffix(":status")
            self.broker.remove(topic, topic, "queue", QueueIdentity(name), at_ms)
