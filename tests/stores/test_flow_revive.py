"""Tests for retries of predecessors: which followers wait again, which stay as they are, and what is a conflict."""

from itertools import pairwise
from typing import Any

import pytest
from builders import (
    begin,
    bring,
    cancel,
    end,
    fan_out,
    finish,
    flow_of,
    job,
    perform_all,
    predecessors,
    put,
    record,
    retry,
    retry_flow,
    state,
    states,
    take,
    take_named,
    take_one,
)

from chargehand.errors import Conflict
from chargehand.model.job import Done, Enqueued, GaveUp, State
from chargehand.store import Store

QUEUED, FAILED, CANCELLED = State.QUEUED, State.FAILED, State.CANCELLED


def fail(store: Store, job_id: str) -> None:
    finish(store, job_id, GaveUp("no use"))


# followers wait again


# spec: FL-2
@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_retry_revives_the_follower(store: Store, how: str) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    if how == "failed":
        fail(store, "a")
    else:
        cancel(store, "a")
    assert state(store, "f") is FAILED
    assert retry(store, "a") == ["a"], "only the job that was named"
    found = record(store, "f")
    assert (found.state, found.waits_for, found.reason, found.error) == (QUEUED, 1, None, None)
    assert found.finished_ms is None
    assert take(store, 10) == []
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_follower_that_failed_when_it_was_enqueued_is_revived_too(store: Store) -> None:
    bad = bring(store, FAILED, queue="r")
    put(store, job("f", after=(bad.id,)), job("g", after=("f",)))
    retry(store, bad.id)
    assert states(store, "f", "g") == [QUEUED, QUEUED]
    finish(store, bad.id)
    assert perform_all(store) == ["f", "g"]


# spec: FL-2
def test_followers_of_followers_are_revived(store: Store) -> None:
    chain = [f"c{n:03}" for n in range(100)]
    put(store, job(chain[0]), *(job(later, after=(one,)) for one, later in pairwise(chain)))
    fail(store, chain[0])
    assert retry(store, chain[0]) == [chain[0]]
    assert [record(store, each).waits_for for each in chain] == [0, *[1] * 99]
    assert perform_all(store) == chain


# spec: FL-2
def test_a_revived_follower_waits_again_only_for_what_is_not_done(store: Store) -> None:
    put(store, *(job(name, queue=name) for name in ("a", "done", "waiting")))
    put(store, job("f", after=("a", "done", "waiting")))
    finish(store, "done")
    fail(store, "a")
    retry(store, "a")
    assert record(store, "f").waits_for == 2
    finish(store, "a")
    assert take(store, 10) == []
    finish(store, "waiting")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_follower_is_revived_by_the_retry_of_its_last_bad_predecessor(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    held = take_named(store, "b")
    fail(store, "a")
    assert end(store, held, GaveUp("x")) == []
    retry(store, "a")
    assert state(store, "f") is FAILED, "the other one is still failed"
    retry(store, "b")
    assert (state(store, "f"), record(store, "f").waits_for) == (QUEUED, 2)
    finish(store, "b")
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_follower_is_revived_when_all_its_bad_predecessors_are_retried_in_one_call(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")))
    cancel(store, "a", "b")
    assert state(store, "f") is FAILED
    assert sorted(retry(store, "a", "b")) == ["a", "b"]
    assert (state(store, "f"), record(store, "f").waits_for) == (QUEUED, 2)


# spec: FL-2
def test_a_follower_stays_failed_while_another_predecessor_is_cancelled(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")), job("g", after=("f",)))
    cancel(store, "b")
    fail(store, "a")
    retry(store, "a")
    assert states(store, "f", "g") == [FAILED, FAILED]
    finish(store, "a")
    assert states(store, "f", "g") == [FAILED, FAILED]


# spec: FL-2
def test_a_diamond_is_revived_as_a_whole(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", after=("a",)), job("c", after=("a",)), job("d", after=("b", "c")))
    fail(store, "a")
    assert states(store, "b", "c", "d") == [FAILED] * 3
    retry(store, "a")
    assert [record(store, each).waits_for for each in ("b", "c", "d")] == [1, 1, 2]
    finish(store, "a")
    assert perform_all(store) == ["b", "c", "d"]


# spec: FL-2
@pytest.mark.parametrize("after", [("a", "b"), ("b", "a")])
def test_a_diamond_with_a_shortcut_is_revived_as_a_whole(store: Store, after: tuple[str, str]) -> None:
    """The last job has two predecessors that are not done: one that is retried, and one that is revived with it."""
    put(store, job("a", queue="r"), job("b", after=("a",)), job("d", after=after))
    fail(store, "a")
    retry(store, "a")
    assert [record(store, each).waits_for for each in ("b", "d")] == [1, 2]
    finish(store, "a")
    assert perform_all(store) == ["b", "d"]


# spec: FL-2
def test_a_long_way_and_a_short_way_to_the_same_job_are_revived(store: Store) -> None:
    put(store, job("a", queue="r"), job("b1", after=("a",)), job("b2", after=("b1",)), job("b3", after=("b2",)))
    put(store, job("d", after=("a", "b3")), job("e", after=("d", "b1")))
    fail(store, "a")
    retry(store, "a")
    assert states(store, "b1", "b2", "b3", "d", "e") == [QUEUED] * 5
    finish(store, "a")
    assert perform_all(store) == ["b1", "b2", "b3", "d", "e"]


# spec: FL-2
def test_half_a_diamond_stays_failed_for_the_other_half(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", after=("a",)), job("c", after=("a",)), job("d", after=("b", "c")))
    cancel(store, "c")
    fail(store, "a")
    retry(store, "a")
    assert states(store, "b", "c", "d") == [QUEUED, CANCELLED, FAILED]
    retry(store, "c")
    assert [record(store, each).waits_for for each in ("b", "c", "d")] == [1, 1, 2]
    finish(store, "a")
    assert perform_all(store) == ["b", "c", "d"]


# spec: FL-2
def test_a_job_that_runs_all_the_same_waits_again_if_it_has_not_run(store: Store) -> None:
    """It is queued: it was never failed, so nothing changes for it."""
    put(store, job("a", queue="r"), job("f", after=("a",), if_failed="run"))
    fail(store, "a")
    retry(store, "a")
    assert state(store, "f") is QUEUED
    finish(store, "a")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_predecessor_that_runs_all_the_same_does_not_keep_a_follower_from_being_revived(store: Store) -> None:
    put(store, job("a", queue="r"), job("h", after=("a",), if_failed="run"), job("f", after=("a", "h")))
    fail(store, "a")
    retry(store, "a")
    assert record(store, "f").waits_for == 2
    finish(store, "a")
    assert perform_all(store) == ["h", "f"]


# spec: FL-2
def test_a_chain_may_fail_and_be_revived_again_and_again(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("f",)))
    for _ in range(3):
        fail(store, "a")
        assert states(store, "f", "g") == [FAILED, FAILED]
        retry(store, "a")
    finish(store, "a")
    assert perform_all(store) == ["f", "g"]


# spec: FL-2, FL-3
def test_the_retry_of_a_child_revives_the_follower_of_its_parent(store: Store) -> None:
    put(store, job("p", queue="r"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s")))
    fail(store, "c1")
    assert state(store, "f") is FAILED
    assert "predecessor c1 " in (record(store, "f").error or "")
    retry(store, "c1")
    assert record(store, "f").waits_for == 2
    assert sorted(perform_all(store, "s")) == ["c1", "c2"]
    assert take_one(store).id == "f"


# who is not revived


# spec: FL-2
def test_a_follower_that_a_person_cancelled_stays_cancelled(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("f",)))
    cancel(store, "f")
    fail(store, "a")
    retry(store, "a")
    assert states(store, "f", "g") == [CANCELLED, FAILED]
    finish(store, "a")
    assert states(store, "f", "g") == [CANCELLED, FAILED]


# spec: FL-2
def test_a_follower_that_ran_is_not_revived(store: Store) -> None:
    put(store, job("a", queue="r"), *(job(name, queue=name, after=("a",), if_failed="run") for name in "fgh"))
    fail(store, "a")
    fail(store, "f")
    finish(store, "g")
    held = take_named(store, "h")
    was = [record(store, each) for each in ("f", "g", "h")]
    retry(store, "a")
    assert [record(store, each) for each in ("f", "g", "h")] == was
    finish(store, "a")
    assert states(store, "f", "g", "h") == [FAILED, State.DONE, State.RUNNING]
    assert end(store, held, Done("1")) == []


# spec: FL-2
def test_a_follower_that_failed_by_itself_is_not_revived_by_a_revived_one_before_it(store: Store) -> None:
    """x fails of itself after `a` was done; a retry of anything else does not touch it."""
    put(store, job("a", queue="r"), job("b", queue="s"), job("x", after=("a",)), job("y", after=("b", "x")))
    finish(store, "a")
    fail(store, "x")
    cancel(store, "b")
    retry(store, "b")
    assert states(store, "x", "y") == [FAILED, FAILED]
    retry(store, "x")
    assert (record(store, "x").waits_for, record(store, "y").waits_for) == (0, 2)


# spec: FL-2
def test_a_follower_whose_key_is_taken_stays_failed_and_says_so(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",), key="k"), job("g", after=("f",)), job("h", after=("a",)))
    fail(store, "a")
    assert put(store, job("x", queue="q", key="k", delay_ms=1000)) == [Enqueued("x", True)]
    assert retry(store, "a") == ["a"]
    found = record(store, "f")
    assert (found.state, found.reason) == (FAILED, "predecessor")
    assert "cannot be revived: its key is held by job x" in (found.error or "")
    assert states(store, "g", "h") == [FAILED, QUEUED]
    finish(store, "a")
    assert perform_all(store) == ["h"]


# spec: FL-2
def test_of_two_followers_with_one_key_one_is_revived(store: Store) -> None:
    bad = bring(store, FAILED, queue="r")
    put(store, job("f", after=(bad.id,), key="k"))
    put(store, job("g", after=(bad.id,), key="k"))
    assert states(store, "f", "g") == [FAILED, FAILED]
    retry(store, bad.id)
    assert sorted(states(store, "f", "g")) == [FAILED, QUEUED]


# spec: FL-2
@pytest.mark.parametrize("named", ["a", "flow"])
def test_a_job_that_cannot_be_revived_takes_its_key_from_nobody(store: Store, named: str) -> None:
    """Of two followers with one key, the older one needs a job that stays failed."""
    bad = bring(store, FAILED, queue="r")
    begin(store, "w", job("a", queue="s"))
    fail(store, "a")
    put(store, job("f", after=("a", bad.id), key="k"))
    put(store, job("g", after=("a",), key="k"))
    assert states(store, "f", "g") == [FAILED, FAILED]
    assert (retry(store, "a") if named == "a" else retry_flow(store, "w")) == ["a"]
    assert states(store, "f", "g") == [FAILED, QUEUED]
    assert "key" not in (record(store, "f").error or "")


# spec: FL-2, WK-2
def test_a_job_that_is_retried_by_name_has_its_key_before_a_follower_that_is_revived(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",), key="k"))
    fail(store, "a")
    put(store, job("b", key="k"))
    fail(store, "b")
    assert sorted(retry(store, "a", "b")) == ["a", "b"]
    assert (state(store, "b"), state(store, "f")) == (QUEUED, FAILED)
    assert "its key is held by job b" in (record(store, "f").error or "")


# retries of the follower itself


# spec: FL-2
@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_retrying_a_follower_of_a_bad_predecessor_is_a_conflict_that_names_it(store: Store, how: str) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    if how == "failed":
        fail(store, "a")
    else:
        cancel(store, "a")
    with pytest.raises(Conflict, match=r"\ba\b"):
        retry(store, "f")
    assert state(store, "f") is FAILED


# spec: FL-2
@pytest.mark.parametrize("order", [("a", "f", "g"), ("g", "f", "a"), ("f", "a", "g")])
def test_predecessors_and_followers_are_retried_in_one_call_in_any_order(store: Store, order: tuple[str, ...]) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)), job("g", after=("f",)))
    fail(store, "a")
    assert sorted(retry(store, *order)) == ["a", "f", "g"]
    assert [record(store, each).waits_for for each in ("a", "f", "g")] == [0, 1, 1]
    finish(store, "a")
    assert perform_all(store) == ["f", "g"]


# spec: FL-2
def test_a_cancelled_follower_that_is_retried_waits_again(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"), job("f", after=("a", "b")), job("g", after=("f",)))
    finish(store, "b")
    cancel(store, "f")
    assert retry(store, "f") == ["f"]
    assert [record(store, each).waits_for for each in ("f", "g")] == [1, 1]
    assert take(store, 10) == []
    finish(store, "a")
    assert perform_all(store) == ["f", "g"]


# spec: FL-2
def test_a_cancelled_follower_that_is_retried_after_its_predecessors_ended_runs(store: Store) -> None:
    put(store, job("a", queue="r"), job("f", after=("a",)))
    cancel(store, "f")
    finish(store, "a")
    retry(store, "f")
    assert take_one(store).id == "f"


# spec: FL-2
def test_a_follower_that_ran_and_failed_can_be_retried(store: Store) -> None:
    put(store, job("a", queue="r"), job("b", queue="s"))
    put(store, job("f", after=("a", "b"), if_failed="run"), job("g", after=("a",)))
    fail(store, "a")
    finish(store, "b")
    fail(store, "f")
    assert retry(store, "f") == ["f"], "it runs over what there is"
    assert take_one(store).id == "f"


# spec: FL-2, WK-2
def test_a_retry_whose_key_is_taken_revives_nobody(store: Store) -> None:
    put(store, job("a", queue="r", key="k"), job("f", after=("a",)))
    fail(store, "a")
    put(store, job("x", queue="r", key="k"))
    with pytest.raises(Conflict, match="x"):
        retry(store, "a")
    assert states(store, "a", "f") == [FAILED, FAILED]


# what happened in between


# spec: FL-2, FL-3
@pytest.mark.parametrize("how", ["revived", "retried"])
def test_a_follower_that_waits_again_waits_for_children_that_were_spawned_meanwhile(store: Store, how: str) -> None:
    put(store, job("a", queue="r"), job("p", queue="p"), job("f", after=("a", "p")))
    if how == "revived":
        fail(store, "a")
    else:
        cancel(store, "f")
    finish(store, "p", fan_out(job("c", queue="s"), job("d", queue="s")))
    finish(store, "c")
    if how == "revived":
        retry(store, "a")
    else:
        retry(store, "f")
    assert record(store, "f").waits_for == 2
    finish(store, "a")
    assert take(store, 10) == []
    finish(store, "d")
    assert take_one(store).id == "f"


# spec: FL-2, FL-3
@pytest.mark.parametrize("if_failed", ["fail", "run"])
@pytest.mark.parametrize("first", ["p fails", "f is cancelled"])
def test_a_follower_waits_for_children_of_a_predecessor_that_was_retried_before_it(
    store: Store, if_failed: str, first: str
) -> None:
    put(store, job("p", queue="p"), job("f", after=("p",), if_failed=if_failed))
    if first == "f is cancelled":
        cancel(store, "f")
    fail(store, "p")
    cancel(store, "f")
    retry(store, "p")
    cancel(store, "f")  # the retry may have revived it
    assert state(store, "f") is CANCELLED
    finish(store, "p", fan_out(job("c", queue="s"), job("d", queue="s")))
    finish(store, "c", fan_out(job("cc", queue="t")))
    retry(store, "f")
    assert record(store, "f").waits_for == 2
    assert take(store, 10) == []
    finish(store, "d")
    assert take(store, 10) == []
    finish(store, "cc")
    assert take_one(store).id == "f"
    assert [each.id for each in predecessors(store, "f")] == ["p", "c", "d", "cc"]


# spec: FL-2, FL-3
def test_a_follower_that_ended_before_a_child_was_spawned_is_not_retried_before_the_child(store: Store) -> None:
    put(store, job("p", queue="p"), job("f", after=("p",)))
    cancel(store, "f")
    fail(store, "p")
    retry(store, "p")
    finish(store, "p", fan_out(job("c", queue="s")))
    fail(store, "c")
    with pytest.raises(Conflict, match=r"\bc\b"):
        retry(store, "f")
    retry(store, "c")
    retry(store, "f")
    finish(store, "c")
    assert take_one(store).id == "f"


# spec: FL-2, FL-3
@pytest.mark.parametrize("if_failed", ["fail", "run"])
def test_no_retry_lets_jobs_wait_for_each_other(store: Store, if_failed: str) -> None:
    begin(store, "w", job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c", queue="s", flow="w", after=("f",), if_failed=if_failed)))
    assert states(store, "f", "c") == [FAILED, FAILED], "each would wait for the other"
    for ids in (("f", "c"), ("c", "f"), ("c",), ("f",)):
        with pytest.raises(Conflict, match=r"cannot be retried"):
            retry(store, *ids)
    assert retry_flow(store, "w") == []
    assert (flow_of(store, "w").state, states(store, "f", "c")) == ("failed", [FAILED, FAILED])


# spec: FL-2, FL-3
def test_a_follower_is_not_revived_while_a_child_that_was_spawned_meanwhile_has_failed(store: Store) -> None:
    put(store, job("a", queue="r"), job("p", queue="p"), job("f", after=("a", "p")))
    fail(store, "a")
    finish(store, "p", fan_out(job("c", queue="s")))
    fail(store, "c")
    retry(store, "a")
    assert state(store, "f") is FAILED
    with pytest.raises(Conflict, match=r"\bc\b"):
        retry(store, "f")
    retry(store, "c")
    assert record(store, "f").waits_for == 2


# spec: FL-2, WK-5
@pytest.mark.parametrize(
    "lacks", [{"after": ("nobody",)}, {"after": ("a", "nobody")}, {"flow": "nobody"}, {"flow": "w"}]
)
def test_a_job_that_failed_for_what_does_not_exist_runs_without_it_when_a_person_retries_it(
    store: Store, lacks: dict[str, Any]
) -> None:
    """As without a predecessor that was deleted."""
    begin(store, "w")
    put(store, job("p"), job("a", queue="r"))
    finish(store, "p", Done("1", (job("x", **lacks),)))
    assert state(store, "x") is FAILED
    assert retry(store, "x") == ["x"]
    if "a" in lacks.get("after", ()):
        assert take(store) == []
        finish(store, "a")
    finish(store, "x")


# spec: FL-2
def test_the_retry_of_a_job_that_is_done_revives_nobody(store: Store) -> None:
    put(store, job("p"), job("a", queue="r"))
    finish(store, "p", Done("1", (job("x", after=("p", "nobody")), job("y", after=("p", "a")))))
    finish(store, "a", GaveUp("x"))
    with store.transaction() as tx:
        tx.jobs.delete(["a"])
    assert retry(store, "p") == []
    assert states(store, "x", "y") == [FAILED, FAILED]


# spec: FL-2, FL-6
@pytest.mark.parametrize("order", [("s0", "s1"), ("s1", "s0")])
def test_a_follower_in_the_sequence_of_its_predecessor_does_not_hang(store: Store, order: tuple[str, str]) -> None:
    put(store, job("s0", sequence="a"), job("s1", sequence="a", after=("s0",)), job("s2", sequence="a", after=("s1",)))
    fail(store, "s0")
    assert states(store, "s1", "s2") == [FAILED, FAILED]
    assert sorted(retry(store, *order)) == ["s0", "s1"]
    assert perform_all(store) == ["s0", "s1", "s2"]
