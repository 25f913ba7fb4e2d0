"""Tests for spawned jobs: who waits for them, when they exist, and the results that a follower reads."""

from typing import Any

import pytest
from builders import (
    ME,
    begin,
    bring,
    cancel,
    end,
    everything,
    fan_out,
    finish,
    job,
    perform_all,
    plain,
    predecessors,
    put,
    record,
    release,
    retry,
    roll_back,
    state,
    states,
    take,
    take_named,
    take_one,
)

from chargehand.model.batch import Batch, Want
from chargehand.model.job import Done, GaveUp, NewJob, Outcome, Raised, State, settle
from chargehand.store import Store

# children


# spec: FL-3
def test_children_name_their_parent(store: Store) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s")))
    assert [record(store, each).parent for each in ("p", "c1", "c2")] == [None, "p", "p"]
    assert [found.id for found in store.jobs.children("p")] == ["c1", "c2"]
    assert [found.id for found in store.jobs.children("p", 1)] == ["c1"]
    assert [claim.id for claim in take(store, 10, queue="s")] == ["c1", "c2"]


# spec: FL-3
def test_what_a_job_enqueues_is_not_its_child(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", Done("1", (job("x", queue="s"),)))
    assert (record(store, "x").parent, store.jobs.children("p")) == (None, [])
    assert take_one(store).id == "f"


# spec: FL-3
def test_followers_of_the_parent_wait_for_its_children(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s")))
    assert record(store, "f").waits_for == 2
    assert take(store, 10) == []
    finish(store, "c1")
    assert take(store, 10) == []
    finish(store, "c2")
    assert take_one(store).id == "f"


# spec: FL-3
def test_a_parent_without_children_releases_its_follower(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out())
    assert take_one(store).id == "f"


# spec: FL-3
def test_followers_wait_for_grandchildren(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c", queue="s"), job("d", queue="t")))
    finish(store, "c", fan_out(job("cc", queue="u")))
    assert record(store, "cc").parent == "c"
    assert record(store, "f").waits_for == 2
    finish(store, "d")
    assert take(store, 10) == []
    finish(store, "cc")
    assert take_one(store).id == "f"


# spec: FL-3
def test_every_follower_of_the_parent_waits_for_its_children(store: Store) -> None:
    put(store, job("p"), job("o", queue="o"))
    put(store, job("f", after=("p",)), job("g", after=("o", "p")), job("h", after=("o",)))
    finish(store, "p", fan_out(job("c", queue="s")))
    assert [record(store, each).waits_for for each in ("f", "g", "h")] == [1, 2, 1]
    finish(store, "o")
    assert take_one(store).id == "h"
    finish(store, "c")
    assert perform_all(store) == ["f", "g"]


# spec: FL-3
@pytest.mark.parametrize("ended", [0, 1])
def test_a_follower_that_comes_late_waits_for_the_children_that_still_live(store: Store, ended: int) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c0", queue="s"), job("c1", queue="s"), job("d", queue="t")))
    finish(store, "d", fan_out(job("dd", queue="t")))
    for nr in range(ended):
        finish(store, f"c{nr}")
    put(store, job("f", after=("p",)))
    assert record(store, "f").waits_for == 3 - ended
    assert take(store, 10) == []
    perform_all(store, "s")
    assert take(store, 10) == []
    finish(store, "dd")
    assert take_one(store).id == "f"


# spec: FL-3
def test_a_follower_that_comes_after_the_children_ended_waits_for_nothing(store: Store) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c", queue="s")))
    finish(store, "c", fan_out(job("cc", queue="s")))
    finish(store, "cc")
    put(store, job("f", after=("p",)))
    assert take_one(store).id == "f"


# spec: FL-3
@pytest.mark.parametrize("depth", ["child", "grandchild"])
def test_a_follower_that_comes_after_a_child_failed_fails_at_once(store: Store, depth: str) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c", queue="s")))
    if depth == "child":
        finish(store, "c", GaveUp("x"))
    else:
        finish(store, "c", fan_out(job("cc", queue="s")))
        finish(store, "cc", GaveUp("x"))
    put(store, job("f", after=("p",)), job("g", after=("p",), if_failed="run"))
    assert (state(store, "f"), record(store, "f").reason) == (State.FAILED, "predecessor")
    assert take_one(store).id == "g"


# spec: FL-3
def test_a_follower_of_a_child_waits_for_that_child_only(store: Store) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s")))
    put(store, job("f", after=("c1",)))
    finish(store, "c1")
    assert take_one(store).id == "f"


# spec: FL-3
def test_children_may_wait_for_each_other_and_the_follower_for_all(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s"), job("sum", queue="s", after=("c1", "c2"))))
    assert record(store, "f").waits_for == 3
    assert perform_all(store, "s") == ["c1", "c2", "sum"]
    assert take_one(store).id == "f"


# spec: FL-3
def test_children_after_their_own_parent_wait_for_nothing_more(store: Store) -> None:
    """The parent ends well in the very transaction that adds them; it must not wait for its own siblings."""
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c1", queue="s", after=("p",)), job("c2", queue="s", after=("p",))))
    assert sorted(perform_all(store, "s")) == ["c1", "c2"]
    assert take_one(store).id == "f"


# spec: FL-2, FL-3
@pytest.mark.parametrize("if_failed", ["fail", "run"])
def test_a_child_after_its_own_parent_can_be_retried(store: Store, if_failed: str) -> None:
    """No flow hangs: it would wait for itself."""
    put(store, job("p"))
    finish(store, "p", fan_out(job("c", after=("p",), if_failed=if_failed), job("d")))
    assert [each.id for each in predecessors(store, "c")] == ["p"]
    finish(store, "c", GaveUp("no"))
    assert retry(store, "c") == ["c"]
    assert record(store, "c").waits_for == 0
    assert sorted(perform_all(store)) == ["c", "d"]


# spec: FL-3
def test_a_grandchild_after_the_first_of_its_line_waits_for_nothing_more(store: Store) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c")))
    finish(store, "c", fan_out(job("g", after=("p",)), job("h", after=("c", "p"))))
    assert sorted(perform_all(store)) == ["g", "h"]


# spec: FL-3
@pytest.mark.parametrize("if_failed", ["fail", "run"])
def test_a_child_after_what_does_not_exist_fails(store: Store, if_failed: str) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c", after=("nothing",), if_failed=if_failed)))
    assert (state(store, "c"), record(store, "c").reason) == (State.FAILED, "predecessor")


# spec: FL-3
def test_a_child_that_is_named_beside_its_parent_counts_once(store: Store) -> None:
    put(store, job("p"))
    finish(store, "p", fan_out(job("c", queue="s")))
    put(store, job("f", after=("p", "c")))
    assert record(store, "f").waits_for == 1
    finish(store, "c")
    assert take_one(store).id == "f"


# spec: FL-1, FL-3
@pytest.mark.parametrize("far", [False, True])
def test_a_child_that_would_wait_for_a_follower_of_its_parent_fails(store: Store, far: bool) -> None:
    """The follower waits for the child, so that neither could ever run."""
    put(store, job("p"), job("f", after=("p",)), job("g", after=("f",)))
    finish(store, "p", fan_out(job("c", queue="s", after=("g" if far else "f",)), job("d", queue="s")))
    assert (state(store, "c"), record(store, "c").reason) == (State.FAILED, "predecessor")
    assert states(store, "f", "g") == [State.FAILED, State.FAILED]
    assert take_one(store, queue="s").id == "d"


# spec: FL-3, FL-6
def test_a_child_in_the_sequence_of_a_follower_of_its_parent_fails(store: Store) -> None:
    """It would come after the follower, which waits for it; no other job of the sequence passes the follower by."""
    put(store, job("p"), job("f", after=("p",), if_failed="run", sequence="a"))
    finish(store, "p", fan_out(job("c", sequence="a"), job("d", queue="s")))
    put(store, job("g", sequence="a"))
    assert (state(store, "c"), record(store, "c").reason) == (State.FAILED, "predecessor")
    assert "neither could ever run" in str(record(store, "c").error)
    assert take(store, 10) == []
    finish(store, "d")
    assert [claim.id for claim in take(store, 10)] == ["f"]


# spec: FL-2, FL-3
@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_a_child_that_ends_badly_fails_the_follower_of_its_parent(store: Store, ends: str) -> None:
    put(store, job("p"), job("f", after=("p",)), job("g", queue="t", after=("p",), if_failed="run"))
    finish(store, "p", fan_out(job("c1", queue="s"), job("c2", queue="s")))
    if ends == "fails":
        finish(store, "c1", GaveUp("x"))
    else:
        cancel(store, "c1")
    found = record(store, "f")
    assert (found.state, found.reason) == (State.FAILED, "predecessor")
    assert "predecessor c1 " in (found.error or "")
    assert record(store, "g").waits_for == 1
    finish(store, "c2")
    assert take_one(store, queue="t").id == "g"


# spec: FL-3
def test_many_children_in_one_settlement(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(*(job(f"c{n}", queue="s") for n in range(1000))))
    assert record(store, "f").waits_for == 1000
    claims = take(store, 1000, queue="s")
    ends = tuple(made for claim in claims if (made := settle(claim, Done("1"))) is not None)
    assert store.turn(Batch(settlements=ends[1:]), ME).woken == frozenset()
    assert take(store, 1) == []
    result = store.turn(Batch(settlements=ends[:1], wants=(Want("q", "q", 1),)), ME)
    assert [claim.id for claim in result.grants[0].claims] == ["f"]


# spec: FL-3, FL-4
def test_parents_that_end_in_one_turn_have_children_and_flows_of_their_own(store: Store) -> None:
    for number in range(3):
        begin(store, f"w{number}", job(f"p{number}"), job(f"f{number}", after=(f"p{number}",), queue="t"))
    put(store, job("lost"))
    claims = take(store, 4)
    assert release(store, claims[-1]), "one settlement of the turn is refused, the others count"
    ends = [settle(claim, fan_out(*_children(claim.id))) for claim in claims]
    store.turn(Batch(settlements=tuple(filter(None, ends))), ME)
    for number in range(3):
        names = [f"p{number}-0", f"p{number}-1"]
        assert [child.id for child in store.jobs.children(f"p{number}")] == names
        assert [record(store, name).flow for name in names] == [f"w{number}"] * 2
        assert record(store, f"f{number}").waits_for == 2
    assert store.jobs.children("lost") == []
    finish(store, "p0-0")
    finish(store, "p0-1")
    assert [claim.id for claim in take(store, 9, queue="t")] == ["f0"]


def _children(parent: str) -> list[NewJob]:
    flow = None if parent == "lost" else f"w{parent[1:]}"
    return [job(f"{parent}-{number}", queue="q", flow=flow) for number in range(2)]


# children that never exist


# spec: FL-3, WK-4
def test_a_settlement_that_is_refused_leaves_no_children(store: Store) -> None:
    put(store, job("p"), job("f", queue="t", after=("p",)))
    late = take_named(store, "p")
    assert release(store, late)
    assert end(store, late, fan_out(job("c", queue="s"))) == ["p"]
    assert sorted(found.id for found in everything(store)) == ["f", "p"]
    assert record(store, "f").waits_for == 1
    finish(store, "p")
    assert take_one(store, queue="t").id == "f"


# spec: FL-3, WK-4
def test_the_same_settlement_again_leaves_one_set_of_children(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    claim = take_named(store, "p")
    outcome = fan_out(job("c", queue="s"))
    assert [end(store, claim, outcome) for _ in range(2)] == [[], ["p"]]
    assert [found.id for found in store.jobs.children("p")] == ["c"]
    assert record(store, "f").waits_for == 1
    finish(store, "c")
    assert take_one(store).id == "f"


# spec: FL-3
def test_a_transaction_that_fails_leaves_no_children(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)))
    made = settle(take_named(store, "p"), fan_out(job("c", queue="s")))
    assert made is not None
    roll_back(store, lambda tx: tx.jobs.settle([made], ME))
    assert store.jobs.children("p") == []
    assert record(store, "f").waits_for == 1


# spec: FL-3
def test_a_parent_that_is_retried_spawns_anew(store: Store) -> None:
    put(store, job("p"), job("f", queue="t", after=("p",)))
    end(store, take_named(store, "p"), Raised("x"))
    assert store.jobs.children("p") == []
    with store.transaction() as tx:
        tx.jobs.cancel(["p"])
        tx.jobs.retry(["p"])
    finish(store, "p", fan_out(job("c", queue="s")))
    assert record(store, "f").waits_for == 1
    finish(store, "c")
    assert take_one(store, queue="t").id == "f"


# spec: FL-3, WK-2
def test_a_child_whose_key_is_taken_is_the_job_that_has_it(store: Store) -> None:
    put(store, job("p"), job("f", after=("p",)), job("holder", queue="s", key="k"))
    finish(store, "p", fan_out(job("c", queue="s", key="k")))
    assert record(store, "c").id == "holder"
    assert record(store, "holder").parent is None
    assert record(store, "f").waits_for == 1, "the follower waits for the work, whoever asked for it first"
    finish(store, "holder")
    assert take_one(store).id == "f"


# spec: FL-3, WK-2
@pytest.mark.parametrize("options", [{"unique_for_ms": 1000}, {"replace": True}])
def test_a_child_that_is_unique_or_replaces_is_the_job_that_has_its_key(store: Store, options: dict[str, Any]) -> None:
    put(store, job("p"), job("f", after=("p",)), job("holder", queue="s", key="k", **options))
    finish(store, "p", fan_out(job("c", queue="s", key="k", **options)))
    assert record(store, "c").id == "holder"
    assert record(store, "f").waits_for == 1
    finish(store, "holder")
    assert take_one(store).id == "f"


# spec: FL-3, WK-2
@pytest.mark.parametrize("ends", [Done("1"), GaveUp("no")])
def test_a_child_whose_key_is_taken_by_a_job_that_has_ended_holds_nothing_up(store: Store, ends: Outcome) -> None:
    put(store, job("holder", queue="s", key="k", unique_for_ms=60_000))
    finish(store, "holder", ends)
    put(store, job("p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c", queue="s", key="k"), job("d", queue="s", after=("c",), if_failed="run")))
    assert record(store, "c").id == "holder"
    finish(store, "d")
    assert take_one(store).id == "f"


# spec: FL-3, WK-2
@pytest.mark.parametrize("options", [{}, {"replace": True}])
def test_a_follower_that_has_the_key_of_a_child_holds_the_others_up_and_not_itself(
    store: Store, options: dict[str, Any]
) -> None:
    put(store, job("p"), job("holder", key="k", after=("p",)), job("f", after=("p",)), job("g", after=("holder", "p")))
    finish(store, "p", fan_out(job("c", key="k", **options)))
    assert [record(store, each).waits_for for each in ("holder", "f", "g")] == [0, 1, 1]
    assert perform_all(store) == ["holder", "f", "g"]


# results


# a job that has the key of a child: it takes the place of the child for whatever follows the parent, then or later


# spec: FL-3
@pytest.mark.parametrize("options", [{}, {"unique_for_ms": 60_000}], ids=["key", "period"])
def test_a_follower_that_comes_later_waits_for_a_job_in_place_of_a_child(store: Store, options: dict[str, Any]) -> None:
    put(store, job("p"), job("holder", queue="s", key="k", **options))
    finish(store, "p", fan_out(job("c", queue="s", key="k", **options)))
    put(store, job("late", after=("p",)))
    assert (state(store, "late"), record(store, "late").waits_for, take(store)) == (State.QUEUED, 1, [])
    finish(store, "holder", fan_out(job("below", queue="t")))
    assert take(store) == [], "children of that job come before the follower, too"
    finish(store, "below")
    assert take_one(store).id == "late"
    assert [one.id for one in predecessors(store, "late")] == ["p", "holder", "below"]


# spec: FL-3
def test_a_follower_that_comes_after_a_job_in_place_of_a_child_has_ended(store: Store) -> None:
    put(store, job("p"), job("holder", queue="s", key="k"))
    finish(store, "p", fan_out(job("c", queue="s", key="k")))
    finish(store, "holder", fan_out(job("below", queue="t")))
    put(store, job("late", after=("p",)))
    assert take(store) == []
    finish(store, "below")
    assert take_one(store).id == "late"


# spec: FL-2 FL-3
def test_a_follower_that_comes_later_fails_with_a_job_in_place_of_a_child(store: Store) -> None:
    put(store, job("p"), job("holder", queue="s", key="k"))
    finish(store, "p", fan_out(job("c", queue="s", key="k")))
    put(store, job("late", after=("p",)), job("anyway", after=("p",), if_failed="run"))
    finish(store, "holder", GaveUp("no"))
    assert states(store, "late", "anyway") == [State.FAILED, State.QUEUED]
    put(store, job("later", after=("p",)))
    assert state(store, "later") is State.FAILED
    assert retry(store, "holder") == ["holder"]
    assert states(store, "late", "later") == [State.QUEUED, State.QUEUED]
    assert [claim.id for claim in take(store, 5)] == ["anyway"]
    finish(store, "holder")
    assert sorted(claim.id for claim in take(store, 5)) == ["late", "later"]


# spec: FL-3
def test_a_job_whose_key_was_taken_for_a_period_and_that_failed_holds_nobody_up_later(store: Store) -> None:
    put(store, job("holder", queue="s", key="k", unique_for_ms=60_000))
    finish(store, "holder", GaveUp("no"))
    put(store, job("p"))
    finish(store, "p", fan_out(job("c", queue="s", key="k")))
    put(store, job("late", after=("p",)))
    assert take_one(store).id == "late"


# spec: FL-3
def test_results_are_in_the_order_in_which_children_were_spawned_whoever_has_their_keys(store: Store) -> None:
    holders = [job(f"h{n}", queue="s", key=f"k{n}") for n in range(4)]
    put(store, *reversed(holders), job("p", queue="r"), job("o", queue="r"), job("f", after=("o", "p")))
    spawned = [
        job("a", queue="s"), job("c0", queue="s", key="k0"), job("c1", queue="s", key="k1"), job("b", queue="s"),
        job("own", queue="s", key="own"), job("c2", queue="s", key="k2"), job("again", queue="s", key="own"),
        job("d", queue="s"), job("c3", queue="s", key="k3", replace=True),
    ]  # fmt: skip
    finish(store, "p", fan_out(*spawned))
    finish(store, "o")
    put(store, job("late", after=("o", "p")))
    perform_all(store, "s")
    wanted = ["o", "p", "a", "h0", "h1", "b", "own", "h2", "d", "h3"]
    for follower in ("f", "late"):
        assert [one.id for one in predecessors(store, follower)] == wanted
        read: list[str] = []
        after: tuple[int, int] | None = None
        while page := predecessors(store, follower, after=after, limit=2):
            read += [one.id for one in page]
            after = (page[-1].nr, page[-1].ordinal)
        assert read == wanted
        assert [one.id for one in predecessors(store, follower, queue="s", limit=3)] == ["a", "h0", "h1"]
    assert [one.id for one in store.jobs.children("p")] == wanted[2:]
    assert [one.id for one in store.jobs.children("p", 2)] == ["a", "h0"]
    assert store.jobs.related("p").children == len(wanted) - 2


# spec: FL-3
def test_jobs_below_one_in_place_of_a_child_do_not_wait_for_each_other(store: Store) -> None:
    put(store, job("p"), job("holder", queue="s", key="k"))
    finish(store, "p", fan_out(job("c", queue="s", key="k")))
    finish(store, "holder", fan_out(job("x", queue="t", after=("p",)), job("y", queue="t", after=("p",))))
    assert sorted(claim.id for claim in take(store, 5, queue="t")) == ["x", "y"]


# spec: FL-2 FL-3
@pytest.mark.parametrize("options", [{}, {"replace": True}], ids=["key", "replace"])
def test_followers_that_have_the_keys_of_children_do_not_wait_for_each_other(
    store: Store, options: dict[str, Any]
) -> None:
    followers = [job(f"f{n}", key=f"k{n}", after=("p",)) for n in range(3)]
    put(store, job("p", queue="s"), *followers)
    finish(store, "p", fan_out(*(job(f"c{n}", key=f"k{n}", **options) for n in (1, 0, 2))))
    assert perform_all(store) == ["f1", "f0", "f2"]


# spec: FL-3 WK-12
def test_a_job_in_place_of_a_child_that_was_deleted_holds_nobody_up(store: Store) -> None:
    put(store, job("p"), job("holder", queue="s", key="k"))
    finish(store, "p", fan_out(job("c", queue="s", key="k")))
    finish(store, "holder")
    with store.transaction() as tx:
        assert tx.jobs.delete(["holder"]) == ["holder"]
    put(store, job("late", after=("p",)))
    assert take_one(store).id == "late"
    assert store.jobs.children("p") == []


# spec: FL-3
def test_results_come_in_the_order_of_the_predecessors(store: Store) -> None:
    put(store, *(job(name, queue=f"r{name}") for name in "abc"), job("f", after=("b", "c", "a")))
    for name in "cab":
        finish(store, name, Done(f'"{name}!"'))
    found = predecessors(store, "f")
    assert [(one.id, one.nr, plain(one.result), one.state) for one in found] == [
        ("b", 0, "b!", State.DONE),
        ("c", 1, "c!", State.DONE),
        ("a", 2, "a!", State.DONE),
    ]


# spec: FL-3
def test_children_follow_their_parent_in_the_results(store: Store) -> None:
    put(store, job("p", queue="p"), job("o", queue="o"), job("f", after=("p", "o")))
    finish(store, "o")
    finish(store, "p", fan_out(*(job(f"c{n}", queue="s") for n in range(3))))
    finish(store, "c0", fan_out(job("cc", queue="t")))
    assert [(one.id, one.nr) for one in predecessors(store, "f")] == [
        ("p", 0), ("c0", 0), ("c1", 0), ("c2", 0), ("cc", 0), ("o", 1),
    ]  # fmt: skip


# spec: FL-3
def test_results_of_a_follower_that_came_late_are_complete(store: Store) -> None:
    put(store, job("p", queue="p"))
    finish(store, "p", fan_out(job("c0", queue="s"), job("c1", queue="s")))
    finish(store, "c0", Done('"early"'))
    put(store, job("f", after=("p",)))
    finish(store, "c1", Done('"late"'))
    assert [(one.id, plain(one.result)) for one in predecessors(store, "f", queue="s")] == [
        ("c0", "early"),
        ("c1", "late"),
    ]


# spec: FL-3
def test_results_are_read_in_pages(store: Store) -> None:
    put(store, job("p", queue="p"), job("o", queue="o"), job("f", after=("o", "p")))
    finish(store, "p", fan_out(*(job(f"c{n:02}", queue="s") for n in range(23))))
    perform_all(store, "s")
    read: list[str] = []
    after: tuple[int, int] | None = None
    while page := predecessors(store, "f", after=after, limit=5):
        assert len(page) <= 5
        read += [one.id for one in page]
        after = (page[-1].nr, page[-1].ordinal)
    assert read == ["o", "p", *(f"c{n:02}" for n in range(23))]


# spec: FL-3
def test_results_of_one_queue(store: Store) -> None:
    put(store, job("p", queue="p"), job("f", after=("p",)))
    finish(store, "p", fan_out(job("c0", queue="s"), job("d", queue="t"), job("c1", queue="s")))
    assert [one.id for one in predecessors(store, "f", queue="s")] == ["c0", "c1"]
    assert [one.id for one in predecessors(store, "f", queue="s", limit=1)] == ["c0"]
    assert predecessors(store, "f", queue="nowhere") == []


# spec: FL-3
def test_results_of_failed_predecessors_have_their_error(store: Store) -> None:
    put(store, job("a", queue="a"), job("b", queue="b"), job("f", after=("a", "b"), if_failed="run"))
    finish(store, "a", GaveUp("no use"))
    cancel(store, "b")
    a, b = predecessors(store, "f")
    assert (a.state, a.reason, a.error, a.result) == (State.FAILED, "gave up", "no use", None)
    assert (b.state, b.result) == (State.CANCELLED, None)


# spec: FL-3
def test_predecessors_without_their_texts(store: Store) -> None:
    put(store, job("a", queue="a"), job("b", queue="b"), job("f", after=("a", "b"), if_failed="run"))
    finish(store, "a", Done('"long"'))
    finish(store, "b", GaveUp("long"))
    assert [(one.result, one.error) for one in predecessors(store, "f", texts=False)] == [(None, None), (None, None)]


# spec: FL-3
def test_a_parent_that_runs_again_has_children_of_its_accepted_attempt_only(store: Store) -> None:
    first = bring(store, State.RUNNING)
    assert release(store, first)
    second = take_one(store)
    put(store, job("f", queue="t", after=(first.id,)))
    assert end(store, first, fan_out(job("old", queue="s"))) == [first.id]
    assert end(store, second, fan_out(job("new", queue="s"))) == []
    assert [found.id for found in store.jobs.children(first.id)] == ["new"]
    assert [one.id for one in predecessors(store, "f")] == [first.id, "new"]
    assert states(store, "new", "f") == [State.QUEUED, State.QUEUED]
