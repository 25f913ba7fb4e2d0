"""When a crew looks for work in the application's tables, and who: the walk, and the ledger that hands it out."""

from itertools import pairwise
from typing import Any

import pytest
from ledger_builders import T, claims

from chargehand.model.batch import Grant, Result
from chargehand.model.job import Claim, Crashed, Done, Interrupted, JobPolicy, State
from chargehand.model.ledger import Ledger
from chargehand.model.search import ENOUGH, LONGEST_PAUSE, OVERDUE, PAGE, PASS_ON_AFTER, DiscoveryPolicy, Look, Search

LOOK_EVERY, LOOK_ASLEEP = DiscoveryPolicy().interval, DiscoveryPolicy().asleep

# the walk


def walk(search: Search, last: str | None, *, more: bool, queued: int = 0, now: float = T) -> Look:
    """Somebody looks; the page is stored."""
    look = search.begin("w", 0.0)
    assert search.found([] if last is None else [last], more, now) is None
    search.stored(queued, now)
    return look


# spec: WK-10
def test_a_walk_goes_page_by_page_and_then_begins_anew() -> None:
    search = Search("c", look_at=T)
    assert walk(search, "m", more=True) == Look("c", None, PAGE)
    assert search.due() == T, "the next page at once"
    assert walk(search, "z", more=True) == Look("c", "m", PAGE)
    assert walk(search, None, more=False) == Look("c", "z", PAGE)
    assert search.due() == T + LOOK_EVERY
    assert walk(search, "b", more=False) == Look("c", None, PAGE)


# spec: WK-10
def test_one_looks_at_a_time() -> None:
    search = Search("c", look_at=T)
    search.begin("w", 0.0)
    assert search.due() is None
    search.found(["a"], False, T)
    assert search.due() is None, "not before the page is stored: it would be found again"
    search.stored(1, T)
    assert search.due() == T + LOOK_EVERY


# spec: WK-10
def test_nobody_looks_while_there_is_enough() -> None:
    search = Search("c", look_at=T)
    walk(search, "m", more=True, queued=ENOUGH)
    assert search.due() is None
    search.taken(0, short=False)
    assert search.due() is None, "one that was there before, claimed again, is none of them"
    search.taken(1, short=False)
    assert (search.due(), search.waiting) == (T, ENOUGH - 1), "before it runs dry"


# spec: WK-10
def test_fewer_than_wanted_means_that_none_is_left() -> None:
    search = Search("c", look_at=T)
    walk(search, "m", more=False, queued=ENOUGH)
    search.taken(3, short=True)
    assert (search.waiting, search.due()) == (0, T + LOOK_EVERY)
    search.taken(5, short=False)
    assert search.waiting == 0


# spec: WK-10
def test_a_failure_begins_anew_later_and_later() -> None:
    search = Search("c", look_at=T)
    walk(search, "m", more=True)
    pauses: list[float] = []
    for _ in range(8):
        search.begin("w", 0.0)
        search.failed("no table", T)
        pauses.append((search.due() or 0) - T)
    assert pauses == [4.0, 8.0, 16.0, 32.0, *[LONGEST_PAUSE] * 4]
    assert (search.after, search.error) == (None, "no table")
    search.wake(T)
    assert search.due() == T
    walk(search, "a", more=False)
    assert (search.failures, search.error, search.due()) == (0, None, T + LOOK_EVERY)


# spec: WK-10
def test_a_table_that_is_missing_for_months_is_asked_for_as_ever() -> None:
    search = Search("c", look_at=T)
    for _ in range(5000):
        search.begin("w", 0.0)
        search.failed("no table", T)
        assert (search.due() or 0) - T <= LONGEST_PAUSE


# spec: WK-10
def test_waking_brings_the_next_walk_forward() -> None:
    search = Search("c", look_at=T)
    walk(search, None, more=False)
    search.wake(T + 0.5)
    assert search.due() == T + 0.5
    search.wake(T + 1)
    assert search.due() == T + 0.5


# spec: WK-10
@pytest.mark.parametrize("when", ["looking", "storing", "failing"])
def test_a_wake_during_a_look_is_not_lost(when: str) -> None:
    """The look has read already; what is new is found only by another one."""
    search = Search("c", look_at=T)
    search.begin("w", 0.0)
    if when != "storing":
        search.wake(T)
    if when == "failing":
        search.failed("no table", T)
    else:
        search.found(["a"], False, T)
        if when == "storing":
            search.wake(T)
        search.stored(1, T)
    assert search.due() == T
    walk(search, None, more=False)
    assert search.due() == T + LOOK_EVERY, "once"


# a search that does not go on


def pages(search: Search, *found: str, now: float = T) -> list[str | None]:
    """Looks once for each page, of one letter for each item; more may follow. Returns the errors."""
    errors: list[str | None] = []
    for page in found:
        search.begin("w", now)
        errors.append(search.found(list(page), True, now))
        if errors[-1] is None:
            search.stored(0, now)
    return errors


# spec: WK-10
@pytest.mark.parametrize(
    ("found", "named"),
    [
        (["abc", "abc"], "a"),
        (["abc", "cde"], "c"),
        (["abc", "dbe"], "b"),
        (["abc", "cba"], "c"),
        (["ab", "cd", "ef", "ab", "cd", "ef", "ab"], "b"),
        ([*"abcdefgh", *"defgh"], "h"),
    ],
    ids=["after ignored", "after itself", "one of the last page", "backwards", "a circle", "a circle further on"],
)
def test_a_page_that_returns_to_an_item_is_an_error_in_words(found: list[str], named: str) -> None:
    search = Search("c", look_at=T)
    *good, error = pages(search, *found)
    assert not any(good)
    after = found[-2][-1]
    assert error == search.error
    assert error is not None
    assert error.startswith(
        f"discover(after='{after}', limit=200) returned '{named}' again, which does not follow '{after}': "
    )
    assert (search.due(), search.after) == (T + 2 * LOOK_EVERY, None), "from the start, after a pause"


# spec: WK-10
@pytest.mark.parametrize(
    "found",
    [["zyx", "wv", "u"], ["aab", "cc", "d"], ["éa", "Éb", "E"], [*"bcdefghijklmnopqrstuvwxyza"]],
    ids=["descending", "twice in a page", "another collation", "long"],
)
def test_the_order_is_the_applications_own(found: list[str]) -> None:
    assert not any(pages(Search("c", look_at=T), *found))


# spec: WK-10
def test_a_first_page_does_not_forgive_a_search_that_always_fails_at_the_second() -> None:
    search, now, pauses = Search("c", look_at=T), T, list[float]()
    for _ in range(8):
        assert pages(search, "abc", "abc", now=now)[0] is None
        pauses.append((search.due() or 0) - now)
        now += pauses[-1]
    assert pauses == [4, 8, 16, 32, 60, 60, 60, 60]
    assert search.failures == 8
    pages(search, "abc", "def", now=now)
    assert (search.failures, search.error) == (0, None), "it goes on"


# spec: WK-10
def test_a_new_search_may_return_what_an_earlier_one_returned() -> None:
    search = Search("c", look_at=T)
    assert not any(pages(search, "abc", "def"))
    walk(search, "g", more=False)
    assert not any(pages(search, "abc", "def"))


# the ledger


def discovering(*workers: str, other: bool = False) -> Ledger:
    crews = [("a", "queue-a"), ("b", "queue-b")] if other else [("a", "queue-a")]
    made = Ledger(crews, lambda: 0.0, T, ["a"])
    for worker in workers:
        made.welcome(worker, "a", T)
    return made


def grant(of: Ledger, *numbers: int, now: float = T) -> list[str]:
    of.next_batch(now)
    assert of.in_flight is not None
    grants = (Grant("a", claims(*numbers), None),) if of.in_flight.wants else ()
    return [
        f"{worker} {claim.id}" for worker, claim in of.confirm(Result(grants=grants), now) if isinstance(claim, Claim)
    ]


def stored(of: Ledger, last: str | None, *, more: bool, queued: int, now: float = T) -> None:
    of.searches["a"].found([] if last is None else [last], more, now)
    of.searches["a"].stored(queued, now)
    of.hint("queue-a")


# spec: WK-10
def test_the_first_that_is_ready_looks_and_the_others_wait() -> None:
    made = discovering()
    assert made.welcome("w0", "a", T) == Look("a", None)
    assert made.welcome("w1", "a", T) is None
    assert made.looks(T) == []
    assert list(made.pools["a"].idle) == ["w1"]


# spec: WK-10
def test_a_crew_without_discover_never_looks() -> None:
    made = discovering("w0", other=True)
    assert made.welcome("v0", "b", T) is None
    assert made.looks(T + 100) == []


# spec: WK-10
def test_whoever_looked_works_next_and_does_not_look_again_before_the_page_is_stored() -> None:
    made = discovering("w0", "w1")
    made.searches["a"].found(["m"], True, T)
    assert made.looked("w0", T) is None
    made.searches["a"].stored(2, T)
    assert made.looks(T)[0][1] == Look("a", "m"), "one of the idle looks for more"
    made.hint("queue-a")
    assert len(grant(made, 1)) == 1, "the other one gets to work"


# spec: WK-10
def test_it_is_looked_between_jobs() -> None:
    made = discovering("w0")
    stored(made, "m", more=True, queued=3)
    made.searches["a"].look_at = T + 1
    made.looked("w0", T)
    assert grant(made, 1) == ["w0 job-1"]
    assert made.finished("w0", Done(), T + 2, None) == Look("a", "m")


# spec: WK-10
def test_an_idle_crew_says_when_it_looks_again() -> None:
    made = discovering("w0")
    assert made.looks_due() is None, "somebody is looking"
    stored(made, None, more=False, queued=0)
    made.looked("w0", T)
    assert made.looks_due() == T + LOOK_EVERY
    assert made.looks(T + LOOK_EVERY - 0.01) == []
    assert made.looks(T + LOOK_EVERY) == [("w0", Look("a", None))]


# spec: WK-10 PD-1
def test_a_paused_crew_does_not_look_and_goes_on_when_it_is_resumed() -> None:
    made = discovering("w0")
    stored(made, None, more=False, queued=0)
    made.looked("w0", T)
    made.pause(["a"], T)
    assert made.looks(T + 100) == []
    assert made.looks_due() is None, "the node would wake for it again and again"
    made.pause([], T + 100)
    assert made.looks_due() == T + LOOK_EVERY
    assert made.looks(T + 100) == [("w0", Look("a", None))]


# spec: WK-10 WP-3 PD-1
def test_a_crew_that_sleeps_is_woken_to_look() -> None:
    made = discovering("w0")
    stored(made, None, more=False, queued=0)
    made.gone("w0", Interrupted("it slept"), T, None)
    made.pools["a"].asleep = 1
    resumed, later = 5.0, LOOK_ASLEEP + 100
    for moment, paused, woken in (
        (3.0, False, {}), (4.0, True, {}), (resumed, False, {"a": 1}), (later, True, {}), (later + 1, False, {"a": 1}),
    ):  # fmt: skip
        made.pause(["a"] if paused else [], T + moment)
        grant(made, now=T + moment)
        assert made.waiting() == woken, moment


# spec: WK-10 WP-3
def test_a_crew_that_sleeps_is_seldom_woken_to_look_unless_somebody_says_so() -> None:
    search = Search("c")
    assert search.due_asleep() == 0.0, "nobody has looked yet"
    walk(search, "m", more=True)
    assert search.due_asleep() == T, "the walk is not over"
    walk(search, None, more=False)
    assert (search.due(), search.due_asleep()) == (T + LOOK_EVERY, T + LOOK_ASLEEP)
    search.wake(T + 10)
    assert search.due_asleep() == T + 10
    search.begin("w", T + 10)
    assert search.due_asleep() is None
    search.failed("no such table", T + 11)
    assert search.due_asleep() == search.due() == T + 11 + 2 * LOOK_EVERY, "a look that failed says nothing"


# spec: WK-10
def test_what_comes_back_to_the_queue_does_not_make_the_crew_look_for_more() -> None:
    made = discovering("w0")
    stored(made, None, more=False, queued=ENOUGH)
    made.looked("w0", T)
    now = T
    cases: list[tuple[dict[str, Any], int]] = [({"item": "x", "first": False}, 0), ({}, 0), ({"item": "x"}, 1)]
    for about, taken in cases:
        made.next_batch(now)
        made.confirm(Result(grants=(Grant("a", claims(1, **about), None),)), now)
        assert made.searches["a"].waiting == ENOUGH - taken
        now += 10
        made.finished("w0", Done(), now, None)


# spec: WK-10 PD-2
def test_a_closed_ledger_does_not_look() -> None:
    made = discovering("w0")
    stored(made, "m", more=True, queued=0)
    made.close(T)
    assert made.looked("w0", T) is None
    assert (made.looks(T), made.looks_due()) == ([], None)


# spec: WK-10
def test_one_that_dies_while_it_looks_is_a_failed_look() -> None:
    made = discovering("w0", "w1")
    made.gone("w0", Crashed("x"), T, None)
    search = made.searches["a"]
    assert (search.asked, search.failures, search.error) == (None, 1, "w0 ended during discover")
    assert made.looks(T + 3.9) == []
    assert made.looks(T + 4) == [("w1", Look("a", None))]
    assert made.next_batch(T + 4).settlements == (), "it is no attempt of anything"


# spec: WK-10 SV-10
def test_one_that_is_paused_and_resumed_while_it_looks_is_handed_one_thing_at_a_time() -> None:
    made = discovering("w0", "w1")
    assert grant(made, 1, 2) == ["w1 job-1"]
    made.pause(["worker-other", "worker:a:0"], T)
    assert made.searches["a"].asked == "w0"
    made._paused_workers = frozenset({"w0"})  # as a pause of that worker alone does
    made.pools["a"].remove("w0")
    assert made.pause([], T) == [], "it has not come back from its look"
    assert "w0" not in made.held
    stored(made, None, more=False, queued=0)
    assert made.looked("w0", T) is not None
    assert list(made.pools["a"].idle) == []


# cancel and progress


# spec: WK-8
def test_what_waits_in_memory_is_cancelled_unattempted_and_who_has_the_others_is_said() -> None:
    made = Ledger([("a", "queue-a")], lambda: 0.0, T, policy=JobPolicy(most_in_hand=1))
    made.welcome("w0", "a", T)
    made.pools["a"].mean = 0.001
    assert grant(made, 1, 2, 3) == ["w0 job-1"]
    assert made.cancelled(["job-1", "job-3", "job-9"], T) == [("w0", "job-1")]
    batch = made.next_batch(T)
    (ended,) = batch.settlements
    assert (ended.id, ended.state, ended.reason, ended.outcome) == ("job-3", State.CANCELLED, "cancelled", None)
    assert (ended.failures, ended.crashes, ended.interruptions) == (0, 0, 0)
    made.confirm(Result(), T)
    following = made.finished("w0", Done(), T, None)
    assert isinstance(following, Claim)
    assert following.id == "job-2"
    assert made.cancelled([], T) == []


# spec: WK-13
def test_a_slot_that_is_free_again_is_asked_for_at_once() -> None:
    """Of a queue at its limit fewer came than wanted; when one of them ends, there may be room, though nobody hints."""
    made = Ledger([("a", "queue-a")], lambda: 0.0, T, **limited("queue-a"))
    for worker in ("w0", "w1"):
        made.welcome(worker, "a", T)
    assert grant(made, 1) == ["w0 job-1"]
    made.next_batch(T + 0.1)
    made.confirm(Result(), T + 0.1)
    made.finished("w0", Done(), T + 0.2, None)
    assert [want.queue for want in made.next_batch(T + 0.21).wants] == ["queue-a"]


def limited(queue: str) -> dict[str, Any]:
    """What tells a ledger of limits, if anything must."""
    return {"limited": [queue]} if "limited" in Ledger.__init__.__annotations__ else {}


# spec: WK-9
def test_progress_is_noted_once_a_second_and_only_if_it_changed() -> None:
    made = Ledger([("a", "queue-a")], lambda: 0.0, T)
    made.welcome("w0", "a", T)
    grant(made, 1)
    written: list[tuple[float, str | None]] = []
    moment = T
    for step in range(1, 500):
        moment = T + step / 100
        if step < 300:
            made.progress("w0", str(step), moment)
        due = made.batch_due(moment)
        if due is not None and due <= moment:
            written += [(moment - T, note.progress) for note in made.next_batch(moment).notes]
            made.confirm(Result(), moment)
    assert [text for _, text in written[:1]] != [None]
    assert len(written) == 4
    gaps = [after - before for (before, _), (after, _) in pairwise(written)]
    assert min(gaps) >= 0.999
    assert written[-1][1] == "299", "the last word is written, too"


# spec: WK-9
def test_progress_that_could_not_be_written_is_written_later() -> None:
    made = Ledger([("a", "queue-a")], lambda: 0.0, T)
    made.welcome("w0", "a", T)
    grant(made, 1)
    made.progress("w0", "1", T)
    assert [note.progress for note in made.next_batch(T + 1).notes] == ["1"]
    made.failed(T + 1, 0.1)
    assert [note.progress for note in made.next_batch(T + 2).notes] == ["1"]
    made.failed(T + 2, 0.1)
    made.progress("w0", "2", T + 2)
    assert [note.progress for note in made.next_batch(T + 3).notes] == ["2"]


# spec: WK-9
def test_the_progress_of_one_that_has_nothing_is_nobodys() -> None:
    made = Ledger([("a", "queue-a")], lambda: 0.0, T)
    made.welcome("w0", "a", T)
    made.progress("w0", "1", T)
    grant(made, 1)
    assert [note.progress for note in made.next_batch(T + 1).notes] == [None]
    made.confirm(Result(), T + 1)
    made.gone("w0", Interrupted("x"), T + 1, None)
    made.progress("w0", "1", T + 1)


def test_a_policy_decides_when_to_look() -> None:  # spec: CF-4
    search = Search("a", DiscoveryPolicy(interval=0.5, asleep=7.0))
    search.begin("w", T)
    search.found([], False, T)
    search.stored(0, T)
    assert (search.due(), search.due_asleep()) == (T + 0.5, T + 7.0)
    search.begin("w", T)
    search.failed("no such table", T)
    assert search.due() == T + 1.0


# several nodes


# spec: MN-1, WK-10
def test_a_node_that_does_not_search_for_a_crew_calls_discover_never_and_one_that_begins_does_at_once() -> None:
    made = discovering()
    made.lead((), T)
    assert made.welcome("w0", "a", T) is None
    assert (made.looks(T + 100), made.looks_due()) == ([], None)
    made.lead(["a"], T + 100)
    assert made.looks(T + 100) == [("w0", Look("a", None))]
    stored(made, "m", more=True, queued=0, now=T + 100)
    made.lead(["a"], T + 101)
    assert made.looked("w0", T + 101) == Look("a", "m"), "it goes on where it was"
    stored(made, "n", more=True, queued=ENOUGH, now=T + 101)
    made.lead((), T + 102)
    made.lead(["a"], T + 103)
    assert made.looked("w0", T + 103) == Look("a", None), "what the other one has found is not known here"


def leading(of: Ledger, now: float = T, *, staffed: bool = True, shared: bool = True) -> bool:
    ready, unready = of.leading(["a"] if staffed else [], ["queue-a"] if shared else [], now)
    assert sorted((*ready, *unready)) == ["a"]
    return ready == ("a",)


# spec: MN-1, WK-10
def test_a_node_searches_for_a_crew_while_it_has_a_worker_for_it() -> None:
    made = discovering()
    made.lead((), T)
    assert leading(made, shared=False), "its workers load, and nobody else has the crew"
    assert not leading(made), "another node may have a worker that is free"
    made.welcome("w0", "a", T)
    assert leading(made)
    assert not leading(made, staffed=False)
    made.pause(["a"], T)
    assert not leading(made)
    made.pause([], T)
    made.close(T)
    assert not leading(made)


# spec: MN-1, WK-10
def test_a_node_on_which_discover_fails_leaves_the_search_to_others_for_a_while() -> None:
    made = discovering("w0")
    search = made.searches["a"]
    for number in range(PASS_ON_AFTER):
        assert leading(made), f"it has failed {number} times"
        search.failed("no route to the database", T)
        made.looked("w0", T)
    assert leading(made, shared=False), "there is no other"
    assert not leading(made)
    made.lead((), T)
    assert not leading(made, T + LONGEST_PAUSE - 0.1), "others have time to take it"
    assert leading(made, T + LONGEST_PAUSE), "nobody has taken it"


# spec: MN-1, WK-10
def test_a_node_whose_workers_are_all_busy_for_long_leaves_the_search_to_others() -> None:
    made = discovering("w0")
    stored(made, None, more=False, queued=0)
    made.looked("w0", T)
    assert grant(made, 1) == ["w0 job-1"]
    due = T + LOOK_EVERY
    assert leading(made, due + OVERDUE - 0.1)
    assert not leading(made, due + OVERDUE)
    assert leading(made, due + OVERDUE, shared=False), "there is no other"
    made.lead((), due + OVERDUE)
    assert not leading(made, due + OVERDUE + 100)
    made.finished("w0", Done(), due + OVERDUE + 100, None)
    assert leading(made, due + OVERDUE + 100)


# spec: MN-1
def test_a_failure_of_discover_is_reported_by_the_node_that_searches() -> None:
    made = discovering("w0")
    for _ in range(2):
        made.searches["a"].failed("no such table", T)
    assert made.blind == {"a": "no such table"}
    made.lead((), T)
    assert made.blind == {}
