"""Ids: unique, growing, and made without asking anybody."""

from concurrent.futures import ThreadPoolExecutor

from chargehand import clock
from chargehand.ids import new_id, new_ids


# spec: WK-1
def test_an_id_is_32_hex_digits() -> None:
    made = new_id()
    assert len(made) == 32
    assert made == f"{int(made, 16):032x}"


# spec: WK-1
def test_an_id_begins_with_the_time() -> None:
    before = clock.now_ms()
    made = int(new_id()[:12], 16)
    assert before <= made <= clock.now_ms() + 1


# spec: WK-2
def test_many_ids_are_distinct_and_in_order() -> None:
    made = list(new_ids(10_000))
    assert len(set(made)) == 10_000
    assert made == sorted(made)
    assert {len(one) for one in made} == {32}


# spec: WK-2
def test_ids_made_at_the_same_time_by_many_are_distinct() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [one for part in pool.map(lambda _: [new_id() for _ in range(500)], range(8)) for one in part]
    assert len(set(made)) == 4000


# spec: WK-2
def test_ids_of_later_milliseconds_sort_later() -> None:
    first = new_id()
    start = clock.now_ms()
    while clock.now_ms() <= start + 1:
        pass
    assert new_id() > first


# spec: WK-2
def test_no_ids_are_no_ids() -> None:
    assert list(new_ids(0)) == []


# spec: SE-2
def test_ids_cannot_be_guessed_from_the_one_before() -> None:
    """Two requests in the same millisecond begin at places that have nothing to do with each other."""
    chance = {new_id()[12:] for _ in range(200)}
    assert len({one[:8] for one in chance}) > 190
