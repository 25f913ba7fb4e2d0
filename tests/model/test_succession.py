"""Tests for taking over the name of a node: what proves that the earlier one is dead."""

from typing import Any

import msgspec
import pytest

from chargehand.model.records import LastLife, NodeAbout
from chargehand.model.succession import Fate, Succession, name_taken

HERE = NodeAbout(pid=10, start=100, boot="boot", pid_namespace="pid:[1]", machine="here")


def last(beat: int = 1, life: str = "life", session_ended: bool = False, **about: Any) -> LastLife:
    """Returns a life of a node on this machine, except for what `about` says."""
    earlier = msgspec.structs.replace(HERE, pid=7, start=70)
    return LastLife(life, msgspec.structs.replace(earlier, **about), beat, session_ended)


def watcher(*alive: tuple[int, int]) -> Succession:
    return Succession(HERE, lambda pid, start: (pid, start) in alive)


# spec: MN-1
def test_on_the_same_machine_the_process_decides_at_once() -> None:
    assert watcher((7, 70)).judge(last(), 0) is Fate.LIVES
    assert watcher((7, 71)).judge(last(), 0) is Fate.DEAD, "another process has the pid"
    assert watcher().judge(last(), 0) is Fate.DEAD


# spec: MN-1
@pytest.mark.parametrize(
    "elsewhere", [{"boot": "other"}, {"pid_namespace": "pid:[2]"}, {"boot": None}, {"pid": None}, {"start": None}]
)
@pytest.mark.parametrize("alive", [True, False])
def test_elsewhere_the_lease_decides_whatever_processes_run_here(elsewhere: dict[str, Any], alive: bool) -> None:
    found = watcher(*([(7, 70)] if alive else []))
    assert found.judge(last(**elsewhere), 0) is Fate.UNKNOWN
    assert found.judge(last(**elsewhere), 29.9) is Fate.UNKNOWN
    assert found.judge(last(**elsewhere), 30) is Fate.DEAD


# spec: MN-1, MN-2
def test_a_beat_shows_that_the_node_lives_and_a_session_that_ended_shortens_the_lease() -> None:
    found = watcher()
    assert found.judge(last(boot="b"), 0) is Fate.UNKNOWN
    assert found.judge(last(2, boot="b"), 1) is Fate.LIVES
    ended: dict[str, Any] = {"session_ended": True, "boot": "b"}
    found = watcher()
    assert found.judge(last(**ended), 0) is Fate.UNKNOWN
    assert found.judge(last(**ended), 9.9) is Fate.UNKNOWN
    assert found.judge(last(**ended), 10) is Fate.DEAD
    stops = watcher()
    assert stops.judge(last(**ended, stops=True), 0) is Fate.UNKNOWN
    assert stops.judge(last(**ended, stops=True), 29.9) is Fate.UNKNOWN, "its jobs stop only by then"
    assert stops.judge(last(**ended, stops=True), 30) is Fate.DEAD


# spec: MN-2
def test_an_observation_begins_anew_for_another_life_and_after_the_server_was_away() -> None:
    found = watcher()
    assert found.judge(last(boot="b"), 0) is Fate.UNKNOWN
    assert found.judge(last(boot="b", life="another", beat=5), 29) is Fate.UNKNOWN
    assert found.judge(last(boot="b", life="another", beat=5), 31) is Fate.UNKNOWN
    found.forget()
    assert found.judge(last(boot="b", life="another", beat=6), 60) is Fate.UNKNOWN
    assert found.judge(last(boot="b", life="another", beat=6), 89.9) is Fate.UNKNOWN
    assert found.judge(last(boot="b", life="another", beat=6), 90) is Fate.DEAD


def test_in_a_store_for_one_node_the_lock_is_the_proof() -> None:
    assert watcher((7, 70)).judge(LastLife("life", last().about), 0) is Fate.DEAD


# spec: MN-1
def test_the_refusal_says_who_where_and_what_to_do() -> None:
    said = name_taken("a", last(machine="db7").about)
    for word in ("'a'", "pid 7", "db7", "CHARGEHAND_NODE", "node="):
        assert word in said
    assert "pid" not in name_taken("a", NodeAbout())
