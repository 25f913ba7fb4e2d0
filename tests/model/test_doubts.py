"""Tests for turns of which a node does not know whether the store has committed them."""

from ledger_builders import claims

from chargehand.model.doubts import Doubts, Unsure
from chargehand.model.failover import Server
from chargehand.model.job import ClaimName, Done, Settlement, settle

# spec: WK-4, MN-2
HERE, THERE = Server("one", 1, "noon"), Server("one", 2, "noon")


def ends(*numbers: int) -> list[Settlement]:
    found = [settle(claim, Done()) for claim in claims(*numbers)]
    return [each for each in found if each is not None]


def names(*numbers: int) -> list[ClaimName]:
    return [each.claim_name for each in ends(*numbers)]


def test_turns_are_made_sure_of_one_after_the_other() -> None:
    doubts = Doubts()
    assert doubts.first() is None
    doubts.add(7, 70, HERE, ends(0))
    doubts.add(8, None, HERE, [])
    assert doubts.first() == Unsure(7, 70, HERE, frozenset({(0, 1)}))
    assert doubts.first() == Unsure(7, 70, HERE, frozenset({(0, 1)})), "until its claims were given back"
    doubts.made_sure()
    assert doubts.first() == Unsure(8, None, HERE, frozenset())
    doubts.made_sure()
    assert doubts.first() is None


def test_a_refused_outcome_is_in_doubt_if_a_turn_without_an_answer_had_it_and_only_once() -> None:
    doubts = Doubts()
    doubts.add(7, 70, HERE, ends(0, 1))
    assert doubts.asked(ends(0), names(0)) == [], "the turn may still commit"
    doubts.made_sure()
    assert doubts.asked(ends(0, 1, 2), names(0, 2)) == ends(0)
    assert doubts.asked(ends(0), names(0)) == []


def test_the_session_of_a_turn_is_looked_for_on_its_own_server_unless_it_is_the_present_one() -> None:
    turn = Unsure(7, 70, HERE, frozenset())
    assert [turn.may_run_on(*at) for at in ((HERE, 71), (HERE, 70), (THERE, 71), (HERE, None))] == [
        True,
        False,
        False,
        True,
    ]
    assert not Unsure(7, None, HERE, frozenset()).may_run_on(HERE, 71)
