"""Measures flows: their cost beside plain jobs, how soon a follower starts, and a fan-in of many children."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from bench.caller import ask
from bench.hosting import CrewSpec
from bench.row import Row, p50
from bench.scene import PATIENCE, Stage, folder, stage
from bench.working import JOBS, ROUNDS, done, work_off
from chargehand import Ref, clock
from chargehand.ids import new_id, new_ids
from chargehand.model.batch import Batch, Want
from chargehand.model.flows import NewFlow
from chargehand.model.job import Claim, Done, NewJob, settle
from chargehand.model.records import Holder
from chargehand.store import Store
from chargehand.stores import open_store
from chargehand.testing import eventually

SIZE = 10
"""Jobs of a flow: one that spawns, its children, and one that follows."""
CHAINS = 200
CHILDREN = 10_000
AT_ONCE = 64
WORST_MS, MOST_US, MOST_ABOVE_MS = 50.0, 30.0, 2.0
HOLDER = Holder("bench", "bench")
QUEUE = "fan"
THROUGHPUT = ("jobs per second in flows of 10",)
LATENCY = ("end of a job to its follower, p50", "that above enqueue to start")
FAN_IN = (
    "fan-in of 10,000: children made, a job",
    "fan-in of 10,000: worst transaction",
    "fan-in of 10,000: last children",
)
"""The names of the rows of each function."""


def _begin_flows(on: Stage, count: int) -> list[Ref[None]]:
    """Adds flows in a few transactions while the crew is paused. Returns the last job of each."""
    last: list[Ref[None]] = []
    for start in range(0, count, 200):
        with on.hand.transaction() as tx:
            for number in range(start, min(start + 200, count)):
                with on.hand.flow(f"flow {number}", within=tx) as flow:
                    first = flow.enqueue(on.crew, SIZE - 2)
                    last.append(flow.enqueue(on.crew, None, after=first))
    return last


def work_off_flows(on: Stage, count: int) -> float:
    """Returns the seconds that the node needs for this number of flows, which were added before; as `work_off`."""
    on.hand.pause(on.crew.name)
    before = done(on)
    last = _begin_flows(on, count)
    began = clock.monotonic()
    on.hand.resume(on.crew.name)
    for ref in last[-8:]:
        ref.wait(PATIENCE)
    eventually(lambda: done(on) - before == count * SIZE, PATIENCE, what="all flows have ended")
    return clock.monotonic() - began


def flow_rows(store: str | None = None) -> Iterable[Row]:
    """Flows of 10 (one job, 8 children, one follower) in turn with as many plain jobs, 2 workers."""
    flows = JOBS // SIZE
    ratios: list[float] = []
    rates: list[float] = []
    with stage(CrewSpec(QUEUE, "Fan", 2), store=store) as on:
        work_off(on, 1000)
        work_off_flows(on, 50)
        for _ in range(ROUNDS):
            plain = JOBS / work_off(on, JOBS)
            rates.append(JOBS / work_off_flows(on, flows))
            ratios.append(rates[-1] / plain)
    note = f"{p50(rates):,.0f} jobs/s in flows; each flow has 10 edges, and an end of its own"
    yield Row("jobs per second in flows of 10", p50(ratios), "× without", 1.0, 0.5, more_is_better=True, note=note)


def follower_rows(store: str | None = None) -> Iterable[Row]:
    """From the start of a job that does nothing to the start of its follower, beside enqueue to start."""
    took: list[float] = []
    with stage(CrewSpec("stamp", "Stamp", 2), store=store) as on:
        (plain,) = ask(1, "latency", on.spec, CHAINS)
        for _ in range(CHAINS):
            with on.hand.flow("chain") as flow:
                first = flow.enqueue(on.crew, None)
                second = flow.enqueue(on.crew, None, after=first)
            took.append((second.wait(PATIENCE) - first.wait(PATIENCE)) / 1e6)
    above = p50(took) - 1000 * p50(plain)
    note = f"{p50(took):.2f} ms, and {1000 * p50(plain):.2f} ms from an enqueue to the start"
    yield Row("end of a job to its follower, p50", p50(took), "ms", None, None)
    yield Row("that above enqueue to start", above, "ms", None, MOST_ABOVE_MS, note=note)


def _claim(store: Store, count: int) -> list[Claim]:
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want(QUEUE, QUEUE, count)], HOLDER)
    return list(grant.claims)


def _fan_out(store: Store, children: int) -> float:
    """Settles a job that spawns so many children, and has a follower. Returns the seconds of the transaction."""
    flow, parent = NewFlow(id=new_id(), name="fan-in"), NewJob(id=new_id(), queue=QUEUE)
    follower = NewJob(id=new_id(), queue="follower", after=(parent.id,), flow=flow.id)
    with store.transaction() as tx:
        tx.flows.begin(flow)
        tx.jobs.enqueue([NewJob(id=parent.id, queue=QUEUE, flow=flow.id), follower])
    (claim,) = _claim(store, 1)
    spawned = tuple(NewJob(id=each, queue=QUEUE, flow=flow.id, child=True) for each in new_ids(children))
    settlement = settle(claim, Done("null", spawned))
    assert settlement is not None
    began = clock.monotonic()
    store.turn(Batch(settlements=(settlement,)), HOLDER)
    return clock.monotonic() - began


@contextmanager
def _opened(store: str | None) -> Generator[Store]:
    with folder() as path:
        opened = open_store(str(path / "fan.db") if store is None else store)
        try:
            yield opened
        finally:
            opened.close()


def fan_in_rows(store: str | None = None) -> Iterable[Row]:
    """The transactions of a fan-in of 10,000 children, each of which settles and claims 64 of them."""
    took: list[float] = []
    with _opened(store) as opened:
        _fan_out(opened, 100)
        for claim in iter(lambda: _claim(opened, 1), []):
            opened.turn(Batch(settlements=tuple(filter(None, (settle(each, Done()) for each in claim)))), HOLDER)
        made = _fan_out(opened, CHILDREN)
        held: list[Claim] = _claim(opened, AT_ONCE)
        while held:
            settlements = tuple(filter(None, (settle(each, Done()) for each in held)))
            began = clock.monotonic()
            result = opened.turn(Batch(settlements=settlements, wants=(Want(QUEUE, QUEUE, AT_ONCE),)), HOLDER)
            took.append(clock.monotonic() - began)
            held = list(result.grants[0].claims)
        released = [claim for claim in opened.jobs.waiting() if claim[0] == "follower"]
    assert released, "the follower waits although all children are done"
    tenth = len(took) // 10
    yield Row("fan-in of 10,000: children made, a job", made / CHILDREN * 1e6, "µs", None, MOST_US)
    yield Row("fan-in of 10,000: worst transaction", 1000 * max(took), "ms", 1000 * p50(took), WORST_MS)
    flat = p50(took[-tenth:]) / p50(took[:tenth])
    yield Row("fan-in of 10,000: last children", flat, "× the first", 1.0, 1.3)
