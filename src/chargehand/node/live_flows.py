"""Publishes the state of flows for subscribers: the node knows which of them change, the reader thread reads them.

The counts of a flow are read at most every 250 ms, and at once when the flow has ended.
"""

from collections.abc import Iterable

import msgspec

from chargehand import clock
from chargehand.live.bodies import FlowBody, FlowIdentity
from chargehand.live.broker import Broker
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model import chores
from chargehand.model.batch import Batch, Result
from chargehand.model.topic import Patterns, flow_topic, is_flow

MOST_ASKED = 200
"""Flows read from the store at once; the others are read next."""


class LiveFlows:
    """Collects which flows have changed, and publishes what was read of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._all = False
        self._ids: frozenset[str] = frozenset()
        self._changed: dict[str, None] = {}
        """Wanted flows of which a job has changed."""
        self._ended: dict[str, None] = {}
        """Wanted flows that have ended, and have not been read since."""
        self._asked: tuple[str, ...] = ()
        """Flows that are being read now."""
        self._new_list = False

    @property
    def wanted(self) -> bool:
        """Whether a subscriber wants flows."""
        return self._all or bool(self._ids)

    @property
    def urgent(self) -> bool:
        """Whether flows have ended that must be read at once."""
        return bool(self._ended)

    @property
    def waiting(self) -> bool:
        """Whether flows have changed that must be read."""
        return bool(self._changed or self._ended)

    def watch(self, patterns: Patterns | None) -> bool:
        """Set what all subscribers together want. Returns whether the store must be read for it."""
        every, ids = (patterns.flows, patterns.flow_ids) if patterns is not None else (False, frozenset[str]())
        new_list = every and not self._all
        unknown = [flow_id for flow_id in ids - self._ids if not self._broker.knows(flow_topic(flow_id))]
        self._new_list |= new_list
        self._all, self._ids = every, ids
        self._changed |= dict.fromkeys(unknown)
        if not every:
            self._broker.forget_work(lambda key: not is_flow(key) or key[5:] in ids)
            self._changed = {flow_id: None for flow_id in self._changed if flow_id in ids}
            self._ended = {flow_id: None for flow_id in self._ended if flow_id in ids}
        return new_list or bool(unknown)

    def _is_wanted(self, flow_id: str | None) -> bool:
        return flow_id is not None and (self._all or flow_id in self._ids)

    # events of the node

    def written(self) -> None:
        """Another process has written, or a job changed whose flow is not known: all flows must be read again."""
        self._new_list |= self._all
        self._changed |= dict.fromkeys(self._ids)

    def committed(self, batch: Batch, result: Result) -> None:
        """A batch was committed."""
        if not self.wanted:
            return
        jobs = [claim.flow for grant in result.grants for claim in grant.claims]
        for settlement in batch.settlements:
            jobs.append(settlement.flow)
            jobs += [job.flow for job in settlement.follow]
        self._changed |= dict.fromkeys(flow_id for flow_id in jobs if flow_id is not None and self._is_wanted(flow_id))
        self.ended(result.ended_flows)
        if any(isinstance(chore, chores.CancelJobs) for chore in batch.chores):
            self.written()

    def ended(self, flows: Iterable[str]) -> None:
        """Notes flows that have ended."""
        self._ended |= dict.fromkeys(filter(self._is_wanted, flows))

    # the store

    def look(self, look: StoreLook, *, poll: bool) -> StoreLook:
        """Returns the read with the flows that must be read added."""
        every = self._all and (poll or self._new_list)
        self._new_list = False
        ids = {**self._ended, **self._changed, **(dict.fromkeys(self._ids) if poll else {})}
        if every:  # other processes may have changed what was published last
            ids |= dict.fromkeys(key[5:] for key in self._broker.keys("flow:"))
        self._asked = tuple(ids)[:MOST_ASKED]
        for flow_id in self._asked:
            self._ended.pop(flow_id, None)
            self._changed.pop(flow_id, None)
        return msgspec.structs.replace(look, flows=every, flow_ids=self._asked)

    def seen(self, seen: StoreView) -> None:
        """Take over the result of a read."""
        if seen.error is not None:
            self._changed |= dict.fromkeys(self._asked)
            self._new_list |= seen.look.flows
            return
        at_ms = clock.now_ms()
        for flow in seen.flows:
            key = flow_topic(flow.id)
            if self._is_wanted(flow.id):
                self._broker.publish(key, key, "flow", FlowBody.of(flow), at_ms)
        for flow_id in seen.gone_flows:
            key = flow_topic(flow_id)
            if self._is_wanted(flow_id):
                self._broker.remove(key, key, "flow", FlowIdentity(flow_id), at_ms)
