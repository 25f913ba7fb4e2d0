"""Tests for jobs that a node had when it died: at most one is taken at a time, and only that one is charged."""

import pytest
from builders import NOON, Wall, job, put, take

from chargehand.model.batch import Want
from chargehand.model.job import Claim, Done, Raised, Settlement, State, settle
from chargehand.model.records import CrewRow, Holder
from chargehand.store import Store

LIVES = [Holder("node-a", f"life-{number}") for number in range(6)]


def die(store: Store, number: int, *, asked: bool = False) -> list[Settlement]:
    """The node of this life is gone, and the next one takes its claims back."""
    with store.transaction() as tx:
        died = () if asked else (LIVES[number].life,)
        return tx.jobs.recover(LIVES[number + 1], "the node ended", died=died)


def claim(store: Store, number: int, limit: int = 9, queue: str = "q") -> list[Claim]:
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want(queue, queue, limit)], LIVES[number])
    return list(grant.claims)


def done(store: Store, number: int, *claims: Claim) -> None:
    with store.transaction() as tx:
        assert tx.jobs.settle([made for each in claims if (made := settle(each, Done()))], LIVES[number]) == []


def counts(store: Store, job_id: str) -> tuple[str, int, int]:
    found = store.jobs.get(job_id)
    assert found is not None
    return found.state.value, found.crashes, found.interruptions


# spec: RP-10
def test_jobs_of_a_node_that_died_are_taken_one_at_a_time(store: Store) -> None:
    put(store, *(job(name) for name in ("a", "b", "c", "d")))
    take(store, 3, holder=LIVES[0])
    assert [settlement.outcome for settlement in die(store, 0)] == ["interrupted"] * 3
    first = claim(store, 1)
    assert [(each.id, each.suspect) for each in first] == [("a", True), ("d", False)]
    assert claim(store, 1) == []  # one suspect is enough
    done(store, 1, first[0])
    assert [each.id for each in claim(store, 1)] == ["b"]


# spec: RP-10
@pytest.mark.parametrize("asked", [True, False])
def test_a_stop_makes_no_suspects(store: Store, asked: bool) -> None:
    put(store, job("a"), job("b"))
    take(store, 2, holder=LIVES[0])
    die(store, 0, asked=asked)
    assert [each.suspect for each in claim(store, 1)] == ([False, False] if asked else [True])


# spec: RP-10 WK-6
def test_the_only_suspect_is_charged_and_the_third_charge_quarantines_it(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("guilty"), job("innocent"), *(job(f"later {n}") for n in range(4)))
    take(store, 2, holder=LIVES[0])
    die(store, 0)
    for number in (1, 2, 3):
        wall.at = NOON + number * 60_000  # a second crash has a backoff
        assert [each.id for each in claim(store, number, 2)] == ["guilty", f"later {number - 1}"]
        die(store, number)
        state, crashes, interruptions = counts(store, "guilty")
        assert (crashes, interruptions) == (number, 1)
    assert (state, getattr(store.jobs.get("guilty"), "reason", None)) == ("failed", "poison")
    assert "the node died" in (store.jobs.attempts("guilty")[-1].error or "")
    assert counts(store, "innocent") == ("queued", 0, 1)
    assert all(counts(store, f"later {n}") == ("queued", 0, 1) for n in range(3))
    for expected in ("innocent", "later 0", "later 1", "later 2"):  # each gets its turn, and nobody pays
        suspect, *others = [each for each in claim(store, 4) if each.suspect]
        assert (suspect.id, others) == (expected, [])
        done(store, 4, suspect)


# spec: RP-10
def test_a_suspect_that_is_cancelled_and_retried_at_once_is_none_any_more(store: Store) -> None:
    put(store, job("a"), job("b"))
    take(store, 2, holder=LIVES[0])
    die(store, 0)
    with store.transaction() as tx:
        tx.jobs.cancel(["a"])
        tx.jobs.retry(["a"])
    assert {(each.id, each.suspect) for each in claim(store, 1, 2)} == {("a", False), ("b", True)}


# spec: RP-10
def test_a_suspect_that_has_ended_is_none_any_more(store: Store) -> None:
    put(store, job("a", max_attempts=1), job("b"), job("c"))
    take(store, 3, holder=LIVES[0])
    die(store, 0)
    (first,) = claim(store, 1)
    with store.transaction() as tx:
        failed = settle(first, Raised("no"))
        assert failed is not None
        tx.jobs.settle([failed], LIVES[1])
        tx.jobs.cancel(["b"])
    assert [each.id for each in claim(store, 1)] == ["c"]
    with store.transaction() as tx:
        assert tx.jobs.retry(["a"]) == ["a"]
    assert [(each.id, each.suspect) for each in claim(store, 1)] == [("a", False)]


# spec: RP-10 WK-12
def test_suspects_of_other_queues_wait_and_their_keys_keep_their_limits(store: Store) -> None:
    crew = CrewRow(
        name="k", queue="k", handler="h", workers=1, max_attempts=1, timeout_ms=None, limit_per_key=1
    )  # fmt: skip
    with store.transaction() as tx:
        tx.fleet.register(LIVES[0], [crew], {"boot": "b"})
    assert store.fleet.last_life(LIVES[0].node) is not None
    put(store, job("a"), *(job(f"k{n}", queue="k", limit_key=str(n % 2)) for n in range(4)))
    take(store, 1, holder=LIVES[0])
    claim(store, 0, queue="k")
    die(store, 0)
    (suspect,) = claim(store, 1)
    assert [each.id for each in claim(store, 1, queue="k")] == ["k2", "k3"]
    done(store, 1, suspect)
    assert [each.id for each in claim(store, 1, queue="k")] == []  # both keys are taken
    assert store.jobs.get("k0") is not None


# spec: RP-10
def test_claims_of_lives_before_the_last_are_not_judged(store: Store) -> None:
    put(store, job("a"), job("b"))
    take(store, 1, holder=LIVES[0])
    take(store, 1, holder=LIVES[1])
    die(store, 1)
    assert [(each.id, each.suspect) for each in claim(store, 2)] == [("a", False), ("b", True)]
    assert counts(store, "a")[0] == State.RUNNING
