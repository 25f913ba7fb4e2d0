"""Small histories of items that are found, jobs that are cancelled, and several jobs in one hand."""

from collections.abc import Callable

from actors import Worker
from stage import Stage, World
from staging import begin, now_at, perform_for, states, statuses

from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import Terms
from chargehand.model.job import Claim, Found, Stopped


def job(world: World, job_id: str) -> str:
    return world.oracle.jobs.jobs[job_id].state


def reasons(world: World) -> list[str]:
    """Why jobs failed."""
    return [job.reason or "" for job in world.oracle.jobs.jobs.values() if job.state == "failed"]


def enqueue_and_hint(world: World, count: int, *, priority: int) -> list[str]:
    """Enqueues jobs in the store, and tells the node of them."""
    jobs = world.folk.enqueue(count, "a", delay_ms=0, priority=priority, timeout_ms=None)
    node = world.node
    assert node is not None
    node.order(lambda: node.ledger.hint("a"))
    return jobs


# discovery (WK-10)


def a_library(stage: Stage) -> None:
    """All is done, once; what crashes and what never ends is set aside, though it stands before all the rest."""
    world = begin(stage, 2, lifted=True, discovers=("a",), page=4, enough=6)
    rows = world.application.rows
    for number in range(22):
        world.application.add(f"{number:02}", "a", "bad" if number < 4 else "endless" if number < 6 else "good")
    now_at(world, 60)
    assert [row.done for row in rows.values()] == [0] * 4 + [3] * 2 + [1] * 16
    assert sorted(reasons(world)) == ["no progress"] * 2 + ["poison"] * 4
    world.application.touch("20")
    (stuck,) = [job.id for job in world.oracle.jobs.jobs.values() if job.item == "05" and job.state == "failed"]
    world.folk.retry(stuck)
    now_at(world, 20)
    assert rows["20"].done == 2
    assert rows["05"].done == 6, "what a person retries begins anew"
    world.oracle.jobs.final(set())


def a_search_in_a_circle(stage: Stage) -> None:
    """A `discover` that ignores `after`, or comes back to it later, is tried again after a pause, and reported."""
    for pages in (1, 3):
        world = begin(stage, 2, discovers=("a",), page=4, enough=6)
        for number in range(20):
            world.application.add(f"{number:02}", "a", "endless")
        rows, keys = world.application.rows, sorted(world.application.rows)

        def again(crew: str, after: str | None, limit: int, keys: list[str] = keys, pages: int = pages) -> list[Found]:
            at = 0 if after is None else (keys.index(after) + 1) % (limit * pages)
            return [Found(item=key) for key in keys[at : at + limit]]

        world.application.discover = again
        now_at(world, 120)
        assert all(rows[key].done for key in keys[: 4 * pages])
        assert world.tally["looks"] < 60, "with a growing pause"
        node = world.node
        assert node is not None
        assert "does not follow" in node.ledger.blind["a"]


def a_wake(stage: Stage) -> None:
    """The application says that there is something: at once, also while somebody looks, who may have read before."""
    world = begin(stage, 2, discovers=("a",), look_every=600.0)
    for slow in (False, True):
        if slow:
            world.fates._look = lambda worker, look: world.fates._reads(worker, look, 0.01, 5.0)
            world.folk.wake("a")
            now_at(world, 1)
        world.application.add(f"new {slow}", "a", "good")
        now_at(world, 3)
        assert not world.application.rows[f"new {slow}"].done
        world.folk.wake("a")
        now_at(world, 8 if slow else 0.5)
        assert world.application.rows[f"new {slow}"].done == 1


def a_look_that_hangs(stage: Stage) -> None:
    """A look may take 30 s; whoever takes longer is replaced, and nobody is charged. Another finds the work."""
    world = begin(stage, 1, discovers=("a",), looks={"hangs": 1})
    world.application.add("x", "a", "good")
    now_at(world, 25)
    assert not world.application.rows["x"].done
    world.fates.calm = True
    now_at(world, 20)
    assert (world.application.rows["x"].done, world.tally["kill: job timeout"]) == (1, 1)
    assert not world.oracle.records["worker:a:0"].charged


def asleep_and_woken(stage: Stage) -> None:
    """To look for work is no work: the crew goes to sleep. It looks when it is woken, and now and then by itself."""
    world = begin(stage, 2, discovers=("a",), idle_exit=20.0)
    now_at(world, 60)
    assert statuses(world) == ["asleep", "asleep"]
    looks = world.tally["looks"]
    now_at(world, 120)
    assert world.tally["looks"] == looks, "it sleeps, and nobody was started to look"
    world.application.add("x", "a", "good")
    world.folk.wake("a")
    now_at(world, 10)
    assert world.application.rows["x"].done == 1
    now_at(world, 60)
    assert statuses(world) == ["asleep", "asleep"]
    world.application.add("y", "a", "good")
    now_at(world, 200)
    assert not world.application.rows["y"].done
    now_at(world, 120)
    assert world.application.rows["y"].done == 1, "nobody said that there is something, but it looks every five minutes"


def asleep_and_resumed(stage: Stage) -> None:
    """A crew that fell asleep while it was paused looks again when it is resumed: nobody else would."""
    world = begin(stage, 2, discovers=("a",), idle_exit=20.0)
    now_at(world, 10)
    world.folk.pause("a")
    now_at(world, 60)
    assert statuses(world) == ["asleep", "asleep"]
    world.application.add("x", "a", "good")
    now_at(world, 60)
    assert not world.application.rows["x"].done
    world.folk.resume("a")
    now_at(world, 10)
    assert world.application.rows["x"].done == 1


# cancel (WK-8)


def until_it_hears(world: World, pause: float = 1.0) -> Callable[[Worker, Claim], None]:
    """A job that never ends, but says again and again how far it is."""

    def perform(worker: Worker, claim: Claim) -> None:
        if worker.hand.get(claim.id) is claim:
            worker.turn()
            if worker.is_cancelled(claim):
                worker.outcome(claim, Stopped())
            else:
                world.after(pause, lambda: perform(worker, claim))

    return perform


def cancelled_wherever_it_is(stage: Stage) -> None:
    """In the queue, in the node's memory, in a hand that hears, in one that does not, and when it was done before."""
    world = begin(stage, 3, takes=(0.0005,))
    world.folk.enqueue(60, "a", delay_ms=0, priority=0, timeout_ms=None)
    now_at(world, 5)
    hears, deaf, ends, *others = world.folk.enqueue(30, "a", delay_ms=0, priority=0, timeout_ms=None)
    world.fates.scripted[hears] = until_it_hears(world)
    world.fates.scripted[deaf] = perform_for(world, 3600, mute=True, rate=0.8)
    world.fates.scripted[ends] = perform_for(world, 5, mute=False, rate=0.8)
    now_at(world, 0.02)  # not long enough for those in memory to go back
    (waits,) = world.folk.enqueue(1, "a", delay_ms=60_000)
    held = [each for each in others if job(world, each) == "running"]  # that is: in memory
    assert held
    for number, each in enumerate((waits, held[-1], hears, deaf, ends)):
        world.folk.cancel(each, through_node=bool(number % 2))
    assert job(world, waits) == "cancelled"
    now_at(world, 4)
    assert [job(world, each) for each in (held[-1], hears, deaf, ends)] == [
        "cancelled",
        "cancelled",
        "running",
        "running",
    ]
    now_at(world, 8)
    assert [job(world, each) for each in (deaf, ends)] == ["cancelled", "done"]
    assert (world.tally["deaths"], world.tally["told of a cancel"]) == (1, 3)
    now_at(world, 60)
    assert states(world).count("cancelled") == 4
    assert not world.given_up


def cancelled_before_its_batch(stage: Stage) -> None:
    """A job that is cancelled while it waits in memory for others is not handed out with them."""
    world = begin(stage, 1, batching={"a": (3, 0.5)})
    good, cancelled = enqueue_and_hint(world, 2, priority=0)
    now_at(world, 0.2)
    assert (states(world), world.tally["jobs handed out"]) == (["running"] * 2, 0)
    world.folk.cancel(cancelled, through_node=True)
    now_at(world, 2)
    assert (job(world, good), job(world, cancelled)) == ("done", "cancelled")


def a_stopped_node_and_an_impatient_caller(stage: Stage) -> None:
    """A cancel whose caller went on without the stopped node does not cancel the job that was retried since."""
    world = begin(stage, 1)
    assert world.node is not None
    world.node.stand_still(20)
    (retried,) = world.folk.enqueue(1, "a", delay_ms=60_000, timeout_ms=None)
    world.folk.cancel(retried, through_node=True)
    now_at(world, 10)
    assert (job(world, retried), world.tally["gave up on the node"]) == ("cancelled", 1)
    world.folk.retry(retried)
    now_at(world, 30)
    assert job(world, retried) == "done"


def cancelled_beside_a_busy_crew(stage: Stage) -> None:
    """A cancel that nobody tells the node of is seen within seconds, however often it is told of something else."""
    world = begin(stage, 1, others={"b": Terms(workers=1)})
    node = world.node
    assert node is not None
    (long,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    world.fates.scripted[long] = until_it_hears(world, 0.05)
    node.store._delay = lambda: 0.02

    def hint() -> None:
        node.order(lambda: node.ledger.hint("b"))
        world.after(0.005, hint)

    hint()
    now_at(world, 2)
    world.folk.cancel(long)
    now_at(world, 1.5)
    assert job(world, long) == "cancelled"


def cancelled_while_the_store_fails(stage: Stage) -> None:
    """What was written before a look that failed is seen by the next one that does not."""
    world = begin(stage, 1)
    (long,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    world.fates.scripted[long] = until_it_hears(world)
    now_at(world, 2)
    world.store_fails_until = world.now + 20
    world.folk.cancel(long)
    now_at(world, 19)
    assert job(world, long) == "running"
    now_at(world, 15)
    assert job(world, long) == "cancelled"


def outcomes_that_wait_for_a_key(stage: Stage) -> None:
    """A caller's transaction keeps outcomes from being written: the workers go on, and all outcomes come later."""
    world = begin(stage, 2)
    world.keys_held_until = world.now + 20
    jobs = world.folk.enqueue(6, "a", delay_ms=0, timeout_ms=None)
    now_at(world, 15)
    assert [job(world, each) for each in jobs] == ["running"] * 6
    assert world.tally["jobs handed out"] == 6
    now_at(world, 7)
    assert [job(world, each) for each in jobs] == ["done"] * 6


# pause (PD-1)


def paused_behind_the_nodes_back(stage: Stage) -> None:
    """A pause that nobody told the node of holds from the moment at which it is written."""
    world = begin(stage, 1)
    with world.stage.people.transaction() as tx:
        tx.fleet.pause("a", "somebody", None)
    world.oracle.jobs.paused["a"] = float("inf")
    (waits,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    now_at(world, 10)
    assert job(world, waits) == "queued"
    world.folk.resume("a")
    now_at(world, 5)
    assert job(world, waits) == "done"


# claims (WK-3)


def short_jobs_then_long_ones(stage: Stage) -> None:
    """What was claimed while jobs were short does not keep something more urgent waiting."""
    world = begin(stage, 2, takes=(0.0005,))
    world.folk.enqueue(200, "a", delay_ms=0, priority=0, timeout_ms=None)
    now_at(world, 5)
    long = world.folk.enqueue(100, "a", delay_ms=0, priority=0, timeout_ms=None)
    for each in long:
        world.fates.scripted[each] = perform_for(world, 20, mute=False, rate=0.8)
    now_at(world, 5)
    (urgent,) = world.folk.enqueue(1, "a", delay_ms=0, priority=5, timeout_ms=None)
    now_at(world, 30)
    assert job(world, urgent) == "done"


def a_more_urgent_job(stage: Stage) -> None:
    """A job that is more urgent than those that the node holds ahead is the next, but for what happens meanwhile."""
    world = begin(stage, 1, takes=(0.004,))
    enqueue_and_hint(world, 200, priority=0)
    now_at(world, 0.3)
    assert world.node is not None
    world.node.store._delay = lambda: 0.001
    for _ in range(5):
        before = world.tally["jobs handed out"]
        (urgent,) = enqueue_and_hint(world, 1, priority=5)
        while job(world, urgent) != "done":
            now_at(world, 0.001)
        assert world.tally["jobs handed out"] - before <= 5


def drained_while_jobs_are_held_for_others(stage: Stage) -> None:
    """A worker that is drained ends its job and gets none of those that are held for the others."""
    world = begin(stage, 2, takes=(0.004,))
    enqueue_and_hint(world, 200, priority=0)
    now_at(world, 0.2)
    world.folk.order(Verb.DRAIN, "worker:a:0")
    now_at(world, 3)
    assert statuses(world) == ["stopped", "healthy"]
    assert set(states(world)) == {"done"}


def idle_workers_that_leave(stage: Stage) -> None:
    """What was claimed for an idle worker that is stopped meanwhile goes back, and is not kept behind a long job."""
    world = begin(stage, 2, takes=(20.0,))
    assert world.node is not None
    world.node.store._delay = lambda: 0.2
    now_at(world, 2.5)
    enqueue_and_hint(world, 3, priority=0)
    now_at(world, 0.05)
    world.folk.order(Verb.STOP, "worker:a:1")
    now_at(world, 3)
    assert (world.tally["jobs handed out"], states(world).count("running")) == (1, 1)
    (urgent,) = world.folk.enqueue(1, "a", delay_ms=0, priority=5, timeout_ms=None)
    now_at(world, 38)
    assert job(world, urgent) == "done"


# several at once


def several_at_once(stage: Stage) -> None:
    """Jobs wait a moment for others, and go together; those with a past go alone; of a bad batch only one is bad."""
    world = begin(stage, 1, lifted=True, poll=60.0, batching={"a": (3, 0.5)}, takes=(1.0,))
    world.folk.enqueue(2, "a", delay_ms=0, priority=0, timeout_ms=None)
    now_at(world, 0.4)
    assert world.tally["jobs handed out"] == 0
    now_at(world, 0.2)
    assert (world.tally["jobs handed out"], len(world.processes[0].hand)) == (2, 2)
    now_at(world, 2)
    *good, bad = world.folk.enqueue(9, "a", delay_ms=0, priority=0, timeout_ms=None)
    world.fates.poison.add(bad)
    now_at(world, 120)
    assert [job(world, each) for each in good] == ["done"] * 8
    assert job(world, bad) == "failed"
    crashes = [world.oracle.jobs.jobs[each].crashes for each in good]
    assert (sum(crashes), max(crashes)) == (2, 1), "its two companions were there once, and never again"


def one_of_several_is_cancelled(stage: Stage) -> None:
    """Of a batch that does not hear, the cancelled job is cancelled; the others go back unharmed."""
    world = begin(stage, 1, batching={"a": (3, 0.5)})
    jobs = world.folk.enqueue(3, "a", delay_ms=0, priority=0, timeout_ms=None)
    for each in jobs:
        world.fates.scripted[each] = perform_for(world, 3600, mute=False, rate=0.8)
    now_at(world, 1)
    assert list(world.processes[0].hand) == jobs
    world.fates.scripted.clear()
    world.folk.cancel(jobs[1])
    now_at(world, 30)
    truths = [world.oracle.jobs.jobs[each] for each in jobs]
    assert [truth.state for truth in truths] == ["done", "cancelled", "done"]
    assert [(truth.interruptions, truth.crashes, truth.attempts) for truth in truths] == [
        (1, 0, 0),
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert not world.oracle.records["worker:a:0"].charged


FOUND_AND_CANCELLED: dict[str, Callable[[Stage], None]] = {
    "a library": a_library,
    "a search in a circle": a_search_in_a_circle,
    "a wake": a_wake,
    "a look that hangs": a_look_that_hangs,
    "asleep and resumed": asleep_and_resumed,
    "asleep and woken": asleep_and_woken,
    "cancelled wherever it is": cancelled_wherever_it_is,
    "a stopped node and an impatient caller": a_stopped_node_and_an_impatient_caller,
    "cancelled before its batch": cancelled_before_its_batch,
    "cancelled beside a busy crew": cancelled_beside_a_busy_crew,
    "cancelled while the store fails": cancelled_while_the_store_fails,
    "outcomes that wait for a key": outcomes_that_wait_for_a_key,
    "paused behind the node's back": paused_behind_the_nodes_back,
    "short jobs, then long ones": short_jobs_then_long_ones,
    "a more urgent job": a_more_urgent_job,
    "drained while jobs are held for others": drained_while_jobs_are_held_for_others,
    "idle workers that leave": idle_workers_that_leave,
    "several at once": several_at_once,
    "one of several is cancelled": one_of_several_is_cancelled,
}
