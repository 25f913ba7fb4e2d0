"""Tests for the operations of people: cancel, retry, pause, register, counts, pages, pruning."""

import itertools
from collections.abc import Callable

import pytest
from builders import (
    EARLIER_ME,
    HOUR,
    ME,
    NOON,
    Wall,
    bring,
    cancel,
    counted,
    crew,
    end,
    everything,
    job,
    jobs,
    pause,
    plain,
    put,
    record,
    register,
    resume,
    retry,
    state,
    take,
    take_one,
)

from chargehand.codec import readable
from chargehand.model.batch import Want
from chargehand.model.job import Crashed, Done, GaveUp, Interrupted, Raised, State, settle
from chargehand.model.records import Counts, CrashFilter, JobFilter, Retention
from chargehand.store import Store

ALL = Retention(count=0)
DONE = Done()


def finish(store: Store, count: int, queue: str = "q", outcome: Done | GaveUp = DONE) -> list[str]:
    """Creates so many jobs that finished one after the other, the oldest first."""
    new = jobs(count, queue=queue)
    put(store, *new)
    for claim in take(store, count, queue=queue):
        end(store, claim, outcome)
    return [one.id for one in new]


def delete(store: Store, *ids: str) -> set[str]:
    with store.transaction() as tx:
        return set(tx.jobs.delete(ids))


def scale(store: Store, name: str, count: int | None) -> None:
    with store.transaction() as tx:
        tx.fleet.scale(name, count, ME)


def scaled(store: Store) -> dict[str, tuple[int, int | None]]:
    return {row.name: (row.workers, row.scaled) for row in store.fleet.crews()}


# delete


# spec: HT-3 CL-6
def test_finished_jobs_are_deleted_with_all_that_belongs_to_them(store: Store) -> None:
    done, failed, cancelled = (
        bring(store, each, tags=("t",)).id for each in (State.DONE, State.FAILED, State.CANCELLED)
    )
    kept = bring(store, State.DONE, tags=("t",)).id
    assert delete(store, done, failed, cancelled, "nothing", done) == {done, failed, cancelled}
    assert [found.id for found in everything(store)] == [kept]
    assert [found.id for found in store.jobs.find(JobFilter(tag="t"))] == [kept]
    assert [len(store.jobs.attempts(each)) for each in (done, failed, cancelled, kept)] == [0, 0, 0, 1]
    assert delete(store, done) == set()


# spec: HT-3 CL-6
def test_jobs_that_are_waiting_or_running_are_not_deleted(store: Store) -> None:
    put(store, job("running"), job("queued"), job("later", delay_ms=HOUR))
    take_one(store)
    before = everything(store)
    assert delete(store, "running", "queued", "later") == set()
    assert everything(store) == before


# spec: HT-3 CL-6
def test_jobs_are_selected_by_the_time_since_their_end(store: Store, wall: Wall) -> None:
    wall.at = NOON
    old = bring(store, State.DONE).id
    wall.at = NOON + HOUR
    new = bring(store, State.DONE).id
    put(store, job("waits"))

    def older(ms: int) -> list[str]:
        return [found.id for found in store.jobs.find(JobFilter(older_ms=ms))]

    assert (older(0), older(1), older(HOUR), older(HOUR + 1)) == ([new, old], [old], [old], [])
    assert state(store, "waits") is State.QUEUED


# spec: CL-6
def test_the_sizes_of_jobs_are_those_of_their_texts(store: Store) -> None:
    put(store, job("a", payload='"€"'), job("b"), job("c"))
    claims = take(store, 2)
    end(store, claims[0], Done("[1, 2, 3]"))
    end(store, claims[1], GaveUp("why"))
    found = store.jobs.sizes(JobFilter(ids=("a", "b", "nothing")))
    assert [(each.id, each.size) for each in found] == [("b", 4 + 3), ("a", 5 + 9)]
    assert [each.id for each in store.jobs.sizes(JobFilter(limit=2))] == ["c", "b"]


# cancel


# spec: WK-8
def test_a_waiting_job_is_cancelled_at_once(store: Store) -> None:
    put(store, job("one"), job("two"))
    assert cancel(store, "one") == ["one"]
    found = record(store, "one")
    assert (found.state, found.reason) == (State.CANCELLED, "cancelled")
    assert found.finished_ms is not None
    assert [claim.id for claim in take(store, 5)] == ["two"]


# spec: WK-8
def test_a_job_that_waits_for_its_time_is_cancelled_for_good(store: Store) -> None:
    put(store, job("later", delay_ms=40))
    assert cancel(store, "later") == ["later"]
    assert store.jobs.counts() == [Counts(queue="q", cancelled=1)]
    assert take(store) == []


# spec: WK-8
def test_cancelling_answers_with_those_that_were_cancelled(store: Store) -> None:
    running, done = bring(store, State.RUNNING), bring(store, State.DONE)
    put(store, job("a"), job("b"))
    assert sorted(cancel(store, "a", running.id, "nobody", done.id, "b")) == ["a", "b"]


# spec: WK-8
def test_cancelling_twice_cancels_once(store: Store) -> None:
    put(store, job("one"))
    assert cancel(store, "one", "one") == ["one"]
    was = record(store, "one")
    assert cancel(store, "one") == []
    assert record(store, "one") == was


# spec: WK-8
def test_cancelling_nothing_is_nothing(store: Store) -> None:
    assert cancel(store) == []


# retry


# spec: WK-1, WK-6
@pytest.mark.parametrize("before", [State.FAILED, State.CANCELLED])
def test_a_retried_job_begins_anew(store: Store, before: State) -> None:
    claim = bring(store, before, priority=4, payload="[1]", label="L")
    assert retry(store, claim.id) == [claim.id]
    found = record(store, claim.id)
    assert (found.state, found.error, found.reason, found.result) == (State.QUEUED, None, None, None)
    assert (found.finished_ms, found.attempts, found.crashes, found.interruptions) == (None, 0, 0, 0)
    assert (found.priority, plain(found.payload), found.label) == (4, [1], "L")
    assert take_one(store).id == claim.id


# spec: WK-6
def test_a_quarantined_job_is_claimed_again_only_when_a_person_says_so(store: Store) -> None:
    claim = bring(store, State.FAILED)
    assert take(store) == []
    retry(store, claim.id)
    again = take_one(store)
    assert (again.failures, again.crashes) == (0, 0)


# spec: WP-13
def test_where_a_job_failed_is_kept_until_a_person_retries_it(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, job("a", max_attempts=2))
    end(store, take_one(store), Raised("x"), failed_in="here")
    wall.at = NOON + HOUR
    kept = take_one(store)
    assert (kept.id, kept.failed_in) == ("a", "here")
    put(store, job("b", max_attempts=1))
    end(store, take_one(store), Raised("x"), failed_in="there")
    retry(store, "b")
    again = take_one(store)
    assert (again.id, again.failed_in) == ("b", None)


# spec: WK-5
def test_a_retry_keeps_the_history(store: Store) -> None:
    claim = bring(store, State.FAILED)
    retry(store, claim.id)
    end(store, take_one(store), Done())
    assert [attempt.outcome for attempt in store.jobs.attempts(claim.id)] == ["gave up", "done"]


# spec: WK-1
def test_retrying_answers_with_those_that_were_retried(store: Store) -> None:
    failed, done = bring(store, State.FAILED), bring(store, State.DONE)
    put(store, job("waiting"))
    assert retry(store, "waiting", failed.id, done.id, "nobody", failed.id) == [failed.id]


# spec: WK-2
def test_a_future_job_cancelled_and_retried_is_due_at_once(store: Store) -> None:
    put(store, job("later", delay_ms=HOUR))
    cancel(store, "later")
    retry(store, "later")
    assert take_one(store).id == "later"
    assert store.jobs.counts() == [Counts(queue="q", running=1)]


# pauses and crews


# spec: PD-1
def test_a_pause_keeps_who_when_and_why(store: Store) -> None:
    put(store, job("clock"))
    with store.transaction() as tx:
        tx.fleet.pause("tag", "anna", "disk swap")
        tx.fleet.pause("*", "ben", None)
    everyone, tag = store.fleet.pauses()
    assert (everyone.scope, everyone.who, everyone.reason) == ("*", "ben", None)
    assert (tag.scope, tag.who, tag.reason) == ("tag", "anna", "disk swap")
    assert tag.since_ms >= record(store, "clock").created_ms


# spec: PD-1, SV-10
def test_pausing_again_is_one_pause_with_the_newest_reason(store: Store) -> None:
    for who, reason in (("anna", "one"), ("ben", "two")):
        with store.transaction() as tx:
            tx.fleet.pause("*", who, reason)
    assert [(p.who, p.reason) for p in store.fleet.pauses()] == [("ben", "two")]


# spec: PD-1
def test_a_pause_survives_a_restart(store_factory: Callable[[], Store]) -> None:
    with store_factory().transaction() as tx:
        tx.fleet.pause("*", "anna", None)
    assert [p.scope for p in store_factory().fleet.pauses()] == ["*"]


# spec: PD-1
def test_a_pause_says_until_when_and_how_much_is_left(store: Store, wall: Wall) -> None:
    wall.at = NOON
    pause(store, "tag", HOUR)
    pause(store, "*")
    wall.at += 1000
    everyone, tag = store.fleet.pauses()
    assert (everyone.since_ms, everyone.until_ms, everyone.left_ms) == (NOON, None, None)
    assert (tag.since_ms, tag.until_ms, tag.left_ms) == (NOON, NOON + HOUR, HOUR - 1000)


# spec: PD-1
def test_a_pause_that_ran_out_is_not_listed(store: Store, wall: Wall) -> None:
    wall.at = NOON
    pause(store, "short", HOUR)
    pause(store, "long", HOUR + 1)
    assert [found.scope for found in store.fleet.pauses()] == ["long", "short"]
    wall.at += HOUR
    assert [(found.scope, found.left_ms) for found in store.fleet.pauses()] == [("long", 1)]
    wall.at += 1
    assert store.fleet.pauses() == []


# spec: PD-1
@pytest.mark.parametrize("text", ["it's; DROP TABLE --", "a\0b", "naïve 🎵\n\x1b[31m", "", "\ud800"])
def test_whatever_a_person_gives_as_the_reason_is_kept(store: Store, text: str) -> None:
    with store.transaction() as tx:
        tx.fleet.pause("*", text, text)
    (found,) = store.fleet.pauses()
    shown = readable(text)
    assert (found.who, found.reason) == (shown, shown)
    assert resume(store, "*") is True


# spec: ST-1, WK-1, WK-8, PD-1
@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "caf\udce9"])
def test_names_that_no_store_can_hold_are_unknown_names(store: Store, bad: str) -> None:
    put(store, job("one"))
    with store.transaction() as tx:
        assert [each.id for each in tx.jobs.cancel([bad])] == []
        assert (tx.jobs.retry([bad]), tx.jobs.delete([bad]), tx.jobs.release(bad, "1", "x")) == ([], [], False)
        assert (tx.fleet.resume(bad), tx.access.revoke_key(bad)) == (False, False)
        assert tx.fleet.pause(bad, "who", None) is None
        assert tx.fleet.resume(bad)
    assert (store.jobs.get(bad), store.jobs.attempts(bad), store.jobs.named(bad, 1)) == (None, [], [])
    assert (store.flows.get(bad), store.jobs.followers(bad, 1), store.fleet.crashes(CrashFilter(job=bad))) == (
        None,
        [],
        [],
    )
    assert store.jobs.find(JobFilter(ids=(bad,), text=bad)) == []
    assert store.jobs.find(JobFilter(queue=bad)) == store.jobs.find(JobFilter(tag=bad)) == []
    assert state(store, "one") is State.QUEUED


# spec: CL-4, ST-1
def test_crews_are_known_from_the_store(store: Store, store_factory: Callable[[], Store]) -> None:
    rows = [crew("a", "qa", 3), crew("b", "qb", 0, timeout_ms=None)]
    with store.transaction() as tx:
        tx.fleet.register(ME, rows, {"pid": 1})
    assert store_factory().fleet.crews() == rows


# spec: ST-1
def test_a_new_life_of_the_node_replaces_its_crews(store: Store) -> None:
    with store.transaction() as tx:
        tx.fleet.register(EARLIER_ME, [crew("a"), crew("gone")], {})
    with store.transaction() as tx:
        tx.fleet.register(ME, [crew("a", workers=9), crew("new")], {}, after=EARLIER_ME.life)
    assert [(row.name, row.workers) for row in store.fleet.crews()] == [("a", 9), ("new", 1)]


# spec: SV-10
def test_a_scaled_crew_stays_scaled_through_restarts(store: Store) -> None:
    register(store, crew("a", workers=2), crew("b", workers=2), holder=EARLIER_ME)
    scale(store, "a", 5)
    assert scaled(store) == {"a": (2, 5), "b": (2, None)}
    for _ in range(2):
        register(store, crew("a", workers=2), crew("b", workers=2))
        assert scaled(store) == {"a": (2, 5), "b": (2, None)}


# spec: SV-10
def test_a_crew_may_be_scaled_to_nothing(store: Store) -> None:
    register(store, crew("a", workers=2))
    scale(store, "a", 0)
    register(store, crew("a", workers=2))
    assert scaled(store) == {"a": (2, 0)}


# spec: SV-10
def test_another_configured_count_ends_the_scaling_for_good(store: Store) -> None:
    register(store, crew("a", workers=2), crew("b", workers=2))
    scale(store, "a", 5)
    scale(store, "b", 6)
    register(store, crew("a", workers=3), crew("b", workers=2))
    assert scaled(store) == {"a": (3, None), "b": (2, 6)}
    register(store, crew("a", workers=2), crew("b", workers=2))
    assert scaled(store) == {"a": (2, None), "b": (2, 6)}


# spec: SV-10
def test_a_scaling_is_kept_though_the_rest_of_the_crew_changes(store: Store) -> None:
    register(store, crew("a", "old", workers=2, timeout_ms=5))
    scale(store, "a", 5)
    register(store, crew("a", "new", workers=2, timeout_ms=None))
    assert [(row.queue, row.timeout_ms, row.scaled) for row in store.fleet.crews()] == [("new", None, 5)]


# spec: SV-10
def test_a_scaling_can_be_replaced_and_taken_back(store: Store) -> None:
    register(store, crew("a", workers=2), crew("b", workers=2))
    for count in (5, 6, None):
        scale(store, "a", count)
        assert scaled(store) == {"a": (2, count), "b": (2, None)}


# spec: SV-10
def test_scaling_a_crew_that_nobody_registered_makes_none(store: Store) -> None:
    register(store, crew("a", workers=2))
    scale(store, "stranger", 5)
    assert scaled(store) == {"a": (2, None)}


# spec: ST-1
def test_registering_does_not_touch_jobs_or_pauses(store: Store) -> None:
    bring(store, State.RUNNING)
    with store.transaction() as tx:
        tx.fleet.pause("*", "anna", None)
    before = everything(store)
    with store.transaction() as tx:
        tx.fleet.register(ME, [], {})
    assert (everything(store), len(store.fleet.pauses())) == (before, 1)


# spec: ST-1
def test_an_empty_store_is_empty(store: Store) -> None:
    assert (store.jobs.counts(), store.fleet.crews(), store.fleet.pauses(), everything(store)) == ([], [], [], [])
    assert (store.jobs.get("x"), store.jobs.attempts("x"), store.prune(Retention(), 10)) == (None, [], 0)
    assert (store.fleet.health(), store.fleet.crashes(CrashFilter()), store.fleet.crash("x")) == ([], [], None)
    assert (store.fleet.given_up(), store.fleet.snapshots(0, 10), store.jobs.waiting()) == ([], [], [])
    assert (store.jobs.cancelling(), store.jobs.claims(), store.jobs.recurring()) == ([], [], [])


# spec: ST-1
def test_a_write_by_another_stirs_the_store(store_factory: Callable[[], Store]) -> None:
    mine, other = store_factory(), store_factory()
    mine.changed()
    put(other, job("one"))
    assert mine.changed() is True


# spec: ST-1
def test_migrating_again_changes_nothing(store: Store) -> None:
    put(store, job("one"))
    assert store.migrate() == store.migrate()
    assert store.migrate().after >= 1
    assert state(store, "one") is State.QUEUED


# spec: ST-1
def test_what_was_committed_is_there_for_everybody(store_factory: Callable[[], Store]) -> None:
    put(store_factory(), job("one"))
    again = store_factory()
    assert state(again, "one") is State.QUEUED
    assert take_one(again).id == "one"


# counts


# spec: WK-1
def test_counts_tell_every_state_of_every_queue(store: Store) -> None:
    for queue, repeat in (("a", 1), ("b", 2)):
        for wanted in (State.RUNNING, State.DONE, State.FAILED, State.CANCELLED):
            for _ in range(repeat):
                bring(store, wanted, queue=queue)
        put(store, *jobs(3 * repeat, queue=queue), *jobs(2 * repeat, queue=queue, delay_ms=HOUR))
    assert all(counts.last_done_ms is not None for counts in store.jobs.counts())
    assert counted(store) == [
        Counts(queue="a", queued=5, future=2, running=1, done=1, failed=1, cancelled=1),
        Counts(queue="b", queued=10, future=4, running=2, done=2, failed=2, cancelled=2),
    ]


# spec: WK-1
@pytest.mark.parametrize("wanted", list(State))
def test_counts_of_a_single_job(store: Store, wanted: State) -> None:
    bring(store, wanted)
    (counts,) = store.jobs.counts()
    numbers = {one: getattr(counts, one.value) for one in State}
    assert numbers == {one: int(one is wanted) for one in State}
    assert counts.future == 0


# spec: WK-1
def test_counts_follow_a_job_through_its_life(store: Store) -> None:
    put(store, job("one", delay_ms=HOUR))
    assert store.jobs.counts() == [Counts(queue="q", queued=1, future=1)]
    cancel(store, "one")
    assert store.jobs.counts() == [Counts(queue="q", cancelled=1)]
    retry(store, "one")
    assert store.jobs.counts() == [Counts(queue="q", queued=1)]
    claim = take_one(store)
    assert store.jobs.counts() == [Counts(queue="q", running=1)]
    end(store, claim, Interrupted("x"))
    assert store.jobs.counts() == [Counts(queue="q", queued=1)]
    end(store, take_one(store), GaveUp("x"))
    assert store.jobs.counts() == [Counts(queue="q", failed=1)]


# pages


# spec: DB-3
def test_jobs_are_listed_newest_first(store: Store) -> None:
    new = jobs(5)
    put(store, *new)
    assert [found.id for found in everything(store)] == [one.id for one in reversed(new)]


# spec: DB-3
@pytest.mark.parametrize("size", [1, 3, 5, 10, 11, 50])
def test_pages_together_are_all_jobs_once(store: Store, size: int) -> None:
    new = jobs(10)
    put(store, *new)
    seen: list[str] = []
    before = None
    while page := store.jobs.find(JobFilter(limit=size, before=before)):
        assert len(page) <= size
        seen += [found.id for found in page]
        before = seen[-1]
    assert seen == [one.id for one in reversed(new)]


# spec: DB-3
def test_new_jobs_do_not_disturb_somebody_who_pages(store: Store) -> None:
    new = jobs(6)
    put(store, *new)
    first = store.jobs.find(JobFilter(limit=3))
    put(store, *jobs(3))
    second = store.jobs.find(JobFilter(limit=3, before=first[-1].id))
    assert [found.id for found in (*first, *second)] == [one.id for one in reversed(new)]


# spec: DB-3
def test_a_filter_lets_through_exactly_what_it_says(store: Store) -> None:
    for of in ("a", "b"):
        for one in (*(one for one in State if one is not State.QUEUED), State.QUEUED):
            bring(store, one, queue=of)
    found = everything(store)
    assert len(found) == 10
    for queue, wanted in itertools.product(["a", "b", None, "none"], [*State, None]):
        expected = [one for one in found if queue in (None, one.queue) and wanted in (None, one.state)]
        assert store.jobs.find(JobFilter(queue=queue, state=wanted)) == expected


# spec: DB-3
def test_a_filter_and_a_page_work_together(store: Store) -> None:
    ids = [bring(store, State.DONE, queue=queue).id for queue in ("a", "b", "a", "b", "a")]
    first = store.jobs.find(JobFilter(queue="a", state=State.DONE, limit=2))
    assert [found.id for found in first] == [ids[4], ids[2]]
    second = store.jobs.find(JobFilter(queue="a", state=State.DONE, limit=2, before=ids[2]))
    assert [found.id for found in second] == [ids[0]]


# spec: WK-1
def test_a_listed_job_is_the_job(store: Store) -> None:
    for one in State:
        bring(store, one, queue=one.value, key="k", payload='{"x":1}', label="L")
    assert all(found == store.jobs.get(found.id) for found in everything(store))


# pruning


# spec: WK-12
@pytest.mark.parametrize("finished", [State.DONE, State.FAILED, State.CANCELLED])
def test_finished_jobs_over_the_count_are_pruned_oldest_first(store: Store, finished: State) -> None:
    ids = [bring(store, finished).id for _ in range(5)]
    assert store.prune(Retention(count=3), 100) == 2
    assert [found.id for found in reversed(everything(store))] == ids[2:]


# spec: WK-12
@pytest.mark.parametrize("unfinished", [State.QUEUED, State.RUNNING])
def test_unfinished_jobs_are_never_pruned(store: Store, unfinished: State) -> None:
    claim = bring(store, unfinished)
    put(store, job("later", delay_ms=HOUR))
    assert store.prune(Retention(age_ms=-HOUR, count=0), 100) == 0
    assert state(store, claim.id) is unfinished
    assert state(store, "later") is State.QUEUED


# spec: WK-12
def test_the_count_is_kept_for_each_queue_and_state(store: Store) -> None:
    for queue in ("a", "b"):
        finish(store, 3, queue)
        finish(store, 2, queue, GaveUp("x"))
    assert store.prune(Retention(count=2), 100) == 2
    assert [(c.queue, c.done, c.failed) for c in store.jobs.counts()] == [("a", 2, 2), ("b", 2, 2)]


# spec: WK-12
def test_jobs_older_than_the_age_are_pruned(store: Store) -> None:
    """Even a job that finished just now is older than an age below zero."""
    finish(store, 4)
    assert store.prune(Retention(age_ms=HOUR), 100) == 0
    assert store.prune(Retention(age_ms=-HOUR), 100) == 4
    assert everything(store) == []


# spec: WK-12
def test_what_is_within_age_and_count_is_kept(store: Store) -> None:
    finish(store, 5)
    assert store.prune(Retention(), 100) == 0
    assert store.prune(Retention(count=5), 100) == 0
    assert len(everything(store)) == 5


# spec: WK-12
def test_pruning_goes_in_steps_until_nothing_is_left_to_prune(store: Store) -> None:
    for queue in ("a", "b", "c"):
        finish(store, 7, queue)
    steps = [store.prune(ALL, 4) for _ in range(7)]
    assert steps == [4, 4, 4, 4, 4, 1, 0]


# spec: WK-12
def test_a_step_that_is_not_full_means_that_nothing_is_left(store: Store) -> None:
    finish(store, 10)
    while store.prune(Retention(count=3), 4) == 4:
        pass
    assert store.prune(Retention(count=3), 100) == 0
    assert len(everything(store)) == 3


# spec: WK-12
def test_jobs_finished_in_the_same_millisecond_are_pruned_to_the_count_and_no_further(store: Store) -> None:
    new = jobs(50)
    put(store, *new)
    with store.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("q", "q", 50)], ME)
        tx.jobs.settle([made for claim in grant.claims if (made := settle(claim, Done()))], ME)
    assert store.prune(Retention(count=20), 100) == 30
    assert store.prune(Retention(count=20), 100) == 0
    assert len(everything(store)) == 20


# spec: WK-12
def test_the_history_of_a_pruned_job_goes_with_it(store: Store) -> None:
    put(store, job("gone"))
    end(store, take_one(store), Crashed("x"))
    end(store, take_one(store), Done())
    kept = bring(store, State.FAILED)
    assert store.prune(Retention(count=1), 10) == 0
    assert len(store.jobs.attempts("gone")) == 2
    bring(store, State.DONE)
    assert store.prune(Retention(count=1), 10) == 1
    assert (store.jobs.get("gone"), store.jobs.attempts("gone")) == (None, [])
    assert len(store.jobs.attempts(kept.id)) == 1


# spec: WK-5, WK-12
def test_a_job_made_after_a_pruning_has_none_of_the_pruned_history(store: Store) -> None:
    bring(store, State.DONE)
    store.prune(ALL, 10)
    put(store, job("new"))
    assert store.jobs.attempts("new") == []
    claim = take_one(store)
    end(store, claim, Done())
    assert [attempt.claim for attempt in store.jobs.attempts("new")] == [str(claim.number)]


# spec: WK-12
def test_an_id_and_a_key_are_free_again_after_pruning(store: Store) -> None:
    claim = bring(store, State.DONE, key="k")
    store.prune(ALL, 10)
    (answer,) = put(store, job(claim.id, key="k"))
    assert answer.created


# spec: WK-12
def test_jobs_beside_the_pruned_ones_are_untouched(store: Store) -> None:
    finish(store, 20)
    waiting, running = bring(store, State.QUEUED, queue="x"), bring(store, State.RUNNING, queue="y")
    before = [store.jobs.get(waiting.id), store.jobs.get(running.id)]
    assert store.prune(ALL, 100) == 20
    assert [store.jobs.get(waiting.id), store.jobs.get(running.id)] == before
