"""Tests for the choice of jobs under the limits of a queue and of its keys."""

from hypothesis import given
from hypothesis import strategies as st

from chargehand.model.limits import (
    LOOK_AT_ONCE,
    NO_LIMIT,
    Chosen,
    Limit,
    choose,
    jobs_needed,
    limits_of,
    relaxed,
    room,
)
from chargehand.model.records import CrewRow


def crew(name: str, queue: str, limit: int | None = None, limit_per_key: int | None = None) -> CrewRow:
    return CrewRow(
        name=name, queue=queue, handler="m:H", workers=1, max_attempts=3, timeout_ms=None, limit=limit,
        limit_per_key=limit_per_key,
    )  # fmt: skip


def test_jobs_of_a_full_key_are_set_aside_and_others_taken_in_order() -> None:
    ready = [(1, "full"), (2, "a"), (3, None), (4, "a"), (5, "a"), (6, "b")]
    chosen = choose(ready, {"full": 2, "a": 1}, allowed=2, limit=3, asleep=5)
    fit = {"a": 1, "b": 1}
    assert chosen == Chosen([2, 3, 6], 0, [1, 4, 5], cut_short=False, keys=["a", None, "b"], fit=fit, late=set())


def test_what_could_be_taken_beyond_the_limit_is_counted_and_nothing_after_it_is_read() -> None:
    ready = [(seq, None) for seq in range(10)]
    chosen = choose(ready, {}, allowed=1, limit=2, asleep=3)
    assert chosen == Chosen([0, 1], 3, [], cut_short=False, keys=[None, None], fit={}, late=set())
    assert choose([*ready[:5], (99, "full")], {"full": 1}, allowed=1, limit=2, asleep=3).over == []


def test_a_look_that_read_as_much_as_it_may_says_so() -> None:
    most = jobs_needed(limit=2, asleep=1)
    assert most == 3 + LOOK_AT_ONCE
    over = [(seq, "full") for seq in range(most)]
    assert choose(over, {"full": 1}, allowed=1, limit=2, asleep=1).cut_short
    assert not choose(over[1:], {"full": 1}, allowed=1, limit=2, asleep=1).cut_short


@given(
    ready=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=30),
    running=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 4)),
    allowed=st.integers(1, 3),
    limit=st.integers(0, 8),
    asleep=st.integers(0, 4),
)
def test_no_key_gets_more_than_its_limit_and_no_free_slot_stays_unused(
    ready: list[str | None], running: dict[str, int], allowed: int, limit: int, asleep: int
) -> None:
    key_of = dict(enumerate(ready))
    before = dict(running)
    chosen = choose(list(key_of.items()), running, allowed, limit, asleep)
    assert running == before
    assert chosen.seqs == sorted(chosen.seqs)
    assert not set(chosen.seqs) & set(chosen.over)
    taken = [key_of[seq] for seq in chosen.seqs]
    for key in {key for key in taken if key is not None}:
        assert running.get(key, 0) + taken.count(key) <= allowed
    if len(chosen.seqs) < limit:
        left = [key for seq, key in key_of.items() if seq not in chosen.seqs]
        assert all(key is not None and running.get(key, 0) + taken.count(key) >= allowed for key in left)


def test_of_several_crews_of_a_queue_the_smallest_limit_counts() -> None:
    crews = [crew("a", "q", limit=5), crew("b", "q", limit=3, limit_per_key=2), crew("c", "q"), crew("d", "free")]
    assert limits_of(crews) == {"q": Limit(3, 2), "free": NO_LIMIT}


def test_a_raised_or_removed_limit_for_keys_is_relaxed() -> None:
    before = {"raised": Limit(None, 1), "removed": Limit(None, 1), "gone": Limit(None, 1)}
    before |= {"same": Limit(None, 2), "lowered": Limit(None, 2), "other": Limit(1, None)}
    after = {"raised": Limit(None, 2), "removed": Limit(3, None), "same": Limit(None, 2), "lowered": Limit(None, 1)}
    assert relaxed(before, after) == ["raised", "removed", "gone"]


def test_room_is_never_negative_and_unlimited_without_a_limit() -> None:
    assert [room(Limit(3), running) for running in (0, 3, 5)] == [3, 0, 0]
    assert room(Limit(None, 1), 9) is None
