"""A node that has a suspect asks the store for the next one as soon as it has ended."""

from chargehand.model.batch import Grant, Result
from chargehand.model.job import Claim, Done
from chargehand.model.ledger import Ledger


def claim(*, suspect: bool) -> Claim:
    return Claim(
        id="j", seq=1, number=1, queue="a", payload="1", label=None, priority=0, failures=0, max_attempts=3, crashes=0,
        timeout_ms=None, suspect=suspect,
    )  # fmt: skip


def asks_again(*, suspect: bool) -> bool:
    ledger = Ledger([("a", "a"), ("b", "b")], lambda: 0.0, 0.0)
    ledger.welcome("worker:a:0", "a", 0.0)
    ledger.next_batch(0.0)
    assert ledger.confirm(Result(grants=(Grant("a", (claim(suspect=suspect),), None),)), 0.0)
    for pool in ledger.pools.values():
        pool.check_store = False
    ledger.finished("worker:a:0", Done(), 0.01, 1)
    return ledger.pools["b"].check_store


# spec: RP-10
def test_the_end_of_a_suspect_makes_room_for_the_next_in_any_queue() -> None:
    assert asks_again(suspect=True)
    assert not asks_again(suspect=False)
