"""The terms of a crew, with real processes: recycling, sleep, environment, threads, memory, starts, breaker."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from operating import FAULTY, become, pids, serving, statuses, stays, workers
from world import World, gone

from chargehand import Chargehand, JobFailed, RestartPolicy
from chargehand.log import Event
from chargehand.model.fleet.policy import StartPolicy
from chargehand.settings.plan import THREAD_LIMITS, THREADS
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]


def spawned(hand: Chargehand, component: str | None = None) -> list[dict[str, Any]]:
    """What the node says about starts."""
    return [entry for entry in hand.logs(component, count=5000) if f"event={Event.WORKER_SPAWNED}" in entry["text"]]


def test_recycled_after_exactly_so_many_jobs(hand: Chargehand) -> None:  # spec: WP-9
    look = hand.crew("look", "reporting_handlers:Mirror", workers=1, recycle_jobs=3)
    with hand.running():
        seen = [ref.wait(30)["pid"] for ref in look.enqueue_many([None] * 9)]
        assert [len(set(seen[n : n + 3])) for n in (0, 3, 6)] == [1, 1, 1]
        assert len(set(seen)) == 3
        eventually(lambda: pids(hand)["look:0"] not in (*seen, None))
        (worker,) = become(hand, "healthy").values()
        assert (worker["restart_count"], worker["jobs"], worker["budget"]["lifetime_left"]) == (0, 0, 10**6)
        assert all(gone(pid) for pid in seen)
    assert hand.crashes() == []


def test_recycled_when_it_has_grown_too_large(hand: Chargehand) -> None:  # spec: WP-9
    grow = hand.crew("grow", FAULTY, workers=1, recycle_memory="150 MB")
    with hand.running():
        become(hand, "healthy")
        first = pids(hand)["grow:0"]
        assert grow.enqueue({"result": 1}).wait(30) == 1
        stays(lambda: pids(hand)["grow:0"] == first, 0.6)
        assert grow.enqueue({"fault": "leak", "bytes": 200_000_000, "result": 2}).wait(30) == 2
        eventually(lambda: pids(hand)["grow:0"] not in (first, None))
        assert grow.enqueue({"result": 3}).wait(30) == 3
        assert {w["restart_count"] for w in workers(hand).values()} == {0}
    assert hand.crashes() == []


def test_a_worker_sleeps_when_it_is_idle_and_comes_back_with_work(hand: Chargehand, world: World) -> None:  # spec: WP-3
    do = hand.crew("do", "scripted_handlers:Doer", workers=2, idle_exit=0.3)
    with hand.running():
        first: dict[str, int] = {}  # one worker may sleep before the other is ready

        def asleep() -> bool:
            first.update({name: pid for name, pid in pids(hand).items() if pid})
            return list(statuses(hand).values()) == ["asleep"] * 2

        eventually(asleep)
        (one, two) = workers(hand).values()
        assert {one["reason"], two["reason"]} == {"idle"}
        assert len(first) == 2
        assert all(gone(pid) for pid in first.values())
        gate = world.gate()
        ref = world.put(do, gate)
        assert world.started(ref) not in first.values()
        pid = world.started(ref)
        stays(lambda: pid in pids(hand).values() and not gone(pid), 0.8)  # whoever has a long job does not sleep
        gate.touch()
        assert ref.wait(30) == 1
        become(hand, "asleep")
        delayed = world.put(do, options={"delay": 1.0})
        assert delayed.wait(30) == 1
        become(hand, "asleep")
        assert {w["restart_count"] for w in workers(hand).values()} == {0}
    assert (hand.crashes(), ref.job().interruptions) == ([], 0)


def test_one_job_wakes_one_worker(hand: Chargehand) -> None:  # spec: WP-3
    slow = {"CHARGEHAND_FAULT_SET_UP": "slow:1.2"}
    faulty = hand.crew("faulty", FAULTY, workers=2, idle_exit=0.1, environment=slow)
    with hand.running():
        eventually(lambda: "starting" in statuses(hand).values())
        become(hand, "asleep")
        before = len(spawned(hand))
        assert faulty.enqueue({"result": 1}).wait(30) == 1
        assert len(spawned(hand)) == before + 1


@pytest.mark.parametrize("scope", ["do", pytest.param("do:0"), None])
def test_a_paused_worker_sleeps_too(hand: Chargehand, world: World, scope: str | None) -> None:  # spec: WP-3 PD-1
    do = hand.crew("do", "scripted_handlers:Doer", workers=1, idle_exit=0.2)
    with hand.running():
        eventually(lambda: statuses(hand))
        hand.pause(scope)
        become(hand, "asleep")
        ref = world.put(do)
        before = len(spawned(hand))
        stays(lambda: statuses(hand) == {"do:0": "asleep"}, 1.5)  # longer than the node's own look at the store
        assert (len(spawned(hand)), ref.job().state) == (before, "queued")
        hand.resume(scope)
        assert ref.wait(6) == 1


def test_the_environment_of_each_worker(hand: Chargehand) -> None:  # spec: WP-3
    names = ["CUDA_VISIBLE_DEVICES", "TEST_TWICE", "TEST_PLAIN"]
    own = {"CUDA_VISIBLE_DEVICES": "{index}", "TEST_TWICE": "{index}/{index}", "TEST_PLAIN": "{other} {}"}
    look = hand.crew("look", "reporting_handlers:Mirror", workers=2, environment=own)
    found: dict[int, list[str]] = {}
    with hand.running():
        become(hand, "healthy")
        want = {pid: int(name[-1]) for name, pid in pids(hand).items()}

        def both() -> bool:
            seen = look.enqueue(names).wait(30)
            found[want[seen["pid"]]] = [seen[name] for name in names]
            return len(found) == 2

        eventually(both)
    assert found == {n: [str(n), f"{n}/{n}", "{other} {}"] for n in range(2)}


def test_threads_are_limited_before_anything_is_imported(hand: Chargehand) -> None:  # spec: WP-11
    hand.crew("one", "reporting_handlers:Mirror")
    hand.crew("three", "reporting_handlers:Mirror", threads=3)
    hand.crew("two", "reporting_handlers:Mirror", threads=2)
    hand.crew("own", "reporting_handlers:Mirror", threads=2, environment={"OMP_NUM_THREADS": "7"})
    with hand.running():
        found = {name: crew.enqueue(None).wait(30) for name, crew in hand.crews.items()}
    for name, count in (("one", "1"), ("three", "3"), ("two", "2")):
        assert {found[name][variable] for variable in (THREADS, *THREAD_LIMITS)} == {count}
    assert (found["own"]["OMP_NUM_THREADS"], found["own"]["MKL_NUM_THREADS"]) == ("7", "2")


def test_threads_of_a_standalone_worker(world: World) -> None:  # spec: WP-11 CF-1
    with serving(world, "hand.crew('look', 'reporting_handlers:Mirror')", PIPELINE_THREADS_PER_JOB="5") as served:
        found = served.hand.crew("look", "reporting_handlers:Mirror").enqueue(None).wait(30)
        assert {found[variable] for variable in (THREADS, *THREAD_LIMITS)} == {"5"}


@pytest.mark.parametrize(("what", "words"), [("memory", "waits for memory"), ("gpu_memory", "waits for GPU memory")])
def test_no_more_are_started_than_fit(make_hand: MakeHand, what: str, words: str) -> None:  # spec: SV-9
    room: dict[str, Any] = {what: 5 * 2**30}
    need: dict[str, Any] = {what: "2 GiB"}
    hand = make_hand(starts=StartPolicy(**room))
    hand.crew("big", "scripted_handlers:Doer", workers=3, **need)
    hand.crew("small", "scripted_handlers:Doer", workers=1)
    with hand.running():
        some = {"big:0": "healthy", "big:1": "healthy", "big:2": "stopped", "small:0": "healthy"}
        waiting = become(hand, some)["big:2"]
        assert waiting["shortage"] == "temporary"
        assert waiting["text"].startswith(words)
        assert waiting["pid"] is None
        hand.stop("big:0")
        become(hand, {**some, "big:0": "stopped", "big:2": "healthy"})
        hand.start("big:0")
        eventually(lambda: workers(hand)["big:0"]["shortage"] == "temporary")
        hand.scale("big", 1)
        become(hand, {"big:0": "healthy", "small:0": "healthy"})


def test_one_that_can_never_fit_is_loud(make_hand: MakeHand, world: World) -> None:  # spec: SV-12 SV-9
    hand = make_hand(starts=StartPolicy(memory=2**30))
    big = hand.crew("big", "scripted_handlers:Doer", workers=1, memory="2 GiB")
    with hand.running():
        become(hand, {"big:0": "stopped"})
        world.put(big)
        eventually(lambda: (hand.status() or {})["unserved"], 6)


def test_starts_are_staggered(make_hand: MakeHand) -> None:  # spec: SV-9
    hand = make_hand(starts=StartPolicy(stagger=0.3))
    hand.crew("do", "scripted_handlers:Doer", workers=4)
    with hand.running():
        become(hand, "healthy")
        moments = [entry["at_ms"] for entry in spawned(hand)]
    # The moments are those of the log lines; without a stagger they would be a few milliseconds apart.
    assert min(later - before for before, later in pairwise(moments)) >= 150


def test_few_load_at_a_time(make_hand: MakeHand) -> None:  # spec: SV-9
    hand = make_hand(starts=StartPolicy(stagger=0, most_loading=2))
    hand.crew("slow", FAULTY, workers=5, environment={"CHARGEHAND_FAULT_SET_UP": "slow:0.3"})
    most = 0

    def loaded() -> bool:
        nonlocal most
        found = list(statuses(hand).values())
        most = max(most, found.count("starting"))
        assert set(found) <= {"stopped", "starting", "healthy"}
        return found == ["healthy"] * 5

    with hand.running():
        eventually(loaded, 40)
    assert most == 2


def test_the_breaker_tries_one_and_a_reset_closes_it(make_hand: MakeHand, world: World) -> None:  # spec: SV-9
    hand = make_hand(restart=RestartPolicy(first_pause=0.3, longest_pause=0.6, rapid_limit=100, lifetime_limit=200))
    mended = world.folder / "mended"
    bad = hand.crew("bad", "reporting_handlers:Fragile", workers=3, environment={"TEST_MENDED": str(mended)})
    good = hand.crew("do", "scripted_handlers:Doer", workers=2)

    def crashes_of(component: str) -> int:
        return sum(report.component == component for report in hand.crashes())

    with hand.running():
        ref = bad.enqueue({})
        eventually(lambda: (hand.status() or {}).get("breakers", {}).get("bad"))
        seen = [worker for worker in workers(hand).values() if worker["crew"] == "bad"]
        others = [worker["component"] for worker in seen if worker["reason"] == "breaker open"]
        (probe,) = {worker["component"] for worker in seen} - set(others)
        eventually(lambda: all(crashes_of(component) for component in (probe, *others)), what="all reports are kept")
        so_far = {component: crashes_of(component) for component in others}
        tried = crashes_of(probe)
        eventually(lambda: crashes_of(probe) >= tried + 2)
        assert {component: crashes_of(component) for component in others} == so_far  # their budgets are not burnt
        for component in others:
            worker = workers(hand)[component.removeprefix("worker:")]
            assert (worker["status"], worker["reason"], worker["pid"]) == ("crashed", "breaker open", None)
        assert any(f"event={Event.BREAKER_OPENED}" in e["text"] for e in hand.logs(count=5000))
        assert world.put(good).wait(30) == 1
        assert hand.start(others[0])[0].text == "waits for the probe of its crew to run long enough"
        mended.touch()
        hand.reset("bad")
        become(hand, "healthy")
        assert (hand.status() or {})["breakers"] == {}
        assert ref.wait(30) == "well"


def test_a_job_that_takes_too_long(hand: Chargehand, world: World) -> None:  # spec: WK-7 RP-7
    slow = hand.crew("slow", "scripted_handlers:Doer", workers=1, timeout=0.5, max_attempts=1)
    with hand.running():
        ref = world.put(slow, world.gate(), children=["sleep"])
        pid = world.started(ref)
        with pytest.raises(JobFailed):
            ref.wait(30)
        job = ref.job()
        assert (job.crashes, job.interruptions, job.attempts) == (0, 0, 1)
        assert "scripted_handlers.py" in (job.error or "")  # where it stood
        assert [gone(child) for child in (pid, *world.children())] == [True, True]
        assert world.put(slow, options={"timeout": None}).wait(30) == 1
        (worker,) = workers(hand).values()
        assert (worker["budget"]["lifetime_left"], worker["status"]) == (10**6, "healthy")
        (report,) = eventually(hand.crashes)
        assert (report.reason, report.job, report.charged) == ("job timeout", ref.id, False)
