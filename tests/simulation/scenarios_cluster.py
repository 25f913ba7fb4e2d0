"""Small histories of several nodes on one store, told on purpose."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from cluster import FEW, GO, STOP, Fate, World, virtual
from cluster_node import Crew
from cluster_store import Tables
from stage import Stage

from chargehand.model.job import State
from chargehand.model.wakeups import NOTIFY_EVERY

LONG = 1000.0


@contextmanager
def begin(
    nodes: dict[str, Sequence[Crew]], lease: float = 30.0, cancel: float = 10.0, stacks: float = 0.25
) -> Generator[World]:
    """A quiet world whose workers are ready."""
    world = World(1, lease, cancel, watch_every=1.0, stacks=stacks)
    world.noticed, world.lost_notifications = (9.0, 10.0), 1.0
    with virtual(world):
        for name, crews in nodes.items():
            world.start(name, crews)
            world.run(world.now + 0.5)
        world.run(3.0)
        yield world
        world.settle_down()


def pass_by(world: World, seconds: float) -> None:
    world.run(world.now + seconds)


def runs_on(world: World, job: str) -> str | None:
    """The node that holds the job."""
    tables = world.server.tables
    return tables.jobs[tables.seqs[job]].node


def attempts(world: World, job: str) -> list[str | None]:
    """How the attempts of a job ended."""
    seq = world.server.tables.seqs[job]
    return [outcome for (of, _), outcome in world.server.tables.ends.items() if of == seq]


def started(world: World, job: str) -> list[float]:
    return [when for when, text in world.history if text.endswith(f"begins {job}")]


def when(world: World, job: str, state: State, act: Callable[[str], None]) -> None:
    """Does something with the node of the job at the moment when the job has got this state."""
    usual = world.server.committed

    def committed(before: Tables, after: Tables) -> None:
        usual(before, after)
        old, new = before.jobs.get(after.seqs[job]), after.jobs[after.seqs[job]]
        if new.state is state and old is not None and old.state is not state:
            world.server.committed = usual
            act(new.node or old.node or "")

    world.server.committed = committed


def a_claim_that_a_failover_forgot(_: Stage) -> None:
    """A job that nobody knows any more ends; another job has its place, and is claimed. Its outcome is not taken."""
    with begin({"a": [GO], "b": [GO]}) as world:
        world.planned_fates = [Fate(9.0, "child"), Fate(30.0)]
        world.enqueue("go", 1)
        pass_by(world, 2.0)
        world.outage(0.1, lag=2.5)
        pass_by(world, 1.0)
        (second,) = world.enqueue("go", 1)
        pass_by(world, 20.0)
        assert list(world.server.tables.seqs) == [second]
        assert world.tally["outcome refused"] == 1
        pass_by(world, 20.0)
        assert attempts(world, second) == ["done"]


def a_node_that_others_took_for_dead(_: Stage) -> None:
    """It ends its job while it is cut off, and another node has the job: the outcome is not taken, nor its children."""
    with begin({"a": [GO], "b": [GO]}) as world:
        world.planned_fates = [Fate(36.0, "child"), Fate(20.0)]
        (job,) = world.enqueue("go", 1)
        pass_by(world, 2.0)
        first = runs_on(world, job)
        assert first is not None
        world.isolate(first, 38.0)
        pass_by(world, 34.0)
        assert runs_on(world, job) not in (None, first)
        pass_by(world, 40.0)
        assert attempts(world, job) == ["interrupted", "done"]
        assert world.tally["outcome refused"] == 1
        assert world.tally["new life"] == 1


def two_attempts_of_one_job(_: Stage) -> None:
    """A node that others took for dead claims its job again while its first attempt runs; both end at once."""
    with begin({"a": [GO], "b": [FEW]}) as world:
        world.planned_fates = [Fate(LONG), Fate(LONG)]
        (job,) = world.enqueue("go", 1)
        pass_by(world, 2.0)
        world.isolate("a", 38.0)
        pass_by(world, 38.0)
        while len(started(world, job)) == 1:
            pass_by(world, 0.1)
        while world.nodes["a"].ledger.in_flight is None:  # so that one batch contains both
            pass_by(world, 0.0002)
        for worker in list(world.nodes["a"].workers.values()):
            assert worker.claim is not None
            worker.end(worker.claim, "done")
        pass_by(world, 2.0)
        assert attempts(world, job) == ["interrupted", "done"]
        assert world.tally["outcome refused"] == 1


def an_outage_costs_no_work(_: Stage) -> None:
    """Long jobs run everywhere while the server is away for 40 s: each is done once, in its first attempt."""
    with begin({"a": [GO], "b": [GO], "c": [GO]}) as world:
        world.planned_fates = [Fate(20.0 + 10 * nr) for nr in range(6)]
        jobs = world.enqueue("go", 6)
        pass_by(world, 3.0)
        world.outage(40.0)
        pass_by(world, 80.0)
        assert [attempts(world, job) for job in jobs] == [["done"]] * 6
        assert world.tally["expired"] == 0


def outages_with_a_short_lease(_: Stage) -> None:
    """The same, with a short lease: nodes that come back expire no others."""
    with begin({"a": [GO], "b": [GO], "c": [GO]}, lease=3.0) as world:
        world.planned_fates = [Fate(60.0) for _ in range(6)]
        jobs = world.enqueue("go", 6)
        for seconds in (12.0, 9.1, 20.0):
            pass_by(world, 4.0)
            world.outage(seconds)
            pass_by(world, seconds)
        pass_by(world, 40.0)
        assert [attempts(world, job) for job in jobs] == [["done"]] * 6
        assert world.tally["expired"] == 0


def work_that_must_not_overlap(_: Stage) -> None:
    """A node that is cut off ends the job, which does not yield, before another begins it; it is no failure."""
    for yields in (None, 5.0):
        with begin({"a": [STOP], "b": [STOP]}) as world:
            world.planned_fates = [Fate(LONG, yields=yields), Fate(5.0)]
            (job,) = world.enqueue("stop", 1)
            pass_by(world, 2.0)
            first = runs_on(world, job)
            assert first is not None
            world.isolate(first, 60.0)
            pass_by(world, 70.0)
            assert attempts(world, job) == ["interrupted", "done"]
            begun, again = started(world, job)
            assert again - begun < 40


def a_short_absence(_: Stage) -> None:
    """A node is back before its lease is over, but too late for the job: the job begins again, also there."""
    with begin({"a": [STOP], "b": [FEW]}) as world:
        pass_by(world, 40.0)
        world.planned_fates = [Fate(LONG, yields=1.0), Fate(5.0)]
        (job,) = world.enqueue("stop", 1)
        pass_by(world, 2.0)
        world.isolate("a", 24.0)
        pass_by(world, 40.0)
        assert attempts(world, job) == ["interrupted", "done"]


def stack_traces_that_take_long(_: Stage) -> None:
    """The time for stack traces is a part of the time that a job has which must not overlap."""
    with begin({"a": [STOP], "b": [STOP]}, cancel=1.0, stacks=17.0) as world:
        world.planned_fates = [Fate(LONG), Fate(5.0)]
        (job,) = world.enqueue("stop", 1)
        pass_by(world, 2.0)
        first = runs_on(world, job)
        assert first is not None
        world.isolate(first, 50.0)
        pass_by(world, 70.0)
        assert attempts(world, job) == ["interrupted", "done"]


def a_node_that_is_alone(_: Stage) -> None:
    """Nobody else writes: a node beats often enough that its work goes on, however little of its lease is left."""
    with begin({"a": [STOP]}, lease=10.0, cancel=5.75) as world:
        world.planned_fates = [Fate(60.0)]
        (job,) = world.enqueue("stop", 1)
        pass_by(world, 70.0)
        assert attempts(world, job) == ["done"]


def an_answer_that_comes_late(_: Stage) -> None:
    """The answer to a claim arrives when the lease is nearly over: the job is not begun."""
    with begin({"a": [STOP], "b": [STOP]}, lease=6.0, cancel=2.0, stacks=1.0) as world:
        world.noticed = (14.0, 15.0)
        world.planned_fates = [Fate(100.0), Fate(20.0), Fate(20.0)]
        world.enqueue("stop", 1)
        pass_by(world, 2.0)
        (job,) = world.enqueue("stop", 1)
        when(world, job, State.RUNNING, lambda name: world.isolate(name, 11.5, deaf=True))
        pass_by(world, 2.0)
        world.start("c", [STOP])
        pass_by(world, 60.0)
        assert (len(started(world, job)), attempts(world, job)) == (1, ["interrupted", "done"])


def an_answer_that_is_lost(_: Stage) -> None:
    """A claim is committed without an answer: no worker has the job, and it is given back. An outcome is not lost."""
    for state in (State.RUNNING, State.DONE):
        with begin({"a": [GO]}) as world:
            world.planned_fates = [Fate(3.0)]
            (job,) = world.enqueue("go", 1)
            when(world, job, state, lambda name, world=world: world.isolate(name, 20.0, deaf=True))
            pass_by(world, 60.0)
            assert (len(started(world, job)), attempts(world, job)) == (1, ["done"])
            assert world.tally["outcome refused"] == 0


def a_new_life_without_an_answer(_: Stage) -> None:
    """A node begins a new life, and the answer is lost: it begins another one at once, although its name is taken."""
    with begin({"a": [GO], "b": [FEW]}) as world:
        world.noticed = (2.0, 3.0)
        world.planned_fates = [Fate(LONG, yields=1.0), Fate(1.0)]
        (job,) = world.enqueue("go", 1)
        pass_by(world, 2.0)
        world.isolate("a", 40.0)
        pass_by(world, 39.0)
        assert runs_on(world, job) is None
        usual = world.server.committed

        def committed(before: Tables, after: Tables) -> None:
            usual(before, after)
            if any(row.name == "a" for row in after.nodes.values()):
                world.server.committed = usual
                world.isolate("a", 4.0, deaf=True)

        world.server.committed = committed
        pass_by(world, 45.0)
        assert world.tally["new life"] == 1, "the first one is not known to the node"
        assert not [text for _, text in world.history if "another node with the name" in text]
        assert [attempts(world, job), len(started(world, job))] == [["interrupted", "done"], 2]


def a_release_that_a_failover_forgot(_: Stage) -> None:
    """A node cancels a job that another has taken. Then the server forgets that: the job is not cancelled for good."""
    with begin({"a": [GO], "b": [GO]}) as world:
        world.planned_fates = [Fate(LONG, yields=8.0), Fate(LONG, yields=8.0), Fate(5.0)]
        (job,) = world.enqueue("go", 1)
        pass_by(world, 2.0)
        first = runs_on(world, job)
        assert first is not None
        world.isolate(first, 36.0)
        while not world.tally["new life"]:
            pass_by(world, 1.0)
        (expired_at,) = [when for when, text in world.history if "expires" in text]
        world.outage(0.1, lag=world.now - expired_at + 0.5)
        pass_by(world, 1.0)
        assert runs_on(world, job) == first
        pass_by(world, 60.0)
        assert attempts(world, job)[-1] == "done"


def an_outcome_that_a_failover_forgot(_: Stage) -> None:
    """The claim is known to the new server: its node writes the outcome again, and the job does not run again."""
    with begin({"a": [GO], "b": [FEW]}) as world:
        world.planned_fates = [Fate(9.0, "child"), Fate(1.0)]
        (job,) = world.enqueue("go", 1)
        when(world, job, State.DONE, lambda _: world.after(0.5, lambda: world.outage(0.1, lag=2.0)))
        pass_by(world, 30.0)
        assert world.tally["outcome repeated"] == 1
        assert (len(started(world, job)), attempts(world, job)) == (1, ["done"])


def a_claim_that_was_given_back_and_a_failover_that_forgot_it(_: Stage) -> None:
    """The new server has a claim that its node does not know: the job is queued again, and not stuck."""
    with begin({"a": [GO]}) as world:
        world.planned_fates = [Fate(1.0)]
        (job,) = world.enqueue("go", 1)

        def forget(_: str) -> None:
            world.after(1e-4, lambda: world.outage(0.1, lag=2e-4))

        def lose_the_answer(name: str) -> None:
            world.isolate(name, 20.0, deaf=True)
            when(world, job, State.QUEUED, forget)

        when(world, job, State.RUNNING, lose_the_answer)
        pass_by(world, 30.0)
        assert attempts(world, job) == ["interrupted", "done"]


def a_failover_while_a_node_is_cut_off(_: Stage) -> None:
    """No session of the old server is left, which proves nothing: the node has its whole lease to stop its work."""
    with begin({"a": [STOP], "b": [STOP]}) as world:
        world.planned_fates = [Fate(LONG), Fate(5.0)]
        (job,) = world.enqueue("stop", 1)
        pass_by(world, 2.0)
        first = runs_on(world, job)
        assert first is not None
        world.isolate(first, 60.0)
        world.outage(1.0, lag=0.1)
        pass_by(world, 70.0)
        assert attempts(world, job) == ["interrupted", "done"]


def a_job_that_ends_its_node(_: Stage) -> None:
    """One job ends every node that runs it: it is found and fails, and the others are done."""
    with begin({name: [GO] for name in "abcdefgh"}) as world:
        world.planned_fates = [Fate(3.0) for _ in range(20)]
        jobs = world.enqueue("go", 20)
        usual = world.fate
        world.fate = lambda claim: Fate(2.0, "end the node") if claim.id == jobs[7] else usual(claim)
        pass_by(world, 500.0)
        assert [attempts(world, job)[-1] for job in jobs if job != jobs[7]] == ["done"] * 19
        assert attempts(world, jobs[7]) == ["interrupted", "crashed", "crashed", "crashed"]
        assert world.tally["node ended by a job"] == 4


def a_node_that_did_not_die(_: Stage) -> None:
    """Others took a node for dead that was only cut off: its jobs are not to blame, and run at once when it is back."""
    with begin({"a": [GO], "b": [FEW]}) as world:
        world.planned_fates = [Fate(LONG, yields=0.1), Fate(LONG, yields=0.1), Fate(60.0), Fate(60.0)]
        jobs = world.enqueue("go", 2)
        pass_by(world, 2.0)
        world.isolate("a", 40.0)
        pass_by(world, 50.0)
        assert [runs_on(world, job) for job in jobs] == ["a", "a"]
        assert not world.server.tables.suspects


def limits_of_all_nodes(_: Stage) -> None:
    """The smallest limit of all nodes counts, for all of them together, and for each key."""
    many = Crew(name="few", workers=4, limit=5, limit_per_key=2)
    with begin({"a": [many], "b": [FEW], "c": [many]}) as world:
        world.planned_fates = [Fate(20.0), *(Fate(5.0) for _ in range(20))]
        jobs = world.enqueue("few", 12, ["x", "y", None, None])
        pass_by(world, 1.5)
        assert sum(runs_on(world, job) is not None for job in jobs) == 3
        pass_by(world, 90.0)
        assert [attempts(world, job) for job in jobs] == [["done"]] * 12


def rates_of_all_nodes(_: Stage) -> None:
    """All rates of all nodes count, for all of them together, whatever is killed; a job starts when they admit it."""
    slow, burst = Crew(name="paced", workers=3, rate="4/min"), Crew(name="paced", workers=3, rate="2/s")
    with begin({"a": [slow], "b": [burst], "c": [burst]}) as world:
        world.planned_fates = [Fate(0.02) for _ in range(40)]
        world.run(10.0)
        jobs = world.enqueue("paced", 9)
        world.run(20.0)
        world.kill("b", 5.0)
        world.run(40.0)
        world.kill("c", 1.0)
        world.run(140.0)
        times = sorted(when for job in jobs for when in started(world, job))
        assert len(times) == 9
        assert all(later - at >= 0.95 for at, later in zip(times, times[2:], strict=False)), times
        assert all(59.95 <= later - at < 60.1 for at, later in zip(times, times[4:], strict=False)), times


def rates_of_keys(_: Stage) -> None:
    """Each key has its own rate: its jobs wait for it, and those of others do not wait for them."""
    paced = Crew(name="paced", workers=8, rate_per_key="2/min")
    with begin({"a": [paced], "b": [paced]}) as world:
        world.planned_fates = [Fate(0.02) for _ in range(40)]
        world.run(10.0)
        of_x = world.enqueue("paced", 5, ["x"])
        others = world.enqueue("paced", 4, ["y", None])
        world.run(140.0)
        times = sorted(when for job in of_x for when in started(world, job))
        expected = [10.0, 10.0, 70.0, 70.0, 130.0]
        assert all(0 <= when - at < 0.5 for when, at in zip(times, expected, strict=True)), times
        assert all(started(world, job)[0] < 11.5 for job in others)


def rates_and_kills(_: Stage) -> None:
    """A node is killed with the jobs that its workers have just begun: these count as started in its next life."""
    paced = Crew(name="paced", workers=3, rate="3/min")
    with begin({"a": [paced]}) as world:
        world.planned_fates = [Fate(LONG), Fate(LONG), Fate(LONG), *(Fate(0.02) for _ in range(20))]
        jobs = world.enqueue("paced", 5)
        when(world, jobs[0], State.RUNNING, lambda name: world.after(0.03, lambda: world.kill(name, 1.0)))
        pass_by(world, 300.0)
        assert [attempts(world, job)[0] for job in jobs] == ["interrupted"] * 3 + ["done"] * 2
        assert all(attempts(world, job)[-1] == "done" for job in jobs)


def a_claim_that_is_a_start(_: Stage) -> None:
    """However short the jobs are, none is claimed before a worker is free for it, and each when its rate admits it."""
    with begin({"a": [Crew(name="paced", rate="10/min")]}) as world:
        world.latency = lambda: 0.0001
        world.planned_fates = [Fate(0.005) for _ in range(25)]
        jobs = world.enqueue("paced", 25)
        pass_by(world, 125.0)
        begun = sorted(when for job in jobs for when in started(world, job))
        claimed = sorted(at_ms for at_ms, *_ in world.oracle.starts().values())
        assert all(at - at_ms / 1000 < 0.002 for at, at_ms in zip(begun, claimed, strict=True)), (begun, claimed)
        assert all(59.99 < later - at < 60.01 for at, later in zip(begun, begun[10:], strict=False)), begun


def a_start_that_is_given_back(_: Stage) -> None:
    """A node is cut off when its claim is committed: no worker has the job, and its start does not count."""
    paced = Crew(name="paced", rate="1/h")
    with begin({"a": [paced]}) as world:
        world.planned_fates = [Fate(0.02)]
        (job,) = world.enqueue("paced", 1)
        when(world, job, State.RUNNING, lambda name: world.isolate(name, 20.0, deaf=True))
        pass_by(world, 60.0)
        assert attempts(world, job) == ["done"]


def a_node_that_starts_again(_: Stage) -> None:
    """On the same machine its predecessor is proven dead, and its jobs go on at once; elsewhere the lease decides."""
    for elsewhere, soonest, latest in ((False, 1.0, 4.0), (True, 10.0, 14.0)):
        with begin({"a": [GO]}) as world:
            world.planned_fates = [Fate(LONG), Fate(1.0)]
            (job,) = world.enqueue("go", 1)
            pass_by(world, 2.0)
            killed_at = world.now
            world.kill("a", 1.0, elsewhere=elsewhere)
            pass_by(world, 30.0)
            assert attempts(world, job) == ["interrupted", "done"]
            assert soonest <= started(world, job)[1] - killed_at <= latest


def notifications_and_their_loss(_: Stage) -> None:
    """A job starts at once on a node that is notified. If all notifications are lost, it waits for the next poll."""
    for lost, most in ((0.0, 0.15), (1.0, 1.1)):
        with begin({"a": [GO], "b": [GO]}) as world:
            world.lost_notifications = lost
            for seconds in (0.1, 0.35, 0.6, 0.85) * 3:
                (job,) = world.enqueue("go", 1)
                asked_at = world.now
                world.planned_fates = [Fate(0.01)]
                pass_by(world, 5.0 + seconds)
                assert started(world, job)[0] - asked_at <= most


def jobs_that_come_together(_: Stage) -> None:
    """An application does not report a job that follows another one at once: it starts at once all the same."""
    with begin({"a": [GO], "b": [GO]}) as world:
        world.lost_notifications, world.notified_after = 0.0, (0.0001,)
        world.latency = lambda: 0.0001
        world.planned_fates = [Fate(10.0), Fate(10.0)]
        pass_by(world, 0.2)  # the nodes poll at other times
        jobs = world.enqueue("go", 1)
        pass_by(world, NOTIFY_EVERY * 0.9)
        assert started(world, jobs[0])
        jobs += world.enqueue("go", 1)
        pass_by(world, 0.05)
        assert started(world, jobs[1])


CLUSTER: dict[str, Callable[[Stage], None]] = {
    play.__name__.replace("_", " "): play
    for play in (
        a_claim_that_a_failover_forgot,
        a_node_that_others_took_for_dead,
        two_attempts_of_one_job,
        an_outage_costs_no_work,
        outages_with_a_short_lease,
        work_that_must_not_overlap,
        a_short_absence,
        stack_traces_that_take_long,
        a_node_that_is_alone,
        an_answer_that_comes_late,
        an_answer_that_is_lost,
        a_new_life_without_an_answer,
        a_release_that_a_failover_forgot,
        an_outcome_that_a_failover_forgot,
        a_claim_that_was_given_back_and_a_failover_that_forgot_it,
        a_failover_while_a_node_is_cut_off,
        a_job_that_ends_its_node,
        a_node_that_did_not_die,
        limits_of_all_nodes,
        rates_of_all_nodes,
        rates_of_keys,
        rates_and_kills,
        a_claim_that_is_a_start,
        a_start_that_is_given_back,
        a_node_that_starts_again,
        notifications_and_their_loss,
        jobs_that_come_together,
    )
}
