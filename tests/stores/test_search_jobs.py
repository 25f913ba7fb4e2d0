"""Searches of jobs: each word of the filter language, in every order, in pages, and with a time limit."""

import pytest
from builders import ME, NOON, Wall, bring, end, job, note, put, record, take_one

from chargehand.model.job import GaveUp, JobRecord, Raised, State
from chargehand.model.job_query import parse
from chargehand.model.records import JobFilter, SearchPlace, Sort, Tally
from chargehand.store import Store
from chargehand.stores import searching


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a few jobs many: several ranges, and more than an index is asked for."""
    monkeypatch.setattr(searching, "FIRST_RANGE", 3)
    monkeypatch.setattr(searching, "FEW", 2)


def found(store: Store, text: str, sort: Sort = Sort.NEWEST, limit: int = 50) -> list[str]:
    """Returns the ids of all pages."""
    which = JobFilter(**{name: getattr(parse(text), name) for name in JobFilter.__struct_fields__ if name != "limit"},
                      limit=limit)  # fmt: skip
    ids: list[str] = []
    after: SearchPlace | None = None
    while True:
        page = store.jobs.search(which, sort, after, 60.0)
        assert page.searched_ms is None
        assert len(page.jobs) <= limit
        ids += [each.id for each in page.jobs]
        after = page.next
        if after is None:
            return ids


def fail(store: Store, error: str, worker: str, **options: object) -> str:
    """Creates a job that failed with this error."""
    new = job(**options)  # pyright: ignore[reportArgumentType]
    put(store, new)
    claim = take_one(store, queue=new.queue)
    note(store, claim, worker)
    assert end(store, claim, GaveUp(error), worker=worker) == []
    return new.id


def test_a_line_of_the_error_selects(store: Store) -> None:  # spec: DB-3
    begin = 'Traceback (most recent call last):\n  File "a.py", line 1, in perform\n'
    lines = [
        "ValueError: song 7 is (cut)", "ValueError: song 1.5 is (cut)", "ValueError: song x is (cut)",
        "ValueError: song 7 is (cut) short", "OSError: '/a b/é.flac'", "OSError: 'é.flac'", "AssertionError",
        "AssertionError: 12",
    ]  # fmt: skip
    ids = [fail(store, f"{begin}{line}\n", "w", id=f"j{nr}") for nr, line in enumerate(lines)]
    put(store, job("waits"))
    assert found(store, 'cause:"ValueError: song * is (cut)"') == ["j1", "j0"]
    assert found(store, 'cause:"ValueError: song * is…"') == ["j3", "j1", "j0"]
    assert found(store, "cause:\"OSError: '*'\"") == ["j4"]
    assert found(store, "cause:AssertionError") == ["j6"]
    assert found(store, 'cause:"AssertionError: *" state:failed') == ["j7"]
    assert store.jobs.tally(parse("cause:AssertionError"), 60.0).failed == 1
    assert len(ids) == len(found(store, "error:perform"))


def test_each_word_selects(store: Store) -> None:  # spec: DB-3 HT-3
    cuda = fail(store, "CUDA out of memory", "worker:tag:0", id="j-cuda", queue="tag", label="Summer 50%.flac")
    other = fail(store, "truncated", "worker:tag:1", id="j-other", queue="tag", tags=("nightly", "big"))
    put(
        store,
        job("j-a", queue="mail", key="k1", share="c-7", payload='{"path": "a.flac", "n": [1, {"x": true}]}'),
        job("j-b", queue="mail", sequence="s", payload='{"path": "b_mp3", "big": 12345678901234567890123}'),
        job("j-c", queue="mail", label="caf\U0010fadexe9.mp3", tags=("nightly",), payload='{"n": null}'),
    )
    for text, ids in {
        "": ["j-c", "j-b", "j-a", other, cuda],
        "queue:tag": [other, cuda],
        "queue:tag state:failed": [other, cuda],
        "state:queued": ["j-c", "j-b", "j-a"],
        "state:done": [],
        "error:cuda": [cuda],
        'error:"cuda*memory" queue:tag': [cuda],
        "error:nothing": [],
        "reason:gave-up": [other, cuda],
        "worker:tag:0": [cuda],
        "worker:tag": [other, cuda],
        f"worker:{ME.node}/tag:1": [other],
        "worker:elsewhere/tag:1": [],
        f"node:{ME.node}": [other, cuda],
        "tags:nightly": ["j-c", other],
        "tags:nightly tags:big": [other],
        "tags:nightly queue:mail": ["j-c"],
        "key:k1": ["j-a"],
        "key:K1": [],
        "key:~K": ["j-a"],
        "share:c-7": ["j-a"],
        "sequence:s": ["j-b"],
        "label:summer*": [cuda],
        "label:~50%": [cuda],
        "label:~50_": [],
        "label:summer": [],
        r"label:caf\xe9.mp3": ["j-c"],
        "payload.path:a.flac": ["j-a"],
        "payload.path:~FLAC": ["j-a"],
        "payload.path:b_mp3": ["j-b"],
        "payload.path:*mp3": ["j-b"],
        "payload.n.1.x:true": ["j-a"],
        "payload.n.0:1": ["j-a"],
        "payload.n:null": ["j-c"],
        "payload.big:12345678901234567890123": ["j-b"],
        "payload.none:x": [],
        "payload.n:~true": [],  # no objects and arrays
        "payload.n.1:*": [],
        r"payload.p\u0061th:a.flac": [],
        'payload.path".x:a.flac': [],
        "id:j-cu": [cuda],
        "trunc": [other],
        "flac summer": [cuda],
        '"out of"': [cuda],
        r"xe9": ["j-c"],
        "since:1h": ["j-c", "j-b", "j-a", other, cuda],
        "until:1h": [],
        "older:0s": [other, cuda],
    }.items():
        assert found(store, text) == ids, text
        assert found(store, text, limit=1) == ids, text
        assert found(store, text, Sort.OLDEST, limit=2) == ids[::-1], text
        assert sorted(found(store, text, Sort.PRIORITY, limit=2)) == sorted(ids), text
        counts = store.jobs.tally(parse(text), 60.0)
        states = [record(store, each).state.value for each in ids]
        assert {name: getattr(counts, name) for name in State} == {name: states.count(name) for name in State}, text
        failed = [each.id for each in store.jobs.failures(parse(text), 10, 60.0).jobs]
        assert failed == [each for each in ids if each in (cuda, other)], text


@pytest.mark.parametrize("text", ["queue:q", "state:failed", "queue:q state:failed", "tags:t", "queue:q tags:t"])
def test_an_index_answers_what_the_newest_jobs_do_not(store: Store, text: str) -> None:
    """A few jobs that match, before many that do not; and many that match before."""
    early = [fail(store, "no", "worker:q:0", id=f"old-{n}", tags=("t",)) for n in range(9)]
    put(store, *(job(f"new-{n}", queue="other") for n in range(30)))
    assert found(store, text, limit=4) == early[::-1]
    assert found(store, text, Sort.OLDEST, limit=4) == early
    assert store.jobs.tally(parse(text), 60.0) == Tally(failed=9)


def test_every_state_is_found_by_its_index(store: Store) -> None:
    """Jobs that wait for a time, a limit or other jobs are queued, too."""
    of = {state: bring(store, state, queue=f"q-{state.value}").id for state in State}
    put(store, job("later", delay_ms=3_600_000), job("first"), job("follows", after=("first",)))
    put(store, *(job(f"new-{n}", queue="other", tags=("new",)) for n in range(9)))
    waiting = [of[State.QUEUED], "later", "first", "follows"]
    for state, job_id in of.items():
        ids = found(store, f"state:{state.value}", limit=2)
        assert [each for each in ids if not each.startswith("new-")] == (
            waiting[::-1] if state is State.QUEUED else [job_id]
        )
        assert found(store, f"queue:q-{state.value}") == [job_id]
    assert found(store, "queue:q", limit=1) == ["follows", "first", "later"]
    numbers = dict.fromkeys(State, 1) | {State.QUEUED: 4}
    new = {State.QUEUED: 9}
    for state in State:
        number = numbers[state] + new.get(state, 0)
        assert store.jobs.tally(parse(f"state:{state}"), 0.0) == Tally(**{state.value: number})
        assert store.jobs.tally(parse(f"queue:q-{state.value}"), 0.0) == Tally(**{state.value: 1})
        assert store.jobs.tally(parse(f"queue:other state:{state}"), 0.0) == Tally(**{state.value: new.get(state, 0)})


@pytest.mark.parametrize("sort", [Sort.NEWEST, Sort.OLDEST, Sort.PRIORITY])
def test_a_whole_id_is_found_at_once(store: Store, sort: Sort) -> None:
    """However old the job is, and without a search through all jobs."""
    wanted = "0199c3b1e2f04c7d8a9b0c1d2e3f4a5b"
    put(store, *(job(f"old-{n}") for n in range(9)), job(wanted), *(job(f"new-{n}", queue="other") for n in range(9)))
    for text in (f"id:{wanted}", f"id:{wanted.upper()}", f"id:~{wanted} queue:q"):
        page = store.jobs.search(parse(text), sort, None, 0.0)
        assert ([each.id for each in page.jobs], page.searched_ms, page.next) == ([wanted], None, None)
        assert store.jobs.tally(parse(text), 0.0) == Tally(queued=1)
    assert store.jobs.tally(parse(f"id:{wanted} queue:other"), 0.0) == Tally()


def test_jobs_are_sorted_by_duration_and_by_priority(store: Store, wall: Wall) -> None:
    wall.at = NOON
    took = {"a": 500, "b": 90, "c": 3000, "d": 90}
    for name, ms in took.items():
        put(store, job(name, priority=ms % 7))
        claim = take_one(store)
        wall.at += ms
        assert end(store, claim, GaveUp("no"), duration_ms=ms) == []
    put(store, job("waits", priority=9))
    assert found(store, "", Sort.LONGEST, limit=2) == ["c", "a", "d", "b", "waits"]
    assert found(store, "state:failed", Sort.LONGEST, limit=3) == ["c", "a", "d", "b"]
    by_priority = sorted((-(ms % 7), -nr, name) for nr, (name, ms) in enumerate(took.items()))
    assert found(store, "", Sort.PRIORITY, limit=2) == ["waits", *(name for _, _, name in by_priority)]


def test_a_search_that_takes_too_long_says_how_far_it_came(store: Store, wall: Wall) -> None:
    wall.at = NOON
    for n in range(8):
        wall.at += 1000
        put(store, job(f"j{n}", label="match" if n in (0, 6) else None))
    which = parse("label:match")
    ids: list[str] = []
    pages = 0
    after: SearchPlace | None = None
    while True:
        page = store.jobs.search(which, Sort.NEWEST, after, 0.0)
        ids += [each.id for each in page.jobs]
        pages += 1
        if page.next is None:
            assert page.searched_ms is None
            break
        after = page.next
        assert page.searched_ms == NOON + 1000 * (9 - 3 * pages)  # three jobs at a time, see `small`
    assert (ids, pages) == (["j6", "j0"], 3)
    assert store.jobs.tally(which, 0.0) == Tally(queued=1, searched_ms=NOON + 6000)
    assert store.jobs.search(which, Sort.PRIORITY, None, 0.0).searched_ms == NOON + 6000
    oldest = store.jobs.search(which, Sort.OLDEST, None, 0.0)
    assert ([each.id for each in oldest.jobs], oldest.searched_ms) == (["j0"], NOON + 3000)


def test_a_search_of_new_jobs_does_not_read_old_ones(store: Store, wall: Wall) -> None:
    wall.at = NOON
    put(store, *(job(f"old-{n}") for n in range(9)))
    wall.at = NOON + 7_200_000
    put(store, *(job(f"new-{n}") for n in range(3)))
    which = parse("since:1h label:~x")
    first = store.jobs.search(which, Sort.NEWEST, None, 0.0)
    assert first.next is not None
    second = store.jobs.search(which, Sort.NEWEST, first.next, 0.0)  # three jobs at a time, see `small`
    assert (second.next, second.searched_ms) == (None, None)
    assert found(store, "since:1h") == ["new-2", "new-1", "new-0"]
    assert found(store, "until:1h")[0] == "old-8"


def test_failures_are_bounded(store: Store) -> None:
    ids = [fail(store, f"error {n}", "worker:q:0", label=f"l{n}") for n in range(7)]
    page = store.jobs.failures(JobFilter(), 4, 60.0)
    assert [each.id for each in page.jobs] == ids[:-5:-1]
    assert page.searched_ms is not None
    assert [each.error for each in page.jobs] == ["error 6", "error 5", "error 4", "error 3"]
    assert store.jobs.failures(JobFilter(), 7, 60.0).searched_ms is None


def test_a_job_is_named_by_the_end_of_its_id(store: Store) -> None:
    put(store, job("0000aaaa11112222"), job("0000bbbb11112222"), job("0000cccc33334444"))
    assert store.jobs.named("11112222") == ["0000bbbb11112222", "0000aaaa11112222"]
    assert store.jobs.named("33334444") == ["0000cccc33334444"]
    assert store.jobs.named("cccc") == store.jobs.named("%") == []


def test_an_earlier_attempt_had_the_worker(store: Store) -> None:
    put(store, job("a", max_attempts=3))
    for worker in ("worker:q:0", "worker:q:1"):
        claim = take_one(store)
        assert end(store, claim, Raised("boom"), worker=worker) == []
        assert state_of(store, "a").state is State.QUEUED
        retry_now(store, "a")
    assert found(store, "worker:q:0") == found(store, "worker:q:1") == ["a"]


def state_of(store: Store, job_id: str) -> JobRecord:
    return record(store, job_id)


def retry_now(store: Store, job_id: str) -> None:
    """Ends the pause before the next attempt."""
    with store.transaction() as tx:
        tx.jobs.cancel([job_id])
        tx.jobs.retry([job_id])
