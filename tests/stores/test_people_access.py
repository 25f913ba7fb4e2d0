"""Tests for keys, sessions, the operator log, remembered answers, clearing, and the probe of a store."""

import threading
from collections.abc import Callable

import pytest
from builders import HOUR, NOON, Wall, bring, everything, job, put, state, take_one

from chargehand.errors import Conflict
from chargehand.model.access import (
    MOST_SESSIONS,
    REMEMBERED_MS,
    ApiKey,
    Deed,
    OperationFilter,
    Remembered,
    Scope,
    Session,
)
from chargehand.model.job import State
from chargehand.model.records import JobFilter, Retention
from chargehand.store import Store


def key(id: str, name: str = "ops", **options: object) -> ApiKey:
    usual = {"digest": f"digest-{id}", "scopes": (Scope.READ, Scope.CONTROL), "created_ms": NOON}
    return ApiKey(id=id, name=name, **{**usual, **options})  # type: ignore[arg-type]


def add(store: Store, *keys: ApiKey) -> None:
    for one in keys:
        with store.transaction() as tx:
            tx.access.add_key(one)


def revoke(store: Store, name: str) -> bool:
    with store.transaction() as tx:
        return tx.access.revoke_key(name)


def log(store: Store, *deeds: Deed) -> None:
    with store.transaction() as tx:
        tx.access.log(deeds)


def sign_in(store: Store, digest: str, key_id: str = "k", created_ms: int = NOON, expires_ms: int = NOON + 9) -> None:
    with store.transaction() as tx:
        tx.access.sign_in(Session(digest=digest, key=key_id, created_ms=created_ms, expires_ms=expires_ms))


def test_keys_are_kept_as_they_were_given(store: Store) -> None:  # spec: SE-2
    first, second = key("a"), key("b", "other", expires_ms=NOON + HOUR, created_ms=NOON + 1, scopes=(Scope.ENQUEUE,))
    add(store, second, first)
    assert store.access.api_keys() == [first, second]


def test_a_name_is_given_once_while_its_key_is_in_use(store: Store) -> None:  # spec: SE-2
    add(store, key("a"))
    with pytest.raises(Conflict, match="'ops'"):
        add(store, key("b"))
    assert revoke(store, "ops")
    add(store, key("b"))
    assert [(one.id, one.revoked_ms is None) for one in store.access.api_keys()] == [("a", False), ("b", True)]


def test_a_key_is_revoked_once_by_name_or_id(store: Store, wall: Wall) -> None:  # spec: SE-2
    wall.at = NOON
    add(store, key("a"), key("b", "other"))
    assert [revoke(store, name) for name in ("a", "ops", "unknown", "other")] == [True, False, False, True]
    assert [one.revoked_ms for one in store.access.api_keys()] == [NOON, NOON]


def test_when_a_key_was_used_never_goes_back(store: Store) -> None:
    add(store, key("a"))
    for moment in (NOON + 2, NOON + 1):
        with store.transaction() as tx:
            tx.access.touch_keys([("a", moment), ("unknown", moment)])
    assert store.access.api_keys()[0].used_ms == NOON + 2


def test_a_sign_in_lasts_until_its_time_its_end_or_its_keys_end(store: Store, wall: Wall) -> None:  # spec: SE-2
    wall.at = NOON
    add(store, key("a"))
    sign_in(store, "one", "a")
    sign_in(store, "two", "a", expires_ms=NOON + 1)
    sign_in(store, "three", "b")
    assert {found.digest for found in store.access.sessions()} == {"one", "two", "three"}
    wall.at = NOON + 1
    assert {found.digest for found in store.access.sessions()} == {"one", "three"}
    with store.transaction() as tx:
        tx.access.sign_out(["three"])
    assert {found.digest for found in store.access.sessions()} == {"one"}
    revoke(store, "ops")
    assert store.access.sessions() == []


def test_the_oldest_sign_ins_give_way(store: Store, wall: Wall) -> None:  # spec: SE-3
    wall.at = NOON
    with store.transaction() as tx:
        for number in range(MOST_SESSIONS + 2):
            tx.access.sign_in(Session(digest=f"{number}", key="k", created_ms=NOON + number, expires_ms=NOON + HOUR))
        tx.access.sign_in(Session(digest="other", key="other", created_ms=NOON - 1, expires_ms=NOON + HOUR))
    left = {found.digest for found in store.access.sessions()}
    assert left == {"other", *(str(number) for number in range(2, MOST_SESSIONS + 2))}  # of this key alone


def test_the_operator_log_is_read_newest_first_page_by_page(store: Store, wall: Wall) -> None:  # spec: SE-5
    wall.at = NOON
    log(store, *(Deed(who="ann", verb="stop", target=f"worker:q:{n}", origin="cli") for n in range(3)))
    wall.at = NOON + 1
    log(store, Deed(who="bob", verb="pause", detail="new model"))
    first = store.access.operations(OperationFilter(limit=3))
    assert [(one.who, one.verb, one.target, one.at_ms) for one in first] == [
        ("bob", "pause", "*", NOON + 1),
        ("ann", "stop", "worker:q:2", NOON),
        ("ann", "stop", "worker:q:1", NOON),
    ]
    rest = store.access.operations(OperationFilter(limit=3, before=first[-1].id))
    assert [one.target for one in rest] == ["worker:q:0"]
    assert [one.detail for one in store.access.operations(OperationFilter(who="bob"))] == ["new model"]
    assert len(store.access.operations(OperationFilter(verb="stop"))) == 3
    assert len(store.access.operations(OperationFilter(target="worker:q:1"))) == 1


def test_what_is_no_unicode_can_be_logged(store: Store) -> None:
    log(store, Deed(who="ann\udcff", verb="pause", detail="\udc80"))
    assert [one.who for one in store.access.operations(OperationFilter())] == ["ann\\xff"]


def test_a_request_that_is_repeated_before_its_answer_waits_for_it(  # spec: HT-3
    store_factory: Callable[[], Store],
) -> None:
    store, other = store_factory(), store_factory()
    answer = Remembered(caller="ann", key="k1", digest="d", status=201, body="[]")
    asked, found = threading.Event(), list[Remembered | None]()

    def repeat() -> None:
        with other.transaction() as tx:
            found.append(tx.access.remembered("ann", "k1"))
            asked.set()

    with store.transaction() as tx:
        assert tx.access.remembered("ann", "k1") is None
        repeating = threading.Thread(target=repeat)
        repeating.start()
        asked.wait(0.3)
        tx.access.remember(answer)
    repeating.join()
    assert found == [answer]


def test_an_answer_is_remembered_for_a_day_and_for_its_caller(store: Store, wall: Wall) -> None:
    wall.at = NOON
    answer = Remembered(caller="ann", key="k1", digest="d", status=201, body="{}")
    with store.transaction() as tx:
        tx.access.remember(answer)
    wall.at = NOON + REMEMBERED_MS - 1
    with store.transaction() as tx:
        assert tx.access.remembered("ann", "k1") == answer
        assert tx.access.remembered("bob", "k1") is None
        assert tx.access.remembered("ann", "k2") is None
    wall.at = NOON + REMEMBERED_MS
    with store.transaction() as tx:
        assert tx.access.remembered("ann", "k1") is None


def test_what_is_past_its_keeping_is_pruned(store: Store, wall: Wall) -> None:  # spec: WK-12
    wall.at = NOON
    log(store, Deed(who="ann", verb="stop"))
    sign_in(store, "one")
    with store.transaction() as tx:
        tx.access.remember(Remembered(caller="ann", key="k1", digest="d", status=201, body="{}"))
    keep = Retention(operation_age_ms=2 * REMEMBERED_MS)
    store.prune(keep, 100)
    assert (len(store.access.operations(OperationFilter())), len(store.access.sessions())) == (1, 1)
    wall.at = NOON + 2 * REMEMBERED_MS + 1
    store.prune(keep, 100)
    wall.at = NOON
    with store.transaction() as tx:
        assert tx.access.remembered("ann", "k1") is None
    assert (store.access.operations(OperationFilter()), store.access.sessions()) == ([], [])


def test_a_page_goes_on_though_its_last_job_is_gone(store: Store) -> None:  # spec: HT-3
    put(store, *(job(f"job-{n}") for n in range(4)))
    page = store.jobs.find(JobFilter(limit=2))
    claim = take_one(store)
    assert claim.id == "job-0"
    assert [one.id for one in store.jobs.find(JobFilter(below=page[-1].seq))] == ["job-1", "job-0"]


def test_a_claim_says_how_long_its_job_was_due(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("now"), job("later", delay_ms=30))
    wall.at = NOON + 50
    assert (take_one(store).waited_ms, take_one(store).waited_ms) == (50, 20)


def test_a_store_that_can_be_written_says_so(store: Store) -> None:  # spec: HT-5
    store.probe()
    store.probe()
    bring(store, State.DONE)
    assert state(store, everything(store)[0].id) is State.DONE
