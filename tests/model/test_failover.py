"""Tests for what a node repeats after a failover of the store's server."""

from typing import Any

import pytest
from ledger_builders import T, claims, fast, grant, ledger, serve, working

from chargehand.model import failover
from chargehand.model.failover import Change, Comparison, Ends, Server, ServerClaim, compare, judge
from chargehand.model.job import Done, NewJob, Raised, Settlement, State

# spec: MN-6

ONE = Server("7300", 2, "noon")


def ended(seq: int, claim: int = 1, **about: Any) -> Settlement:
    usual: dict[str, Any] = {"outcome": "done", "state": State.DONE} | about
    return Settlement(id=f"job-{seq}", seq=seq, claim=claim, queue="queue-a", **usual)


def on_server(seq: int, number: int = 1) -> ServerClaim:
    return ServerClaim(f"job-{seq}", seq, number, "queue-a")


@pytest.mark.parametrize(
    ("before", "found", "change"),
    [
        (ONE, ONE, Change.SAME),
        (ONE, Server("7300", 2, "one o'clock"), Change.SAME),
        (ONE, Server("7300", 3, "noon"), Change.REPLACED),
        (ONE, Server("7301", 1, "noon"), Change.REPLACED),
        (ONE, Server("7300", 1, "noon"), Change.OUTDATED),
        (None, ONE, Change.SAME),
        (ONE, None, Change.SAME),
    ],
)
def test_a_promotion_begins_a_new_timeline_and_a_former_primary_has_an_old_one(
    before: Server | None, found: Server | None, change: Change
) -> None:
    assert judge(before, found) is change


def test_outcomes_are_kept_for_a_minute() -> None:
    ends = Ends()
    ends.add([ended(1)], T)
    ends.add([ended(2), ended(3)], T + 30)
    assert [end.seq for end in ends.recent(T + failover.KEPT_SECONDS)] == [1, 2, 3]
    assert [end.seq for end in ends.recent(T + failover.KEPT_SECONDS + 1)] == [2, 3]


def test_the_memory_for_outcomes_is_limited() -> None:
    ends = Ends()
    ends.add((ended(seq) for seq in range(failover.MOST_ENDS + 5)), T)
    assert [end.seq for end in ends.recent(T)] == list(range(5, failover.MOST_ENDS + 5)), "the oldest are forgotten"
    large = "x" * (failover.MOST_BYTES // 8)
    for seq, end in enumerate(
        [
            ended(0, result=large),
            ended(1, error=large),
            ended(2, follow=(NewJob(id="child", queue="q", payload=large),)),
            ended(3, result=large[: len(large) // 4].replace("x", "é")),
        ]
        * 2
    ):
        ends.add([end], T + seq)
    assert [end.seq for end in ends.recent(T + 7)] == [1, 2, 3, 0, 1, 2, 3]
    ends.add([ended(9)] * failover.MOST_ENDS, T + 7)
    assert {end.seq for end in ends.recent(T + 7)} == {9}, "what was forgotten counts no more"


def test_outcomes_are_repeated_whose_claims_the_server_holds() -> None:
    ends = [
        ended(1),
        ended(2),
        ended(3),
        ended(4, outcome=None, state=State.QUEUED),
        ended(5, claim=7),
        ended(1),
    ]
    held = [on_server(1), on_server(5, number=8), on_server(6)]
    found = compare(ends, held, {(2, 1)}, replaced=True)
    assert [end.seq for end in found.repeat] == [1], "5 was claimed again under another number"
    assert found.unknown == 2, "3 and 5; a claim that was given back leaves no trace"
    assert (found.replaced, found.claims) == (True, tuple(held))


def comparison(*held: ServerClaim, repeat: tuple[Settlement, ...] = (), replaced: bool = True) -> Comparison:
    return Comparison(replaced=replaced, claims=held, repeat=repeat, unknown=0)


def test_a_node_writes_again_what_the_server_has_lost() -> None:
    made = working(workers=2)
    lost = ended(7, follow=(NewJob(id="child", queue="queue-a"),))
    same = comparison(on_server(0), on_server(1), on_server(7), repeat=(lost,))
    assert made.compare(same, T) == ([], 1, 0)
    assert made.compare(same, T) == ([], 0, 0), "the next turn compares again if this one fails"
    assert made.next_batch(T).settlements == (lost,)
    assert made.compare(same, T) == ([], 0, 0)


def test_running_jobs_whose_claims_are_lost_are_cancelled() -> None:
    made = working(workers=2)
    assert made.compare(comparison(on_server(0)), T) == ([("w1", "job-1")], 0, 0)
    found = comparison(on_server(0), on_server(1, number=9))
    assert made.compare(found, T)[0] == [("w1", "job-1")], "somebody else has claimed it"


def test_without_a_failover_no_running_job_is_cancelled() -> None:
    """A worker that has settled its job itself, and has not reported it yet, would be."""
    made = working(workers=2)
    assert made.compare(comparison(on_server(0), replaced=False), T) == ([], 0, 0)


def test_claims_ahead_that_are_lost_are_forgotten() -> None:
    made = fast(ledger(), 0.001)
    serve(made, "w0")
    made.next_batch(T)
    assert len(grant(made, 0, 1, 2)) == 1
    made.compare(comparison(on_server(0), on_server(2), replaced=False), T)
    following = made.finished("w0", Done(), T, None)
    assert following == claims(2)[0]


def test_jobs_are_queued_again_whose_claims_nobody_has() -> None:
    made = working(workers=3)
    made.finished("w1", Raised("in the next batch"), T, None)
    made.next_batch(T)
    made.finished("w2", Raised("in the batch after it"), T, None)
    found = comparison(*(on_server(seq) for seq in range(4)), on_server(0, number=5), replaced=False)
    assert made.compare(found, T) == ([], 0, 2)
    grant(made)
    batch = made.next_batch(T)
    assert [(end.seq, end.claim, end.state, end.outcome) for end in batch.settlements] == [
        (2, 1, State.QUEUED, "raised"),
        (3, 1, State.QUEUED, "interrupted"),
        (0, 5, State.QUEUED, "interrupted"),
    ]
