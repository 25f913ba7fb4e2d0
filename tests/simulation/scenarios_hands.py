"""Small histories of several short jobs in one hand, which turn out to take longer than those before (WK-18)."""

from collections.abc import Callable

from actors import Worker
from stage import Stage, World
from staging import begin, now_at

from chargehand.model.job import Claim

LONGER = 0.004
"""Seconds: less than after what is not begun is called back from behind one job, but eight of them are many."""


def _for(world: World, seconds: float) -> Callable[[Worker, Claim], None]:
    def perform(worker: Worker, claim: Claim) -> None:
        world.after(seconds, lambda: worker.outcome(claim))

    return perform


def _enqueue(world: World, count: int, *, priority: int = 0, seconds: float) -> list[str]:
    """Enqueues jobs that take so long, and tells the node of them."""
    jobs = world.folk.enqueue(count, "a", delay_ms=0, priority=priority, timeout_ms=None)
    for job in jobs:
        world.fates.scripted[job] = _for(world, seconds)
    node = world.node
    assert node is not None
    node.order(lambda: node.ledger.hint("a"))
    return jobs


def _full_hands(stage: Stage, workers: int, seconds: float = LONGER) -> tuple[World, list[str]]:
    """A world whose workers have just been handed many jobs, each of which takes longer than expected."""
    world = begin(stage, workers, most_in_hand=64)
    _enqueue(world, 40, seconds=0.0001)
    now_at(world, 2)
    jobs = _enqueue(world, 8 * workers, seconds=seconds)
    node = world.node
    assert node is not None
    for _ in range(400):
        now_at(world, 0.0005)
        full = all(record.life is not None and record.life.ahead for record in world.oracle.records.values())
        if full and not node.ledger.pools["a"].prefetched:
            return world, jobs
    raise AssertionError("nobody is sent jobs ahead")


def _ends(world: World) -> None:
    now_at(world, 30)
    world.oracle.jobs.final(set())


def an_urgent_job_and_full_hands(stage: Stage) -> None:
    """It waits for what is begun, and for nothing else."""
    world, _ = _full_hands(stage, 2)
    began = world.now
    (urgent,) = _enqueue(world, 1, priority=9, seconds=0.0001)
    while world.oracle.jobs.jobs[urgent].state != "done":
        now_at(world, 0.001)
        assert world.now - began < 1
    waited = next(when for when, text in world.history if f" ends job {urgent}:" in text) - began
    assert waited < 0.026, f"it waited for {waited:.3f} s"
    _ends(world)


def a_pause_and_full_hands(stage: Stage) -> None:
    """What is begun ends; nothing else begins."""
    world, _ = _full_hands(stage, 2)
    world.folk.pause("a")
    node = world.node
    assert node is not None
    node.order(node.apply_pauses)
    now_at(world, 1)
    assert [job.state for job in world.oracle.jobs.jobs.values()].count("running") == 0
    assert [job.state for job in world.oracle.jobs.jobs.values()].count("queued") >= 8
    world.folk.resume("a")
    _ends(world)


def an_idle_sibling(stage: Stage) -> None:
    """A worker that is through with its hand is given what another has not begun."""
    world, jobs = _full_hands(stage, 2)
    for job in jobs:
        world.fates.scripted[job] = lambda worker, claim: world.after(
            LONGER if worker.component == "worker:a:0" else 0.0001, lambda: worker.outcome(claim)
        )
    _ends(world)
    done = [text for _, text in world.history if " ends job " in text and "worker:a:1" in text]
    assert len(done) >= 20 + 12, "most of it is done by the one that is quick"


def a_long_job_before_others(stage: Stage) -> None:
    """What waits behind it is done by the other worker, at once."""
    world, jobs = _full_hands(stage, 2, seconds=0.0001)
    lives = [record.life for record in world.oracle.records.values()]
    waiting = [job for life in lives if life is not None for job in life.ahead]
    world.fates.scripted[waiting[0]] = _for(world, 5.0)
    now_at(world, 0.1)
    states = {job: world.oracle.jobs.jobs[job].state for job in jobs}
    assert sum(state != "done" for state in states.values()) <= 1, states
    _ends(world)


HANDS: dict[str, Callable[[Stage], None]] = {
    "an urgent job and full hands": an_urgent_job_and_full_hands,
    "a pause and full hands": a_pause_and_full_hands,
    "an idle sibling": an_idle_sibling,
    "a long job before others": a_long_job_before_others,
}
