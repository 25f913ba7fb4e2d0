"""Health as others read it: rows that show no more than is known, the verdict, queues that nobody serves."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from operating import FAULTY, WRONG, become, command, pids, serving, workers
from world import World

from chargehand import Chargehand, LivenessPolicy, RestartPolicy
from chargehand.log import Event
from chargehand.stores import open_store
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]
ONCE = "once:{}:{}"


def test_rows_say_who_it_really_is(hand: Chargehand, world: World) -> None:  # spec: HP-2 HP-4 HP-5 HP-8
    do = hand.crew("do", "scripted_handlers:Doer", workers=2)
    gate = world.gate()
    with hand.running() as host:
        become(hand, "healthy")
        rows = eventually(lambda: len(hand.health("healthy")) == 3 and {r.component: r for r in hand.health()})
        assert isinstance(rows, dict)
        assert set(rows) == {"app", "worker:do:0", "worker:do:1"}
        assert rows["app"].pid == host.node_pid
        for name, worker in workers(hand).items():
            row = rows[f"worker:{name}"]
            assert (row.pid, row.incarnation) == (worker["pid"], worker["incarnation"])
            environment = Path(f"/proc/{row.pid}/environ").read_text()
            assert row.incarnation
            assert row.incarnation in environment  # that very process carries it
            assert (row.restart_count, row.last_restart_ms, row.current_job, row.crew) == (0, None, None, "do")
            assert (row.is_healthy, row.node, row.exit_code, row.signal) == (True, hand.node_name, None, None)
            assert row.metadata["memory"] is None or row.metadata["memory"] > 0
        assert all(hand.is_healthy(component) for component in rows)
        assert (hand.component("nobody"), hand.is_healthy("nobody"), hand.health("failed")) == (None, False, [])
        ref = world.put(do, gate)
        pid = world.started(ref)
        (busy,) = [name for name, worker in pids(hand).items() if worker == pid]
        os.kill(pid, signal.SIGKILL)
        world.started(ref, times=2)
        become(hand, "healthy")

        def reborn() -> Any:
            row = hand.component(f"worker:{busy}")
            return row and row.restart_count == 1 and row.pid and row.status == "healthy" and row

        row = eventually(reborn)
        assert (row.signal, row.pid) == (signal.SIGKILL, pids(hand)[busy])
        assert row.incarnation not in {r.incarnation for r in rows.values()}
        assert row.last_restart_ms >= rows["app"].created_at_ms
        gate.touch()
        assert ref.wait(30) == 1
    assert hand.health() == []  # a clean stop wipes them
    assert hand.verdict().status == "error"
    assert hand.verdict().reasons == ("no node runs: no jobs are performed",)


def test_rows_of_the_dead_are_not_believed(world: World) -> None:  # spec: HP-3 HP-4 HP-2
    crews = "hand.crew('do', 'scripted_handlers:Doer', workers=2)"
    with serving(world, crews) as served:
        become(served.hand, "healthy")
        eventually(lambda: len(served.hand.health("healthy")) == 3)
        assert served.hand.verdict().status == "healthy"
        old = {row.incarnation for row in served.hand.health()}
        served.die_with_the_node()
        eventually(lambda: not any(row.pid for row in served.hand.health()), what="workers die with their node")
        rows = served.hand.health()
        assert [row.component for row in rows] == ["app", "worker:do:0", "worker:do:1"]
        assert [(row.status, row.pid, row.is_healthy) for row in rows] == [("unknown", None, False)] * 3
        assert not any(served.hand.is_healthy(row.component) for row in rows)
        found = served.hand.verdict()
        assert (found.status, found.reasons[0]) == ("error", "no node runs: no jobs are performed")
    with serving(world, crews) as served:
        become(served.hand, "healthy")
        eventually(lambda: len(served.hand.health("healthy")) == 3)
        workers_now = {row.incarnation for row in served.hand.health() if row.component != "app"}
        assert not workers_now & old
        assert served.hand.verdict().status == "healthy"


def test_the_node_beats_and_keeps_a_history(make_hand: MakeHand, world: World) -> None:  # spec: HP-7 HP-6 HP-5
    hand = make_hand(history=True)
    do = hand.crew("do", "scripted_handlers:Doer", workers=1)
    gate = world.gate()
    with hand.running():
        become(hand, "healthy")
        ref = world.put(do, gate)
        first = eventually(lambda: (row := hand.component("app")) and row.last_heartbeat_ms)
        assert first
        (taken,) = eventually(hand.history)
        own, worker = json.loads(bytes(taken.components))
        assert (own["component"], own["status"]) == ("app", "healthy")
        assert (worker["component"], worker["status"]) == ("worker:do:0", "healthy")
        assert worker["pid"] == pids(hand)["do:0"]

        def beat() -> int:
            row = hand.component("app")
            return (row.last_heartbeat_ms or 0) if row else 0

        later = eventually(lambda: beat() > first and beat())
        assert 4000 < later - first < 20_000
        held = eventually(lambda: [row for row in hand.health() if row.current_job], what="with the next beat")
        assert [hand.job(str(row.current_job)).id for row in held] == [ref.id]
        gate.touch()
        assert ref.wait(30) == 1
        assert hand.is_healthy("app", max_age=20)
        assert not hand.is_healthy("app", max_age=0)
    assert hand.history()[0] == taken  # it stays
    assert hand.history(since_ms=taken.timestamp_ms + 60_000) == []


def agree(hand: Chargehand, status: str, *words: str) -> None:
    """The node and the store say the same, in these words."""

    def told() -> bool:
        seen = (hand.status() or {}).get("verdict") or {}
        kept = hand.verdict()
        both = (" ".join(seen.get("reasons", ())), " ".join(kept.reasons))
        return {seen.get("status"), kept.status} == {status} and all(w in text for w in words for text in both)

    eventually(told, 30, what=f"{status} {words}; {hand.verdict()} {(hand.status() or {}).get('verdict')}")


def test_the_verdict_with_one_of_two_given_up(hand: Chargehand, world: World) -> None:  # spec: HP-8 RP-8
    fault = {"CHARGEHAND_FAULT_SET_UP": ONCE.format(world.folder / "tried", "configuration")}
    hand.crew("half", FAULTY, workers=2, environment=fault)
    with hand.running():
        agree(hand, "degraded", "crew half: 1 of 2 given up: configuration error", "the model's name is wrong, as told")
        hand.reset()
        agree(hand, "healthy")


def test_the_verdict_with_all_given_up_or_crashed(make_hand: MakeHand, world: World) -> None:  # spec: HP-8 RP-8
    hand = make_hand(restart=RestartPolicy(first_pause=30, breaker_window=0))
    hand.crew("wrong", FAULTY, workers=1, environment=WRONG)
    do = hand.crew("do", FAULTY, workers=1)
    with hand.running():
        agree(hand, "error", "crew wrong: 1 of 1 given up")
        do.enqueue({"fault": "segfault"})
        agree(hand, "error", "worker:do:0 crashed: segfault in", "(SIGSEGV)")
        worker = workers(hand)["do:0"]
        assert (worker["status"], worker["restart_count"]) == ("crashed", 0)
        assert 0 < worker["restart_in_s"] <= 33


def test_a_flagged_worker_is_not_shown_as_healthy(make_hand: MakeHand) -> None:  # spec: SV-4 SV-6 HP-8 PD-3
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, silent=1.0, grace=0.2, terminate=0.2))
    burn = hand.crew("burn", FAULTY, workers=1)
    with hand.running():
        become(hand, "healthy")
        ref = burn.enqueue({"fault": "burn in c", "seconds": 300})
        agree(hand, "degraded", "worker:burn:0 is unresponsive")
        (row,) = hand.health("healthy (unresponsive)")
        assert (row.component, row.is_healthy, row.flags) == ("worker:burn:0", False, ("unresponsive",))
        assert not hand.is_healthy("worker:burn:0")
        hand.stop()  # stuck in C code or not
        become(hand, "stopped")
        eventually(lambda: ref.job().state == "queued")
        assert (ref.job().interruptions, ref.job().crashes) == (1, 0)


def test_a_machine_that_has_a_new_name(world: World) -> None:  # spec: HP-2 HP-3
    """As a container has after every start."""
    crews = "hand.crew('do', 'scripted_handlers:Doer', workers=1)"
    with serving(world, crews, NODE_NAME="a") as served:
        eventually(lambda: len(served.hand.health("healthy")) == 2)
        served.die_with_the_node()
    with serving(world, crews, NODE_NAME="b") as served:
        # A worker notices the death of its node by itself: those of `a` may be alive, and healthy, for a moment.
        eventually(lambda: [row.node for row in served.hand.health("healthy")] == ["b", "b"])
        assert {row.pid for row in served.hand.health() if row.node == "a"} == {None}
        found = served.hand.component("app")
        assert found
        assert found.node == "b"


CREWS = f"""
hand.crew("wrong", "{FAULTY}", environment={{"CHARGEHAND_FAULT_SET_UP": ONCE}})
hand.crew("halted", "scripted_handlers:Doer")
hand.crew("none", "scripted_handlers:Doer")
hand.crew("still", "scripted_handlers:Doer")
"""


def test_a_queue_with_work_and_nobody_to_do_it_is_loud(world: World) -> None:  # spec: SV-12 HP-8
    once = f"ONCE = 'once:{world.folder / 'tried'}:configuration'\n"
    with serving(world, once + CREWS) as served:
        hand = served.hand
        become(hand, {"wrong:0": "failed", "halted:0": "healthy", "none:0": "healthy", "still:0": "healthy"})
        hand.stop("halted")
        hand.scale("none", 0)
        hand.pause("still")
        become(hand, {"wrong:0": "failed", "halted:0": "stopped", "still:0": "paused"})
        names = ("wrong", "halted", "none", "still", "ghost")
        refs = {name: world.put(hand.crew(name, "scripted_handlers:Doer")) for name in names}
        found: dict[str, str] = eventually(
            lambda: len(u := (hand.status() or {}).get("unserved", {})) == 4 and u, what="at the next beat, 5 s"
        )  # type: ignore[assignment]
        assert set(found) == {"wrong", "halted", "none", "ghost"}  # a pause is somebody's wish
        remedies = {
            "wrong": "chargehand reset wrong",
            "halted": "chargehand start halted",
            "none": "chargehand scale none 1",
            "ghost": "no crew serves it",
        }
        for queue, remedy in remedies.items():
            assert found[queue].endswith(remedy)
            assert served.logged(f"event={Event.QUEUE_UNSERVED}", f"queue={queue}", remedy)
        agree(hand, "error", "queue ghost has waiting jobs that no worker takes: no crew serves it", *remedies.values())
        shown = command(world, "status").stdout
        for remedy in remedies.values():
            assert remedy in shown
        hand.reset("wrong")
        hand.start("halted")
        hand.scale("none", 1)
        for name in ("wrong", "halted", "none"):
            refs[name].wait(30)
        eventually(lambda: set((hand.status() or {}).get("unserved", {})) == {"ghost"})
        assert served.logged(f"event={Event.QUEUE_SERVED}", "queue=wrong")
        found_now = hand.verdict()
        assert (found_now.status, len(found_now.reasons)) == ("error", 1)
    with serving(world, "hand.crew('ghost', 'scripted_handlers:Doer')") as served:
        assert served.hand.crew("ghost", "scripted_handlers:Doer").ref(refs["ghost"].id).wait(30) == 1


def counts(hand: Chargehand) -> tuple[int, int]:
    worker = workers(hand).get("do:0", {})
    return worker.get("restart_count", -1), worker.get("restarts_total", -1)


def test_a_killed_node_gives_nobody_a_new_budget(make_hand: MakeHand, world: World) -> None:  # spec: RP-9 HP-2
    hand = make_hand(restart=RestartPolicy(first_pause=0.01, longest_pause=0.02))
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running() as host:
        become(hand, "healthy")
        (row,) = eventually(lambda: [r for r in hand.health() if r.component == "worker:do:0" and r.is_healthy])
        for count in (1, 2):
            os.kill(pids(hand)["do:0"], signal.SIGKILL)
            eventually(lambda count=count: workers(hand)["do:0"]["restart_count"] == count)
            become(hand, "healthy")

        def written() -> bool:
            with closing(open_store(str(world.store))) as store:
                return [note.restarts for note in store.fleet.restarts()] == [2]

        eventually(written)
        node = host.node_pid
        assert node
        os.kill(node, signal.SIGKILL)
        eventually(lambda: host.node_pid not in (None, node))
        become(hand, "healthy")
        worker = workers(hand)["do:0"]
        assert worker["budget"] == {"rapid_left": 3, "lifetime_left": 18}
        assert (worker["restart_count"], worker["restarts_total"]) == (2, 2)
        (again,) = eventually(lambda: [r for r in hand.health() if r.component == "worker:do:0" and r.is_healthy])
        assert (again.created_at_ms, again.restarts_total) == (row.created_at_ms, 2)
        hand.reset()
        eventually(lambda: workers(hand)["do:0"]["restart_count"] == 0)
        assert workers(hand)["do:0"]["restarts_total"] == 2
        os.kill(pids(hand)["do:0"], signal.SIGKILL)
        eventually(lambda: counts(hand) == (1, 3))
        become(hand, "healthy")
        hand.restart("do")
        eventually(lambda: counts(hand) == (0, 3))
    hand = make_hand(restart=RestartPolicy(first_pause=0.01, longest_pause=0.02, healthy_after=0.3))
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        become(hand, "healthy")
        os.kill(pids(hand)["do:0"], signal.SIGKILL)
        eventually(lambda: counts(hand) == (1, 4))
        eventually(lambda: counts(hand) == (0, 4), what="cleared by healthy running")
        (last,) = eventually(
            lambda: [r for r in hand.health() if r.component == "worker:do:0" and r.restarts_total == 4]
        )
        assert last.created_at_ms == row.created_at_ms
        assert eventually(lambda: hand.component("worker:do:0").restart_count == 0)  # type: ignore[union-attr]
