"""Tags of jobs: stored, claimed, filtered by, and deleted with their jobs."""

from builders import bring, job, jobs, put, record, take_one

from chargehand.model.job import State
from chargehand.model.records import JobFilter, Retention
from chargehand.store import Store


def found(store: Store, **which: object) -> list[str]:
    return [each.id for each in store.jobs.find(JobFilter(**which))]  # pyright: ignore[reportArgumentType]


def test_tags_are_kept_and_come_with_the_claim(store: Store) -> None:  # spec: WK-15
    put(store, job("a", tags=("nightly", "größe: 日本")), job("b"))
    assert record(store, "a").tags == ("nightly", "größe: 日本")
    assert record(store, "b").tags is None
    assert [take_one(store).tags for _ in range(2)] == [("nightly", "größe: 日本"), None]


def test_jobs_are_filtered_by_a_tag_newest_first_and_in_pages(store: Store) -> None:  # spec: WK-15
    put(store, *(job(f"j{n}", queue="q" if n % 2 else "r", tags=("all", f"n{n}")) for n in range(6)), job("other"))
    assert found(store, tag="all") == ["j5", "j4", "j3", "j2", "j1", "j0"]
    assert found(store, tag="all", queue="q") == ["j5", "j3", "j1"]
    assert found(store, tag="all", limit=2, before="j4") == ["j3", "j2"]
    assert found(store, tag="all", text="J2") == ["j2"]
    assert found(store, tag="n3", state=State.QUEUED) == ["j3"]
    assert found(store, tag="ALL") == found(store, tag="al") == found(store, tag="n3", state=State.DONE) == []


def test_an_answer_says_which_tagged_jobs_are_new(store: Store) -> None:
    """As many tags as there are jobs that exist already must not be taken for jobs."""
    put(store, job("old"))
    made = put(store, job("old"), job("new", tags=("x",)))
    assert [each.created for each in made] == [False, True]
    assert [each.created for each in put(store, job("two", tags=("x", "x")), *jobs(60, tags=("y",)))] == [True] * 61
    assert found(store, tag="x") == ["two", "new"]


def test_tags_are_deleted_with_their_jobs(store: Store) -> None:
    pruned = bring(store, State.DONE, tags=("t",))
    cleared = bring(store, State.FAILED, tags=("t", "u"))
    kept = put(store, job("kept", tags=("t",)))[0].id
    assert found(store, tag="t") == [kept, cleared.id, pruned.id]
    with store.transaction() as tx:
        tx.jobs.delete([cleared.id])
    assert store.prune(Retention(count=0), 10) == 1
    assert found(store, tag="t") == [kept]
    with store.transaction() as tx:
        assert tx.execute("SELECT tag, count(*) FROM chargehand_tag GROUP BY tag") == [("t", 1)]
