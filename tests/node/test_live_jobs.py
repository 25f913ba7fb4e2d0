"""What the node tells of jobs: nothing that is not so, also when it does thousands a second or the store is slow."""

import json
from typing import Any

import msgspec
import pytest

from chargehand.live.bodies import JobBody
from chargehand.live.broker import Broker
from chargehand.live.store_view import StoreLook, StoreView
from chargehand.model.batch import Batch, Request, Result
from chargehand.model.held import Held
from chargehand.model.job import Claim, Done, Enqueued, Interrupted, JobRecord, NewJob, State, settle
from chargehand.model.ledger import Ledger
from chargehand.model.topic import parse
from chargehand.node.live_jobs import MOST_CHANGES, LiveJobs
from chargehand.protocol.worker import ProgressFrame


def claim(number: int) -> Claim:
    return Claim(
        id=f"j{number}", seq=number, number=1, queue="q", payload="null", label=f"song {number}", priority=0,
        failures=0, max_attempts=3, crashes=0, timeout_ms=None,
    )  # fmt: skip


def record(number: int, state: State, **fields: Any) -> JobRecord:
    known: dict[str, Any] = dict.fromkeys(JobRecord.__struct_fields__)
    known |= dict.fromkeys(
        ("priority", "run_at_ms", "failures", "attempts", "max_attempts", "crashes", "interruptions"), 0
    )
    known |= {"id": f"j{number}", "queue": "q", "label": f"song {number}", "state": state, "node": "here"}
    known |= {"payload": msgspec.Raw(b"null"), "created_ms": 1, **fields}
    return JobRecord(**known)


class World:
    def __init__(self, *topics: str) -> None:
        self.broker = Broker("life")
        self.ledger = Ledger([("crew", "q")], lambda: 0.0, 0.0)
        self.news = LiveJobs(self.broker, "here", self.ledger)
        self.news.watch(parse(topics))

    def begin(self, number: int) -> None:
        self.ledger.held["worker:crew:0"] = Held(claim(number), 0.0)
        self.news.began("worker:crew:0", claim(number))

    def end(self, number: int, outcome: Any = None) -> bool:
        self.ledger.held.pop("worker:crew:0", None)
        settlement = settle(claim(number), outcome or Done('{"ok":true}'))
        assert settlement is not None
        return self.news.committed(Batch(settlements=(settlement,)), Result())

    def seen(self, *jobs: JobRecord, version: int | None = None, gone: tuple[str, ...] = ()) -> None:
        at = self.broker.version if version is None else version
        listed = frozenset(job.id for job in jobs)
        self.news.seen(StoreView(look=StoreLook(), jobs=jobs, listed=listed, gone=gone), at)

    def state(self, number: int) -> Any:
        event = self.broker.get(f"job:j{number}")
        return event and event.body.state


def test_a_job_from_its_enqueueing_to_its_end() -> None:  # spec: EV-3
    world = World("queue:jobs")
    new = NewJob(id="j1", queue="q", label="song 1")
    world.news.committed(Batch(requests=(Request(None, (new,)),)), Result(enqueued=((None, (Enqueued("j1", True),)),)))
    world.news.publish()
    assert world.state(1) == "queued"
    world.begin(1)
    world.news.publish()
    event = world.broker.get("job:j1")
    assert event is not None
    assert (event.body.state, event.body.worker, event.body.label) == ("running", "worker:crew:0", "song 1")
    assert not world.end(1)
    world.news.publish()
    event = world.broker.get("job:j1")
    assert event is not None
    assert (event.body.state, event.body.result, event.body.worker) == ("done", {"ok": True}, None)


def test_one_that_begins_in_the_transaction_that_enqueues_it_is_not_said_to_wait() -> None:
    world = World("queue:jobs")
    world.begin(1)
    enqueued = Result(enqueued=((None, (Enqueued("j1", True),)),))
    world.news.committed(Batch(requests=(Request(None, (NewJob(id="j1", queue="q"),)),)), enqueued)
    world.news.publish()
    assert world.state(1) == "running"


def test_what_goes_back_to_the_queue_is_asked_of_the_store() -> None:
    """It may have been cancelled meanwhile, which only the store knows."""
    world = World("queue:jobs")
    world.begin(1)
    world.news.publish()
    assert world.end(1, Interrupted("a stop"))
    assert "j1" in world.news.look(StoreLook(), poll=False).ids
    world.seen(record(1, State.CANCELLED, reason="cancelled"))
    assert world.state(1) == "cancelled"


def test_in_a_shower_whoever_was_told_of_is_told_about_to_the_end() -> None:  # spec: EV-4
    world = World("queue:jobs")
    world.begin(0)
    world.news.publish()
    for number in range(1, 5000):
        world.begin(number)
        assert not world.end(number)
    world.end(0)
    assert world.news.waiting <= MOST_CHANGES + 1
    told = world.broker.version
    world.news.publish()
    assert world.broker.version - told == MOST_CHANGES + 1
    assert world.state(4999) == "done"
    world.news.look(StoreLook(), poll=False)
    assert world.news.look(StoreLook(), poll=False).ids == ()  # nobody has to read the thousands that nobody knows


@pytest.mark.parametrize("state", list(State))
def test_what_was_read_never_replaces_what_was_told_later(state: State) -> None:
    world = World("queue:jobs")
    world.begin(1)
    world.news.publish()
    asked = world.broker.version
    world.end(1)
    world.seen(record(1, state), version=asked)  # it is about to be told that it has ended
    world.news.publish()
    world.seen(record(1, state), version=asked)
    assert world.state(1) == "done"


def test_of_a_job_in_hand_the_node_knows_better_how_far_it_is() -> None:  # spec: WK-9
    world = World("queue:jobs")
    world.begin(1)
    world.news.progressed("worker:crew:0", None, ProgressFrame(5, 9))
    world.news.publish()
    world.ledger.held.clear()  # it has just ended, and the store does not know yet
    world.seen(record(1, State.RUNNING, progress=msgspec.Raw(b'{"done":1,"total":9}')))
    event = world.broker.get("job:j1")
    assert event is not None
    assert event.body.progress.done == 5


def test_jobs_are_no_business_of_those_who_do_not_ask_for_them() -> None:
    world = World("worker:*:status", "job:j2")
    for number in (1, 2):
        world.begin(number)
        world.end(number)
    world.news.publish()
    assert (world.state(1), world.state(2)) == (None, "done")
    world.seen(gone=("j2",))
    assert world.state(2) is None
    world.news.watch(None)
    assert world.broker.keys("job:") == []


def test_long_texts_are_cut_and_that_is_said() -> None:
    job = record(1, State.FAILED, error="x" * 10_000, result=msgspec.Raw(b'"' + b"y" * 5000 + b'"'))
    body = JobBody.of_record(job)
    assert (body.cut, body.result, len(body.error or "") < 2100) == (("error", "result"), None, True)


@pytest.mark.parametrize("result", ["1e999", "[" * 1_020 + "]" * 1_020, "9" * 2_000])
def test_a_result_that_cannot_be_decoded_is_left_out(result: str) -> None:  # spec: SE-3
    """A version without limits of values may have stored it: Python 3.11 decodes 990 levels, Python 3.13 more."""
    body = JobBody.of_record(record(1, State.DONE, result=msgspec.Raw(result.encode())))
    assert (body.cut, body.result) == (("result",), None) or body.result == json.loads(result)


def test_who_begins_to_watch_all_jobs_does_not_make_others_forget_how_far_one_is() -> None:  # spec: EV-2
    world = World("job:j1")
    world.begin(1)
    world.news.progressed("worker:crew:0", None, ProgressFrame(2, 20))
    world.news.publish()
    told = world.broker.version
    world.news.watch(parse(("job:j1", "queue:jobs")))
    world.news.publish()
    assert world.broker.version == told
    event = world.broker.get("job:j1")
    assert event is not None
    assert event.body.progress.done == 2


def test_that_there_is_no_such_job_is_told_to_those_alone_who_asked_for_it() -> None:  # spec: EV-2
    world = World("job:nope", "queue:jobs")
    asks, watches = (world.broker.subscribe(parse((topic,)), lambda: None) for topic in ("job:nope", "queue:jobs"))
    world.begin(1)
    world.news.publish()
    world.seen(gone=("nope", "j1"))
    assert [topic for _, topic in asks.take(10)[1]] == ["job:nope"]
    assert [(event.key, event.removed) for event, _ in watches.take(10)[1]] == [("job:j1", True)]


def test_a_job_that_ended_while_the_store_was_read_is_not_told_as_running() -> None:  # spec: EV-2 EV-4
    world = World("queue:jobs")
    world.news.look(StoreLook(), poll=True)
    world.end(1)  # nobody was told of it yet
    world.seen(record(1, State.RUNNING), record(2, State.RUNNING, node="elsewhere"))
    assert (world.state(1), world.state(2)) == (None, "running")
    world.news.look(StoreLook(), poll=True)
    world.seen(record(1, State.DONE))
    assert world.state(1) == "done"
