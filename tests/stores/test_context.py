"""What callers say about a job besides its payload: `meta` and the trace."""

from builders import end, job, put, record, take, take_one

from chargehand.model.job import GaveUp
from chargehand.store import Store

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
META = {"customer": "größe", "levels": [1, {"deep": None}], "big": 2**70}


def test_meta_and_trace_are_kept_and_come_with_the_claim(store: Store) -> None:  # spec: HK-2
    put(store, job("a", meta=META, traceparent=TRACE), job("b"))
    found = record(store, "a")
    assert (found.meta, found.traceparent) == (META, TRACE)
    first, second = take(store, 2)
    assert (first.traceparent, second.meta, second.traceparent) == (TRACE, None, None)
    assert first.meta is not None
    assert '"größe"' in first.meta
    assert record(store, "b").meta is None


def test_jobs_with_and_without_meta_are_added_together_in_order(store: Store) -> None:  # spec: HK-2
    put(store, *(job(f"j{n}", meta={"n": n} if n % 3 == 0 else None) for n in range(120)))
    assert [claim.id for claim in take(store, 200)] == [f"j{n}" for n in range(120)]
    assert [record(store, f"j{n}").meta for n in range(4)] == [{"n": 0}, None, None, {"n": 3}]


def test_replace_replaces_meta_and_trace_too(store: Store) -> None:  # spec: HK-2
    put(store, job("a", key="k", meta={"old": 1}, traceparent=TRACE))
    (answer,) = put(store, job("b", key="k", meta={"new": 2}, replace=True))
    assert (answer.id, answer.replaced) == ("a", True)
    assert (record(store, "a").meta, record(store, "a").traceparent) == ({"new": 2}, None)


def test_a_retry_and_a_key_that_is_taken_leave_meta_as_it_is(store: Store) -> None:  # spec: HK-2
    put(store, job("a", key="k", meta={"n": 1}))
    (answer,) = put(store, job("b", key="k", meta={"n": 2}))
    assert (answer.id, answer.created) == ("a", False)
    end(store, take_one(store), GaveUp("no"))
    with store.transaction() as tx:
        tx.jobs.retry(["a"])
    assert record(store, "a").meta == {"n": 1}
