"""What users' tests are given: a handler performed without a process, a crew whose jobs a function does."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chargehand import (
    Cancelled,
    Chargehand,
    ConfigurationError,
    Crew,
    GiveUp,
    Handler,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    PayloadError,
    Retry,
)
from chargehand.model.job import NewJob
from chargehand.testing import fake, perform


@dataclass
class Song:
    path: str


@dataclass
class Labels:
    scores: dict[str, float]


class Tagger(Handler[Song, Labels]):
    ups = 0
    downs = 0

    def set_up(self) -> None:
        Tagger.ups += 1

    def perform(self, job: Job[Song]) -> Labels:
        job.progress(1, 2, stage="net")
        match job.payload.path:
            case "bad":
                raise GiveUp("no music")
            case "later":
                raise Retry(after=5)
            case _:
                job.enqueue("index", {"path": job.payload.path}, label="then")
                return Labels({job.payload.path: job.attempt})

    def tear_down(self) -> None:
        Tagger.downs += 1


class Late(Handler[Any, Any]):
    async def set_up(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def perform(self, job: Job[Any]) -> Any:
        return [job.item, job.payload, asyncio.get_running_loop() is self.loop]


class Settler(Handler[str, Any]):
    def perform(self, job: Job[str]) -> Any:
        with job.settle(job.payload) as tx:
            tx.execute("INSERT INTO song VALUES (?)", (job.payload,))


@pytest.fixture
def tag(tmp_path: Path) -> Crew[Song, Labels]:
    hand = Chargehand(tmp_path / "chargehand.db")
    return hand.crew("tag", "no_such_module:Tagger", takes=Song, gives=Labels)


def test_perform_is_a_handler_test_without_a_process() -> None:  # spec: CL-5
    ups, downs = Tagger.ups, Tagger.downs
    enqueued: list[NewJob] = []
    labels = perform(Tagger, Song("a.flac"), attempt=2, enqueued=enqueued)
    assert labels == Labels({"a.flac": 2})
    assert [(job.queue, job.payload, job.label) for job in enqueued] == [("index", '{"path":"a.flac"}', "then")]
    assert (Tagger.ups, Tagger.downs) == (ups + 1, downs + 1)
    mine = Tagger()
    assert perform(mine, Song("b.flac")).scores
    assert (Tagger.ups, Tagger.downs) == (ups + 1, downs + 1)
    assert perform(Late, {"a": (1, 2)}, item="x") == ["x", {"a": [1, 2]}, True]


def test_perform_raises_what_the_handler_raises() -> None:  # spec: WK-5
    downs = Tagger.downs
    assert GiveUp().reason, "a handler may raise the class itself"
    with pytest.raises(GiveUp, match="no music"):
        perform(Tagger, Song("bad"))
    with pytest.raises(Retry):
        perform(Tagger, Song("later"))
    with pytest.raises(PayloadError, match="the payload for Tagger is of the wrong type"):
        perform(Tagger, {"path": 5})  # type: ignore[arg-type]
    assert Tagger.downs == downs + 3


def test_perform_settles_in_a_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs a store"):
        perform(Settler, "a")
    hand = Chargehand(tmp_path / "chargehand.db")
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT)")
    assert perform(Settler, "a", hand=hand) == "a"
    with hand.transaction() as tx:
        assert tx.execute("SELECT title FROM song") == [("a",)]
    hand.close()


def test_fake_is_an_api_test_without_a_model(tag: Crew[Song, Labels], tmp_path: Path) -> None:  # spec: CL-5
    def tagged(song: Song) -> Labels:
        return Labels({song.path: 1})

    with fake(tag, tagged) as given:
        ref = tag.enqueue(Song("a"), key="a", delay=60)
        assert (ref.created, ref.wait(), ref.job().state, ref.job().key) == (True, Labels({"a": 1}), "done", "a")
        assert tag.ref(ref.id).wait(timeout=5) == Labels({"a": 1})
        assert [attempt.outcome for attempt in ref.attempts()] == ["done"]
        assert [each.wait() for each in tag.enqueue_many([Song("b"), Song("c")])] == [
            Labels({"b": 1}),
            Labels({"c": 1}),
        ]

        async def asks() -> Labels:
            return await (await tag.enqueue_async(Song("d"))).result(timeout=5)

        assert asyncio.run(asks()) == Labels({"d": 1})
        assert given == [Song("a"), Song("b"), Song("c"), Song("d")]
        with pytest.raises(PayloadError):
            tag.enqueue({"path": 5})  # type: ignore[arg-type]
        with pytest.raises(JobNotFound):
            tag.ref("unknown").wait()
        with fake(tag, lambda _: Labels({"inner": 1})):
            assert tag.enqueue(Song("a")).wait() == Labels({"inner": 1})
        assert tag.enqueue(Song("a")).wait() == Labels({"a": 1})
    assert list(tmp_path.iterdir()) == []  # no store was made
    real = tag.enqueue(Song("real"))
    assert real.job().state == "queued"


def test_a_fake_fails_as_a_job_does(tag: Crew[Song, Labels]) -> None:  # spec: WK-5
    def tagged(song: Song) -> Any:
        match song.path:
            case "give up":
                raise GiveUp("no music")
            case "cancelled":
                raise Cancelled("by somebody")
            case "wrong":
                return {"marks": 5}
            case "test":
                raise AssertionError("the test's own")
            case _:
                raise RuntimeError("no disk")

    async def late(song: Song) -> Any:
        raise AssertionError

    never: Any = late

    with fake(tag, tagged):
        with pytest.raises(JobFailed, match=r"failed \(raised\): RuntimeError: no disk"):
            tag.enqueue(Song("raise")).wait()
        with pytest.raises(JobFailed, match=r"failed \(gave up\): no music"):
            tag.enqueue(Song("give up")).wait()
        with pytest.raises(JobCancelled):
            tag.enqueue(Song("cancelled")).wait()
        with pytest.raises(PayloadError, match="the fake's result is of the wrong type, not a Labels"):
            tag.enqueue(Song("wrong"))
        with pytest.raises(AssertionError, match="the test's own"):
            tag.enqueue(Song("test"))
    with pytest.raises(TypeError, match="plain function"), fake(tag, never):
        raise AssertionError
