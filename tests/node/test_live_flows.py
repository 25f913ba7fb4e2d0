"""What the node tells of flows: what was read of them last, and their ends at once."""

from typing import Any

import pytest

from chargehand.live.broker import Broker
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model import chores
from chargehand.model.batch import Batch, Grant, Result
from chargehand.model.flows import FlowCounts, FlowRecord, FlowState
from chargehand.model.job import Claim, Done, NewJob, settle
from chargehand.model.records import CancelResult
from chargehand.model.topic import parse
from chargehand.node.live_flows import MOST_ASKED, LiveFlows


def claim(flow: str | None, number: int = 1) -> Claim:
    return Claim(
        id=f"j{number}", seq=number, number=1, queue="q", payload="null", label=None, priority=0, failures=0,
        max_attempts=3, crashes=0, timeout_ms=None, flow=flow,
    )  # fmt: skip


def record(flow_id: str, state: FlowState = "running", **counts: int) -> FlowRecord:
    return FlowRecord(
        id=flow_id, name=f"flow {flow_id}", state=state, counts=FlowCounts(**counts), created_ms=1,
        ended_ms=None if state == "running" else 9, ends=int(state != "running"), cancel_ms=None, on_end=None,
    )  # fmt: skip


class World:
    def __init__(self, *topics: str) -> None:
        self.broker = Broker("life")
        self.news = LiveFlows(self.broker)
        self.new = self.news.watch(parse(topics))

    def asked(self, *, poll: bool = False) -> tuple[str, ...]:
        return self.news.look(StoreLook(), poll=poll).flow_ids

    def seen(self, *flows: FlowRecord, gone: tuple[str, ...] = (), error: str | None = None) -> None:
        self.news.seen(StoreView(look=StoreLook(), flows=flows, gone_flows=gone, error=error))

    def claimed(self, flow: str | None) -> None:
        self.news.committed(Batch(), Result(grants=(Grant("crew", (claim(flow),), None),)))

    def settled(self, flow: str | None, *ended: str, follow: tuple[NewJob, ...] = ()) -> None:
        settlement = settle(claim(flow), Done(follow=follow))
        assert settlement is not None
        self.news.committed(Batch(settlements=(settlement,)), Result(ended_flows=ended))

    def body(self, flow_id: str) -> Any:
        event = self.broker.get(f"flow:{flow_id}")
        return event and event.body


def test_a_flow_from_its_first_read_to_its_end() -> None:  # spec: FL-4 EV-2 EV-3
    world = World("flow:a")
    assert world.new, "the store must be read"
    assert world.asked() == ("a",)
    world.seen(record("a", queued=2))
    assert (world.body("a").state, world.body("a").counts.queued) == ("running", 2)
    assert world.asked() == (), "nothing has changed"
    world.claimed("a")
    assert (world.asked(), world.news.urgent) == (("a",), False)
    world.settled("a", "a")
    assert world.news.urgent, "the end is read at once"
    assert world.asked() == ("a",)
    assert not world.news.urgent
    world.seen(record("a", "done", done=2))
    assert (world.body("a").state, world.body("a").ended_ms) == ("done", 9)


def test_flows_that_nobody_wants_cost_nothing() -> None:
    world = World("worker:*:status", "flow:a")
    world.asked()
    world.claimed("b")
    world.claimed(None)
    world.settled("b", "b")
    assert (world.asked(), world.news.urgent, world.news.waiting) == ((), False, False)
    world.news.watch(None)
    assert (world.news.wanted, world.broker.keys("flow:")) == (False, [])


def test_jobs_that_a_handler_adds_to_another_flow_change_it() -> None:  # spec: FL-4
    world = World("flow:b")
    world.asked()
    world.settled("a", follow=(NewJob(id="x", queue="q", flow="b"),))
    assert world.asked() == ("b",)


def test_what_others_write_is_read_again() -> None:  # spec: EV-3
    world = World("flow:a")
    world.asked()
    world.news.written()
    assert world.asked() == ("a",)
    cancel = chores.CancelJobs(token=None, ids=("j1",))
    world.news.committed(Batch(chores=(cancel,)), Result(done=([CancelResult("j1", True, 0)],)))
    assert world.asked() == ("a",)
    assert world.asked(poll=True) == ("a",), "other nodes may have changed it"


def test_all_flows_are_followed() -> None:  # spec: EV-1
    world = World("flow:*")
    look = world.news.look(StoreLook(), poll=False)
    assert (world.new, look.flows, look.flow_ids) == (True, True, ())
    world.seen(record("a"), record("b"))
    world.claimed("c")
    assert world.asked() == ("c",)
    world.seen(gone=("b",))
    assert world.body("b") is None
    look = world.news.look(StoreLook(), poll=True)
    assert (look.flows, look.flow_ids) == (True, ("a",))


def test_a_flow_that_does_not_exist_is_told_to_those_alone_who_asked_for_it() -> None:  # spec: EV-2
    world = World("flow:nope", "flow:*")
    asks, watches = (world.broker.subscribe(parse((topic,)), lambda: None) for topic in ("flow:nope", "flow:*"))
    world.seen(gone=("nope",))
    assert [(event.removed, topic) for event, topic in asks.take(10)[1]] == [(True, "flow:nope")]
    assert watches.take(10)[1] == []


def test_a_read_that_failed_is_repeated() -> None:
    world = World("flow:a")
    assert world.asked() == ("a",)
    world.seen(error="the store is away")
    assert world.asked() == ("a",)


def test_many_changed_flows_are_read_in_parts() -> None:
    world = World("flow:*")
    world.news.look(StoreLook(), poll=False)
    for number in range(MOST_ASKED + 5):
        world.claimed(f"f{number}")
    assert len(world.asked()) == MOST_ASKED
    assert world.news.waiting
    assert len(world.asked()) == 5


@pytest.mark.parametrize("count", [99, 300])
def test_flows_that_have_ended_are_kept_up_to_a_number(count: int) -> None:  # spec: EV-4
    world = World("flow:*")
    world.seen(record("open"))
    for number in range(count):
        world.seen(record(f"f{number}", "done"))
    assert world.body("open") is not None
    assert len(world.broker.keys("flow:")) == min(count, 100) + 1
