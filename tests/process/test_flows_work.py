"""Flows with real nodes and workers: jobs that wait for others, children, results, checkpoints and files."""

import asyncio
import os
import signal
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_app import chargehand
from world import World

import pgserver
from chargehand import (
    Chargehand,
    Crew,
    FlowCancelled,
    FlowEnd,
    FlowEnded,
    FlowFailed,
    FlowNotFound,
    JobCancelled,
    JobFailed,
    JobFilter,
    JobNotFound,
    clock,
)
from chargehand.testing import eventually

SQUARES = [number**2 for number in range(6)]


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if request.param == "sqlite":
        return World(tmp_path)
    if (packages := pgserver.missing()) is not None:
        pytest.skip(f"flows on PostgreSQL are NOT tested: pip install {packages}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CHARGEHAND_FILES", str(tmp_path / "files"))
    return World(tmp_path, pgserver.new_store())


@pytest.fixture
def make_hand(world: World) -> Iterator[Callable[..., Chargehand]]:
    made: list[Chargehand] = []

    def make(**settings: Any) -> Chargehand:
        made.append(chargehand(world.address, **settings))
        return made[-1]

    yield make
    for hand in made:
        hand.close()


class Pipeline:
    """The video pipeline: decode, one job for each scene, classify; and the job for the end of the flow."""

    def __init__(self, hand: Chargehand, handler: str = "Classify", **options: Any) -> None:
        self.hand = hand
        self.decode: Crew[dict[str, Any], int] = hand.crew("decode", "flow_handlers:Decode", takes=dict, gives=int)
        self.scene: Crew[dict[str, Any], int] = hand.crew(
            "scene", "flow_handlers:Scene", takes=dict, gives=int, workers=2
        )
        self.classify = hand.crew("classify", f"flow_handlers:{handler}", **options)
        self.ended = hand.crew("ended", "flow_handlers:Ended", takes=FlowEnd)

    def begin(self, scenes: int = 6, *, classify: dict[str, Any] | None = None, **payload: Any) -> Any:
        """Enqueues the pipeline. Returns the flow and the reference to its last job."""
        with self.hand.flow("summer.mp4", on_end=self.ended) as flow:
            first = flow.enqueue(self.decode, {"scenes": scenes, **payload})
            options: Any = {"after": first, "flow": flow, **(classify or {})}
            last = self.classify.enqueue(None, **options)
        return flow, last

    def ends(self, flow: Any) -> list[Any]:
        """What the jobs for the end of the flow have returned, oldest first."""
        jobs = self.hand.jobs(JobFilter(queue="ended"))
        return [self.ended.ref(job.id).wait(20) for job in reversed(jobs)]


# spec: FL-1 FL-3 FL-4
@pytest.mark.parametrize(
    ("handler", "options"),
    [("Classify", {}), ("AsyncClassify", {}), ("BatchClassify", {"batch": 4}), ("AsyncClassify", {"concurrency": 4})],
)
def test_a_film_is_decoded_its_scenes_read_and_classified(
    make_hand: Callable[..., Chargehand], handler: str, options: dict[str, Any]
) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand, handler, **options)
    with hand.running():
        flow, last = pipeline.begin()
        assert last.wait(30) == SQUARES
        record = flow.wait(10)
        assert (record.state, record.counts.done, record.ends) == ("done", 8, 1)
        (end,) = eventually(lambda: pipeline.ends(flow), what="the job for the end")
        assert end == [flow.id, "done", 1, 8, {}]
        assert asyncio.run(hand.find_flow(flow.id).result(10)) == record
        assert {job.flow for job in flow.jobs()} == {flow.id}
        with pytest.raises(FlowEnded):
            flow.enqueue(pipeline.scene, {"number": 1})
        flow.delete()
        with pytest.raises(FlowNotFound):
            hand.find_flow(flow.id)


# spec: FL-2 FL-4
def test_a_scene_fails_is_retried_and_the_flow_ends_well(make_hand: Callable[..., Chargehand], world: World) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand)
    broken = world.folder / "broken"
    broken.touch()
    with hand.running():
        flow, last = pipeline.begin(broken=str(broken))
        began = clock.monotonic()
        with pytest.raises(JobFailed, match="this scene is broken") as failed:
            last.wait(30)
        assert failed.value.reason == "predecessor"
        with pytest.raises(FlowFailed) as whole:
            flow.wait(30)
        assert whole.value.record.counts.failed == 2
        assert list(whole.value.jobs.values()) == ["gave up", "predecessor"]
        eventually(lambda: len(pipeline.ends(flow)) == 1, what="the job for the end")
        broken.unlink()
        flow.retry()
        assert last.wait(30) == SQUARES
        assert flow.wait(30).ends == 2
        ends = eventually(lambda: len(found := pipeline.ends(flow)) == 2 and found, what="both ends")
        assert [end[1:4] for end in ends] == [["failed", 1, 6], ["done", 2, 8]]  # type: ignore[index]
        assert clock.monotonic() - began < 30


# spec: FL-2
def test_a_follower_that_is_told_so_runs_over_what_there_is(make_hand: Callable[..., Chargehand], world: World) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand)
    broken = world.folder / "broken"
    broken.touch()
    with hand.running():
        _, last = pipeline.begin(broken=str(broken), classify={"if_failed": "run"})
        assert last.wait(30) == [0, 1, 4, "gave up", 16, 25]


# spec: FL-4
def test_the_events_of_a_flow_end_with_it(make_hand: Callable[..., Chargehand], world: World) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand)
    gate = world.gate()

    async def watch() -> list[str]:
        flow, _ = pipeline.begin(gate=str(gate), ledger=world.ledger)
        seen: list[str] = []
        async with asyncio.timeout(30):
            async for event in flow.events():
                seen.append(event["flow"]["state"])
                gate.touch()
        return seen

    with hand.running():
        seen = asyncio.run(watch())
    assert seen[0] == "running"
    assert seen[-1] == "done"


# spec: FL-4 WK-8
def test_a_cancelled_flow_leaves_nothing_waiting(make_hand: Callable[..., Chargehand], world: World) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand)
    with hand.running():
        flow, last = pipeline.begin(gate=str(world.gate()), ledger=world.ledger)
        eventually(lambda: world.lines("waits"), what="a scene runs")
        flow.cancel()
        with pytest.raises(FlowCancelled) as cancelled:
            flow.wait(20)
        counts = cancelled.value.record.counts
        assert (counts.queued, counts.running) == (0, 0)
        with pytest.raises(JobCancelled):
            last.wait(5)
        (end,) = eventually(lambda: pipeline.ends(flow), what="the job for the end")
        assert end[1] == "cancelled"


# spec: FL-3 WK-2
def test_what_a_job_spawns_in_its_own_transaction_commits_with_it(
    make_hand: Callable[..., Chargehand], world: World
) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand)
    settles = hand.crew("settles", "flow_handlers:Enqueues", takes=dict, transactional=True)
    with hand.running():
        with hand.flow("settled") as flow:
            first = flow.enqueue(settles, {"ledger": world.ledger})
            last = flow.enqueue(pipeline.classify, None, after=first)
        assert last.wait(30) == [25]
        assert flow.wait(10).counts.done == 3
        ((child, other),) = world.lines("made")
        assert hand.job(child).parent == first.id
        assert (hand.job(other).flow, hand.job(other).parent) == (None, None)


# spec: FL-3
def test_results_of_many_children_are_read_in_pages(make_hand: Callable[..., Chargehand]) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand, "Sum")
    with hand.running():
        _, last = pipeline.begin(10_000)
        assert last.wait(100) == [10_000, sum(number**2 for number in range(10_000))]


# spec: FL-1
def test_a_follower_starts_in_milliseconds(make_hand: Callable[..., Chargehand]) -> None:
    hand = make_hand()
    stamp = hand.crew("stamp", "flow_handlers:Stamp", workers=2)
    took: list[int] = []
    with hand.running():
        stamp.enqueue(None).wait(20)
        for _ in range(20):
            with hand.flow("chain") as flow:
                first = flow.enqueue(stamp, None)
                last = flow.enqueue(stamp, None, after=first)
            took.append(last.wait(20) - first.wait(20))
    assert statistics.median(took) < 100_000, "far below the interval of polling"


# spec: FL-2
def test_callers_that_wait_for_followers_are_woken_at_once(make_hand: Callable[..., Chargehand], world: World) -> None:
    """A follower fails, or is cancelled with its flow, in the store: no worker reports it."""
    hand = make_hand()
    pipeline = Pipeline(hand)
    gate = world.gate()
    with hand.running():
        took: list[float] = []
        for _ in range(3):
            flow, last = pipeline.begin(gate=str(gate), ledger=world.ledger)
            known = len(took)
            eventually(lambda: len(world.lines("waits")) > known, what="a scene runs")  # noqa: B023 (called at once)

            async def woken(last: Any = last, flow: Any = flow) -> float:
                waiting = asyncio.ensure_future(last.result(20))
                await asyncio.sleep(0.1)  # it follows the job by now; if not, the time is shorter
                began = clock.monotonic()
                await asyncio.to_thread(flow.cancel)
                with pytest.raises(JobCancelled):
                    await waiting
                return clock.monotonic() - began

            took.append(asyncio.run(woken()))
            with pytest.raises(FlowCancelled):
                flow.wait(20)
    assert min(took) < 0.5, "a caller looks by itself once a second"


# spec: FL-5
@pytest.mark.parametrize("ends", ["raise", "crash", "timeout", "stop"])
def test_a_checkpoint_outlives_the_attempt(make_hand: Callable[..., Chargehand], world: World, ends: str) -> None:
    hand = make_hand()
    crew = hand.crew("keeps", "flow_handlers:Keeps", takes=dict, timeout=1 if ends == "timeout" else 60, backoff=0)
    with hand.running():
        ref = crew.enqueue({"ends": ends, "ledger": world.ledger})
        if ends == "stop":
            eventually(lambda: world.lines("kept"), what="it has kept a state")
            hand.restart("keeps")
        found = ref.wait(30)
    assert found["kept"] == {"row": 2}
    assert found["crashes"] == (ends == "crash")


# spec: FL-5 WP-15
def test_each_of_several_jobs_keeps_its_own_checkpoint(make_hand: Callable[..., Chargehand]) -> None:
    hand = make_hand()
    crew = hand.crew("keeps", "flow_handlers:KeepsAsync", takes=dict, concurrency=10, backoff=0)
    with hand.running():
        refs = crew.enqueue_many([{}] * 20)
        assert [ref.wait(30) for ref in refs] == [{"row": 2, "of": ref.id} for ref in refs]


# spec: FL-5
@pytest.mark.parametrize("victim", ["worker", "node"])
def test_scratch_is_removed_after_a_kill_and_folders_with_their_flow(
    make_hand: Callable[..., Chargehand], world: World, victim: str
) -> None:
    hand = make_hand()
    crew = hand.crew("files", "flow_handlers:Files", takes=dict, workers=1)
    with hand.running():
        with hand.flow("files") as flow:
            refs = [flow.enqueue(crew, {"kill": kill, "ledger": world.ledger}) for kill in (victim, None)]
        names = sorted(f"whole-{ref.id}" for ref in refs)
        assert names in [ref.wait(30) for ref in refs]
        told = [(Path(scratch), Path(folder)) for _, scratch, folder in world.lines("files")]
        # Three attempts, and a fourth if the other job was in hand, too, when the node was killed.
        assert len({scratch for scratch, _ in told}) == len(told), "one for each attempt"
        assert len(told) in ((3, 4) if victim == "node" else (3,))
        eventually(lambda: not any(scratch.exists() for scratch, _ in told), what="no scratch is left")
        ((_, folder), *_) = told
        assert {folder for _, folder in told} == {folder}
        assert sorted(path.name for path in folder.iterdir()) == names
        assert [os.stat(path).st_mode & 0o777 for path in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3
        flow.wait(30)  # with PostgreSQL, a flow may end a moment after its last job
        flow.delete()
        eventually(lambda: not folder.exists(), what="the folder is gone")
        first, second = (crew.enqueue({"ledger": world.ledger}) for _ in range(2))
        own = {ref.id: folder.parent.parent / "jobs" / ref.id for ref in (first, second) if ref.wait(30)}
        assert [path.is_dir() for path in own.values()] == [True, True]
        hand.delete(first.id)
        eventually(lambda: not own[first.id].exists(), what="the folder of the job is gone")
    hand.delete(second.id)
    with hand.running():  # a node sweeps when it starts
        eventually(lambda: not own[second.id].exists(), what="the folder is gone")


# spec: FL-5
def test_a_folder_that_is_full_fails_the_job_in_words(
    make_hand: Callable[..., Chargehand], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARGEHAND_FILES_LIMIT", "1 kB")
    hand = make_hand()
    crew = hand.crew("files", "flow_handlers:Files", takes=dict, max_attempts=1)
    with hand.running(), pytest.raises(JobFailed, match="CHARGEHAND_FILES_LIMIT allows 1,000"):
        crew.enqueue({"size": 2000, "ledger": world.ledger}).wait(30)


# spec: FL-5
def test_what_is_in_the_place_of_a_folder_fails_its_job_and_no_other(
    make_hand: Callable[..., Chargehand], world: World
) -> None:
    hand = make_hand()
    crew = hand.crew("files", "flow_handlers:Files", takes=dict, max_attempts=1, workers=1)
    root = hand.location.job_files(hand.settings.files)
    assert root is not None
    with hand.running():
        crew.enqueue({"ledger": world.ledger}).wait(30)
        with hand.flow("linked") as flow:
            linked = flow.enqueue(crew, {"ledger": world.ledger})
            folder = Path(root) / "flows" / flow.id
            folder.parent.mkdir()
            folder.symlink_to(world.folder)
        with pytest.raises(JobFailed, match=f"{folder} is not a folder: remove it, and retry the job"):
            linked.wait(30)
        crew.enqueue({"ledger": world.ledger}).wait(30)
        assert hand.crashes() == []


# spec: WK-16
def test_retries_are_decided_by_the_type_of_the_exception(make_hand: Callable[..., Chargehand], world: World) -> None:
    hand = make_hand()
    payload = {"ends": "raise", "ledger": world.ledger}
    never = hand.crew("never", "flow_handlers:Keeps", takes=dict, give_up_on=["ValueError"])
    other = hand.crew("other", "flow_handlers:Keeps", takes=dict, retry_on=[OSError])
    again = hand.crew("again", "flow_handlers:Keeps", takes=dict, retry_on=[ValueError], backoff=[0, 60])
    with hand.running():
        for crew in (never, other):
            with pytest.raises(JobFailed) as failed:
                crew.enqueue(payload).wait(30)
            assert failed.value.reason == "gave up"
        assert again.enqueue(payload).wait(30)["attempt"] == 2


# spec: FL-1 FL-4
def test_bad_input_is_refused_and_nothing_is_done(make_hand: Callable[..., Chargehand], world: World) -> None:
    hand = make_hand()
    pipeline = Pipeline(hand)
    with pytest.raises(JobNotFound, match="nowhere"):
        pipeline.scene.enqueue({"number": 1}, after="nowhere")
    with pytest.raises(FlowNotFound):
        pipeline.scene.enqueue({"number": 1}, flow="nowhere")
    with pytest.raises(ZeroDivisionError), hand.flow("nothing") as flow:
        flow.enqueue(pipeline.scene, {"number": 1 // 0})
    with pytest.raises(JobNotFound), hand.flow("nothing") as flow:
        flow.enqueue_many(pipeline.scene, [{"number": 1}, {"number": 2}], after="nowhere")
    assert hand.jobs(JobFilter()) == []
    assert hand.flows() == []
    with hand.transaction() as tx:
        with hand.flow("within", within=tx) as flow:
            flow.enqueue(pipeline.scene, {"number": 1})
        assert hand.flows() == []
    assert [record.name for record in hand.flows()] == ["within"]
    assert flow.status().counts.queued == 1


# spec: FL-5 WP-7
def test_a_question_outlives_nothing(make_hand: Callable[..., Chargehand], world: World) -> None:
    """A worker that is killed while the node reads results for it leaves a node that works."""
    hand = make_hand()
    pipeline = Pipeline(hand, "Sum")
    with hand.running():
        _, last = pipeline.begin(200)
        eventually(lambda: last.job().state == "running" or last.job().state == "done", what="it asks")
        for worker in (hand.status() or {"workers": []})["workers"]:
            if worker["component"].startswith("worker:classify"):
                os.kill(worker["pid"], signal.SIGKILL)
        assert last.wait(60)[0] == 200
