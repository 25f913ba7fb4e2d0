"""Which jobs fail because others do, and in which order jobs are queued again."""

from hypothesis import given
from hypothesis import strategies as st

from chargehand.model.flows import Ended, fail_further, in_order
from chargehand.model.job import State

MOST = 12


def named() -> dict[int, Ended]:
    return {number: Ended(f"j{number}", f"q{number}", State.FAILED) for number in range(MOST)}


# spec: FL-2
def test_a_job_fails_because_of_the_nearest_failure_and_says_so() -> None:
    edges = [(1, 0, 0), (2, 0, 1), (3, 1, 0), (3, 0, 2), (4, 0, 3), (5, 1, 0), (5, 0, 9), (6, 0, 8)]
    assert fail_further({0: "x"}, edges, named(), range(6)) == {
        1: "predecessor j0 (q0) failed: x",
        2: "predecessor j1 (q1) failed: predecessor j0 (q0) failed: x",
        3: "predecessor j0 (q0) failed: x",
        4: "predecessor j3 (q3) failed: predecessor j0 (q0) failed: x",
        5: "predecessor j0 (q0) failed: x",
    }
    assert fail_further({0: "x", 9: "y"}, edges, named(), {5}) == {5: "predecessor j9 (q9) failed: y"}


# spec: FL-2
@given(
    st.sets(st.integers(0, MOST - 1), min_size=1),
    st.lists(st.tuples(*[st.integers(0, MOST - 1)] * 3)),
    st.sets(st.integers(0, MOST - 1)),
)
def test_what_fails_is_what_waits_below_a_failure(
    failed: set[int], edges: list[tuple[int, int, int]], waiting: set[int]
) -> None:
    found = fail_further(dict.fromkeys(failed, "x"), edges, named(), waiting)
    below = set(failed)
    while more := {job for job, _, predecessor in edges if predecessor in below and job in waiting} - below:
        below |= more
    assert set(found) == below - failed
    for job, error in found.items():
        assert any(error.startswith(f"predecessor j{above} ") for one, _, above in edges if one == job)


# spec: FL-6
@given(
    st.sets(st.integers(0, MOST)), st.permutations(range(MOST + 1)), st.lists(st.tuples(*[st.integers(0, MOST)] * 2))
)
def test_jobs_come_by_number_but_after_those_that_they_wait_for(
    jobs: set[int], ranks: list[int], pairs: list[tuple[int, int]]
) -> None:
    waits = {(max(pair, key=ranks.index), min(pair, key=ranks.index)) for pair in pairs if pair[0] != pair[1]}
    below = set(waits)
    while more := {(a, c) for a, b in below for d, c in waits if b == d} - below:
        below |= more
    left, expected = sorted(jobs), list[int]()
    while left:
        expected.append(next(job for job in left if not any((job, other) in below for other in left)))
        left.remove(expected[-1])
    assert in_order(jobs, waits) == expected


def test_jobs_that_wait_for_each_other_come_last() -> None:
    assert in_order([3, 1, 2], [(1, 2), (2, 1)]) == [3, 1, 2]
