"""Tests for `turn`: a node's batch in one transaction, and the reads that go with it."""

import threading
from collections.abc import Callable

import msgspec
import pytest
from builders import ME, crew, everything, job, pause, put, record, register, state, take_one

from chargehand.errors import StoreError
from chargehand.model import chores
from chargehand.model.access import Deed, OperationFilter
from chargehand.model.batch import Batch, Note, Request, Result, Want
from chargehand.model.job import Done, Enqueued, Found, NewJob, Raised, State, settle
from chargehand.model.records import (
    CancelResult,
    CrashFilter,
    CrashReport,
    Discovered,
    Discovery,
    Firing,
    GivenUpMark,
    HealthNote,
    JobFilter,
    RecurringPlan,
)
from chargehand.store import Store

WANT = (Want("q", "q", 1),)
PLAN = RecurringPlan(name="nightly", schedule="{}", job="{}", next_run_ms=1000)


def turn(store: Store, *some: chores.Chore, at: float = 0.0) -> Result:
    return store.turn(Batch(chores=some), ME, lambda: at)


def test_an_empty_batch_has_an_empty_result(store: Store) -> None:
    assert store.turn(Batch(), ME) == Result()


def test_a_batch_settles_notes_enqueues_does_chores_and_claims_in_this_order(store: Store) -> None:
    register(store, crew("q", limit=1))
    put(store, job("first"), job("second"))
    held = take_one(store)
    settlement = settle(held, Done("1"))
    assert settlement is not None
    batch = Batch(
        settlements=(settlement,),
        notes=(Note(seq=held.seq, claim=held.number, worker="w", age_ms=0),),
        requests=(Request("a", (job("third"),)), Request("b", (job("first"), job("fourth")))),
        chores=(chores.CancelJobs(token=1, ids=("second",)),),
        wants=WANT,
    )
    result = store.turn(batch, ME)
    assert result.lost == ()
    assert result.enqueued == (
        ("a", (Enqueued("third", True),)),
        ("b", (Enqueued("first", False), Enqueued("fourth", True))),
    )
    assert result.done == ([CancelResult("second", True, 0)],)
    # The slot of the settled job is free, the cancelled job is not taken, and the enqueued one is.
    assert [claim.id for claim in result.grants[0].claims] == ["third"]
    assert record(store, "first").worker is None  # a note of a claim that was settled before changes nothing


def test_a_settlement_whose_claim_is_lost_is_named_and_the_rest_is_done(store: Store) -> None:
    put(store, job("one"), job("two"))
    held = take_one(store)
    settlement = settle(held, Raised("no"))
    assert settlement is not None
    with store.transaction() as tx:
        assert tx.jobs.release(held.id, str(held.number), "by hand")
    result = store.turn(Batch(settlements=(settlement,), requests=(Request(1, (job("three"),)),)), ME)
    assert result.lost == (("one", held.number),)
    assert state(store, "three") is State.QUEUED


def test_of_two_attempts_of_one_job_the_refused_one_is_named(store: Store) -> None:
    """A node that was taken for dead may claim a job again whose first attempt its worker has not ended yet."""
    put(store, job("one"))
    late = take_one(store)
    with store.transaction() as tx:
        assert tx.jobs.release(late.id, str(late.number), "by hand")
    present = take_one(store)
    ends = [settle(each, Done()) for each in (late, present)]
    result = store.turn(Batch(settlements=tuple(end for end in ends if end)), ME)
    assert result.lost == (("one", late.number),)
    assert state(store, "one") is State.DONE


def test_a_batch_that_fails_leaves_nothing_behind(store: Store) -> None:
    put(store, job("one"))
    held = take_one(store)
    settlement = settle(held, Done("1"))
    assert settlement is not None

    def broken() -> float:
        raise StoreError("the disk is full")

    batch = Batch(settlements=(settlement,), requests=(Request(1, (job("two"),)),), chores=(chores.TakeSnapshot(),))
    with pytest.raises(StoreError):
        store.turn(batch, ME, broken)
    assert [found.id for found in everything(store)] == ["one"]
    assert state(store, "one") is State.RUNNING


# polls


def test_a_poll_does_nothing_unless_others_have_written(store: Store, store_factory: Callable[[], Store]) -> None:
    poll = Batch(poll=True, wants=WANT)
    assert store.turn(poll, ME).changed  # the first poll is unsure
    # A store may report a change when it is unsure (a server that others use, too), but not for ever.
    assert any(store.turn(poll, ME) == Result() for _ in range(100))
    other = store_factory()
    put(other, job("one"))
    pause(other, "another crew", for_ms=5000)
    result = store.turn(poll, ME)
    assert result.changed
    assert [claim.id for claim in result.grants[0].claims] == ["one"]
    assert result.cancelling == ()
    assert result.pauses is not None
    assert [scope for scope, _ in result.pauses] == ["another crew"]
    with other.transaction() as tx:
        tx.jobs.cancel(["one"])
    assert store.turn(poll, ME).cancelling == ("one",)


@pytest.mark.parametrize("why", ["unsure", "hinted"])
def test_a_poll_with_a_reason_claims(store: Store, why: str) -> None:
    store.changed()
    put(store, job("one"))
    result = store.turn(Batch(poll=True, unsure=why == "unsure", hinted=why == "hinted", wants=WANT), ME)
    assert result.changed or why == "hinted"  # others may write to the same server at any time
    assert [claim.id for claim in result.grants[0].claims] == ["one"]


# chores


def test_pauses_are_read_after_a_chore_about_them(store: Store) -> None:
    paused = turn(store, chores.SetPause(token=1, scope="q", who="anna", reason="lunch", for_ms=None))
    assert paused.pauses == (("q", None),)
    assert turn(store, chores.LookAtPauses()).pauses == (("q", None),)
    assert turn(store, chores.TakeSnapshot()).pauses is None
    assert turn(store, chores.ClearPause(token=1, scope="q")).pauses == ()


def test_recurring_jobs_are_read_after_a_chore_about_them(store: Store) -> None:
    assert turn(store, chores.Recur((PLAN,))).recurring == (PLAN,)
    firing = Firing(name="nightly", due_ms=1000, next_run_ms=2000, job=NewJob(id="fired", queue="q"))
    first, again = turn(store, chores.Fire(firing)), turn(store, chores.Fire(firing))
    assert (first.done, again.done) == ((True,), (False,))
    assert first.recurring is not None
    assert [(plan.next_run_ms, plan.last_job) for plan in first.recurring] == [(2000, "fired")]


def test_queues_are_read_for_the_chore_that_asks(store: Store) -> None:
    put(store, job("one"))
    waiting = turn(store, chores.LookAtQueues()).waiting
    assert waiting is not None
    assert [queue for queue, _ in waiting] == ["q"]
    assert turn(store, chores.TakeSnapshot()).waiting is None


def test_the_age_of_a_look_grows_until_its_page_is_queued(store: Store) -> None:
    page = Discovery(
        queue="q", found=(Found(item="song", payload="null"),), priority=0, max_attempts=3, timeout_ms=None
    )  # fmt: skip
    assert turn(store, chores.QueueFound("q", page, 0.0)).done == (Discovered(queued=1),)
    settlement = settle(take_one(store), Done())
    assert settlement is not None
    store.turn(Batch(settlements=(settlement,)), ME)
    # A look that began a minute before its page is queued may have read the item before it was done.
    assert turn(store, chores.QueueFound("q", page, 0.0), at=60.0).done == (Discovered(held=1),)


def test_what_a_node_keeps_of_its_workers(store: Store) -> None:
    register(store, crew("tag", workers=2))
    report = CrashReport(
        id="c", component="worker:tag:0", crew="tag", incarnation="i", pid=1, reason="signal", text="killed",
        exit_code=None, signal=9, job=None, memory=None, uptime_ms=None, charged=True, follows="restart",
    )  # fmt: skip
    mark = GivenUpMark(component="worker:tag:0", crew="tag", reason="crashes", fingerprint="f")
    notes = tuple(HealthNote(component=f"worker:tag:{index}", status="healthy") for index in (0, 1))
    turn(
        store, chores.KeepReport(report), chores.KeepGivenUp(mark), chores.KeepScale("tag", 5),
        chores.Project(notes), chores.TakeSnapshot(), chores.KeepDeed(Deed(who="anna", verb="scale")),
    )  # fmt: skip
    assert [crash.id for crash in store.fleet.crashes(CrashFilter())] == ["c"]
    assert [found.component for found in store.fleet.given_up()] == ["worker:tag:0"]
    assert [row.scaled for row in store.fleet.crews()] == [5]
    assert [row.component for row in store.fleet.health()] == ["worker:tag:0", "worker:tag:1"]
    assert len(store.fleet.snapshots(0, 10)) == 1
    assert [found.verb for found in store.access.operations(OperationFilter())] == ["scale"]
    turn(store, chores.Forgive("worker:tag:0"), chores.Project((), gone=("worker:tag:0",)))
    assert store.fleet.given_up() == []
    assert [row.component for row in store.fleet.health()] == ["worker:tag:1"]
    turn(store, chores.Wipe())
    assert store.fleet.health() == []


def test_a_cancel_by_a_person_is_in_the_operator_log(store: Store) -> None:
    put(store, job("one"))
    turn(store, chores.CancelJobs(token=1, ids=("one", "unknown"), who="anna", origin="cli"))
    (found,) = store.access.operations(OperationFilter())
    assert (found.who, found.origin, found.verb, found.target) == ("anna", "cli", "cancel", "job:one")


# callers that stopped waiting


# spec: WK-2
def test_nothing_is_done_for_a_caller_that_has_stopped_waiting(store: Store) -> None:
    put(store, job("gone's"), job("here's"))
    batch = Batch(
        requests=(Request("gone", (job("a", key="k"), job("b"))), Request("here", (job("c", key="k"),))),
        chores=(
            chores.CancelJobs(token="gone", ids=("gone's",)),
            chores.CancelJobs(token="here", ids=("here's",)),
            chores.SetPause(token="gone", scope="q", who="anna", reason=None, for_ms=None),
            chores.KeepDeed(Deed(who="anna", origin="", verb="pause", target="q"), "gone"),
            chores.SetPause(token="here", scope="r", who="anna", reason=None, for_ms=None),
        ),
    )
    result = store.turn(batch, ME, waits=lambda token: token == "here")
    assert result.dropped == ("gone",)
    assert result.enqueued == (("gone", ()), ("here", (Enqueued("c", True),)))
    assert [one.id for one in everything(store)] == ["c", "here's", "gone's"]
    assert [state(store, one) for one in ("gone's", "here's")] == [State.QUEUED, State.CANCELLED]
    assert [pause.scope for pause in store.fleet.pauses()] == ["r"]
    assert [deed.verb for deed in store.access.operations(OperationFilter())] == ["cancel"]


# spec: WK-2
def test_a_caller_is_asked_about_while_nobody_else_can_write(store_factory: Callable[[], Store]) -> None:
    """A caller that stops waiting writes by itself: it must come before the check, or after the commit."""
    node, caller = store_factory(), store_factory()
    wrote = threading.Event()

    def write() -> None:
        put(caller, job("caller's"))
        wrote.set()

    writing = threading.Thread(target=write)

    def waits(_: object) -> bool:
        writing.start()
        return not wrote.wait(0.2)

    node.turn(Batch(requests=(Request("token", (job("node's"),)),)), ME, waits=waits)
    writing.join()
    # It wrote after the turn, or the node saw that it had gone. A store with many writers at once allows both.
    assert [one.id for one in everything(node)] in (["caller's", "node's"], ["caller's"])
    assert wrote.is_set()


# what hooks are told with


def test_the_job_of_a_hook_is_written_with_an_accepted_failure_and_once(store: Store) -> None:  # spec: HK-1
    register(store, crew("q"))
    put(store, job("first", max_attempts=1))
    held = take_one(store)
    failed = settle(held, Raised("Traceback"))
    assert failed is not None
    told = msgspec.structs.replace(failed, follow=(job("told", queue="tell"),))
    assert store.turn(Batch(settlements=(told,)), ME).lost == ()
    assert [each.id for each in store.jobs.find(JobFilter(queue="tell"))] == ["told"]
    assert store.turn(Batch(settlements=(told,)), ME).lost == (failed.claim_name,)
    done = settle(held, Done("1", (job("never", queue="tell"),)))
    assert done is not None
    assert store.turn(Batch(settlements=(done,)), ME).lost == (failed.claim_name,)
    assert [each.id for each in store.jobs.find(JobFilter(queue="tell"))] == ["told"]


def test_the_jobs_of_hooks_are_written_with_crash_reports_and_marks_and_once(store: Store) -> None:  # spec: HK-1
    register(store, crew("q"))
    report = CrashReport(
        id="c", component="worker:q:0", crew="q", incarnation="i", pid=1, reason="signal", text="killed",
        exit_code=None, signal=9, job=None, memory=None, uptime_ms=None, charged=True, follows="restart",
    )  # fmt: skip
    mark = GivenUpMark(component="worker:q:0", crew="q", reason="why", fingerprint="")
    some = (
        chores.KeepReport(report, (job("crash", queue="tell"),)),
        chores.KeepGivenUp(mark, (job("given up", queue="tell"),)),
    )
    for _ in range(2):  # a batch whose answer was lost is sent again
        assert turn(store, *some).done == (None, None)
    assert sorted(each.id for each in store.jobs.find(JobFilter(queue="tell"))) == ["crash", "given up"]
    assert len(store.fleet.crashes(CrashFilter())) == 1
