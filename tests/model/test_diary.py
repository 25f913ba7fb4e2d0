"""The past of workers: what happened, newest first, never too much of it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chargehand.model.diary import (
    GONE_MS,
    IN_ALL,
    JOBS,
    REMOVED,
    SEEN,
    SLOW_MS,
    SLOW_SEEN,
    STATES,
    TEXT,
    WEIGH_MS,
    WEIGHED_MS,
    Diary,
)
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place
from chargehand.model.job import Settlement, State

WORKER = "worker:tag:0"


def place(status: Status = Status.HEALTHY, component: str = WORKER, *, pid: int | None = 7, **more: Any) -> Place:
    return Place(component, "tag", 0, status=status, pid=pid, **more)


def job(number: int, worker: str | None = WORKER, outcome: str | None = "done") -> Settlement:
    return Settlement(
        id=f"job {number}", seq=number, claim=1, queue="tag", state=State.DONE, outcome=outcome, worker=worker,
        duration_ms=number,
    )  # fmt: skip


def whats(diary: Diary, component: str = WORKER, now_ms: int = 0) -> list[str]:
    found = diary.view(component, now_ms)
    assert found is not None
    return [moment.get("job") or moment["what"] for moment in found["moments"]]


def test_states_and_jobs_are_told_newest_first() -> None:  # spec: DB-1
    diary = Diary()
    assert diary.view(WORKER, 0) is None
    diary.changed(place(Status.STARTING), 1000)
    diary.changed(place(), 2000)
    diary.changed(place(), 2500)  # nothing new
    diary.ended([job(1), job(2, outcome="raised")], (), 3000)
    diary.done(WORKER, "job 3", 250, 4000)
    diary.crashed(WORKER, "died of SIGKILL", 7, 5000)
    diary.changed(place(Status.CRASHED, pid=None, text="died of SIGKILL"), 5001)  # that is known
    diary.changed(place(Status.STARTING, pid=8), 6000)
    assert whats(diary) == ["starting", "crashed", "job 3", "job 2", "job 1", "healthy", "starting"]
    told = diary.view(WORKER, 6000)
    assert told is not None
    assert told["moments"][1:4] == [
        {"at_ms": 5000, "kind": "status", "what": "crashed", "text": "died of SIGKILL", "pid": 7},
        {"at_ms": 4000, "kind": "job", "what": "done", "job": "job 3", "duration_ms": 250},
        {"at_ms": 3000, "kind": "job", "what": "raised", "job": "job 2", "duration_ms": 2},
    ]


def test_a_state_says_why() -> None:
    diary = Diary()
    diary.changed(place(Status.STARTING, reason=Reason.CRASH), 1)  # of an earlier life
    diary.changed(place(Status.STOPPING, why_leave=Reason.DRAINED), 2)
    diary.changed(place(Status.ASLEEP, pid=None, reason=Reason.IDLE), 3)
    told = diary.view(WORKER, 0)
    assert told is not None
    assert [moment["text"] for moment in told["moments"]] == [Reason.IDLE, Reason.DRAINED, None]


def test_what_nobody_attempted_or_came_too_late_is_no_job_of_a_worker() -> None:
    diary = Diary()
    diary.ended([job(1, worker=None), job(2, outcome=None), job(3), job(4)], (("job 3", 1), ("job 4", 7)), 0)
    assert whats(diary) == ["job 4"]


def test_of_a_shower_the_last_are_kept_and_what_was_slow_or_went_wrong() -> None:
    diary, other = Diary(), "worker:tag:1"
    diary.changed(place(Status.STARTING), 0)
    shower = [job(number % SLOW_MS) for number in range(1000)]
    shower[100], shower[200] = job(SLOW_MS, other), job(1, other, outcome="raised")
    diary.ended(shower, (), 1)
    assert whats(diary, other) == ["job 1", f"job {SLOW_MS}"]
    assert whats(diary) == [*(f"job {SLOW_MS - number}" for number in range(1, SEEN + 1)), "starting"]
    diary.ended([job(SLOW_MS + number) for number in range(1000)], (), 2)
    assert len(whats(diary)) == JOBS + 1 < SEEN + SLOW_SEEN


def test_long_texts_are_cut() -> None:
    diary = Diary()
    diary.crashed(WORKER, "x" * 10_000, 7, 0)
    told = diary.view(WORKER, 0)
    assert told is not None
    assert told["moments"][0]["text"] == "x" * (TEXT - 1) + "…"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=200))
def test_there_are_never_too_many_and_always_the_newest(happened: list[tuple[bool, int]]) -> None:
    diary = Diary()
    diary.changed(place(Status.STARTING), 0)
    for number, (is_job, span) in enumerate(happened):
        if is_job:
            diary.ended([job(number)], (), number)
        else:
            diary.crashed(WORKER, "killed", span, number)
    told = diary.view(WORKER, 0)
    assert told is not None
    moments = told["moments"]
    assert len(moments) <= STATES + JOBS
    assert [moment["at_ms"] for moment in moments] == sorted((moment["at_ms"] for moment in moments), reverse=True)
    jobs = [f"job {number}" for number, (is_job, _) in enumerate(happened) if is_job]
    assert [moment["job"] for moment in moments if moment["kind"] == "job"] == jobs[::-1][:JOBS]


def test_memory_is_weighed_once_a_minute_for_an_hour() -> None:  # spec: DB-1
    diary, steps = Diary(), 2 * WEIGHED_MS // 5000
    for step in range(steps):
        diary.weigh(
            {WORKER: place(memory=step + 1), "worker:tag:1": place(Status.STOPPED, "worker:tag:1")}, step * 5000
        )
    told = diary.view(WORKER, steps * 5000)
    assert told is not None
    assert told["memory_at_ms"] == list(range(WEIGHED_MS + WEIGH_MS, 2 * WEIGHED_MS, WEIGH_MS))
    assert told["memory"] == [at // 5000 + 1 for at in told["memory_at_ms"]]
    assert diary.view("worker:tag:1", 0) is None  # it is not there: it weighs nothing
    later = diary.view(WORKER, 4 * WEIGHED_MS)
    assert later is not None
    assert (later["memory_at_ms"], later["memory"]) == ([], [])


def test_who_was_removed_is_remembered_for_a_while() -> None:
    diary = Diary()
    diary.removed("worker:tag:9", 0)  # nothing is known of it
    assert diary.view("worker:tag:9", 0) is None
    diary.changed(place(), 0)
    diary.removed(WORKER, 1000)
    diary.weigh({}, GONE_MS)
    assert whats(diary) == [REMOVED, "healthy"]
    diary.weigh({}, GONE_MS + 1000)
    assert diary.view(WORKER, 0) is None


def test_of_very_many_workers_less_is_kept_of_each() -> None:
    many = {f"worker:tag:{number}": place(component=f"worker:tag:{number}") for number in range(1000)}
    diary = Diary()
    for component, each in many.items():
        for number in range(JOBS):
            diary.crashed(component, "killed", number, number)
            diary.ended([job(number, component)], (), number)
        diary.changed(each, JOBS)
    diary.weigh(many, JOBS)
    share = IN_ALL // len(many)
    assert len(whats(diary)) == 2 * share
    assert whats(diary)[:2] == ["healthy", f"job {JOBS - 1}"]
    diary.weigh({WORKER: many[WORKER]}, GONE_MS + JOBS)  # and more again, when there are fewer
    for number in range(JOBS):
        diary.ended([job(number)], (), GONE_MS + number)
    assert len(whats(diary)) == JOBS + share


def test_there_is_room_for_one_of_each_however_many_workers_there_are() -> None:
    diary = Diary()
    for number in range(IN_ALL + 1):
        diary.crashed(f"worker:tag:{number}", "killed", 1, number)
    diary.weigh({}, 0)
    for number in range(5):
        diary.crashed(WORKER, "killed", 2 + number, number)
        diary.ended([job(number)], (), number)
    assert whats(diary) == ["job 4", "crashed"]
