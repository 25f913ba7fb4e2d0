"""Tests for what a store keeps of a worker's crashes and restarts beyond the life of its node."""

from builders import HOUR, ME, NOON, Wall, crew, register

from chargehand.model.records import HealthNote, RestartNote
from chargehand.store import Store

ONE = "worker:tag:0"


def keep(store: Store, note: RestartNote) -> None:
    with store.transaction() as tx:
        tx.fleet.keep_restarts([note], ME)


def project(store: Store, *components: str) -> None:
    with store.transaction() as tx:
        tx.fleet.project([HealthNote(component=component, status="healthy") for component in components], ME)


def kept() -> RestartNote:
    return RestartNote(
        component=ONE, fingerprint="f", charged_age_ms=(HOUR, 2000, 0), streak=3, rested_age_ms=2000, restarts=2,
        restarts_total=7,
    )  # fmt: skip


# spec: RP-9 HP-2
def test_what_is_kept_outlives_the_node_and_ages(store: Store, wall: Wall) -> None:
    wall.at = NOON
    keep(store, kept())
    project(store, ONE)
    register(store, crew("tag"))  # wipes the health rows
    assert store.fleet.health() == []
    wall.at = NOON + 500
    (note,) = store.fleet.restarts()
    assert note == RestartNote(
        component=ONE, fingerprint="f", charged_age_ms=(HOUR + 500, 2500, 500), streak=3, rested_age_ms=2500,
        restarts=2, restarts_total=7, node=note.node,
    )  # fmt: skip
    keep(store, RestartNote(component=ONE, fingerprint="g", restarts_total=8))
    assert store.fleet.restarts() == [RestartNote(component=ONE, fingerprint="g", restarts_total=8, node=note.node)]


# spec: RP-9
def test_a_clock_that_was_set_back_makes_no_crash_more_recent_than_it_was(store: Store, wall: Wall) -> None:
    wall.at = NOON
    keep(store, kept())
    wall.at = NOON - 24 * HOUR
    (note,) = store.fleet.restarts()
    assert (note.charged_age_ms, note.rested_age_ms) == ((HOUR, 2000, 0), 2000)


# spec: RP-9
def test_a_clock_that_was_set_ahead_leaves_the_number_of_crashes(store: Store, wall: Wall) -> None:
    wall.at = NOON
    keep(store, kept())
    wall.at = NOON + 24 * HOUR
    (note,) = store.fleet.restarts()
    assert note.charged_age_ms == (25 * HOUR, 24 * HOUR + 2000, 24 * HOUR)


# spec: RP-9 HP-2
def test_created_is_the_first_registration(store: Store, wall: Wall) -> None:
    wall.at = NOON
    project(store, ONE)
    wall.at = NOON + 1000
    keep(store, kept())
    register(store, crew("tag"))
    project(store, ONE, "worker:tag:1")
    assert [row.created_at_ms for row in store.fleet.health()] == [NOON, NOON + 1000]
    assert [note.component for note in store.fleet.restarts()] == [ONE]  # the other has no crashes
