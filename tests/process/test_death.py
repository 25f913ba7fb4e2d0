"""Whoever dies, nothing is lost, nothing is done by a ghost, and nobody is left behind."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from scripted_app import LIVELY, QUICK
from world import Started, World, gone

from chargehand import Chargehand, JobFailed, JobFilter, LivenessPolicy, NobodyServes, clock
from chargehand.host import calls
from chargehand.log import Event
from chargehand.model.job import State
from chargehand.model.records import Holder
from chargehand.processes import proc
from chargehand.processes.child import launch
from chargehand.processes.leftovers import Life, kill_leftovers
from chargehand.stores import open_store
from chargehand.testing import eventually

KILLS = int(os.environ.get("CHARGEHAND_TEST_KILLS", "15"))
"""`make chaos` kills hundreds."""
Work = Callable[..., Started]
MakeHand = Callable[..., Chargehand]


def test_a_killed_workers_job_runs_again_on_a_sibling_every_time(  # spec: WK-6 SV-2
    hand: Chargehand, world: World
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=3)
    with hand.running():
        for _ in range(KILLS):
            hit_gate, calm_gate = world.gate(), world.gate()
            hit, calm = world.put(do, hit_gate), world.put(do, calm_gate)
            first, untouched = world.started(hit), world.started(calm)
            os.kill(first, signal.SIGKILL)
            second = world.started(hit, times=2)
            hit_gate.touch()
            calm_gate.touch()
            assert (hit.wait(20), calm.wait(20)) == (1, 1)
            assert world.starts(hit) == [first, second]
            assert world.starts(calm) == world.ends(calm) == [untouched]
            assert second not in (first, untouched)
            job = hit.job()
            assert (job.state, job.attempts, job.crashes, job.interruptions) == (State.DONE, 0, 1, 0)
            assert [(a.outcome, a.pid) for a in hit.attempts()] == [("crashed", first), ("done", second)]


def test_a_job_that_kills_three_workers_is_quarantined(hand: Chargehand, world: World) -> None:  # spec: WK-6
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    with hand.running():
        poison = world.put(do, end="exit", code=7)
        with pytest.raises(JobFailed, match="poison"):
            poison.wait(30)
        assert world.put(do).wait(20) == 1
    job = poison.job()
    assert (job.state, job.reason, job.crashes, job.attempts) == (State.FAILED, "poison", 3, 0)
    assert len(world.starts(poison)) == 3
    assert "exit code 7" in (job.error or "")


def test_an_outcome_sent_before_the_death_counts(hand: Chargehand, world: World) -> None:  # spec: SV-2
    do = hand.crew("do", "dying_handlers:DiesAfter", workers=2)
    with hand.running() as host:
        for _ in range(5):
            gate = world.gate()
            ref = world.put(do, gate)
            pid = world.started(ref)
            # The node is held while the worker speaks and dies, so that it finds both at the same moment.
            assert host.node_pid
            os.kill(host.node_pid, signal.SIGSTOP)
            gate.touch()
            eventually(lambda pid=pid: gone(pid))
            os.kill(host.node_pid, signal.SIGCONT)
            assert ref.wait(30) == "said"
            assert (ref.job().crashes, len(world.starts(ref))) == (0, 1)


def test_children_of_a_killed_worker_die_with_it(hand: Chargehand, world: World) -> None:  # spec: WP-1
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        ref = world.put(do, gate, children=["sleep", "fork", "session", "daemon", "stranger"])
        pid = world.started(ref)
        first = world.children_of(5)
        os.kill(pid, signal.SIGKILL)
        world.started(ref, times=2)
        # When the job runs again, nothing of its first life may be there any more.
        assert [child for child in first if not gone(child)] == []
        gate.touch()
        ref.wait(20)
    assert [child for child in world.children() if not gone(child)] == []


@pytest.mark.parametrize("into", ["work", "pulse", "another job's outcome"])
def test_a_worker_that_talks_nonsense_is_replaced(hand: Chargehand, world: World, into: str) -> None:  # spec: SV-8
    talk = hand.crew("talk", "dying_handlers:Garbler", workers=2)
    with hand.running() as host:
        assert host.ready.wait(20)
        node = host.node_pid
        ref = world.put(talk, into=into)
        with pytest.raises(JobFailed, match="poison"):
            ref.wait(30)
        assert "bad frame" in (ref.job().error or "")
        assert world.put(talk, into="nothing").wait(20) == "said"
        assert host.node_pid == node


def all_pids(started: Started) -> list[int]:
    view = started.ready()
    return [view["pid"], *(worker["pid"] for worker in view["workers"])]


def test_a_killed_host_leaves_nobody_and_loses_nothing(world: World, work: Work) -> None:  # spec: WP-7
    first = work()
    pids = all_pids(first)
    short, stuck = world.gate(), world.gate()
    do = first.hand.crew("do", "scripted_handlers:Doer")
    finishing = world.put(do, short, children=["sleep"])
    unfinished = world.put(do, stuck, children=["sleep", "fork"])
    world.started(finishing)
    world.started(unfinished)
    eventually(lambda: len(world.children()) == 3)
    first.kill()
    first.end()
    eventually(lambda: (first.view() or {}).get("stopping"))
    short.touch()
    eventually(lambda: all(gone(pid) for pid in (*pids, *world.children())), LIVELY.grace + 5)
    # What could finish within the grace was settled; what could not is queued, unharmed.
    assert finishing.job().state is State.DONE
    job = unfinished.job()
    assert (job.state, job.interruptions, job.crashes, job.attempts) == (State.QUEUED, 1, 0, 0)
    stuck.touch()
    work()
    assert unfinished.wait(20) == 1
    assert len(world.ends(unfinished)) == len(world.ends(finishing)) == 1


def test_an_idle_nodes_host_is_killed(world: World, work: Work) -> None:  # spec: WP-7
    started = work()
    pids = all_pids(started)
    started.kill()
    started.end()
    eventually(lambda: all(gone(pid) for pid in pids), 5)


def test_a_killed_node_is_replaced_and_its_workers_are_gone(world: World, work: Work) -> None:  # spec: WP-7
    started = work()
    gate = world.gate()
    do = started.hand.crew("do", "scripted_handlers:Doer")
    node, *workers = all_pids(started)
    ref = world.put(do, gate, children=["sleep", "fork", "session", "daemon", "stranger"])
    world.started(ref)
    children = world.children_of(5)
    lives = Path(f"{world.store}-lives")
    eventually(lambda: str(children[-1]) in lives.read_text(), what="the one without a mark is recorded")
    os.kill(node, signal.SIGKILL)
    eventually(lambda: all(gone(pid) for pid in workers), 5, what="workers die with their node")
    world.started(ref, times=2)
    assert [child for child in children if not gone(child)] == []
    gate.touch()
    assert ref.wait(20) == 1
    job = ref.job()
    assert (job.interruptions, job.crashes, job.attempts) == (1, 0, 0)
    assert started.ready()["pid"] != node
    assert len(world.ends(ref)) == 1


def test_a_node_that_dies_while_the_store_is_unusable_is_replaced_later(world: World, work: Work) -> None:  # spec: WP-7
    started = work()
    do = started.hand.crew("do", "scripted_handlers:Doer")
    node = started.ready()["pid"]
    world.put(do).wait(20)
    store, aside = Path(world.store), Path(f"{world.store}-aside")
    store.rename(aside)
    store.write_text("not a database " * 50)
    os.kill(node, signal.SIGKILL)
    eventually(lambda: started.log.read_text().count("the store cannot be used") > 1 or started.process.poll())
    assert started.process.poll() is None
    aside.replace(store)
    assert world.put(do).wait(30) == 1
    started.kill(signal.SIGTERM)
    assert started.end() == 0


def test_host_and_node_are_killed_together(world: World, work: Work) -> None:  # spec: WP-7 SV-11
    first = work()
    gate = world.gate()
    do = first.hand.crew("do", "scripted_handlers:Doer")
    node, *workers = all_pids(first)
    ref = world.put(do, gate, children=["sleep", "fork", "daemon"])
    world.started(ref)
    children = world.children_of(3)
    for pid in (first.process.pid, node):
        os.kill(pid, signal.SIGSTOP)  # so that neither can act on the other's death
    for pid in (first.process.pid, node):
        os.kill(pid, signal.SIGKILL)
    first.end()
    eventually(lambda: all(gone(pid) for pid in (node, *workers)), 5)
    assert ref.job().state is State.RUNNING
    work()
    world.started(ref, times=2)
    assert [child for child in children if not gone(child)] == []
    gate.touch()
    assert ref.wait(20) == 1
    job = ref.job()
    assert (job.interruptions, job.crashes) == (1, 0)
    assert len(world.ends(ref)) == 1


def test_a_stopped_worker_is_declared_dead_and_never_comes_back(  # spec: SV-6 WK-4
    hand: Chargehand, world: World
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gate = world.gate()
    with hand.running():
        ref = world.put(do, gate)
        first = world.started(ref)
        os.kill(first, signal.SIGSTOP)
        second = world.started(ref, times=2)
        assert gone(first)
        with pytest.raises(ProcessLookupError):
            os.kill(first, signal.SIGCONT)
        gate.touch()
        ref.wait(20)
        assert world.ends(ref) == [second]
    assert [(a.outcome, a.pid) for a in ref.attempts()] == [("crashed", first), ("done", second)]
    assert "heartbeat timeout" in (ref.attempts()[0].error or "")


def take_away(world: World) -> None:
    """Give every running job back to its queue, as a successor does that has proof of its holder's death."""
    store = open_store(str(world.store))
    with store.transaction() as tx:
        assert tx.jobs.recover(Holder("somebody", "another life"), "declared dead")
    store.close()


def test_the_late_outcome_of_one_declared_dead_changes_nothing(  # spec: WK-4
    world: World, make_hand: MakeHand
) -> None:
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, silent=60))
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gates = world.gate(), world.gate()
    with hand.running():
        ref = world.put(do, gates[0], result="r")
        ghost = world.started(ref)
        os.kill(ghost, signal.SIGSTOP)
        take_away(world)
        second = world.started(ref, times=2)
        gates[0].touch()
        assert ref.wait(20) == "r"
        settled = ref.job()
        os.kill(ghost, signal.SIGCONT)
        eventually(lambda: ghost in world.ends(ref), what="the ghost wakes and finishes")
        after = world.put(do)
        after.wait(20)  # so the ghost's outcome has been through the store, too, or comes before this one's
        eventually(lambda: all(w["current_job"] is None for w in (hand.status() or {})["workers"]))
        assert ref.job() == settled
        assert [(a.outcome, a.pid) for a in ref.attempts()] == [("interrupted", None), ("done", second)]


def test_a_ghost_writes_none_of_its_own_rows_either(world: World, make_hand: MakeHand) -> None:  # spec: WK-4
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, silent=60))
    settle = hand.crew("settle", "scripted_handlers:Settler", workers=2, transactional=True)
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT, worker INTEGER)")
    gate = world.gate()
    with hand.running():
        ref = world.put(settle, gate, title="once")
        ghost = world.started(ref)
        os.kill(ghost, signal.SIGSTOP)
        take_away(world)
        second = world.started(ref, times=2)
        gate.touch()
        assert ref.wait(20) == {"by": second}
        os.kill(ghost, signal.SIGCONT)
        # Both workers take a new job, so the ghost has been through with its old one.
        last = world.gate()
        held = [world.put(settle, last, title=f"next {n}") for n in range(2)]
        assert {world.started(each) for each in held} == {ghost, second}
        last.touch()
        for each in held:
            each.wait(20)
    with hand.transaction() as tx:
        assert tx.execute("SELECT worker FROM song WHERE title = 'once'") == [(second,)]
    assert [a.outcome for a in ref.attempts()] == ["interrupted", "done"]


def test_a_stopped_node_kills_nobody_when_it_goes_on(hand: Chargehand, world: World) -> None:  # spec: SV-3
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gate = world.gate()
    with hand.running() as host:
        ref = world.put(do, gate)
        pid = world.started(ref)
        assert host.node_pid
        os.kill(host.node_pid, signal.SIGSTOP)
        until = clock.monotonic() + 3 * LIVELY.silent
        eventually(lambda: clock.monotonic() >= until)
        os.kill(host.node_pid, signal.SIGCONT)
        eventually(lambda: hand.status())
        gate.touch()
        assert ref.wait(20) == 1
        assert [w["restart_count"] for w in (hand.status() or {})["workers"]] == [0, 0]
    assert world.starts(ref) == [pid]


def test_a_stopped_node_drops_requests_whose_callers_went_on_without_it(  # spec: WK-2 WK-8 PD-1
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running() as host:
        eventually(lambda: hand.status())
        retried = do.enqueue(None, delay=3600)
        assert host.node_pid
        with hand.transaction():  # so that it is not stopped within a transaction: nobody else could write
            os.kill(host.node_pid, signal.SIGSTOP)
            eventually(lambda: (found := proc.stat(host.node_pid or 0)) and found.state == "T")
        monkeypatch.setattr(calls, "CALL_TIMEOUT", 0.2)
        with hand.transaction() as tx:
            first = do.enqueue(None, delay=3600, key="k", within=tx)
        again = do.enqueue(None, delay=3600, key="k")
        assert (again.id, again.created) == (first.id, False)
        hand.cancel(retried.id, first.id)
        hand.retry(retried.id)
        with pytest.raises(NobodyServes, match="drops the request"):
            hand.pause("do")
        with pytest.raises(NobodyServes, match="drops the request"):
            hand.scale("do", 3)
        monkeypatch.undo()
        os.kill(host.node_pid, signal.SIGCONT)
        new = do.enqueue(None, delay=3600)  # behind the others, and through the node
        assert new.created
        states = {job.id: job.state for job in hand.jobs(JobFilter())}
        assert states.pop(retried.id) is not State.CANCELLED
        assert states == {first.id: State.CANCELLED, new.id: State.QUEUED}
        assert hand.pauses() == []
        assert len((hand.status() or {})["workers"]) == 1


def test_what_a_node_has_made_of_a_request_it_did_not_answer_is_the_callers_own(
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: WK-2
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        eventually(lambda: hand.status())
        reply = calls.Connection.reply

        def lost(line: calls.Connection, call: int, timeout: float) -> None:
            reply(line, call, timeout)

        monkeypatch.setattr(calls.Connection, "reply", lost)
        assert do.enqueue(None, delay=3600).created


def test_sigterm_lets_the_job_finish_and_the_worker_is_replaced(hand: Chargehand, world: World) -> None:  # spec: WP-6
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        ref = world.put(do, gate)
        first = world.started(ref)
        os.kill(first, signal.SIGTERM)
        eventually(lambda: (hand.status() or {})["workers"][0]["status"] == "stopping")
        gate.touch()
        assert ref.wait(20) == 1
        eventually(lambda: gone(first))
        assert world.put(do).wait(20) == 1
        (worker,) = (hand.status() or {})["workers"]
        assert (worker["status"], worker["restart_count"]) == ("healthy", 1)
        (report,) = eventually(hand.crashes)
        assert (report.reason, report.exit_code, report.pid, report.job) == ("exited", 0, first, None)
    assert world.starts(ref) == [first]
    assert ref.job().interruptions == 0


def test_a_second_sigterm_kills(hand: Chargehand, world: World) -> None:  # spec: WP-6
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        ref = world.put(do, gate, children=["sleep"])
        first = world.started(ref)
        os.kill(first, signal.SIGTERM)
        eventually(lambda: (hand.status() or {})["workers"][0]["status"] == "stopping")
        os.kill(first, signal.SIGTERM)
        second = world.started(ref, times=2)
        gate.touch()
        ref.wait(20)
    assert world.ends(ref) == [second]
    job = ref.job()
    assert (job.interruptions, job.crashes) == (1, 0)


def test_a_stop_gives_back_what_does_not_finish_in_the_grace(  # spec: WP-6 PD-3
    world: World, make_hand: MakeHand
) -> None:
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, grace=0.3, terminate=0.2))
    do = hand.crew("do", "scripted_handlers:Doer", workers=4)
    gate = world.gate()
    with hand.running():
        refs = [world.put(do, gate, children=["sleep"]) for _ in range(6)]
        eventually(lambda: len(world.children()) == 4)
    assert [child for child in world.children() if not gone(child)] == []
    assert [ref.job().state for ref in refs] == [State.QUEUED] * 6
    assert sorted(ref.job().interruptions for ref in refs) == [0, 0, 1, 1, 1, 1]
    assert [ref.job().crashes for ref in refs] == [0] * 6


def test_a_second_node_waits_and_takes_over(world: World, work: Work) -> None:  # spec: SV-11
    first = work()
    node = first.ready()["pid"]
    second = work()
    eventually(lambda: f"event={Event.NODE_STANDBY}" in second.log.read_text())
    do = first.hand.crew("do", "scripted_handlers:Doer")
    assert world.put(do).wait(20) == 1
    first.kill(signal.SIGINT)
    assert first.end() == 0
    view = eventually(lambda: (v := second.view()) and v["pid"] != node and v)
    assert view
    second.ready()
    assert world.put(do).wait(20) == 1
    assert second.log.read_text().count(f"event={Event.NODE_STANDBY}") == 1


def test_the_nodes_death_while_nobody_can_write(world: World, work: Work) -> None:  # spec: SV-3
    """What was recorded of processes does not need the store: even so, nobody is left behind."""
    started = work()
    node, *workers = all_pids(started)
    lives = Path(f"{world.store}-lives").read_text()
    assert all(str(pid) in lives for pid in workers)
    hold = open_store(str(world.store))
    with hold.transaction():
        os.kill(node, signal.SIGKILL)
        eventually(lambda: all(gone(pid) for pid in workers), 5)
    hold.close()
    assert started.ready()["pid"] != node


def test_pids_are_told_apart_by_their_start(world: World) -> None:  # spec: SV-11
    """A process that merely has the pid of an earlier worker is nobody's to kill."""
    innocent = launch("import time; time.sleep(60)", "x", mark="mine", pass_fds=[], env=os.environ, name="innocent")
    life = Life(boot=proc.boot_id(), pid=innocent.pid, start=innocent.start - 1, component="worker:do:0")
    other_boot = Life(boot="another", pid=innocent.pid, start=innocent.start, component="worker:do:0")
    # It leads a session whose number is its pid, but it started before, so it cannot descend from that worker.
    assert kill_leftovers([other_boot], "nobody/", 1.0) == []
    assert proc.alive(innocent.pid, innocent.start)
    assert life.start < innocent.start
    innocent.signal(signal.SIGKILL)
    assert innocent.wait(5)
    assert innocent.exit() == (None, signal.SIGKILL)
    innocent.close()


assert QUICK.rapid_limit > KILLS


def test_a_job_that_kills_its_node_is_charged_and_nobody_else(hand: Chargehand, world: World) -> None:  # spec: RP-10
    end = hand.crew("end", "dying_handlers:EndsItsNode", workers=2)
    with hand.running() as host:
        assert host.ready.wait(20)
        guilty = world.put(end, kills=2)
        others = [world.put(end) for _ in range(6)]
        assert guilty.wait(30) == 3
        for other in others:
            other.wait(20)
    job = guilty.job()
    assert (job.state, job.crashes, job.interruptions, job.attempts) == (State.DONE, 1, 1, 0)
    assert [attempt.outcome for attempt in guilty.attempts()] == ["interrupted", "crashed", "done"]
    assert "the node died" in (guilty.attempts()[1].error or "")
    assert [other.job().crashes for other in others] == [0] * 6


def test_a_node_that_is_killed_while_it_stops_makes_no_suspects(make_hand: MakeHand, world: World) -> None:
    """spec: RP-10. The host kills a node that does not stop in time; the job is as innocent as with any other stop."""
    hand = make_hand(liveness=LivenessPolicy(grace=30.0))
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running() as host:
        ref = world.put(do, gate)
        world.started(ref)
        node = host.node_pid
        assert node
        os.kill(node, signal.SIGTERM)
        eventually(lambda: (hand.status() or {}).get("stopping"))
        os.kill(node, signal.SIGKILL)
        world.started(ref, times=2)
        with closing(open_store(str(world.store))) as store, store.transaction() as tx:
            assert tx.execute("SELECT * FROM chargehand_suspect") == []
        gate.touch()
        assert ref.wait(20) == 1
