"""Tests for rates: which hold together, how many jobs may be started, and when the next one may."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_builders import T, claims, grant, ledger, serve

from chargehand.model import limits, rates
from chargehand.model.batch import Grant, Result
from chargehand.model.job import Done
from chargehand.model.ledger import Ledger
from chargehand.model.limits import Limit, choose, limits_of, relaxed
from chargehand.model.rates import Rate, Reopened, Standing, next_ms, opens_in, parse, reopen, room, together
from chargehand.model.records import CrewRow

NOW = 1_800_000_000_000
PER_SECOND, PER_MINUTE = Rate(3, 1000), Rate(20, 60_000)


def standing(rate: Rate, starts: Sequence[tuple[int, int]], now_ms: int) -> Standing:
    """Counts starts, as pairs of time and number, one by one; the stores compute the same from running totals."""
    times = [at_ms for at_ms, count in starts for _ in range(count) if at_ms > now_ms - rate.period_ms]
    return Standing(rate, len(times), times[max(0, len(times) - rate.count)] if times else None)


# what is said


# spec: WK-19
@pytest.mark.parametrize(
    ("text", "count", "period_ms"),
    [("600/min", 600, 60_000), ("10/s", 10, 1000), (" 5000 / h", 5000, 3_600_000), ("1/day", 1, 86_400_000)],
)
def test_a_rate_is_read_and_written(text: str, count: int, period_ms: int) -> None:
    rate = parse(text)
    assert rate == Rate(count, period_ms)
    assert parse(str(rate)) == rate


# spec: WK-19
def test_rates_that_hold_together_are_kept_as_a_text() -> None:
    assert rates.to_text(()) is None
    assert rates.from_text(None) == ()
    assert rates.to_text((PER_SECOND, PER_MINUTE)) == "3/s, 20/min"
    assert rates.from_text("3/s, 20/min") == (PER_SECOND, PER_MINUTE)


# spec: WK-19
@pytest.mark.parametrize(
    ("said", "hold"),
    [
        ("10/s 10/s", "10/s"),
        ("10/s 600/min", "10/s"),
        ("10/s 599/min", "10/s 599/min"),
        ("10/s 5/min", "5/min"),
        ("10/s 10/min", "10/min"),
        ("7/day 8/day 1/s", "1/s 7/day"),
        ("1/h 24/day 2/h 1000/min", "1/h"),
    ],
)
def test_of_several_rates_those_hold_that_no_other_implies(said: str, hold: str) -> None:
    assert list(map(str, together(map(parse, said.split())))) == hold.split()


some_rates = st.builds(Rate, st.integers(1, 40), st.sampled_from([1000, 60_000, 3_600_000]))
some_starts = st.lists(st.tuples(st.integers(NOW - 70_000, NOW), st.integers(0, 4)), max_size=12).map(sorted)


@given(st.lists(some_rates, max_size=4), some_starts)
def test_the_rates_that_hold_admit_what_all_admit(said: list[Rate], starts: list[tuple[int, int]]) -> None:
    def free(all_of: list[Rate]) -> int | None:
        return room([standing(rate, starts, NOW) for rate in all_of])

    held = list(together(said))
    every = all(free([rate]) for rate in said)
    assert (free(held) != 0) or not every
    if said and all(started_at_most(rate, starts) for rate in held):
        assert all(started_at_most(rate, starts) for rate in said)


def started_at_most(rate: Rate, starts: list[tuple[int, int]]) -> bool:
    return all(standing(rate, starts, at + rate.period_ms - 1).started <= rate.count for at, _ in starts)


def row(rate: str | None = None, rate_per_key: str | None = None, limit: int | None = None) -> CrewRow:
    return CrewRow(
        name="c", queue="q", handler="m:H", workers=1, max_attempts=1, timeout_ms=None, rate=rate,
        rate_per_key=rate_per_key, limit=limit,
    )  # fmt: skip


# spec: WK-19
def test_a_queue_has_the_rates_of_all_its_crews() -> None:
    crews = [row("10/s", limit=3), row("20/min", "5/h"), row("20/s", "4/h"), row()]
    assert limits_of(crews) == {"q": Limit(3, None, (parse("10/s"), parse("20/min")), (parse("4/h"),))}
    assert limits_of([row(), row()]) == {"q": limits.NO_LIMIT}


# spec: WK-19
@pytest.mark.parametrize(("after", "back"), [("4/h", []), ("3/h", ["q"]), ("5/h", ["q"]), (None, ["q"])])
def test_what_waits_is_looked_at_again_if_the_rate_of_keys_is_another_one(after: str | None, back: list[str]) -> None:
    assert relaxed(limits_of([row("1/s", "4/h")]), limits_of([row(None, after)])) == back


# how many, and when


# spec: WK-19
def test_the_starts_of_the_last_period_count() -> None:
    starts = [(NOW - 1001, 5), (NOW - 1000, 5), (NOW - 999, 1), (NOW - 10, 1)]
    assert standing(PER_SECOND, starts, NOW) == Standing(PER_SECOND, 2, NOW - 999)
    assert room([standing(PER_SECOND, starts, NOW)]) == 1
    assert standing(PER_SECOND, [], NOW) == Standing(PER_SECOND, 0, None)


# spec: WK-19
def test_without_a_rate_any_number_may_start() -> None:
    assert room([]) is None
    assert opens_in([], 100, NOW) == 0


# spec: WK-19
def test_the_next_job_may_start_when_the_oldest_start_counts_no_more() -> None:
    now = standing(PER_SECOND, [(NOW - 400, 1), (NOW - 100, 1)], NOW)
    assert [opens_in([now], taken, NOW) for taken in (0, 1, 2)] == [0, 600, 600]
    assert opens_in([standing(PER_SECOND, [], NOW)], 3, NOW) == 1000


# spec: WK-19
def test_of_more_starts_than_are_allowed_enough_must_count_no_more() -> None:
    starts = [(NOW - 900, 2), (NOW - 800, 2), (NOW - 700, 2)]
    now = standing(PER_SECOND, starts, NOW)
    assert (room([now]), opens_in([now], 0, NOW)) == (0, 200)
    assert room([standing(PER_SECOND, starts, NOW + 200)]) == 1


# spec: WK-19
def test_all_rates_must_admit_a_job() -> None:
    starts = [(NOW - 30_000, 18), (NOW - 500, 2)]
    both = [standing(PER_SECOND, starts, NOW), standing(PER_MINUTE, starts, NOW)]
    assert (room(both), opens_in(both, 0, NOW)) == (0, 30_000)


# spec: WK-19
@given(some_rates, some_starts)
def test_a_job_may_start_when_it_is_said_and_not_before(rate: Rate, starts: list[tuple[int, int]]) -> None:
    wait = opens_in([standing(rate, starts, NOW)], 0, NOW)
    assert 0 <= wait <= rate.period_ms
    assert room([standing(rate, starts, NOW + wait)])
    assert wait == 0 or room([standing(rate, starts, NOW + wait - 1)]) == 0


# spec: WK-19
def test_a_start_in_the_future_blocks_for_one_period_at_most() -> None:
    ahead = standing(PER_SECOND, [(NOW + 10**9, 3)], NOW)
    assert opens_in([ahead], 0, NOW) == 1000


# keys


# spec: WK-19
def test_jobs_beyond_the_rate_of_their_key_are_set_aside() -> None:
    ready = [(1, "a"), (2, "a"), (3, None), (4, "b"), (5, "a"), (6, "c")]
    chosen = choose(ready, {"b": 2}, 2, limit=2, asleep=9, rooms={"a": 1, "b": 5, "c": 0})
    assert (chosen.seqs, chosen.keys, chosen.waiting, chosen.over) == ([1, 3], ["a", None], 0, [2, 4, 5, 6])
    assert (chosen.late, chosen.fit) == ({"a", "c"}, {"a": 1})


# spec: WK-19
def test_a_key_that_is_full_is_looked_at_when_its_oldest_start_counts_no_more() -> None:
    by_key = {"a": [standing(PER_SECOND, [(NOW - 400, 1)], NOW)], "b": [standing(PER_SECOND, [], NOW)]}
    assert rates.closed(by_key, {"a": 2, "b": 3}, ["a", "b"], NOW) == {"a": NOW + 600, "b": NOW + 1000}


# spec: WK-19
def test_as_many_jobs_of_a_key_come_back_as_may_start() -> None:
    by_key = {
        "empty": [standing(PER_SECOND, [], NOW)],
        "partly": [standing(PER_SECOND, [(NOW - 400, 1)], NOW)],
        "full": [standing(PER_SECOND, [(NOW - 300, 3)], NOW)],
        "many": [standing(Rate(500, 1000), [], NOW)],
    }
    assert reopen(by_key, 200, NOW) == [
        Reopened("empty", 3, NOW + 1000),
        Reopened("partly", 2, NOW + 600),
        Reopened("full", 0, NOW + 700),
        Reopened("many", 200, NOW),
    ]


# spec: WK-19
def test_readers_see_when_the_next_job_may_start() -> None:
    full, free = standing(PER_SECOND, [(NOW - 300, 3)], NOW), standing(PER_SECOND, [], NOW)
    assert next_ms([free], None, NOW) is None
    assert next_ms([], None, NOW) is None
    assert next_ms([full], None, NOW) == NOW + 700
    assert next_ms([full], NOW + 5, NOW) == NOW + 700
    assert next_ms([free], NOW + 5, NOW) == NOW + 5


# the ledger


def rated(*, batch: int = 1, batch_wait: float = 0.02) -> Ledger:
    crews = [("a", "queue-a")]
    return Ledger(crews, lambda: 0.0, T, batching={"a": (batch, batch_wait)}, rated=["queue-a"])


# spec: WK-19, WK-14
def test_of_a_queue_with_a_rate_no_job_is_claimed_before_a_worker_is_free() -> None:
    usual, made = ledger(), rated()
    for each in (usual, made):
        serve(each, "w0")
        each.pools["a"].mean = 0.001
    assert usual.next_batch(T).wants[0].limit > 1
    (want,) = made.next_batch(T).wants
    assert (want.limit, want.early) == (1, 0)
    grant(made, 0)
    made.finished("w0", Done("null"), T + 0.001, 1)
    made.hint()
    (want,) = made.next_batch(T + 0.001).wants
    assert (want.limit, want.early) == (1, 0)


# spec: WK-19
def test_a_claim_whose_worker_is_gone_is_given_back_at_once() -> None:
    made = rated()
    serve(made, "w0", "w1")
    made.pools["a"].mean = 10.0
    assert made.next_batch(T).wants[0].limit == 2
    made.dismiss("w1")
    assert grant(made, 1, 2) == ["w0 job-1"]
    assert made.batch_due(T) == T
    (settlement,) = made.next_batch(T).settlements
    assert (settlement.id, settlement.outcome) == ("job-2", None)


# spec: WK-19
def test_a_refused_claim_is_repeated_when_the_rate_admits_a_job_and_not_before() -> None:
    made = rated()
    serve(made, "w0")
    made.next_batch(T)
    made.confirm(Result(grants=(Grant("a", (), 1500, limited=True),)), T)
    assert made.batch_due(T) == pytest.approx(T + 1.5)
    assert made.next_batch(T + 1.5).wants[0].limit == 1


# spec: WK-19
def test_the_end_of_a_job_of_a_queue_with_a_rate_alone_admits_no_other() -> None:
    made = rated()
    serve(made, "w0", "w1")
    made.next_batch(T)
    made.confirm(Result(grants=(Grant("a", claims(1), 60_000, limited=True),)), T)
    made.finished("w0", Done("null"), T + 0.1, 1)
    assert made.next_batch(T + 0.2).wants == ()


# spec: WK-19
def test_a_batch_of_a_queue_with_a_rate_does_not_wait_for_more_jobs() -> None:
    made = rated(batch=8, batch_wait=60.0)
    serve(made, "w0")
    assert made.next_batch(T).wants[0].limit == 8
    assert grant(made, 1, 2, 3) == ["w0 job-1 job-2 job-3"]
