"""Work found in the application's own tables: each row is done, none by two at once, and nothing holds up the rest.

What is claimed is checked from the application's side, by its own table, ledger and locks.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from statistics import median

import pytest
from discovery_handlers import HARD_NAMES, Table, number_of
from fault_checks import workers
from scripted_app import QUICK
from workworld import application, jobs_of, workers_of
from world import World

from chargehand import Chargehand, ConfigurationError, DiscoveryPolicy, JobFilter, UnknownCrew, clock
from chargehand.doctor.examine import examine
from chargehand.log import Event
from chargehand.model.job import DEFAULT_POLICY, State
from chargehand.model.search import DEFAULT_DISCOVERY, ENOUGH, PAGE
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]

ROWS = int(os.environ.get("CHARGEHAND_TEST_ROWS", "2000"))
WAIT = 60 + ROWS / 50


@pytest.fixture
def table(world: World) -> Iterator[Table]:
    made = Table(world.folder / "app.db")
    yield made
    made.close()


def begun(world: World) -> Counter[str]:
    return Counter(key for key, _, _ in world.lines("begin"))


def looks(world: World) -> int:
    """How many walks through the table have begun."""
    return sum(words[-1] == "True" for words in world.lines("look"))


def done(table: Table, kind: str = "plain") -> int:
    return table.db.execute("SELECT count(*) FROM row WHERE done > 0 AND kind = ?", (kind,)).get


# the whole


@pytest.mark.timeout(2 * WAIT)
def test_every_row_is_done_and_none_by_two_at_once(  # spec: WK-10 WK-6 WP-7
    hand: Chargehand, world: World, table: Table
) -> None:
    chance = random.Random(10)
    table.add(f"{n:06}" for n in range(ROWS))
    table.add(["000000-poison", f"{ROWS // 2:06}-poison"], "poison")
    table.add(["000000-gives-up", f"{ROWS // 2:06}-gives-up"], "raises")
    table.add(["000000-never"], "never")
    hand.crew("rows", "discovery_handlers:Rows", workers=4, discovers=True, environment=application(world))
    kills = 12
    with hand.running() as host:
        for kill in range(1, kills + 1):
            eventually(
                lambda kill=kill: done(table) >= kill * ROWS // (kills + 2), WAIT, what=f"rows before kill {kill}"
            )
            if kill % 5 == 0:
                assert host.node_pid
                os.kill(host.node_pid, signal.SIGKILL)
                continue
            alive = [w["pid"] for w in workers_of(hand) if w["pid"]]
            if alive:
                with suppress(ProcessLookupError):  # the poison was quicker
                    os.kill(chance.choice(alive), signal.SIGKILL)
        eventually(lambda: table.left() == 0, WAIT, what="all rows done")
        for key in ("000000-poison", f"{ROWS // 2:06}-poison"):
            eventually(lambda key=key: jobs_of(hand, key) and jobs_of(hand, key)[0].reason == "poison", what=key)
        hand.wake("rows")
        eventually(lambda: hand.counts()[0].queued + hand.counts()[0].running == 0, what="nothing is left in the queue")
    assert world.lines("overlap") == []
    failed = {job.item: job.reason for job in hand.jobs(JobFilter(state=State.FAILED, limit=100))}
    aside = {key: "poison" for key in failed if key and "poison" in key} | {
        key: "gave up" for key in failed if key and "gives-up" in key
    }
    assert len(aside) == 4
    assert set(failed) - set(aside) <= {"000000-never"}, "nothing else was set aside"
    # At least once: what a killed node had not written yet is done again, though the row says that it need not be.
    assert max(count for key, count in begun(world).items() if key.isdigit()) <= 1 + 2 + DEFAULT_POLICY.poison_crashes
    assert not_waited(world) < 0.05


def not_waited(world: World) -> float:
    """The usual time between two items of one worker, in seconds."""
    ends = {(pid, key): float(at) for key, pid, at in world.lines("end")}
    last: dict[str, float] = {}
    gaps: list[float] = []
    for key, pid, at in world.lines("begin"):
        if pid in last:
            gaps.append(float(at) - last[pid])
        if (pid, key) in ends:
            last[pid] = ends[pid, key]
    return median(gaps)


def test_no_copy_of_the_backlog_is_kept(hand: Chargehand, world: World, table: Table) -> None:  # spec: WK-10
    table.add((f"{n:06}" for n in range(5)), "gate")
    table.add(f"{n:06}" for n in range(5, 700))
    hand.crew("rows", "discovery_handlers:Rows", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: len(world.lines("begin")) == 2)
        until = clock.monotonic() + DEFAULT_DISCOVERY.interval
        eventually(lambda: clock.monotonic() >= until)
        (counts,) = hand.counts()
        assert counts.queued + counts.running < ENOUGH + PAGE
        (world.folder / "gate").touch()
        eventually(lambda: table.left() == 0)


def test_no_copy_of_the_backlog_is_kept_under_a_limit(hand: Chargehand, world: World, table: Table) -> None:
    """Spec: WK-10 WK-13. Of a queue at its limit fewer are claimed than wanted; that does not mean that it is empty."""
    table.add(["000000"], "gate")
    table.add(f"{n:06}" for n in range(1, 700))
    hand.crew("rows", "discovery_handlers:Rows", workers=2, discovers=True, limit=1, environment=application(world))
    with hand.running():
        eventually(lambda: len(world.lines("begin")) == 1)
        until = clock.monotonic() + DEFAULT_DISCOVERY.interval
        eventually(lambda: clock.monotonic() >= until)
        (counts,) = hand.counts()
        (world.folder / "gate").touch()
        assert counts.queued + counts.running < ENOUGH + PAGE


# what is set aside


def test_an_item_without_progress_is_set_aside_and_can_be_retried(  # spec: WK-10
    hand: Chargehand, world: World, table: Table
) -> None:
    table.add(["stuck"], "never")
    hand.crew("rows", "discovery_handlers:Rows", workers=2, discovers=True, environment=application(world))
    with hand.running():

        def aside() -> bool:
            hand.wake("rows")
            return jobs_of(hand, "stuck") != [] and jobs_of(hand, "stuck")[0].state is State.FAILED

        eventually(aside, what="set aside")
        job, *before = jobs_of(hand, "stuck")
        assert (job.reason, [old.state for old in before]) == ("no progress", [State.DONE] * 3)
        assert "done 3 times" in (job.error or "")
        assert begun(world)["stuck"] == 3
        seen = looks(world)
        eventually(lambda: looks(world) > seen + 1 or hand.wake("rows"), what="it is looked again")
        assert begun(world)["stuck"] == 3, "it is walked past"
        table.add(["other"])
        hand.wake("rows")
        eventually(lambda: table.left() == 0, what="the rest goes on")
        table.db.execute("UPDATE row SET kind = 'plain' WHERE key = 'stuck'")
        (answer,) = hand.retry(job.id)
        assert answer.text == "is queued again"
        eventually(lambda: table.left() == 0)
        eventually(lambda: hand.job(job.id).state is State.DONE)
    assert begun(world)["stuck"] == 4


def test_a_poison_item_is_quarantined_and_the_rest_done(  # spec: WK-10 WK-6
    hand: Chargehand, world: World, table: Table
) -> None:
    table.add(["a"], "poison")
    table.add(["b", "c", "d"])
    hand.crew("rows", "discovery_handlers:Rows", workers=1, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: table.left() == 0, what="the rest is done")
        eventually(lambda: jobs_of(hand, "a")[0].state is State.FAILED, what="quarantined")
        (job,) = jobs_of(hand, "a")
        assert (job.reason, job.crashes, job.item) == ("poison", 3, "a")
        table.add(["e"])
        hand.wake("rows")
        eventually(lambda: table.left() == 0)
        assert len(jobs_of(hand, "a")) == 1, "found again and again, and walked past"
        table.db.execute("UPDATE row SET kind = 'plain' WHERE key = 'a'")
        hand.retry(job.id)
        eventually(lambda: table.left() == 0)
    assert begun(world) == Counter(a=4, b=1, c=1, d=1, e=1)


def test_a_cancelled_item_is_set_aside_until_it_is_retried(  # spec: WK-10 WK-8
    hand: Chargehand, world: World, table: Table
) -> None:
    table.add(["a"], "gate")
    hand.crew("rows", "discovery_handlers:Rows", workers=1, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: begun(world)["a"] == 1)
        (job,) = jobs_of(hand, "a")
        hand.cancel(job.id)
        eventually(lambda: hand.job(job.id).state is State.CANCELLED)
        table.add(["b"])
        hand.wake("rows")
        eventually(lambda: table.left() == 0)
        assert begun(world)["a"] == 1
        (world.folder / "gate").touch()
        hand.retry(job.id)
        eventually(lambda: table.left("gate") == 0)


# a crash


def test_a_crash_leaves_the_item_eligible(hand: Chargehand, world: World, table: Table) -> None:  # spec: WK-10 WK-6
    table.add(["a", "b"], "gate")
    hand.crew("rows", "discovery_handlers:Rows", workers=2, discovers=True, environment=application(world))
    with hand.running() as host:
        eventually(lambda: len(world.lines("begin")) == 2)
        pids = {key: int(pid) for key, pid, _ in world.lines("begin")}
        os.kill(pids["a"], signal.SIGKILL)
        eventually(lambda: begun(world)["a"] == 2)
        (job,) = jobs_of(hand, "a")
        assert (job.state, job.crashes) == (State.RUNNING, 1)
        assert host.node_pid
        os.kill(host.node_pid, signal.SIGKILL)
        eventually(lambda: sum(begun(world).values()) == 4)  # those of a node that died are tried one at a time
        (world.folder / "gate").touch()
        eventually(lambda: table.left("gate") == 0)
        eventually(lambda: hand.counts()[0].done == 2)
    assert begun(world) == Counter(a=3, b=2)
    assert world.lines("overlap") == []
    assert [jobs_of(hand, key)[0].interruptions for key in "ab"] == [1, 1]


# when it is looked


def test_a_crew_looks_again_by_itself_and_at_once_when_it_is_woken(  # spec: WK-10
    hand: Chargehand, world: World, table: Table
) -> None:
    hand.crew("rows", "discovery_handlers:Rows", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: looks(world) >= 3, what="it looks, and finds nothing")
        moments = [float(at) for _, at, _ in world.lines("look")]
        gaps = [after - before for before, after in pairwise(moments)]
        assert min(gaps) >= DEFAULT_DISCOVERY.interval - 0.05
        assert max(gaps) < DEFAULT_DISCOVERY.interval + 1
        for key in "abc":
            table.add([key])
            began = clock.monotonic()
            hand.wake("rows")
            eventually(lambda: table.left() == 0)
            assert clock.monotonic() - began < 1


def test_a_wake_that_comes_while_somebody_looks_is_heard(  # spec: WK-10
    hand: Chargehand, world: World, table: Table
) -> None:
    """The look under way may have passed what is new."""
    hand.crew("rows", "discovery_handlers:Rows", workers=1, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: looks(world) >= 1)
        for n in range(5):
            hand.wake("rows")
            table.add([str(n)])
            began = clock.monotonic()
            hand.wake("rows")
            eventually(lambda: table.left() == 0)
            assert clock.monotonic() - began < DEFAULT_DISCOVERY.interval / 2, n


def test_waking_a_crew_that_cannot_look_is_refused(hand: Chargehand) -> None:  # spec: WK-10
    """Without a node it is no error: whoever starts looks anyway."""
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    hand.wake("do")
    with hand.running() as host:
        assert host.ready.wait(20)
        with pytest.raises(ConfigurationError, match="crew 'do' is not declared discovers=True"):
            hand.wake("do")
        with pytest.raises(UnknownCrew, match="there is no crew 'nobody'; there are: do"):
            hand.wake("nobody")
        assert hand.status()


def test_a_paused_crew_does_not_look(hand: Chargehand, world: World, table: Table) -> None:  # spec: WK-10 PD-1
    hand.crew("rows", "discovery_handlers:Rows", workers=2, discovers=True, environment=application(world))
    hand.open()
    hand.pause("rows", reason="a test")
    table.add(["a"])
    with hand.running():
        eventually(lambda: [w["status"] for w in workers_of(hand)] == ["paused"] * 2)
        hand.wake("rows")
        until = clock.monotonic() + DEFAULT_DISCOVERY.interval + 0.3
        eventually(lambda: clock.monotonic() >= until)
        assert world.lines("look") == []
        hand.resume("rows")
        eventually(lambda: table.left() == 0, 2)


# what is named


def test_an_item_may_have_any_characters(hand: Chargehand, world: World) -> None:  # spec: WK-10
    names = hand.crew("names", "discovery_handlers:Names", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: len(list(world.folder.glob("named-*"))) == len(HARD_NAMES), what="all done")
        eventually(lambda: hand.counts()[0].done == len(HARD_NAMES))
    jobs = hand.jobs(JobFilter(limit=100))
    assert Counter(job.item for job in jobs) == Counter(HARD_NAMES)
    for job in jobs:
        assert job.item is not None
        assert (names.ref(job.id).wait(), job.label, job.error) == ({job.item: job.item}, job.item[:200], None)


def test_items_may_have_payload_and_label_and_be_found_asynchronously(  # spec: WK-10 WP-3
    hand: Chargehand, world: World, table: Table
) -> None:
    keys = [f"{n:04}" for n in range(PAGE + 10)]
    table.add(keys)
    hand.crew("rows", "discovery_handlers:AsyncRows", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: hand.counts() and hand.counts()[0].done == len(keys))
        (job,) = jobs_of(hand, "0007")
        assert job.label == "row 0007"
        assert bytes(job.payload).replace(b" ", b"") == b'{"of":"0007"}'
        assert bytes(job.result or b"").replace(b" ", b"") == b'["0007",{"of":"0007"},"row0007"]'
    assert table.left() == 0


def test_the_item_in_hand_is_shown_as_crew_and_item(  # spec: HP-5 WK-10 WK-9
    hand: Chargehand, world: World, table: Table
) -> None:
    table.add(["albums/a b/ü.flac"], "gate")
    hand.crew("rows", "discovery_handlers:Rows", workers=1, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: world.lines("begin"))
        shown = workers(hand)["worker:rows:0"]
        assert shown["current_job"] == "rows/albums/a b/ü.flac"
        eventually(lambda: workers(hand)["worker:rows:0"]["progress"])
        eventually(lambda: (seen := hand.component("worker:rows:0")) and seen.current_job == shown["current_job"])
        (world.folder / "gate").touch()
        eventually(lambda: table.left("gate") == 0)
        eventually(lambda: workers(hand)["worker:rows:0"]["current_job"] is None)


def test_what_is_done_while_somebody_looks_is_not_done_again(  # spec: WK-10
    hand: Chargehand, world: World, table: Table
) -> None:
    """A look names what it read a while ago; an item whose job has ended since then says nothing about its row now."""
    table.add(["a"], "gate")
    hand.crew("rows", "discovery_handlers:SlowlyLooking", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: begun(world)["a"] == 1)
        (world.folder / "slowly").touch()
        eventually(lambda: world.lines("read"), what="somebody has read the row")
        (world.folder / "gate").touch()
        eventually(lambda: jobs_of(hand, "a")[0].state is State.DONE)
        (world.folder / "slowly").unlink()
        seen = looks(world)
        eventually(lambda: looks(world) > seen or hand.wake("rows"), what="the next look, which finds nothing")
        eventually(lambda: all(w["current_job"] is None for w in workers_of(hand)))
    assert begun(world)["a"] == 1


# looks that fail


WRONG = [
    "raise", "too many", "numbers", "nothing at all", "payload", "no text as key", "no text as label", "empty key",
    "long key", "large payload", "endless", "leaves",
]  # fmt: skip


# cause: blind
def test_a_look_that_fails_is_told_tried_again_and_costs_nobody(  # spec: WK-10 CL-4
    hand: Chargehand, world: World
) -> None:
    hand.crew("err", "discovery_handlers:Erring", workers=1, discovers=True, environment=application(world))
    (world.folder / "look").write_text(WRONG[0])
    with hand.running() as host:
        assert host.ready.wait(20)
        for number, how in enumerate(WRONG, 1):
            (world.folder / "next").write_text(how)
            (world.folder / "next").replace(world.folder / "look")  # a look at half of it would go well
            said = f"{number} looks that failed; the last one: {how}"
            eventually(lambda n=number: len(failures(hand)) >= n or hand.wake("err"), 5, what=said)
        (worker,) = workers_of(hand)
        assert (worker["status"], worker["restart_count"]) == ("healthy", 0)
        assert {int(words[0]) for words in world.lines("look")} == {worker["pid"]}
        (told,) = [found for found in examine(hand).findings if found.cause == "blind"]
        assert told.text.startswith("crew err: discover fails: ")
        verdict = (hand.status() or {})["verdict"]
        assert (verdict["status"], len(verdict["reasons"])) == ("degraded", 1)
        (world.folder / "look").unlink()
        eventually(lambda: (world.folder / "done").exists() or hand.wake("err"), 3)
        eventually(lambda: hand.counts() and hand.counts()[0].done == 1)
        eventually(lambda: (hand.status() or {})["verdict"]["status"] == "healthy")
    assert hand.crashes() == []


def test_a_look_that_ignores_after_is_told_and_tried_again_after_a_pause(  # spec: WK-10
    hand: Chargehand, world: World
) -> None:
    hand.crew("err", "discovery_handlers:Erring", workers=1, discovers=True, environment=application(world))
    (world.folder / "look").write_text("after ignored")
    with hand.running() as host:
        assert host.ready.wait(20)
        (told,) = eventually(lambda: failures(hand))
        assert "discover(after='199', limit=200) returned '000' again, which does not follow '199'" in told
        eventually(lambda: hand.counts()[0].done == PAGE)
        assert len(world.lines("look")) == 2, "400 in a second, before"


def failures(hand: Chargehand) -> list[str]:
    return [line["text"] for line in logged(hand) if f"event={Event.DISCOVER_FAILED}" in line["text"]]


def logged(hand: Chargehand) -> list[dict[str, str]]:
    return list(hand.logs(count=1000))


def test_a_worker_that_dies_while_it_looks_is_replaced(hand: Chargehand, world: World) -> None:  # spec: WK-10 SV-2
    (world.folder / "look").write_text("exit")
    hand.crew("err", "discovery_handlers:Erring", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: hand.crashes())
        (world.folder / "look").unlink()
        hand.wake("err")
        eventually((world.folder / "done").exists)
    assert {(report.reason, report.exit_code, report.job) for report in hand.crashes()} == {("exited", 7, None)}


def test_a_look_that_hangs_costs_its_worker_and_nobody_else(  # spec: WK-10
    make_hand: MakeHand, world: World
) -> None:
    (world.folder / "look").write_text("hang")
    hand = make_hand(restart=QUICK, discovery=DiscoveryPolicy(timeout=0.5))
    err = hand.crew("err", "discovery_handlers:Erring", workers=2, discovers=True, environment=application(world))
    with hand.running():
        eventually(lambda: world.lines("look"))
        err.enqueue(None).wait(5)  # the other one works meanwhile
        (world.folder / "done").unlink()
        report = eventually(lambda: hand.crashes())[-1]
        assert (report.reason, report.job, report.charged) == ("job timeout", None, False)
        assert "discover" in report.stacks
        (world.folder / "look").unlink()
        hand.wake("err")
        eventually((world.folder / "done").exists)


# in the store's own file


def test_a_row_in_the_stores_own_file_and_its_job_end_together(hand: Chargehand, world: World) -> None:  # spec: WK-10
    keys = [f"{n:04}" for n in range(100)]
    dying = random.Random(4).sample(keys, 5)
    for key in dying:
        (world.folder / f"die-{key}").touch()
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (key TEXT PRIMARY KEY, done INTEGER NOT NULL DEFAULT 0)")
        for key in keys:
            tx.execute("INSERT INTO song (key) VALUES (?)", (key,))
    hand.crew(
        "songs", "discovery_handlers:Together", workers=3, discovers=True, transactional=True,
        environment={**application(world), "STORE": str(world.store)},
    )  # fmt: skip
    together = """
        SELECT count(*) FROM song LEFT JOIN chargehand_job ON item = song.key AND state = 'done'
        WHERE (song.done > 0) <> (state IS NOT NULL)
    """

    def all_done() -> bool:
        with hand.transaction() as tx:
            assert tx.execute(together) == [(0,)], "a row is done when, and only when, its job is"
            return tx.execute("SELECT count(*) FROM song WHERE done = 0") == [(0,)]

    with hand.running():
        eventually(all_done, 30)
    times = Counter(key for key, _ in world.lines("begin"))
    assert set(dying) <= {key for key, count in times.items() if count > 1}
    assert hand.counts()[0].done >= len(keys)


assert len({number_of(f"{n:06}") for n in range(10_000)}) == 10_000, "every row has a lock of its own"


def test_a_crew_that_finds_nothing_goes_to_sleep_and_is_woken_to_look(  # spec: WK-10 WP-3
    hand: Chargehand, world: World, table: Table
) -> None:
    hand.crew(
        "rows", "discovery_handlers:Rows", workers=1, discovers=True, idle_exit=0.2, environment=application(world)
    )
    with hand.running():
        eventually(lambda: [w["reason"] for w in workers_of(hand)] == ["idle"])
        table.add(["new"])
        hand.wake("rows")
        eventually(lambda: table.left() == 0)
        eventually(lambda: [w["reason"] for w in workers_of(hand)] == ["idle"])
