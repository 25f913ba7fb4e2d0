"""A worker whose handler cannot do its crew's jobs says so at its start, before a job fails."""

from typing import Any, Protocol

import pytest
from mistaken_handlers import DiscoversAll, DiscoversByFunction, DiscoversPages

from chargehand import Chargehand, Handler, Job, JobFailed
from chargehand.testing import eventually
from chargehand.worker.check import faults


def test_a_handler_with_other_types_than_its_crew_is_given_up(hand: Chargehand) -> None:  # spec: CL-5 RP-2
    """No job is tried: it waits for the mistake to be mended. Another spelling of the same type is none."""
    wrong = hand.crew("wrong", "minimal_handlers:Bare", workers=1, takes=dict, gives=str)
    right = hand.crew("right", "minimal_handlers:Bare", workers=1, takes=dict, gives=int)
    waiting = wrong.enqueue({})
    with hand.running():
        right.enqueue({}).wait(20)
        eventually(lambda: [each for each in hand.health() if each.status == "failed"])
        (told,) = [each.text or "" for each in hand.health() if each.status == "failed"]
        assert "handler 'minimal_handlers:Bare' does not fit crew 'wrong': the crew gives str, but the handler " in told
        assert "gives int; make takes= and gives= of the crew and Handler[…] the same" in told
        assert (waiting.job().state, waiting.job().failures) == ("queued", 0)


def test_a_job_that_starts_a_node_fails_and_its_worker_goes_on(hand: Chargehand) -> None:
    """It was a configuration error, after which no worker of the crew was started again."""
    starts = hand.crew("starts", "mistaken_handlers:StartsNode", workers=1, max_attempts=1, takes=bool)
    with hand.running():
        with pytest.raises(JobFailed, match=r"a job starts a node: workers cannot; leave `with hand\.running\(\)` out"):
            starts.enqueue(True).wait(20)
        assert starts.enqueue(False).wait(20) == "done"


def test_check_finds_a_discover_that_cannot_be_called() -> None:  # spec: CL-5
    plan = {"discovers": True, "takes": None, "gives": None}
    assert faults(DiscoversAll, plan) == [
        "the handler has discover(self) -> list[str]; write discover(self, after, limit)"
    ]
    assert faults(DiscoversPages, plan) == faults(DiscoversByFunction, plan) == []


class Built(Handler[int, int]):
    def __init__(self, model: str) -> None:
        self.model = model

    def perform(self, job: Job[int]) -> int:
        return 1


class TakesPayload(Handler[int, int]):
    def perform(self, job: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return job


class LikeJob(Protocol):
    payload: int


class Typed(Handler[int, int]):
    def perform(self, job: LikeJob) -> int:
        return job.payload


class AnyJob(Handler[int, int]):
    def perform(self, job: Any, extra: str = "") -> int:
        return 1


def test_check_finds_a_handler_that_cannot_be_created_or_takes_its_payload() -> None:  # spec: CL-5
    plan = {"discovers": False, "takes": None, "gives": None}
    assert faults(Built, plan) == [
        "the handler is created without arguments, but missing a required argument: 'model': set it up in set_up(self)"
    ]
    assert faults(TakesPayload, plan) == [
        "perform has job: int, but gets a job: write perform(self, job: Job[int]), and use job.payload"
    ]
    assert faults(Typed, plan) == faults(AnyJob, plan) == []
