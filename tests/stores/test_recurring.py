"""Tests for recurring jobs: stored plans, and one job for each time, however many nodes fire."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from builders import HOUR, ME, NOON, Wall, end, everything, job, put, record, roll_back, state, take

from chargehand.model import chores
from chargehand.model.batch import Batch
from chargehand.model.job import Done, NewJob, RetryLater, State
from chargehand.model.records import MOST_RUNS, RecurringPlan, Rescheduling
from chargehand.store import Store


def plan(name: str = "nightly", schedule: str = "every 1h", next_run_ms: int = NOON, text: str = "{}") -> RecurringPlan:
    return RecurringPlan(name=name, schedule=schedule, job=text, next_run_ms=next_run_ms)


def recur(store: Store, *plans: RecurringPlan) -> None:
    with store.transaction() as tx:
        tx.jobs.recur(plans, ME)


def fire(store: Store, due_ms: int, new: NewJob, name: str = "nightly", next_run_ms: int | None = None) -> bool:
    with store.transaction() as tx:
        return tx.jobs.fire(name, due_ms, due_ms + HOUR if next_run_ms is None else next_run_ms, new)


# plans


# spec: WK-11
def test_plans_are_kept_by_name_for_everybody(store: Store, store_factory: Callable[[], Store]) -> None:
    assert store.jobs.recurring() == []
    b, a = plan("b", "0 3 * * *", NOON + 1, '{"queue":"ü 💥"}'), plan("a")
    recur(store, b, a)
    assert store_factory().jobs.recurring() == [a, b]


# spec: WK-11
def test_a_restart_neither_skips_nor_repeats(store: Store) -> None:
    """The node computes the next time from its start; the stored time counts while the schedule is the same."""
    recur(store, plan(next_run_ms=NOON))
    recur(store, plan(next_run_ms=NOON + 5 * HOUR, text='{"payload":"2"}'))
    (found,) = store.jobs.recurring()
    assert (found.next_run_ms, found.job) == (NOON, '{"payload":"2"}')


# spec: WK-11
def test_another_schedule_has_another_next_time_and_the_same_last_job(store: Store) -> None:
    recur(store, plan(next_run_ms=NOON))
    fire(store, NOON, job("one"))
    recur(store, plan(schedule="every 5m", next_run_ms=NOON + 7))
    (found,) = store.jobs.recurring()
    assert (found.schedule, found.next_run_ms, found.last_job) == ("every 5m", NOON + 7, "one")


# spec: WK-11
def test_plans_that_are_not_named_any_more_are_gone(store: Store) -> None:
    recur(store, plan("a"), plan("b"), plan("c"))
    recur(store, plan("b"))
    assert [found.name for found in store.jobs.recurring()] == ["b"]
    recur(store, plan("a", next_run_ms=NOON + 9), plan("b"))
    assert [found.next_run_ms for found in store.jobs.recurring()] == [NOON + 9, NOON], "it begins anew"
    recur(store)
    assert store.jobs.recurring() == []


# spec: WK-11, WK-2
def test_plans_roll_back(store: Store) -> None:
    recur(store, plan("a"))
    roll_back(store, lambda tx: tx.jobs.recur([plan("b")], ME))
    assert [found.name for found in store.jobs.recurring()] == ["a"]


# firing


# spec: WK-11
def test_firing_enqueues_the_job_and_moves_on(store: Store) -> None:
    recur(store, plan(), plan("other"))
    assert fire(store, NOON, job("one", payload="[1]", priority=3))
    assert (state(store, "one"), record(store, "one").priority) == (State.QUEUED, 3)
    assert [(found.name, found.next_run_ms, found.last_job) for found in store.jobs.recurring()] == [
        ("nightly", NOON + HOUR, "one"),
        ("other", NOON, None),
    ]


# spec: WK-11
def test_a_time_is_fired_once(store: Store, store_factory: Callable[[], Store]) -> None:
    recur(store, plan())
    assert fire(store, NOON, job("one"))
    assert not fire(store, NOON, job("two"))
    assert not fire(store_factory(), NOON, job("three"))
    assert [found.id for found in everything(store)] == ["one"]
    assert fire(store_factory(), NOON + HOUR, job("next"))
    assert store.jobs.recurring()[0].last_job == "next"


# spec: WK-11
def test_nothing_is_fired_for_another_time_or_another_name(store: Store) -> None:
    recur(store, plan())
    assert not fire(store, NOON - 1, job())
    assert not fire(store, NOON + HOUR, job())
    assert not fire(store, NOON, job(), name="nobody")
    assert (everything(store), store.jobs.recurring()) == ([], [plan()])


# spec: WK-11, WK-2
def test_firing_rolls_back_as_a_whole(store: Store) -> None:
    recur(store, plan())
    roll_back(store, lambda tx: tx.jobs.fire("nightly", NOON, NOON + HOUR, job("one")))
    assert (everything(store), store.jobs.recurring()) == ([], [plan()])
    assert fire(store, NOON, job("one"))


# spec: WK-11, WK-2
def test_firing_while_the_last_one_still_waits_under_its_key_moves_on_all_the_same(store: Store) -> None:
    recur(store, plan())
    put(store, job("still there", key="nightly"))
    assert fire(store, NOON, job("one", key="nightly"))
    assert store.jobs.get("one") is None
    assert store.jobs.recurring() == [
        msgspec.structs.replace(plan(), next_run_ms=NOON + HOUR, last_job="still there"),
    ]


# spec: WK-11
def test_however_many_fire_at_once_every_time_is_fired_once(store_factory: Callable[[], Store]) -> None:
    stores = [store_factory() for _ in range(4)]
    recur(stores[0], plan())
    barrier = threading.Barrier(len(stores))

    def keep_firing(number: int) -> int:
        won = 0
        for turn in range(20):
            barrier.wait()
            won += fire(stores[number], NOON + turn * HOUR, job(f"{turn} by {number}"))
        return won

    with ThreadPoolExecutor(len(stores)) as pool:
        wins = list(pool.map(keep_firing, range(len(stores))))
    assert sum(wins) == 20
    assert sorted(int(claim.id.split()[0]) for claim in take(stores[0], 100)) == list(range(20))


# a clock that was ahead and came back

DAY = 24 * HOUR


def set_back(store: Store, *recurring: Rescheduling) -> int:
    (corrected,) = store.turn(Batch(chores=(chores.SetClockBack(recurring),)), ME).done
    return corrected


# spec: WK-11
def test_a_recurring_job_is_rescheduled_unless_it_has_moved_on(store: Store) -> None:
    recur(store, plan("a", next_run_ms=NOON + DAY), plan("b", next_run_ms=NOON + DAY))
    fire(store, NOON + DAY, job("one"), "b", NOON + DAY + HOUR)
    moves = [Rescheduling(name=name, due_ms=NOON + DAY, next_run_ms=NOON + HOUR) for name in ("a", "b", "c")]
    set_back(store, *moves)
    set_back(store, *moves)
    assert [found.next_run_ms for found in store.jobs.recurring()] == [NOON + HOUR, NOON + DAY + HOUR]


# spec: WK-5
def test_a_retry_waits_for_its_delay_and_not_for_the_clock_that_was_ahead(store: Store, wall: Wall) -> None:
    wall.at = NOON + DAY
    put(store, job("later", delay_ms=5000), job("one"))
    (claim,) = take(store)
    end(store, claim, RetryLater(30_000, "x"))
    wall.at = NOON
    assert set_back(store) == 1
    assert set_back(store) == 0
    assert record(store, "one").run_at_ms == NOON + 30_000
    assert record(store, "later").run_at_ms == NOON + DAY + 5000, "it may have been asked for at that time"


# spec: WK-5
def test_a_retry_of_a_clock_that_was_right_is_left_alone(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("one"))
    (claim,) = take(store)
    end(store, claim, RetryLater(HOUR, "x"))
    wall.at += 1000
    assert set_back(store) == 0
    assert record(store, "one").run_at_ms == NOON + HOUR


# spec: PD-1
def test_a_pause_lasts_as_long_as_it_was_meant_to(store: Store, wall: Wall) -> None:
    wall.at = NOON + DAY
    with store.transaction() as tx:
        tx.fleet.pause("q", "anna", None, 5000)
        tx.fleet.pause("r", "anna", None, None)
    wall.at = NOON
    set_back(store)
    assert [(pause.scope, pause.left_ms) for pause in store.fleet.pauses()] == [("q", 5000), ("r", None)]


# pauses, runs besides the schedule, and the newest runs


def change(store: Store, work: Callable[[Any], Any]) -> Any:
    with store.transaction() as tx:
        return work(tx.jobs)


# spec: WK-11
def test_a_paused_one_skips_its_times_and_goes_on_when_resumed(store: Store) -> None:
    recur(store, plan(), plan("other"))
    assert change(store, lambda jobs: jobs.pause_recurring("nightly", "ann", "new disk"))
    assert not fire(store, NOON, job("one"))
    assert fire(store, NOON, job("two"), "other")
    recur(store, plan(), plan("other"))  # a node starts
    assert not fire(store, NOON + HOUR, job("three"))
    (found,) = [each for each in store.jobs.recurring() if each.name == "nightly"]
    assert (found.next_run_ms, found.last_job) == (NOON + 2 * HOUR, None), "the times are skipped"
    (state_of,) = [each for each in store.jobs.recurring_states() if each.name == "nightly"]
    assert (state_of.paused_by, state_of.pause_reason, state_of.runs) == ("ann", "new disk", ())
    assert change(store, lambda jobs: jobs.resume_recurring("nightly"))
    assert not change(store, lambda jobs: jobs.resume_recurring("nightly"))
    assert fire(store, NOON + 2 * HOUR, job("four"))
    assert [each.id for each in everything(store)] == ["four", "two"]


def test_a_time_that_passed_while_no_node_ran_is_skipped_by_the_resume(store: Store) -> None:
    recur(store, plan())
    change(store, lambda jobs: jobs.pause_recurring("nightly", "ann", None))
    skipped = Rescheduling(name="nightly", due_ms=NOON, next_run_ms=NOON + DAY)
    assert change(store, lambda jobs: jobs.resume_recurring("nightly", skipped))
    assert not fire(store, NOON, job("one"))
    assert store.jobs.recurring()[0].next_run_ms == NOON + DAY


def test_one_runs_besides_its_schedule_also_while_it_is_paused(store: Store) -> None:
    recur(store, plan())
    change(store, lambda jobs: jobs.pause_recurring("nightly", "ann", None))
    assert change(store, lambda jobs: jobs.run_recurring("nightly", job("now"))) == "now"
    (found,) = store.jobs.recurring()
    assert (found.next_run_ms, found.last_job) == (NOON, "now")
    assert change(store, lambda jobs: jobs.run_recurring("nobody", job("never"))) is None
    assert not change(store, lambda jobs: jobs.pause_recurring("nobody", "ann", None))
    assert [each.id for each in everything(store)] == ["now"]


def test_the_newest_runs_are_known_with_their_states(store: Store) -> None:
    recur(store, plan())
    for number in range(MOST_RUNS + 2):
        fire(store, NOON + number * HOUR, job(f"run-{number}"))
    (found,) = store.jobs.recurring_states()
    assert (len(found.runs), found.runs[0], found.runs[-1]) == (MOST_RUNS, "run-2", f"run-{MOST_RUNS + 1}")
    end(store, take(store)[0], Done("null"))
    runs = {run.id: run for run in store.jobs.runs([*found.runs, "run-0", "never"])}
    assert (runs["run-0"].state, runs["run-0"].finished_ms is not None, len(runs)) == (State.DONE, True, MOST_RUNS + 1)
    assert runs["run-2"].state is State.QUEUED
