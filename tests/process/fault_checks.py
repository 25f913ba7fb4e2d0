"""What the tests of faults share: policies, a sibling that must not notice, reports, and which faults have a test."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from world import World

from chargehand import Chargehand, LivenessPolicy, RestartPolicy
from chargehand.crew import Crew, Ref
from chargehand.model.records import CrashFilter, CrashRecord
from chargehand.testing import eventually

Test = TypeVar("Test", bound=Callable[..., None])

FAULTY = "chargehand.testing.faults:Faulty"
BRISK = LivenessPolicy(beat=0.1, silent=2.0, grace=0.3, terminate=0.2)
LIMITED = RestartPolicy(first_pause=0.01, longest_pause=0.05)
"""The limits that everybody gets, with short pauses."""

TESTED: set[str] = set()
"""The names of the faults that a test shows."""


def shows(*faults: str) -> Callable[[Test], Test]:
    """Mark a test as the one that shows these faults."""
    TESTED.update(faults)
    return lambda test: test


@contextmanager
def sibling(world: World, crew: Crew[Any, Any]) -> Generator[int]:
    """Its pid: one of the crew, at work all the while, which must notice nothing."""
    gate = world.gate()
    ref = world.put(crew, gate, fault="wait", result="calm")
    pid = world.started(ref)
    yield pid
    gate.touch()
    assert ref.wait(20) == "calm"
    assert world.starts(ref) == world.ends(ref) == [pid]
    assert counters(ref) == (0, 0, 0)


def counters(ref: Ref[Any]) -> tuple[int, int, int]:
    """Attempts, crashes, interruptions."""
    job = ref.job()
    return job.attempts, job.crashes, job.interruptions


def reports(hand: Chargehand, count: int, **which: Any) -> list[CrashRecord]:
    """So many crash reports and no more, oldest first."""
    wanted = CrashFilter(limit=100, **which)
    eventually(lambda: len(hand.crashes(wanted)) >= count, what=f"{count} reports of {which}")
    found = hand.crashes(wanted)
    assert len(found) == count, found
    return found[::-1]


def first_report(hand: Chargehand, ref: Ref[Any]) -> CrashRecord:
    """The report of the first crash of this job, however many there are by now."""
    wanted = CrashFilter(limit=100, job=ref.id)
    return eventually(lambda: hand.crashes(wanted), what=f"a report of {ref}")[-1]


def workers(hand: Chargehand) -> dict[str, dict[str, Any]]:
    """The node's view of its workers, by component."""
    return {worker["component"]: worker for worker in (hand.status() or {"workers": []})["workers"]}


def worker(hand: Chargehand, component: str) -> dict[str, Any]:
    return workers(hand)[component]


def at_work(hand: Chargehand, component: str) -> dict[str, Any]:
    """Wait until that place is filled and well; the view of it."""

    def well() -> dict[str, Any] | None:
        seen = worker(hand, component)
        return seen if seen["status"] == "healthy" and seen["pid"] else None

    return eventually(well, what=f"{component} is healthy")  # type: ignore[return-value]


def holder(hand: Chargehand, ref: Ref[Any]) -> str:
    """The component that has the job."""
    found = eventually(lambda: [name for name, seen in workers(hand).items() if seen["current_job"] == ref.id])
    return found[0]
