"""Tests for what a store keeps of other nodes for each: requests, and who searches. Every store has these methods."""

import pytest
from builders import ME, crew, register

from chargehand.errors import StoreError
from chargehand.model.batch import Batch
from chargehand.model.chores import AnswerRequest, Lead
from chargehand.model.records import NodeRequest
from chargehand.store import Store


# spec: MN-1, WK-10
def test_the_only_node_searches_for_every_crew_that_it_is_ready_for(store: Store) -> None:
    register(store, crew("q"), crew("r"))
    for ready in (("q", "r"), ("q",), (), ("r",)):
        (led,) = store.turn(Batch(chores=(Lead(ready, tuple({"q", "r"} - set(ready))),)), ME).done
        assert sorted(led) == sorted(ready)


# spec: MN-3
def test_an_answer_to_a_request_that_is_gone_changes_nothing(store: Store) -> None:
    register(store, crew("q"))
    assert store.turn(Batch(chores=(AnswerRequest("gone", "{}"), AnswerRequest("gone", None))), ME).done == (None, None)
    assert (store.fleet.requests(ME), store.fleet.replies(["gone"])) == ([], [])
    with store.transaction() as tx:
        assert tx.fleet.withdraw(["gone"]) == []


# spec: MN-3
def test_requests_are_read_with_the_turns_that_find_that_others_have_written(store: Store) -> None:
    register(store, crew("q"))
    assert store.turn(Batch(chores=(Lead(()),)), ME).asked is None
    assert store.turn(Batch(poll=True, unsure=True), ME).asked == ()


# spec: MN-3
def test_a_store_for_one_node_keeps_no_requests(store: Store) -> None:
    register(store, crew("q"))
    if [node.name for node in store.fleet.living()] == [ME.node]:
        return  # a store for many
    with pytest.raises(StoreError, match="socket"), store.transaction() as tx:
        tx.fleet.ask([NodeRequest(id="1", life=ME.life, kind="ORDER", body="{}")])
