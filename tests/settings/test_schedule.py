"""Recurring jobs over a simulated year: clock changes, stalls, several nodes; each time fires once."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import msgspec
import pytest

from chargehand import ConfigurationError, JobFilter
from chargehand.model.job import NewJob
from chargehand.model.records import Holder, RecurringPlan, Rescheduling
from chargehand.settings.schedule import RecurringJob, Schedule, check, due, next_after, plans, too_late
from chargehand.store import Store
from chargehand.stores.sqlite.store import SqliteStore

YEAR = 2026
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"]
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Thousands of commits, and nobody cuts the power: the disk would only slow them down."""


def ms(zone: str, *when: int, fold: int = 0) -> int:
    return int(datetime(*when, tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)  # type: ignore[misc]


def local(zone: str, moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, ZoneInfo(zone))


def times(schedule: Schedule, start_ms: int, end_ms: int) -> Iterator[int]:
    """The times as one who is never late has them."""
    moment = start_ms
    while (moment := next_after(schedule, moment)) < end_ms:
        yield moment


def changes(zone: str) -> list[int]:
    """The moments of the year at which clocks are changed there."""
    start, end = ms("UTC", YEAR, 1, 1), ms("UTC", YEAR + 1, 1, 1)
    offsets = [(at, local(zone, at).utcoffset()) for at in range(start, end, 30 * MINUTE)]
    return [at for (_, before), (at, after) in pairwise(offsets) if before != after]


# the times themselves


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("clock_time", [(2, 30), (1, 45), (0, 0), (2, 0), (3, 0)])
def test_a_time_of_day_comes_once_a_day(zone: str, clock_time: tuple[int, int]) -> None:  # spec: WK-11
    hour, minute = clock_time
    schedule = Schedule(cron=f"{minute} {hour} * * *", zone=zone)
    start = ms(zone, YEAR, 1, 1) - 1
    found = [local(zone, at) for at in times(schedule, start, ms(zone, YEAR + 1, 1, 1))]
    assert [at.date() for at in found] == [datetime(YEAR, 1, 1).date() + timedelta(n) for n in range(365)]
    odd = [at for at in found if (at.hour, at.minute) != clock_time]
    assert len(odd) <= 1, "only where the clock skips it"
    for at in odd:
        skipped = datetime(at.year, at.month, at.day, hour, minute, tzinfo=at.tzinfo)
        assert skipped.astimezone(ZoneInfo("UTC")).astimezone(at.tzinfo) != skipped, "it never was"
        assert int(at.timestamp() * 1000) in changes(zone), "at once when the clock has skipped it"


@pytest.mark.parametrize("zone", ZONES)
def test_every_quarter_of_an_hour_knows_no_clock_changes(zone: str) -> None:  # spec: WK-11
    for change in (ms("UTC", YEAR, 1, 1), *changes(zone)):
        start, end = change - DAY, change + DAY
        found = list(times(Schedule(cron="*/15 * * * *", zone=zone), start, end))
        assert found == list(range(start + 15 * MINUTE, end, 15 * MINUTE))


def test_the_nights_of_the_clock_changes() -> None:  # spec: WK-11
    daily = Schedule(cron="30 2 * * *", zone="Europe/Berlin")
    skipped = next_after(daily, ms("Europe/Berlin", YEAR, 3, 29, 0, 0))
    assert str(local("Europe/Berlin", skipped)) == "2026-03-29 03:00:00+02:00"
    twice = next_after(daily, ms("Europe/Berlin", YEAR, 10, 25, 0, 0))
    assert str(local("Europe/Berlin", twice)) == "2026-10-25 02:30:00+02:00"
    assert str(local("Europe/Berlin", next_after(daily, twice))) == "2026-10-26 02:30:00+01:00"


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "59 1 * * *", "15,45 1-3 * * *", "*/15 * * * *", "0 0 * * *", "7 * * * *"]
)
def test_the_next_time_is_never_in_the_past(zone: str, cron: str) -> None:  # spec: WK-11
    """Whenever it is asked: otherwise it would fire again and again until the clock has caught up."""
    schedule = Schedule(cron=cron, zone=zone)
    for change in changes(zone) or [ms("UTC", YEAR, 5, 1)]:
        before = 0
        for at in range(change - 3 * HOUR, change + 3 * HOUR, 7 * MINUTE + 13_000):
            found = next_after(schedule, at)
            assert found > at, f"asked at {local(zone, at)}, fold {local(zone, at).fold}: {local(zone, found)}"
            assert found >= before, "and time goes on"
            before = found


def test_an_interval_is_one() -> None:  # spec: WK-11
    assert next_after(Schedule(every_ms=1500), 10) == 1510


# what is wrong


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(), "neither cron nor every"),
        (Schedule(cron="* * * * *", every_ms=5000), "both cron and every"),
        (Schedule(every_ms=999), "1 s or more"),
        (Schedule(every_ms=5000, zone="Europe/Berlin"), "time zone"),
        (Schedule(cron=5), "cron is 5; must be a string"),  # pyright: ignore[reportArgumentType]
        (Schedule(cron="61 * * * *"), "must be minute, hour"),
        (Schedule(cron="* * *"), "must be minute, hour"),
        (Schedule(cron=""), "must be minute, hour"),
        (Schedule(cron="0 0 30 2 *"), "cron expression"),
        (Schedule(cron="* * * * *", zone="Mars/Olympus"), "unknown time zone 'Mars/Olympus'"),
        (Schedule(cron="* * * * *", zone=""), "unknown time zone"),
        (Schedule(cron="* * * * *", zone="../etc/passwd"), "unknown time zone"),
    ],
)
def test_what_can_never_fire_is_refused_in_words(schedule: Schedule, words: str) -> None:  # spec: WK-11
    with pytest.raises(ConfigurationError, match=words):
        check("nightly", schedule)


# what is due


def plan(schedule: Schedule, next_run_ms: int, name: str = "nightly") -> RecurringPlan:
    job = msgspec.json.encode(NewJob(id="x", queue="q", payload="1", key="k")).decode()
    return RecurringPlan(
        name=name, schedule=msgspec.json.encode(schedule).decode(), job=job, next_run_ms=next_run_ms
    )  # fmt: skip


def test_what_was_missed_fires_once_late_and_then_as_planned() -> None:  # spec: WK-11
    noon = ms("UTC", YEAR, 5, 1, 12)
    hourly = plan(Schedule(cron="0 * * * *"), noon)
    assert due([hourly], noon - 1) == []
    (firing,) = due([hourly], noon + 3 * DAY + 5 * MINUTE)
    assert (firing.due_ms, firing.next_run_ms) == (noon, noon + 3 * DAY + HOUR)
    assert (firing.job.payload, firing.job.key, firing.job.queue) == ("1", "k", "q")
    assert firing.job.id != due([hourly], noon)[0].job.id != "x", "each has an id of its own"


def test_only_what_is_due_fires() -> None:  # spec: WK-11
    every = Schedule(every_ms=HOUR)
    found = due([plan(every, 5, "a"), plan(every, 6, "b"), plan(every, 4, "c")], 5)
    assert [(firing.name, firing.due_ms) for firing in found] == [("a", 5), ("c", 4)]


# a year, and several who try


ENTRIES = [
    RecurringJob(name=name, schedule=schedule, job=NewJob(id="x", queue=name))
    for name, schedule in {
        "berlin": Schedule(cron="30 2 * * *", zone="Europe/Berlin"),
        "york": Schedule(cron="30 1 * * *", zone="America/New_York"),
        "howe": Schedule(cron="45 1 * * *", zone="Australia/Lord_Howe"),
        "weekly": Schedule(cron="0 3 * * MON", zone="Europe/Berlin"),
        "quarters": Schedule(cron="*/30 2 * * *", zone="America/New_York"),
        "interval": Schedule(every_ms=12 * HOUR),
    }.items()
]


class Wall:
    """The clock of all stores."""

    at = ms("UTC", YEAR, 1, 1)

    def __call__(self) -> int:
        return self.at


class Scheduler:
    """One node's worth of it, as the office does it: a memory of its own, which may be stale, and the one store."""

    def __init__(self, store: Store, wall: Wall) -> None:
        self._store, self._wall = store, wall
        with store.transaction() as tx:
            tx.jobs.recur(plans(ENTRIES, wall()), Holder("node", "life"))
        self.known = store.jobs.recurring()

    def turn(self) -> list[tuple[str, int]]:
        fired: list[tuple[str, int]] = []
        for firing in due(self.known, self._wall()):
            with self._store.transaction() as tx:
                if tx.jobs.fire(firing.name, firing.due_ms, firing.next_run_ms, firing.job):
                    fired.append((firing.name, firing.due_ms))
            self.known = self._store.jobs.recurring()
        return fired


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def stores(wall: Wall) -> Iterator[list[SqliteStore]]:
    with TemporaryDirectory(prefix="chargehand-test-", dir=MEMORY) as folder:
        made = [SqliteStore(Path(folder) / "store.db", now_ms=wall) for _ in range(2)]
        yield made
        for store in made:
            store.close()


def test_a_year_with_two_schedulers_on_one_store(stores: list[SqliteStore], wall: Wall) -> None:  # spec: WK-11
    start, end = wall.at, wall.at + 365 * DAY
    nodes = [Scheduler(store, wall) for store in stores]
    chance = random.Random(11)
    fired: list[tuple[str, int]] = []
    while wall.at < end:
        wall.at = min(known.next_run_ms for known in stores[0].jobs.recurring()) + chance.choice((0, 1, 40_000))
        if chance.random() < 0.02:
            nodes[chance.randrange(2)] = Scheduler(stores[chance.randrange(2)], wall)  # a node restarts
        for node in chance.sample(nodes, 2):
            fired += node.turn()
        assert all(known.next_run_ms > wall.at for known in stores[0].jobs.recurring())
    assert max(Counter(fired).values()) == 1, "each time fires once, whoever tries"
    for entry in ENTRIES:
        own = [at for name, at in fired if name == entry.name]
        if entry.schedule.cron is not None:
            assert own == list(times(entry.schedule, start, own[-1] + 1)), entry.name
    made = Counter(job.queue for job in stores[0].jobs.find(JobFilter(limit=1_000_000)))
    assert made == Counter(name for name, _ in fired), "a job for every time"
    within = Counter(name for name, at in fired if at < end)
    assert (within["berlin"], within["york"], within["weekly"]) == (365, 365, 52)


def test_a_clock_that_is_set_neither_repeats_nor_storms(stores: list[SqliteStore], wall: Wall) -> None:  # spec: WK-11
    node = Scheduler(stores[0], wall)
    chance = random.Random(12)
    fired: list[tuple[str, int]] = []
    for _ in range(3000):
        wall.at += chance.choice((MINUTE, 17 * MINUTE, HOUR, -HOUR, -5 * HOUR, 9 * HOUR))
        now = node.turn()
        assert len({name for name, _ in now}) == len(now), "one of each at a time, however many were missed"
        fired += now
    assert max(Counter(fired).values()) == 1


# a clock that was ahead and came back


def stored(schedule: Schedule, next_run_ms: int) -> RecurringPlan:
    text = msgspec.json.encode(schedule).decode()
    return RecurringPlan(name="x", schedule=text, job="{}", next_run_ms=next_run_ms)


NOON = ms("UTC", YEAR, 6, 1, 12)
HALF_PAST = Schedule(cron="30 * * * *")


@pytest.mark.parametrize(
    ("schedule", "next_run_ms", "corrected"),
    [
        (Schedule(every_ms=1000), NOON + DAY, NOON + 1000),
        (Schedule(every_ms=1000), NOON + 1000, None),
        (Schedule(every_ms=1000), NOON + 1001, NOON + 1000),
        (Schedule(every_ms=DAY), NOON + DAY, None),
        (Schedule(every_ms=1000), NOON - DAY, None),
        (HALF_PAST, NOON + DAY + 30 * MINUTE, NOON + 30 * MINUTE),
        (HALF_PAST, NOON + 30 * MINUTE, None),
        (HALF_PAST, NOON + 90 * MINUTE, None),  # it ran at half past already, by a clock that was ahead
        (HALF_PAST, NOON + 150 * MINUTE, NOON + 30 * MINUTE),
        (HALF_PAST, NOON - DAY, None),
    ],
)
def test_a_time_computed_from_a_clock_that_was_ahead_is_corrected(
    schedule: Schedule, next_run_ms: int, corrected: int | None
) -> None:  # spec: WK-11
    found = too_late([stored(schedule, next_run_ms)], NOON)
    expected = [] if corrected is None else [Rescheduling(name="x", due_ms=next_run_ms, next_run_ms=corrected)]
    assert found == expected
