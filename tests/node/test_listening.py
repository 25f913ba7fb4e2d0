"""Tests for a node that receives no notifications, and for how its store thread finds jobs then."""

from collections.abc import Callable
from typing import Any

import pytest

from chargehand.errors import StoreError
from chargehand.model.records import CrewRow, Holder, NodeAbout, Retention
from chargehand.node import store_thread
from chargehand.node.listening import LONGEST_PAUSE, Listening
from chargehand.node.store_thread import Look, Looked, OthersWrote, StoreThread
from chargehand.store import Listener
from chargehand.testing import eventually

# spec: ST-3 (all tests of this file)


def test_after_a_refusal_the_next_attempt_is_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Callable[[], None]) -> Listener:
        raise StoreError("a pooler does not pass on notifications", "no-listen")

    listening = Listening(refuse)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        listening.stop()

    monkeypatch.setattr(listening, "_wait", wait)
    listening.start()
    eventually(lambda: waits, what="the pause after the refusal")
    assert waits == [LONGEST_PAUSE]
    assert (listening.connected, listening.take()) == (False, set())
    assert listening.why == "a pooler does not pass on notifications"


class Changing:
    """Plays a store to which others write all the time."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.fails = False

    def changed(self, *, again: bool = False) -> bool:
        assert again
        return True

    def look(self, queues: Any) -> list[str]:
        if self.fails:
            raise StoreError("the server is away")
        return [queue for queue in self.waiting if queue in queues]


def thread() -> StoreThread:
    crew = CrewRow(name="do", queue="q", handler="", workers=1, max_attempts=1, timeout_ms=None)
    return StoreThread(
        lambda: pytest.fail("it is not opened"), Holder("n", "1"), [crew], NodeAbout(), Retention(), (), False, dict,
        lambda _: True,
    )  # fmt: skip


def test_between_two_polls_only_jobs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(store_thread.clock, "monotonic", lambda: now[0])
    made, store = thread(), Changing()
    watch: Any = made._watch  # pyright: ignore[reportPrivateUsage]
    watch(store)
    assert made.take() == [OthersWrote()]
    now[0] += 0.25
    watch(store)
    assert made.take() == [], "to poll, the node would write, and wake others that poll"
    store.waiting = ["q", "of others"]
    watch(store)
    assert made.take() == [Looked(("q",), None)]
    now[0] += 0.75
    watch(store)
    assert made.take() == [OthersWrote()]
    store.fails = True
    watch(store)
    assert made.take() == [OthersWrote()], "the node polls, and learns why that fails"


def test_a_look_that_fails_finds_everything() -> None:
    made, store = thread(), Changing()
    look: Any = made._look  # pyright: ignore[reportPrivateUsage]
    store.waiting = ["q"]
    look(store, Look(("q", "p")))
    store.fails = True
    look(store, Look(("q", "p")))
    assert [each.queues for each in made.take() if isinstance(each, Looked)] == [("q",), ("q", "p")]
