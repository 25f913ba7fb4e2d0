"""Tests for enqueueing: stored fields, due times, unique keys, repeated requests, the caller's own transaction."""

import json
from collections.abc import Callable

import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    Boom,
    bring,
    cancel,
    end,
    everything,
    job,
    jobs,
    plain,
    put,
    record,
    retry,
    roll_back,
    state,
    take,
    take_one,
)

from chargehand.errors import ChargehandError, Conflict
from chargehand.model.job import Done, Enqueued, State
from chargehand.model.records import JobFilter, Retention
from chargehand.store import Store, Transaction

SIGNS = ["ä", "日本", "💥", "a'b\"c;--", "%s ? :x $1", "tab\\t"]


def count_songs(store: Store) -> int:
    with store.transaction() as tx:
        return tx.execute("SELECT count(*) FROM song")[0][0]


def make_songs(store: Store) -> None:
    with store.transaction() as tx:
        tx.execute("CREATE TABLE song (path TEXT)")


# spec: WK-1
def test_a_new_job_has_every_field_that_it_was_given(store: Store) -> None:
    new = job(
        "one", "q", payload='{"a":[1,2.5,null,"x"]}', label="A label", priority=7, max_attempts=9, timeout_ms=1234,
        key="k",
    )  # fmt: skip
    assert put(store, new) == [Enqueued("one", True)]
    found = record(store, "one")
    assert (found.id, found.queue, found.label, found.state) == ("one", "q", "A label", State.QUEUED)
    assert (found.priority, found.max_attempts, found.timeout_ms, found.key) == (7, 9, 1234, "k")
    assert plain(found.payload) == {"a": [1, 2.5, None, "x"]}


# spec: WK-1
def test_a_new_job_has_nothing_that_only_work_can_give_it(store: Store) -> None:
    put(store, job("one"))
    found = record(store, "one")
    assert (found.attempts, found.crashes, found.interruptions, found.claim) == (0, 0, 0, None)
    assert (found.progress, found.result, found.error, found.reason) == (None, None, None, None)
    assert (found.started_ms, found.finished_ms, found.node, found.worker) == (None, None, None, None)
    assert store.jobs.attempts("one") == []


# spec: WK-1
def test_what_a_job_does_not_say_has_the_defaults_of_the_model(store: Store) -> None:
    put(store, job("one"))
    found = record(store, "one")
    assert (found.label, found.key, found.priority, found.max_attempts) == (None, None, 0, 3)
    assert found.timeout_ms == HOUR
    assert plain(found.payload) is None


# spec: WK-7
def test_a_job_may_have_no_timeout(store: Store) -> None:
    put(store, job("one", timeout_ms=None))
    assert record(store, "one").timeout_ms is None
    assert take_one(store).timeout_ms is None


# spec: WK-1, SE-4
@pytest.mark.parametrize("text", SIGNS)
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    payload = json.dumps({text: text}, ensure_ascii=False)
    put(store, job(f"id {text}", f"queue {text}", label=text, key=text, payload=payload))
    found = record(store, f"id {text}")
    assert (found.queue, found.label, found.key) == (f"queue {text}", text, text)
    assert plain(found.payload) == {text: text}
    claim = take_one(store, queue=f"queue {text}")
    assert (claim.id, claim.label, json.loads(claim.payload)) == (f"id {text}", text, {text: text})


# spec: WK-1, SE-3
def test_a_payload_at_the_limit_comes_back_whole(store: Store) -> None:
    payload = '"' + "x" * ((1 << 20) - 2) + '"'
    put(store, job("big", payload=payload))
    assert take_one(store).payload == payload


# spec: WK-2
def test_ten_thousand_jobs_go_in_with_one_transaction(store: Store) -> None:
    new = jobs(10_000)
    assert put(store, *new) == [Enqueued(one.id, True) for one in new]
    (counts,) = store.jobs.counts()
    assert counts.queued == 10_000
    assert [claim.id for claim in take(store, 10)] == [one.id for one in new[:10]]


# spec: WK-2
def test_enqueueing_nothing_is_nothing(store: Store) -> None:
    assert put(store) == []
    assert everything(store) == []


# spec: WK-2
def test_a_batch_for_several_queues_is_answered_in_its_own_order(store: Store) -> None:
    new = [job(f"{n}", f"queue-{n % 3}") for n in range(9)]
    assert [answer.id for answer in put(store, *new)] == [f"{n}" for n in range(9)]
    assert [(c.queue, c.queued) for c in store.jobs.counts()] == [("queue-0", 3), ("queue-1", 3), ("queue-2", 3)]


# spec: WK-2
def test_a_delayed_job_runs_that_much_after_its_creation(store: Store) -> None:
    put(store, job("one", delay_ms=HOUR))
    found = record(store, "one")
    assert found.run_at_ms == found.created_ms + HOUR
    assert found.state is State.QUEUED
    assert take(store) == []


# spec: WK-2
def test_a_job_without_delay_is_due_when_it_is_created(store: Store) -> None:
    put(store, job("one"))
    found = record(store, "one")
    assert found.run_at_ms == found.created_ms


# spec: WK-2
def test_run_at_is_kept_to_the_millisecond(store: Store) -> None:
    put(store, job("one", run_at_ms=4_000_000_000_123))
    assert record(store, "one").run_at_ms == 4_000_000_000_123
    assert take(store) == []


# spec: WK-2
def test_a_run_at_in_the_past_is_due_at_once(store: Store) -> None:
    put(store, job("one", run_at_ms=1))
    assert take_one(store).id == "one"


# spec: WK-2
def test_run_at_wins_over_delay(store: Store) -> None:
    put(store, job("one", run_at_ms=1, delay_ms=HOUR))
    assert take_one(store).id == "one"


# unique keys


# spec: WK-2
@pytest.mark.parametrize("holder", [State.QUEUED, State.RUNNING])
def test_a_taken_key_is_answered_with_its_holder(store: Store, holder: State) -> None:
    first = bring(store, holder, key="k")
    assert put(store, job("second", key="k")) == [Enqueued(first.id, False)]
    assert store.jobs.get("second") is None


# spec: WK-2
@pytest.mark.parametrize("holder", [State.QUEUED, State.RUNNING])
def test_an_id_that_a_handler_was_given_finds_the_job_that_holds_its_key(store: Store, holder: State) -> None:
    first = bring(store, holder, key="k")
    parent = bring(store, State.RUNNING, queue="other")
    follow = (job("second", key="k"), job("third", key="free"), job("fourth", key="free"))
    assert end(store, parent, Done("1", follow)) == []
    assert record(store, "second").id == first.id
    assert record(store, "third").id == record(store, "fourth").id == "third"
    assert [found.id for found in store.jobs.find(JobFilter(queue=first.queue))] == ["third", first.id]
    if holder is State.RUNNING:
        end(store, first, Done("2"))
        assert plain(record(store, "second").result) == 2
        assert store.jobs.attempts("second") == store.jobs.attempts(first.id)
        assert len(store.jobs.attempts("second")) == 1
        assert store.prune(Retention(count=0), 10) == 2
        assert store.jobs.get("second") is None, "the alias goes with its job"


# spec: WK-2
def test_a_key_held_by_a_job_that_waits_for_its_time_is_taken(store: Store) -> None:
    put(store, job("first", key="k", delay_ms=HOUR))
    assert put(store, job("second", key="k")) == [Enqueued("first", False)]


# spec: WK-2
@pytest.mark.parametrize("holder", [State.DONE, State.FAILED, State.CANCELLED])
def test_the_key_of_a_finished_job_is_free(store: Store, holder: State) -> None:
    bring(store, holder, key="k")
    assert put(store, job("second", key="k")) == [Enqueued("second", True)]
    assert state(store, "second") is State.QUEUED


# spec: WK-2
def test_a_key_is_taken_within_one_batch_too(store: Store) -> None:
    answers = put(store, job("a", key="k"), job("b", key="k"), job("c", key="other"), job("d", key="k"))
    assert answers == [Enqueued("a", True), Enqueued("a", False), Enqueued("c", True), Enqueued("a", False)]
    assert len(everything(store)) == 2


# spec: WK-2
def test_the_same_key_in_another_queue_is_another_key(store: Store) -> None:
    answers = put(store, job("a", "q", key="k"), job("b", "other", key="k"))
    assert answers == [Enqueued("a", True), Enqueued("b", True)]


# spec: WK-2
def test_jobs_without_a_key_never_meet(store: Store) -> None:
    assert all(answer.created for answer in put(store, job("a"), job("b"), job("c")))


# spec: WK-2
def test_a_second_enqueue_does_not_change_the_first(store: Store) -> None:
    put(store, job("a", key="k", payload="1", priority=1, label="first"))
    was = record(store, "a")
    put(store, job("b", key="k", payload="2", priority=9, label="second"))
    assert record(store, "a") == was


# spec: WK-2
@pytest.mark.parametrize("finished", [State.FAILED, State.CANCELLED])
@pytest.mark.parametrize("holder", [State.QUEUED, State.RUNNING])
def test_retrying_a_job_whose_key_is_taken_is_a_conflict_that_names_the_holder(
    store: Store, finished: State, holder: State
) -> None:
    old = bring(store, finished, key="the-key")
    new = bring(store, holder, key="the-key")
    was = record(store, old.id)
    with pytest.raises(Conflict, match=rf"{old.id}.*the-key.*{new.id}"):
        retry(store, old.id)
    assert record(store, old.id) == was
    assert state(store, new.id) is holder


# spec: WK-2
def test_a_conflict_undoes_the_whole_retry(store: Store) -> None:
    fine = bring(store, State.FAILED)
    stuck = bring(store, State.FAILED, key="k")
    put(store, job("holder", key="k"))
    with pytest.raises(Conflict, match="holder"):
        retry(store, fine.id, stuck.id)
    assert state(store, fine.id) is State.FAILED


# spec: WK-2
def test_of_two_failed_jobs_with_one_key_only_the_first_can_be_retried(store: Store) -> None:
    first, second = bring(store, State.FAILED, key="k"), bring(store, State.FAILED, key="k")
    with pytest.raises(Conflict, match=first.id):
        retry(store, first.id, second.id)
    assert retry(store, second.id) == [second.id]
    with pytest.raises(Conflict, match=second.id):
        retry(store, first.id)


# spec: WK-2
def test_a_retried_job_holds_its_key_again(store: Store) -> None:
    old = bring(store, State.FAILED, key="k")
    retry(store, old.id)
    assert put(store, job("new", key="k")) == [Enqueued(old.id, False)]


# repeated requests


# spec: WK-2
@pytest.mark.parametrize("before", list(State))
def test_the_same_id_again_is_the_same_job_whatever_its_state(store: Store, before: State) -> None:
    claim = bring(store, before)
    assert put(store, job(claim.id)) == [Enqueued(claim.id, False)]
    assert len(everything(store)) == 1


# spec: WK-2
def test_a_whole_batch_repeated_adds_nothing(store: Store) -> None:
    new = jobs(50)
    put(store, *new)
    assert put(store, *new) == [Enqueued(one.id, False) for one in new]
    assert len(everything(store)) == 50


# spec: WK-2
def test_a_batch_half_known_adds_the_other_half(store: Store) -> None:
    new = jobs(10)
    put(store, *new[::2])
    assert [answer.created for answer in put(store, *new)] == [False, True] * 5


# spec: WK-2
def test_the_same_id_twice_in_one_batch_is_one_job_and_is_said_to_be_created_once(store: Store) -> None:
    assert put(store, job("a"), job("a")) == [Enqueued("a", True), Enqueued("a", False)]
    assert len(everything(store)) == 1


# spec: WK-2
def test_a_known_id_wins_over_a_taken_key(store: Store) -> None:
    put(store, job("a"), job("holder", key="k"))
    assert put(store, job("a", key="k")) == [Enqueued("a", False)]


# the caller's own transaction


# spec: WK-2
def test_a_domain_write_and_its_job_commit_together(store: Store, store_factory: Callable[[], Store]) -> None:
    make_songs(store)
    with store.transaction() as tx:
        tx.execute("INSERT INTO song VALUES ('a.flac')")
        tx.jobs.enqueue([job("one")])
    other = store_factory()
    assert count_songs(other) == 1
    assert state(other, "one") is State.QUEUED


# spec: WK-2
@pytest.mark.parametrize("first", ["row", "job"])
def test_a_domain_write_and_its_job_roll_back_together(store: Store, first: str) -> None:
    def work(tx: Transaction) -> None:
        if first == "row":
            tx.execute("INSERT INTO song VALUES ('a.flac')")
        tx.jobs.enqueue([job("one")])
        if first == "job":
            tx.execute("INSERT INTO song VALUES ('a.flac')")

    make_songs(store)
    roll_back(store, work)
    assert count_songs(store) == 0
    assert store.jobs.get("one") is None


# spec: WK-2
def test_nobody_sees_a_job_before_its_transaction_has_committed(
    store: Store, store_factory: Callable[[], Store]
) -> None:
    other = store_factory()
    with store.transaction() as tx:
        tx.jobs.enqueue([job("one")])
        assert other.jobs.get("one") is None
        assert other.jobs.counts() == []
    assert other.jobs.get("one") is not None


# spec: WK-2
def test_a_store_goes_on_after_a_transaction_that_failed(store: Store) -> None:
    roll_back(store, lambda tx: tx.jobs.enqueue([job("one")]))
    assert put(store, job("one")) == [Enqueued("one", True)]


# spec: WK-2
@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("mine"), FileNotFoundError(2, "mine"), Boom("mine")])
def test_what_the_caller_raises_in_a_transaction_comes_out_as_it_is(store: Store, error: Exception) -> None:
    def work() -> None:
        with store.transaction() as tx:
            tx.jobs.enqueue([job("one")])
            raise error

    with pytest.raises(type(error)) as caught:
        work()
    assert caught.value is error
    assert store.jobs.get("one") is None


# spec: WK-2
def test_all_kinds_of_change_roll_back_together(store: Store) -> None:
    failed, waiting = bring(store, State.FAILED), bring(store, State.QUEUED)
    running = bring(store, State.RUNNING, queue="other")
    before = everything(store)

    def work(tx: Transaction) -> None:
        tx.jobs.enqueue([job("new")])
        assert [(each.id, each.at_once) for each in tx.jobs.cancel([waiting.id])] == [(waiting.id, True)]
        assert tx.jobs.retry([failed.id]) == [failed.id]
        tx.fleet.pause("*", "me", None)
        assert [ended.id for ended in tx.jobs.recover(EARLIER_ME, "why")] == [running.id]

    roll_back(store, work)
    assert everything(store) == before
    assert store.fleet.pauses() == []
    assert store.jobs.attempts(running.id) == []


# spec: WK-2
def test_cancelling_frees_the_key(store: Store) -> None:
    put(store, job("a", key="k"))
    assert cancel(store, "a") == ["a"]
    assert put(store, job("b", key="k")) == [Enqueued("b", True)]


def test_a_transaction_that_has_ended_is_refused(store: Store) -> None:
    with store.transaction() as tx:
        tx.jobs.enqueue([job("inside")])
    for use in (
        lambda: tx.jobs.enqueue([job("late")]),
        lambda: tx.execute("SELECT 1"),
        lambda: tx.access.remembered("a", "b"),
    ):
        with pytest.raises(ChargehandError, match="has ended"):
            use()
    assert [each.id for each in everything(store)] == ["inside"]
