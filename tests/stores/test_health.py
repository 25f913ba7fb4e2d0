"""Tests for health rows, crash reports, marks of given-up workers, and the history of health."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from builders import EARLIER_ME, HOUR, ME, NOON, Wall, bring, crew, job, plain, put, register, roll_back

from chargehand.codec import clean, readable
from chargehand.model.job import State
from chargehand.model.records import (
    CrashFilter,
    CrashRecord,
    CrashReport,
    GivenUpMark,
    HealthNote,
    HealthRow,
    Holder,
    Retention,
    Snapshot,
)
from chargehand.store import Store

OTHER = Holder("node-b", "life-9")
DAY = 24 * HOUR
HOSTILE = [
    "",
    'it\'s "quoted" \\ and ; DROP TABLE chargehand_job; --',
    "a\0b",
    "\x1b[31mred\x1b[0m\r\n\t\x7f",
    "naïve 🎵 日本 \u202e \ufeff \u2028",
    '["json", {"?": 1}] ?1 :name @x $y %s {0}',
    "x" * 200_000,
]


def note(component: str = "worker:tag:0", status: str = "healthy", **options: Any) -> HealthNote:
    return HealthNote(component=component, status=status, **options)


def project(store: Store, *notes: HealthNote, holder: Holder = ME) -> None:
    with store.transaction() as tx:
        tx.fleet.project(notes, holder)


def wipe(store: Store, components: list[str] | None = None, holder: Holder = ME) -> None:
    with store.transaction() as tx:
        tx.fleet.project((), holder, gone=components or (), complete=components is None)


def names(store: Store) -> list[tuple[str, str]]:
    return [(row.node, row.component) for row in store.fleet.health()]


def crash(id: str = "c1", **options: Any) -> CrashReport:
    facts: dict[str, Any] = {
        "component": "worker:tag:0", "crew": "tag", "incarnation": "i-1", "pid": 77, "reason": "killed",
        "text": "killed by SIGKILL", "exit_code": None, "signal": 9, "job": "j-1", "memory": 1 << 40,
        "uptime_ms": 1500, "charged": True, "follows": "restarts in 2 s", "stacks": "Thread 1", "lines": ("one", "two"),
        "frames": ("{",),
    }  # fmt: skip
    return CrashReport(id=id, **(facts | options))


def report(store: Store, *crashes: CrashReport, holder: Holder = ME) -> None:
    with store.transaction() as tx:
        tx.fleet.report(crashes, holder)


def ids(store: Store, **which: Any) -> list[str]:
    return [found.id for found in store.fleet.crashes(CrashFilter(**which))]


def give_up(store: Store, *marks: GivenUpMark) -> None:
    with store.transaction() as tx:
        tx.fleet.mark(marks, ME)


def mark(component: str, reason: str = "why", fingerprint: str = "f", **options: Any) -> GivenUpMark:
    return GivenUpMark(component=component, crew="tag", reason=reason, fingerprint=fingerprint, **options)


def marks(store: Store) -> list[GivenUpMark]:
    """Returns the marks without their node, which only a store for several nodes has."""
    return [msgspec.structs.replace(each, node="") for each in store.fleet.given_up()]


def snap(store: Store) -> None:
    with store.transaction() as tx:
        tx.fleet.snapshot()


def times(store: Store, since_ms: int = 0, limit: int = 1000) -> list[int]:
    return [found.timestamp_ms for found in store.fleet.snapshots(since_ms, limit)]


# health


# spec: HP-2
def test_a_row_says_all_that_the_note_said_at_the_stores_own_time(store: Store, wall: Wall) -> None:
    wall.at = NOON
    register(store)
    said = note(
        status="busy", flags=("slow", "paused"), reason="why", pid=77, pid_start=123_456_789_012, incarnation="i-1",
        current_job="j-1", heartbeat_age_ms=40, restart_count=3, restart_age_ms=5000, exit_code=4, signal=9,
        metadata='{"rss": 5}',
    )  # fmt: skip
    project(store, said)
    wall.at = NOON + 1000
    assert store.fleet.health() == [
        HealthRow(
            component="worker:tag:0", node="node-a", status="busy", flags=("slow", "paused"), reason="why", pid=77,
            pid_start=123_456_789_012, incarnation="i-1", current_job="j-1", last_heartbeat_ms=NOON - 40,
            restart_count=3, last_restart_ms=NOON - 5000, exit_code=4, signal=9, created_at_ms=NOON,
            metadata=msgspec.Raw(b'{"rss": 5}'), age_ms=1040,
        )
    ]  # fmt: skip


# spec: HP-2
def test_what_is_not_known_is_none(store: Store, wall: Wall) -> None:
    wall.at = NOON
    project(store, note("app", "starting"))
    (row,) = store.fleet.health()
    unknown = (row.reason, row.pid, row.pid_start, row.incarnation, row.current_job, row.exit_code, row.signal)
    assert unknown == (None,) * 7
    assert (row.last_heartbeat_ms, row.age_ms, row.last_restart_ms) == (None, None, None)
    assert (row.flags, row.restart_count, row.created_at_ms, plain(row.metadata)) == ((), 0, NOON, {})


# spec: HP-2
def test_a_later_note_replaces_the_row_whole(store: Store) -> None:
    project(store, note("app"), note(pid=77, reason="why", flags=("slow",), exit_code=3, metadata='{"a":1}'))
    project(store, note(status="stopped"))
    app, row = store.fleet.health()
    assert app.status == "healthy"
    assert (row.status, row.pid, row.reason, row.flags, row.exit_code) == ("stopped", None, None, (), None)
    assert plain(row.metadata) == {}


# spec: HP-2
def test_a_new_life_of_the_node_writes_the_same_rows(store: Store) -> None:
    project(store, note(status="old"), holder=EARLIER_ME)
    project(store, note(status="new"))
    assert [row.status for row in store.fleet.health()] == ["new"]


# spec: HP-2
def test_rows_are_listed_by_node_and_component(store: Store, store_factory: Callable[[], Store]) -> None:
    project(store, note("worker:z:0"), note("app"), holder=OTHER)
    project(store, note("worker:b:0"), note("worker:a:1"), note("app"))
    assert names(store_factory()) == [
        ("node-a", "app"), ("node-a", "worker:a:1"), ("node-a", "worker:b:0"), ("node-b", "app"),
        ("node-b", "worker:z:0"),
    ]  # fmt: skip


# spec: HP-3
def test_the_age_of_a_heartbeat_grows_though_nobody_writes(store: Store, wall: Wall) -> None:
    wall.at = NOON
    project(store, note(heartbeat_age_ms=0))
    for wall.at in (NOON, NOON + 29_999, NOON + DAY):
        assert [row.age_ms for row in store.fleet.health()] == [wall.at - NOON]


# spec: HP-2
def test_a_wipe_touches_the_rows_of_its_own_node_alone(store: Store) -> None:
    for holder in (ME, OTHER):
        project(store, note("app"), note("worker:tag:0"), holder=holder)
    wipe(store)
    assert names(store) == [("node-b", "app"), ("node-b", "worker:tag:0")]
    wipe(store)
    assert len(names(store)) == 2


# spec: HP-2
def test_a_wipe_of_some_leaves_the_others(store: Store) -> None:
    for holder in (ME, OTHER):
        project(store, note("app"), note("worker:tag:0"), note("worker:tag:1"), holder=holder)
    wipe(store, [])
    assert len(names(store)) == 6
    wipe(store, ["worker:tag:0", "worker:tag:1", "nobody"])
    assert names(store) == [("node-a", "app"), *(("node-b", c) for c in ("app", "worker:tag:0", "worker:tag:1"))]


# spec: HP-2
def test_a_new_life_wipes_what_its_own_node_left_and_nothing_else(store: Store) -> None:
    project(store, note("app"), note("worker:gone:0"), holder=EARLIER_ME)
    project(store, note("app"), holder=OTHER)
    report(store, crash())
    give_up(store, mark("worker:tag:0"))
    snap(store)
    register(store, crew("tag"))
    assert names(store) == [("node-b", "app")]
    assert (ids(store), len(store.fleet.given_up()), len(store.fleet.snapshots(0, 9))) == (["c1"], 1, 1)


# spec: HP-1
def test_health_is_written_with_the_rest_of_the_transaction_or_not_at_all(store: Store) -> None:
    project(store, note("app"))

    def work(tx: Any) -> None:
        tx.fleet.project((), ME, complete=True)
        tx.fleet.project([note("new")], ME)
        tx.fleet.report([crash()], ME)
        tx.fleet.mark([mark("new")], ME)
        tx.fleet.snapshot()

    roll_back(store, work)
    assert names(store) == [("node-a", "app")]
    assert (ids(store), store.fleet.given_up(), store.fleet.snapshots(0, 9)) == ([], [], [])


# spec: HP-1
def test_health_decides_nothing_about_jobs(store: Store) -> None:
    claim = bring(store, State.RUNNING)
    before = store.jobs.get(claim.id)
    project(store, note(current_job=claim.id, status="failed"))
    report(store, crash(job=claim.id))
    wipe(store)
    assert store.jobs.get(claim.id) == before


# spec: HP-2, SV-8
@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_is_said_of_a_worker_comes_back_as_it_was(store: Store, text: str) -> None:
    metadata = msgspec.json.encode({"said": text}).decode()
    project(store, note(reason=text, flags=(text, text), current_job=text, metadata=metadata))
    (row,) = store.fleet.health()
    shown, job = readable(text), clean(text)
    assert (row.reason, row.flags, row.current_job, plain(row.metadata)) == (shown, (shown, shown), job, {"said": text})
    snap(store)
    (found,) = store.fleet.snapshots(0, 9)
    (component,) = plain(found.components)
    assert (component["flags"], component["current_job"]) == ([shown, shown], job)


# crash reports


# spec: HP-2
def test_a_report_is_kept_whole_at_the_time_of_the_death(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, crash(age_ms=250))
    wall.at = NOON + 1000
    facts = msgspec.structs.asdict(crash(age_ms=1250))
    expected = CrashRecord(**facts, node="node-a", at_ms=NOON - 250)
    assert store.fleet.crash("c1") == expected
    assert store.fleet.crashes(CrashFilter()) == [expected]


# spec: HP-2
def test_what_a_report_does_not_know_is_none(store: Store) -> None:
    report(
        store,
        crash(pid=None, exit_code=None, signal=None, job=None, memory=None, uptime_ms=None, charged=False,
              stacks="", lines=(), frames=()),
    )  # fmt: skip
    found = store.fleet.crash("c1")
    assert found is not None
    assert (found.pid, found.exit_code, found.signal, found.job, found.memory, found.uptime_ms) == (None,) * 6
    assert (found.charged, found.stacks, found.lines, found.frames) == (False, "", (), ())


# spec: HP-2
def test_a_report_that_is_known_is_not_written_again(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, crash(text="first"), crash(text="again"))
    wall.at = NOON + HOUR
    report(store, crash(text="later"), crash("c2"), holder=OTHER)
    found = store.fleet.crash("c1")
    assert found is not None
    assert (found.text, found.node, found.at_ms) == ("first", "node-a", NOON)
    assert ids(store) == ["c2", "c1"]


# spec: HP-2
def test_a_report_that_nobody_made_is_none(store: Store) -> None:
    report(store, crash())
    assert store.fleet.crash("c2") is None
    assert ids(store, before="c2") == []


# spec: HP-2
def test_the_newest_death_comes_first_whenever_it_was_reported(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, crash("b", age_ms=200), crash("d", age_ms=0), crash("a", age_ms=300))
    report(store, crash("c", age_ms=100))
    assert ids(store) == ["d", "c", "b", "a"]


# spec: HP-2
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 50])
def test_pages_together_are_all_reports_once(store: Store, wall: Wall, size: int) -> None:
    """Some reports have the same millisecond, and they are not written in the order of time."""
    wall.at = NOON
    made = [crash(f"c{number}", age_ms=number * 7 % 4) for number in range(10)]
    report(store, *made)
    seen: list[str] = []
    before = None
    while page := ids(store, limit=size, before=before):
        assert len(page) <= size
        seen += page
        before = page[-1]
    in_order = sorted(enumerate(made), key=lambda pair: (pair[1].age_ms, -pair[0]))
    assert seen == [one.id for _, one in in_order]


# spec: HP-2
def test_a_new_report_does_not_disturb_somebody_who_pages(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, *(crash(f"c{number}") for number in range(4)))
    first = ids(store, limit=2)
    wall.at += 1
    report(store, crash("new"))
    assert [*first, *ids(store, limit=2, before=first[-1])] == ["c3", "c2", "c1", "c0"]


# spec: HP-2, WK-6
def test_a_filter_lets_through_exactly_the_reports_it_says(store: Store) -> None:
    report(
        store,
        crash("a", component="worker:tag:0", crew="tag", job="j-1"),
        crash("b", component="worker:tag:1", crew="tag", job="j-2"),
        crash("c", component="worker:scan:0", crew="scan", job=None),
        crash("d", component="worker:tag:0", crew="tag", job="j-2"),
    )
    assert ids(store) == ["d", "c", "b", "a"]
    assert ids(store, crew="tag") == ["d", "b", "a"]
    assert ids(store, component="worker:tag:0") == ["d", "a"]
    assert ids(store, job="j-2") == ["d", "b"]
    assert ids(store, job="j-2", component="worker:tag:1") == ["b"]
    assert ids(store, crew="tag", before="d", limit=1) == ["b"]
    assert ids(store, crew="none") == []
    report(store, crash("e", component="worker:tag:0"), holder=Holder("node-z", "z"))
    assert ids(store, component="worker:tag:0", node="node-z") == ["e"]
    assert ids(store, component="worker:tag:0", node=ME.node) == ["d", "a"]


# spec: HP-2, SV-8
@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_dying_worker_said_comes_back_as_it_was(store: Store, text: str) -> None:
    report(store, crash(text=text, follows=text, job=text, stacks=text, lines=(text, "x", text), frames=(text,)))
    found = store.fleet.crash("c1")
    assert found is not None
    shown = readable(text)
    assert (found.text, found.follows, found.job, found.stacks) == (shown, shown, clean(text), shown)
    assert (found.lines, found.frames) == ((shown, "x", shown), (shown,))
    assert ids(store, job=text) == ["c1"]


# spec: HP-2, SV-8
def test_text_that_is_no_unicode_is_kept_as_far_as_it_is(store: Store) -> None:
    """A file's name may contain lone surrogates; the other reports must not be lost because of it."""
    bad, shown = "song-\udcff\ud800.flac", "song-\\xff\\ud800.flac"
    report(store, crash("c1", text=bad, stacks=bad, follows=bad, job=bad, lines=(bad,), frames=(bad,)), crash("c2"))
    project(store, note(reason=bad, flags=(bad,), current_job=bad))
    give_up(store, mark("worker:tag:0", reason=bad))
    found = store.fleet.crash("c1")
    assert found is not None
    assert (found.text, found.stacks, found.follows, found.job, found.lines, found.frames) == (
        shown, shown, shown, clean(bad), (shown,), (shown,),
    )  # fmt: skip
    (row,) = store.fleet.health()
    assert (row.reason, row.flags, row.current_job) == (shown, (shown,), clean(bad))
    assert [one.reason for one in store.fleet.given_up()] == [shown]
    assert msgspec.json.encode((found, row))
    assert ids(store) == ["c2", "c1"]


# given up


# spec: RP-6
def test_a_mark_is_kept_through_a_restart_with_the_stores_own_time(
    store: Store, store_factory: Callable[[], Store], wall: Wall
) -> None:
    wall.at = NOON
    register(store, crew("tag"), holder=EARLIER_ME)
    give_up(store, mark("worker:tag:1", at_ms=5), mark("worker:tag:0", reason="6 crashes", fingerprint="f1"))
    wall.at = NOON + HOUR
    register(store, crew("tag"))
    assert marks(store_factory()) == [
        mark("worker:tag:0", reason="6 crashes", fingerprint="f1", at_ms=NOON),
        mark("worker:tag:1", at_ms=NOON),
    ]


# spec: RP-6
def test_a_second_mark_of_a_worker_replaces_the_first(store: Store, wall: Wall) -> None:
    wall.at = NOON
    give_up(store, mark("worker:tag:0", fingerprint="f1"))
    wall.at = NOON + 9
    give_up(store, mark("worker:tag:0", reason="other", fingerprint="f2"))
    assert marks(store) == [mark("worker:tag:0", reason="other", fingerprint="f2", at_ms=NOON + 9)]


# spec: RP-6
def test_only_who_is_forgiven_is_forgotten(store: Store) -> None:
    give_up(store, *(mark(f"worker:tag:{number}") for number in range(4)))
    with store.transaction() as tx:
        tx.fleet.mark((), ME, cleared=["worker:tag:1", "nobody", "worker:tag:3"])
    assert [one.component for one in store.fleet.given_up()] == ["worker:tag:0", "worker:tag:2"]
    with store.transaction() as tx:
        tx.fleet.mark((), ME, cleared=[])
    assert len(store.fleet.given_up()) == 2


# spec: RP-6
def test_a_mark_survives_pause_resume_and_the_wiping_of_health(store: Store) -> None:
    give_up(store, mark("worker:tag:0"))
    project(store, note())
    with store.transaction() as tx:
        tx.fleet.pause("*", "me", None)
        tx.fleet.resume("*")
        tx.fleet.project((), ME, complete=True)
    assert store.fleet.health() == []
    assert [one.component for one in store.fleet.given_up()] == ["worker:tag:0"]


def test_a_pause_returns_the_one_that_it_replaces(store: Store, wall: Wall) -> None:  # spec: PD-1
    wall.at = NOON
    with store.transaction() as tx:
        assert tx.fleet.pause("tag", "olga", "the disk", 60_000) is None
        assert tx.fleet.pause("*", "olga", None) is None  # another scope
    wall.at = NOON + 10_000
    with store.transaction() as tx:
        before = tx.fleet.pause("tag", "tim", None, 5_000)
    assert before is not None
    assert (before.who, before.reason, before.left_ms) == ("olga", "the disk", 50_000)
    wall.at = NOON + 16_000
    with store.transaction() as tx:
        assert tx.fleet.pause("tag", "eva", None) is None  # the second one has ended by itself


# history


# spec: HP-6
def test_a_snapshot_is_everything_at_one_moment(store: Store, wall: Wall) -> None:
    wall.at = NOON
    project(store, note("app", status="degraded"), holder=OTHER)
    project(store, note("worker:tag:0", flags=("slow",), current_job="j-1", pid=77, restart_count=2), note("app"))
    snap(store)
    wipe(store)
    (found,) = store.fleet.snapshots(0, 10)
    assert found.timestamp_ms == NOON
    quiet = {"flags": [], "current_job": None, "pid": None, "restart_count": 0}
    assert plain(found.components) == [
        {"component": "app", "status": "healthy", **quiet},
        {"component": "worker:tag:0", "status": "healthy", "flags": ["slow"], "current_job": "j-1", "pid": 77,
         "restart_count": 2},
        {"component": "app", "status": "degraded", **quiet},
    ]  # fmt: skip


# spec: HP-6
def test_a_snapshot_of_nothing_is_empty(store: Store, wall: Wall) -> None:
    wall.at = NOON
    snap(store)
    assert store.fleet.snapshots(0, 10) == [Snapshot(timestamp_ms=NOON, components=msgspec.Raw(b"[]"))]


# spec: HP-6
def test_the_history_is_read_from_a_moment_on_oldest_first_and_in_pages(store: Store, wall: Wall) -> None:
    moments = [NOON + 30_000 * number for number in range(10)]
    for wall.at in moments:
        snap(store)
    assert times(store) == moments
    assert times(store, since_ms=moments[4]) == moments[4:]
    assert times(store, since_ms=moments[4] + 1) == moments[5:]
    assert times(store, limit=3) == moments[:3]
    seen: list[int] = []
    while page := times(store, since_ms=seen[-1] + 1 if seen else 0, limit=4):
        seen += page
    assert seen == moments


# spec: HP-6
def test_of_one_moment_the_newest_snapshot_is_kept(store: Store, wall: Wall) -> None:
    wall.at = NOON
    for status in ("starting", "healthy"):
        project(store, note(status=status))
        snap(store)
    (found,) = store.fleet.snapshots(0, 10)
    assert [one["status"] for one in plain(found.components)] == ["healthy"]


# keeping


# spec: WK-12
def test_reports_older_than_the_age_are_pruned(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, crash("old", age_ms=DAY + 1), crash("edge", age_ms=DAY), crash("new"))
    assert store.prune(Retention(crash_age_ms=DAY), 100) == 0
    assert ids(store) == ["new", "edge"]
    assert (store.fleet.crash("old"), store.fleet.crash("edge") is not None) == (None, True)
    wall.at += 30 * DAY + 1
    store.prune(Retention(), 100)
    assert ids(store) == []


# spec: WK-12
@pytest.mark.parametrize(("count", "kept"), [(0, []), (1, ["c4"]), (3, ["c4", "c3", "c2"]), (5, 5), (6, 5)])
def test_reports_over_the_count_are_pruned_oldest_first(
    store: Store, wall: Wall, count: int, kept: list[str] | int
) -> None:
    """Reports of one millisecond count in the order in which they were written, those of all crews together."""
    wall.at = NOON
    report(store, *(crash(f"c{number}", crew=f"crew-{number % 2}") for number in range(5)))
    store.prune(Retention(crash_count=count), 100)
    assert ids(store) == (kept if isinstance(kept, list) else ["c4", "c3", "c2", "c1", "c0"])


# spec: WK-12
def test_age_and_count_of_reports_are_heeded_together(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, *(crash(f"c{number}", age_ms=DAY * (9 - number)) for number in range(10)))
    store.prune(Retention(crash_age_ms=5 * DAY, crash_count=3), 100)
    assert ids(store) == ["c9", "c8", "c7"]
    store.prune(Retention(crash_age_ms=DAY, crash_count=3), 100)
    assert ids(store) == ["c9", "c8"]


# spec: WK-12
def test_reports_that_are_just_young_enough_are_counted(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, *(crash(f"c{number}", age_ms=DAY) for number in range(3)))
    store.prune(Retention(crash_age_ms=DAY, crash_count=1), 100)
    assert ids(store) == ["c2"]


# spec: HP-6, WK-12
def test_history_older_than_its_age_is_pruned(store: Store, wall: Wall) -> None:
    for wall.at in (NOON, NOON + 1, NOON + DAY):
        snap(store)
    wall.at = NOON + 1 + 7 * DAY
    assert store.prune(Retention(), 100) == 0
    assert times(store) == [NOON + 1, NOON + DAY]
    store.prune(Retention(history_age_ms=-1), 100)
    assert times(store) == []


# spec: WK-12
def test_a_step_of_pruning_takes_no_more_than_its_limit_of_each_and_the_oldest_first(store: Store, wall: Wall) -> None:
    for number in range(6):
        wall.at = NOON + number
        report(store, crash(f"c{number}"))
        snap(store)
    for left in (4, 2, 0):
        assert store.prune(Retention(crash_count=0, history_age_ms=-1), 2) == 0
        assert ids(store) == [f"c{number}" for number in reversed(range(6 - left, 6))]
        assert times(store) == [NOON + number for number in range(6 - left, 6)]


# spec: WK-12
def test_one_step_of_pruning_deletes_few_long_texts_whatever_its_limit(store: Store, wall: Wall) -> None:
    wall.at = NOON
    report(store, *(crash(f"c{number}") for number in range(500)))
    store.prune(Retention(crash_count=0), 1_000_000)
    assert 250 <= len(ids(store, limit=1000)) < 500
    for _ in range(10):
        store.prune(Retention(crash_count=0), 1_000_000)
    assert ids(store) == []


# spec: WK-12
def test_pruning_reports_leaves_jobs_health_and_marks_alone(store: Store) -> None:
    put(store, job("waiting"))
    finished = bring(store, State.DONE, queue="x")
    project(store, note())
    give_up(store, mark("worker:tag:0"))
    report(store, crash(), crash("c2"))
    assert store.prune(Retention(crash_count=1), 100) == 0
    assert ids(store) == ["c2"]
    assert (store.jobs.get("waiting") is None, store.jobs.get(finished.id) is None) == (False, False)
    assert (len(store.fleet.health()), len(store.fleet.given_up())) == (1, 1)


# spec: WK-12
def test_jobs_reports_and_history_are_pruned_together_and_jobs_are_counted(store: Store) -> None:
    finished = bring(store, State.DONE)
    report(store, crash())
    snap(store)
    assert store.prune(Retention(count=0, crash_count=0, history_age_ms=-HOUR), 100) == 1
    assert (store.jobs.get(finished.id), ids(store), times(store)) == (None, [], [])


# spec: MN-1
def test_a_node_is_listed_with_its_crews_while_it_is_not_stopped(store: Store, wall: Wall) -> None:
    wall.at = NOON
    register(store, crew("tag", workers=2), crew("mail", "letters"), machine="m1", version="1.2", pid=7)
    with store.transaction() as tx:
        tx.fleet.scale("tag", 5, ME)
    project(store, note("app", heartbeat_age_ms=400), note())
    wall.at = NOON + 600
    (node,) = store.fleet.nodes()
    assert (node.name, node.lives, node.started_ms) == (ME.node, True, NOON)
    assert (node.last_heartbeat_ms, node.age_ms) == (NOON - 400, 1000)
    assert node.about is not None
    assert (node.about.machine, node.about.version, node.about.pid) == ("m1", "1.2", 7)
    assert [(each.name, each.queue, each.workers) for each in node.crews] == [("mail", "letters", 1), ("tag", "q", 5)]
    wipe(store)
    store.leave(ME)
    assert store.fleet.nodes() == []
