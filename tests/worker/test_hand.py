"""The permits of jobs that a worker was sent ahead: each is taken once, by the worker or by the node."""

import os
from typing import Any

from chargehand.node.handle import Permits
from chargehand.worker.hand import Hand


def sent(permits: Permits, *jobs: str) -> dict[str, Any]:
    """The body of an AHEAD frame with these jobs."""
    return {"number": permits.give(len(jobs)), "jobs": [{"id": job} for job in jobs]}


def pair() -> tuple[Permits, Hand]:
    permits = Permits()
    return permits, Hand(permits.reading)


def names(hand: Hand) -> list[str]:
    found: list[str] = []
    while (job := hand.next()) is not None:
        found.append(job["id"])
    return found


# spec: WK-18
def test_jobs_are_begun_in_order() -> None:
    permits, hand = pair()
    hand.add(sent(permits, "a", "b", "c"))
    assert names(hand) == ["a", "b", "c"]
    assert permits.take_back() == 0
    permits.close()


# spec: WK-18
def test_what_was_called_back_is_not_begun_even_if_more_was_sent_since() -> None:
    permits, hand = pair()
    hand.add(sent(permits, "a", "b", "c"))
    assert hand.next() == {"id": "a"}
    assert permits.take_back() == 2
    hand.add(sent(permits, "d", "e"))
    assert names(hand) == ["d", "e"]
    permits.close()


def test_a_permit_can_come_before_its_job() -> None:
    permits, hand = pair()
    hand.add(sent(permits, "a", "b"))
    assert permits.take_back() == 2
    body = sent(permits, "c", "d")
    assert hand.next() is None, "its permit is here, the job is not"
    assert permits.take_back() == 1, "the other one has not begun"
    hand.add(body)
    assert names(hand) == ["c"]
    permits.close()


# spec: WP-13
def test_after_a_failure_nothing_is_begun_until_the_node_hands_out_a_job() -> None:
    permits, hand = pair()
    hand.add(sent(permits, "a", "b", "c"))
    assert hand.next() == {"id": "a"}
    hand.ended(well=False)
    hand.add(sent(permits, "d"))  # it was on its way
    assert hand.next() is None
    assert permits.take_back() == 3, "the node gets all of them back"
    hand.resume()
    hand.ended(well=True)
    hand.add(sent(permits, "e"))
    assert names(hand) == ["e"]
    permits.close()


# spec: WP-13
def test_a_job_with_a_permit_that_begins_at_once_ends_the_halt() -> None:
    permits, hand = pair()
    hand.ended(well=False)
    hand.add({**sent(permits, "a", "b"), "first": True})
    assert names(hand) == ["a", "b"]
    permits.close()


# spec: WK-18
def test_two_processes_never_take_the_same_permit() -> None:
    """A child takes permits one by one while this process takes them back now and then: none is lost or taken twice."""
    permits = Permits()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        hand, taken, number = Hand(permits.reading), 0, 0
        while True:
            hand.add({"number": number + 1, "jobs": [{}] * 64})
            number += 64
            while hand.next() is not None:
                taken += 1
            if number >= 64 * 400:
                os.write(writing, taken.to_bytes(8, "little"))
                os._exit(0)
    os.close(writing)
    given = back = 0
    while given < 64 * 400:
        permits.give(32)
        given += 32
        if given % 96 == 0:
            back += permits.take_back()
    os.waitpid(child, 0)
    taken = int.from_bytes(os.read(reading, 8), "little")
    back += sum(iter(permits.take_back, 0))
    os.close(reading)
    permits.close()
    assert taken + back <= given
    assert taken + back >= given - 1, "one may be in the hand of the child"
