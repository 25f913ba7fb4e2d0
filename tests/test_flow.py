"""Flows as callers and tests see them, without a node: the block, what is refused, and `run_all`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from chargehand import (
    Cancelled,
    Chargehand,
    ChargehandError,
    ConfigurationError,
    Conflict,
    FlowCancelled,
    FlowEnd,
    FlowFailed,
    FlowFilter,
    GiveUp,
    Handler,
    Job,
    JobCancelled,
    JobFailed,
    JobFilter,
    PayloadError,
    ResultTimeout,
    Retry,
    UnrecoverableError,
)
from chargehand.host.operations import in_order, needs_own_transaction
from chargehand.model.job import Enqueued, NewJob, State
from chargehand.testing import Performed, perform, run_all


class Split(Handler[int, int]):
    ups = downs = 0

    def set_up(self) -> None:
        Split.ups += 1

    def perform(self, job: Job[int]) -> int:
        job.spawn("part", list(range(job.payload)))
        return job.payload

    def tear_down(self) -> None:
        Split.downs += 1


class Part(Handler[int, int]):
    bad: tuple[int, ...] = ()

    def perform(self, job: Job[int]) -> int:
        if job.payload in Part.bad:
            raise GiveUp("a bad part")
        (job.folder / str(job.payload)).touch()
        (job.scratch / "part").touch()
        return 10 * job.payload


class Join(Handler[Any, Any]):
    async def perform(self, job: Job[Any]) -> Any:
        found = [str(each) if isinstance(each, JobFailed) else each async for each in job.results("part")]
        return {"results": found, "same": found == [each for each in job.results("part") if each in found]}


class Last(Handler[FlowEnd, Any]):
    def perform(self, job: Job[FlowEnd]) -> Any:
        return [job.payload.name, job.payload.state, job.payload.counts.done]


class Flaky(Handler[str, Any]):
    def perform(self, job: Job[str]) -> Any:
        match job.payload:
            case "twice":
                job.keep((job.kept or 0) + 1)
                if job.attempt < 3:
                    raise ValueError("again")
                return job.kept
            case "later":
                if job.attempt == 1:
                    raise Retry(after=3600)
                return "late"
            case "fatal":
                raise UnrecoverableError("the disk is gone")
            case "again":
                job.enqueue("flaky", "again")
            case _:
                raise ValueError(job.payload)
        return None


class Settles(Handler[Any, Any]):
    def perform(self, job: Job[Any]) -> Any:
        with job.settle("settled") as tx:
            job.spawn("part", [4])
            tx.execute("CREATE TABLE own (x)")


class Keyed(Handler[int, int]):
    """Spawns as many jobs as it is told to, with one key."""

    def perform(self, job: Job[int]) -> int:
        return len(job.spawn("part", range(job.payload), key="k"))


class App:
    def __init__(self, path: Path) -> None:
        self.hand = hand = Chargehand(path)
        self.split = hand.crew("split", "test_flow:Split", takes=int, gives=int)
        self.part = hand.crew("part", "test_flow:Part", takes=int, gives=int)
        self.join = hand.crew("join", "test_flow:Join")
        self.last = hand.crew("last", "test_flow:Last", takes=FlowEnd)
        self.flaky = hand.crew("flaky", "test_flow:Flaky", takes=str)
        self.settles = hand.crew("settles", "test_flow:Settles", transactional=True)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_flow  # the module that the handlers' names mean

    for kind in (Split, test_flow.Split):
        kind.ups = kind.downs = 0
    monkeypatch.setattr(test_flow.Part, "bad", ())
    made = App(tmp_path / "s.db")
    yield made
    made.hand.close()


# spec: FL-4
def test_nothing_exists_before_the_end_of_the_block(app: App) -> None:
    flow = app.hand.flow("later")
    with pytest.raises(ChargehandError, match="was not made: enqueue inside `with hand"):
        flow.enqueue(app.part, 1)
    with flow:
        first = flow.enqueue(app.part, 1)
        many = app.part.enqueue_many([2, 3], flow=flow, after=first)
        with pytest.raises(ChargehandError, match="does not exist yet"):
            flow.status()
        with pytest.raises(ChargehandError, match=r"pass within= to hand\.flow"), app.hand.transaction() as tx:
            app.part.enqueue(4, flow=flow, within=tx)
        assert app.hand.jobs(JobFilter()) == []
    assert [ref.job().waits_for for ref in (first, *many)] == [0, 1, 1]
    assert flow.status().counts.following == 2
    with pytest.raises(ChargehandError, match="exists already"), flow:
        pass
    flow.enqueue(app.part, 5)
    assert len(flow.jobs()) == 4
    with pytest.raises(ResultTimeout, match="2 wait for other jobs") as late:
        flow.wait(0.01)
    assert late.value.job_id == flow.id
    with pytest.raises(Conflict):
        flow.delete()


# spec: FL-4
def test_a_block_that_raises_makes_nothing_and_its_flow_is_dead(app: App) -> None:
    with pytest.raises(ZeroDivisionError), app.hand.flow("dropped") as flow:
        flow.enqueue(app.part, 1 // 0)
    with pytest.raises(ChargehandError, match="was not made"):
        app.part.enqueue(1, flow=flow)
    assert app.hand.flows(FlowFilter(text="dropped")) == []


# spec: FL-4
def test_a_flow_in_a_coroutine(app: App) -> None:
    async def make() -> Any:
        async with app.hand.flow("async") as flow:
            first = await flow.enqueue_async(app.part, 1)
            await app.part.enqueue_async(2, after=first, flow=flow)
        run_all(app.hand)
        return await flow.result(5)

    assert asyncio.run(make()).counts.done == 2


# spec: FL-1
def test_jobs_of_another_store_are_refused_in_words(app: App, tmp_path: Path) -> None:
    other = App(tmp_path / "other.db")
    ref = other.part.enqueue(1)
    with other.hand.flow("other") as flow:
        flow.enqueue(other.part, 1)
    for options in ({"after": ref}, {"after": [ref]}):
        with pytest.raises(PayloadError, match=r"is of another store, .*other\.db: a job of .*s\.db waits only for"):
            app.part.enqueue(1, **options)  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="belongs only to flows of its own store"):
        app.part.enqueue_many([1], flow=flow)
    with pytest.raises(PayloadError, match="use delay=60"):
        app.part.enqueue(1, after=60)  # type: ignore[arg-type]
    other.hand.close()


# spec: FL-4
def test_what_a_flow_cannot_have_is_refused(app: App) -> None:
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(PayloadError, match="the name of a flow"):
            app.hand.flow(name)
    with pytest.raises(PayloadError, match="order is 'random'"):
        app.hand.flow("a", order="random")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"crew 'part', which does not take chargehand\.FlowEnd"):
        app.hand.flow("a", on_end=app.part)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"expected what hand\.crew"):
        app.hand.flow("a", on_end="last")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot have after or flow"):
        app.hand.recurring("a", app.part, 1, every=1, flow="x")


# spec: FL-6
def test_a_reference_tells_whether_its_job_was_created_or_replaced(app: App) -> None:
    first = app.part.enqueue(1, key="k", replace=True, delay=60)
    second = app.part.enqueue(2, key="k", replace=True, delay=60)
    assert (first.created, first.replaced, second.created, second.replaced) == (True, False, False, True)
    assert second.id == first.id
    assert bytes(first.job().payload) == b"2"
    with app.hand.flow("keyed") as flow:
        held = flow.enqueue(app.part, 3, key="k")
        follower = flow.enqueue(app.part, 4, after=held)
    assert (held.id, held.created) == (first.id, False)
    assert follower.job().waits_for == 1


def test_jobs_that_name_each_other_are_enqueued_in_as_few_calls_as_possible() -> None:
    calls: list[list[str]] = []

    def enqueue(jobs: Any) -> list[Enqueued]:
        calls.append([f"{job.id}<{','.join(job.after)}" for job in jobs])
        return [Enqueued("held" if job.key == "k" else job.id, job.key != "k") for job in jobs]

    def job(name: str, *after: str, key: str | None = None) -> NewJob:
        return NewJob(id=name, queue="q", after=after, key=key)

    done = in_order(enqueue, [job("a"), job("b", "a"), job("c", key="k"), job("d", "a"), job("e", "c", "a")])
    assert calls == [["a<", "b<a", "c<", "d<a"], ["e<held,a"]]
    assert [one.id for one in done] == ["a", "b", "held", "d", "e"]
    assert in_order(enqueue, []) == []
    assert not needs_own_transaction(job("a", key="k"))
    assert needs_own_transaction(job("a", "b"))


# spec: FL-1 FL-3 FL-4
def test_run_all_performs_a_whole_flow_in_order(app: App) -> None:
    with app.hand.flow("whole", on_end=app.last) as flow:
        first = flow.enqueue(app.split, 3)
        last = flow.enqueue(app.join, None, after=first)
    done = run_all(app.hand)
    assert [each.crew for each in done] == ["split", "part", "part", "part", "join", "last"]
    assert all(isinstance(each, Performed) and each.state is State.DONE for each in done)
    assert last.wait(1) == {"results": [0, 10, 20], "same": True}
    assert done[-1].result == ["whole", "done", 5]
    assert flow.wait(1).ends == 1
    root = Path(f"{app.hand.path}-files")
    assert sorted(path.name for path in (root / "flows" / flow.id).iterdir()) == ["0", "1", "2"]
    assert list((root / "scratch").iterdir()) == []
    assert run_all(app.hand) == []


# spec: FL-2
def test_run_all_fails_what_follows_a_failure_and_revives_it(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    import test_flow

    monkeypatch.setattr(test_flow.Part, "bad", (1,))
    with app.hand.flow("bad", on_end=app.last) as flow:
        first = flow.enqueue(app.split, 3)
        last = flow.enqueue(app.join, None, after=first)
        anyway = flow.enqueue(app.join, None, after=first, if_failed="run")
    run_all(app.hand)
    with pytest.raises(FlowFailed, match="has failed: 2 of its jobs did") as failed:
        flow.wait(1)
    assert sorted(failed.value.jobs.values()) == ["gave up", "predecessor"]
    assert next(iter(failed.value.jobs.values())) == "gave up"
    assert "a bad part" in anyway.wait(1)["results"][1]
    monkeypatch.setattr(test_flow.Part, "bad", ())
    flow.retry()
    run_all(app.hand)
    assert last.wait(1)["results"] == [0, 10, 20]
    assert flow.wait(1).state == "done"


# spec: FL-2
def test_a_failed_flow_names_the_job_that_failed_first_though_many_follow_it(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    import test_flow

    monkeypatch.setattr(test_flow.Part, "bad", (1,))
    with app.hand.flow("wide") as flow:
        first = flow.enqueue(app.part, 1)
        flow.enqueue_many(app.part, range(2, 202), after=first)
    run_all(app.hand)
    with pytest.raises(FlowFailed, match=rf"201 of its jobs did: {first.id} \(gave up\)"):
        flow.wait(1)


# spec: FL-4
def test_a_cancelled_flow_without_a_node(app: App) -> None:
    with app.hand.flow("cancelled") as flow:
        ref = flow.enqueue(app.part, 1)
    flow.cancel()
    with pytest.raises(FlowCancelled, match="was cancelled"):
        app.hand.find_flow(flow.id).wait(1)
    with pytest.raises(JobCancelled):
        ref.wait(1)
    assert run_all(app.hand) == []
    flow.delete()
    assert app.hand.flows() == []


# spec: WK-5 FL-5
def test_run_all_retries_without_waiting_and_gives_checkpoints_back(app: App) -> None:
    twice, later, never = (app.flaky.enqueue(text) for text in ("twice", "later", "never"))
    delayed = app.flaky.enqueue("later", delay=86_400)
    done = run_all(app.hand)
    assert twice.wait(1) == 2
    assert later.wait(1) == delayed.wait(1) == "late"
    with pytest.raises(JobFailed, match="never"):
        never.wait(1)
    assert [each.outcome for each in done if each.id == twice.id] == ["raised", "raised", "done"]
    assert done[-1].id == delayed.id
    assert app.flaky.enqueue("never", max_attempts=1).job().state is State.QUEUED


def test_run_all_raises_what_ends_a_worker_and_stops_what_has_no_end(app: App) -> None:
    ref = app.flaky.enqueue("fatal")
    with pytest.raises(UnrecoverableError):
        run_all(app.hand)
    assert ref.job().state is State.QUEUED
    ref.cancel()
    app.flaky.enqueue("again")
    with pytest.raises(AssertionError, match="is there no end"):
        run_all(app.hand, most=20)


# spec: FL-3 WK-2
def test_run_all_commits_what_a_job_settles_itself(app: App) -> None:
    ref = app.settles.enqueue(None)
    last = app.join.enqueue(None, after=ref)
    run_all(app.hand)
    assert ref.wait(1) == "settled"
    assert last.wait(1)["results"] == [40]
    with app.hand.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM own") == [(0,)]


# spec: FL-3 FL-5
def test_one_job_is_performed_with_given_results_and_a_checkpoint() -> None:
    failed = JobFailed("j7", "raised", "it broke")
    found = perform(Join, None, results={"part": [1, failed, 3]})
    assert found["results"] == [1, str(failed), 3]
    assert perform(Flaky, "twice", attempt=3, kept=41) == 41
    spawned: list[NewJob] = []
    perform(Split, 2, enqueued=spawned)
    assert [(job.queue, job.payload, job.child) for job in spawned] == [("part", "0", True), ("part", "1", True)]
    assert perform(Part, 1) == 10
    assert not issubclass(Cancelled, JobCancelled)


# spec: FL-3 WK-2
def test_one_job_is_spawned_with_a_key_and_several_are_not() -> None:
    spawned: list[NewJob] = []
    assert (perform(Keyed, 1, enqueued=spawned), perform(Keyed, 0)) == (1, 0)
    assert [(job.key, job.child) for job in spawned] == [("k", True)]
    with pytest.raises(PayloadError, match="many jobs cannot share one key: spawn them one by one"):
        perform(Keyed, 2)
