"""Small histories of workers and their jobs: the examples of the specification, and what once went wrong."""

from collections.abc import Callable

from actors import AWAKE
from stage import Stage
from staging import begin, now_at, perform_for, states, statuses

from chargehand.model.fleet.orders import Verb

# work


def an_hour_of_c_code(stage: Stage) -> None:
    """C code holds the interpreter for an hour: flagged, not killed."""
    world = begin(stage, 2)
    for rate in (0.02, 0.9):
        (job,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
        world.fates.scripted[job] = perform_for(world, 3600, mute=True, rate=rate)
    now_at(world, 1800)
    assert all(place.unresponsive for place in world.places().values())
    now_at(world, 1830)
    assert states(world) == ["done", "done"]
    assert world.tally["deaths"] == 0


def an_hour_at_a_standstill(stage: Stage) -> None:
    """It beats and is busy, but its working thread shows nothing for an hour: flagged, not killed."""
    world = begin(stage, 1)
    (job,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    world.fates.scripted[job] = perform_for(world, 3600, mute=False, rate=0.5)
    now_at(world, 1800)
    assert all(place.stalled for place in world.places().values())
    now_at(world, 1830)
    assert (states(world), world.tally["deaths"]) == (["done"], 0)


def twenty_crashing_files(stage: Stage) -> None:
    """WK-6: 20 crashing files among 100, 2 workers: 20 quarantined, 80 done, no worker failed."""
    world = begin(stage, 2)
    jobs = world.folk.enqueue(100, "a", delay_ms=0, priority=0, timeout_ms=None)
    world.fates.poison.update(world.chance.sample(jobs, 20))
    now_at(world, 3600)
    world.oracle.jobs.final(world.fates.poison)
    assert (states(world).count("failed"), states(world).count("done")) == (20, 80)
    assert not world.given_up


def one_job_that_kills_its_node(stage: Stage, workers: int, *, late: bool) -> None:
    """RP-10: it is quarantined after three charges; all others are done, and none of them is charged."""
    world = begin(stage, workers, lifted=True)
    jobs = world.folk.enqueue(60, "a", delay_ms=0, priority=0, timeout_ms=None)
    (killer,) = world.fates.killers = set(world.chance.sample(jobs, 1))
    if late:
        world.fates.scripted[killer] = lambda worker, claim: world.after(9.0, world.kill_node)
    now_at(world, 240)
    world.oracle.jobs.final({killer})
    truth = world.oracle.jobs.jobs
    assert states(world).count("done") == 59
    assert [job.id for job in truth.values() if job.crashes] == [killer]
    assert truth[killer].crashes == 3
    assert world.tally["node killed"] == 4


def three_crashing_files_and_nothing_else(stage: Stage, workers: int) -> None:
    """They are quarantined, and the crew survives: a poisoned job counts as got out of the way."""
    world = begin(stage, workers)
    world.fates.poison.update(world.folk.enqueue(3, "a", delay_ms=0, priority=0, timeout_ms=None))
    now_at(world, 900)
    world.oracle.jobs.final(world.fates.poison)
    assert not world.given_up
    assert set(statuses(world)) == {"healthy"}


def drained(stage: Stage) -> None:
    """What a drained crew has in memory, where it waits for others to join, goes back."""
    world = begin(stage, 1, batching={"a": (10, 60.0)})
    jobs = world.folk.enqueue(3, "a", delay_ms=0, priority=0, timeout_ms=None)
    now_at(world, 1)
    assert states(world) == ["running"] * 3, "that is: in memory"
    assert not world.processes[0].hand
    world.folk.order(Verb.DRAIN, "a")
    now_at(world, 5)
    assert [world.oracle.jobs.jobs[job].state for job in jobs] == ["queued"] * 3
    assert statuses(world) == ["stopped"]


def woken(stage: Stage) -> None:
    """A job wakes a worker that sleeps, and is done; nobody else wrote anything meanwhile."""
    world = begin(stage, 1, idle_exit=20.0)
    for delay in (0, 40_000, 90_000):
        world.folk.enqueue(1, "a", delay_ms=delay, timeout_ms=None)
    now_at(world, 30)
    assert statuses(world) == ["asleep"]
    now_at(world, 15)
    assert states(world) == ["done", "done", "queued"]
    now_at(world, 60)
    assert states(world) == ["done", "done", "done"]


def woken_beside_one_that_loads(stage: Stage) -> None:
    """That one of the crew loads for minutes is no reason to let another sleep while more than one job waits."""
    world = begin(stage, 2, idle_exit=20.0)
    now_at(world, 30)
    assert statuses(world) == ["asleep", "asleep"]
    world.fates.draw_load = lambda component: "for ever" if component.endswith("0") else "quick"
    world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    now_at(world, 10)
    assert statuses(world) == ["starting", "asleep"]
    world.folk.enqueue(2, "a", delay_ms=0, timeout_ms=None)
    now_at(world, 10)
    assert states(world) == ["done", "done", "done"]


def resumed(stage: Stage) -> None:
    """PD-1: resume takes effect in under 2 s; a pause that runs out, too."""
    world = begin(stage, 1)
    for for_ms in (None, 60_000):
        world.folk.pause("a", for_ms)
        now_at(world, 2)
        (job,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
        now_at(world, 50)
        assert (world.oracle.jobs.jobs[job].state, statuses(world)) == ("queued", ["paused"])
        if for_ms is None:
            world.folk.resume("a")
        else:
            now_at(world, 8)
        now_at(world, 2)
        assert world.oracle.jobs.jobs[job].state == "done"


def paused_while_a_claim_was_on_its_way(stage: Stage) -> None:
    """What a slow store grants to a crew that has been paused meanwhile goes back."""
    world = begin(stage, 1)
    assert world.node is not None
    world.node.store._delay = lambda: 2.0  # half of it before the commit, half after
    now_at(world, 3)
    (job,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    while world.oracle.jobs.jobs[job].state == "queued":
        now_at(world, 0.1)
    world.folk.pause("a")
    world.node.order(world.node.apply_pauses)
    now_at(world, 6)
    assert (world.oracle.jobs.jobs[job].state, world.tally["jobs handed out"]) == ("queued", 0)


# the node is late


def a_node_that_was_stopped(stage: Stage) -> None:
    """SIGSTOP to the node for a minute: no worker is killed, and no job that was done in time has timed out."""
    world = begin(stage, 2)
    busy, short = world.folk.enqueue(2, "a", delay_ms=0, timeout_ms=30_000, priority=0)
    world.fates.scripted[busy] = perform_for(world, 29.9, mute=True, rate=0.0)
    world.fates.scripted[short] = perform_for(world, 20, mute=False, rate=0.8)
    now_at(world, 1)
    assert world.node is not None
    world.node.stand_still(60)
    now_at(world, 70)
    assert (states(world), world.tally["deaths"]) == (["done", "done"], 0)


def a_machine_that_slept(stage: Stage) -> None:
    """A frame that was sent just before the machine fell asleep does not make its worker look hung."""
    world = begin(stage, 2)
    (job,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    world.fates.scripted[job] = perform_for(world, 500, mute=False, rate=AWAKE)
    now_at(world, 32.3)
    assert world.node is not None
    world.node.stand_still(0.5)  # the node has not read it yet
    for worker in world.processes:
        worker.report()
    world.sleep(400)
    now_at(world, 3)
    assert world.tally["deaths"] == 0


# restarts


def failed_for_good(stage: Stage) -> None:
    """RP-6: failed stays failed through pause, resume, start and a new node; reset clears it."""
    world = begin(stage, 1, loads={"crash": 1})
    now_at(world, 120)
    assert statuses(world) == ["failed"]
    world.folk.pause("a")
    now_at(world, 5)
    world.folk.resume("a")
    world.folk.order(Verb.START, "*")
    now_at(world, 5)
    world.kill_node()
    now_at(world, 10)
    assert statuses(world) == ["failed"]
    world.fates.calm = True
    world.folk.order(Verb.RESET, "worker:a:0")
    now_at(world, 10)
    assert statuses(world) == ["healthy"]


def twenty_one_crashes(stage: Stage) -> None:
    """RP-3, RP-4: a crash every six minutes is given up at the 21st; six healthy hours forgive all."""
    world = begin(stage, 1, lives=(340.0,), poll=60.0)
    now_at(world, 20 * 345)
    assert statuses(world) != ["failed"]
    world.fates.calm = True
    now_at(world, 6 * 3600 + 400)
    world.fates.calm = False
    world.processes[0].die(signal=11)
    now_at(world, 10 * 345)
    assert statuses(world) != ["failed"]
    now_at(world, 12 * 345)
    assert statuses(world) == ["failed"]


def unkillable(stage: Stage) -> None:
    """An earlier life that cannot be killed keeps its place and its job, whatever people order."""
    world = begin(stage, 1, lifted=True)
    (job,) = world.folk.enqueue(1, "a", delay_ms=0, timeout_ms=None)
    world.fates.scripted[job] = perform_for(world, 5, mute=False, rate=0.8)
    now_at(world, 2)
    old = world.processes[0]
    world.chance.random = lambda: 0.0  # pyright: ignore[reportAttributeAccessIssue] (the kernel cannot kill it)
    world.kill_node()
    del world.chance.random  # as it was
    old.unkillable_for = 60.0
    now_at(world, 10)
    assert world.node is not None
    for verb in (Verb.START, Verb.RESTART, Verb.RESET):
        world.folk.order(verb, "*")
        now_at(world, 3)
    assert (statuses(world), world.processes) == (["stopped"], [old])
    now_at(world, 60)
    assert statuses(world) == ["healthy"]
    now_at(world, 30)
    assert states(world) == ["done"]


def twenty_that_do_not_stop(stage: Stage) -> None:
    """PD-3: stopping 20 takes no longer than stopping one, and what they did is queued again unharmed."""
    world = begin(stage, 20, ready_after=60.0)
    jobs = world.folk.enqueue(20, "a", delay_ms=0, timeout_ms=None)
    for job in jobs:
        world.fates.scripted[job] = perform_for(world, 3600, mute=False, rate=0.8)
    now_at(world, 5)
    began = world.now
    world.folk.order(Verb.STOP, "a")
    now_at(world, 12.8)
    assert set(statuses(world)) == {"stopped"}
    assert world.now - began < 13
    assert all(job.interruptions == 1 and job.state == "queued" for job in world.oracle.jobs.jobs.values())


WORKERS: dict[str, Callable[[Stage], None]] = {
    "an hour of C code": an_hour_of_c_code,
    "an hour at a standstill": an_hour_at_a_standstill,
    "twenty crashing files": twenty_crashing_files,
    "three crashing files, one worker": lambda stage: three_crashing_files_and_nothing_else(stage, 1),
    "three crashing files, two workers": lambda stage: three_crashing_files_and_nothing_else(stage, 2),
    "a job that kills its node": lambda stage: one_job_that_kills_its_node(stage, 3, late=False),
    "a job that kills its node later": lambda stage: one_job_that_kills_its_node(stage, 3, late=True),
    "a job that kills its node, one worker": lambda stage: one_job_that_kills_its_node(stage, 1, late=False),
    "drained": drained,
    "woken": woken,
    "woken beside one that loads": woken_beside_one_that_loads,
    "resumed": resumed,
    "paused while a claim was on its way": paused_while_a_claim_was_on_its_way,
    "a node that was stopped": a_node_that_was_stopped,
    "a machine that slept": a_machine_that_slept,
    "failed for good": failed_for_good,
    "twenty-one crashes": twenty_one_crashes,
    "unkillable": unkillable,
    "twenty that do not stop": twenty_that_do_not_stop,
}
