"""Checkpoints on their way to the node, and what a worker asks it."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chargehand import Cancelled, PayloadError, StoreError
from chargehand.protocol.frame import Decoder, Frame, encode
from chargehand.testing import eventually
from chargehand.worker import perform
from chargehand.worker.context import Context
from chargehand.worker.forked import ForkLink
from chargehand.worker.keeping import BURST, INTERVAL, Keeper
from chargehand.worker.main import Worker
from chargehand.worker.pulse import Inbox

BODY: dict[str, Any] = {"id": "j", "fence": 7, "queue": "q", "attempts": 0, "crashes": 0, "payload": None}


def states(frames: list[bytes]) -> list[Any]:
    found = [frame for data in frames for frame in Decoder(1 << 17).feed(data)]
    return [frame.read()["state"] for frame in found if isinstance(frame, Frame) and frame.kind == "KEEP"]


# spec: FL-5
def test_states_in_a_row_are_sent_at_once_and_of_more_the_newest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent, later = [100.0], list[bytes](), list[bool]()
    monkeypatch.setattr("chargehand.clock.monotonic", lambda: now[0])

    def send_now(frame: bytes) -> bool:
        sent.append(frame)
        return True

    keeper = Keeper(sent.append, send_now, lambda: later.append(True))
    for number in range(BURST):
        keeper.keep(("j", 7), str(number))
    assert states(sent) == list(range(BURST)), "the process may be killed after each of them"
    assert not later
    keeper.keep(("other", 8), "0")
    assert states(sent)[BURST:] == [0], "each job has its own"
    for number in range(BURST, BURST + 5):
        keeper.keep(("j", 7), str(number))
    assert later
    assert keeper.flush(), "not due yet"
    now[0] += INTERVAL * 1.5
    assert not keeper.flush()
    assert states(sent)[BURST + 1 :] == [BURST + 4]
    keeper.keep(("j", 7), "-1")
    assert states([keeper.take(("j", 7))]) == [-1]
    assert keeper.take(("j", 7)) == b""
    now[0] += 1000
    for number in range(BURST + 1):
        keeper.keep(("j", 7), str(number))
    assert states(sent)[BURST + 2 :] == list(range(BURST)), "unused time is not saved up"


# spec: FL-5
def test_a_state_that_is_too_large_or_no_json_is_refused() -> None:
    assert perform.kept_text("x" * 65_534) == f'"{"x" * 65_534}"'
    with pytest.raises(PayloadError, match=r"^the checkpoint has 65,537 bytes of JSON; the maximum is 65,536"):
        perform.kept_text("x" * 65_535)
    with pytest.raises(PayloadError, match="the checkpoint cannot be written as JSON"):
        perform.kept_text(object())


class Desk:
    """A worker in the middle of a job, and the node's end of its work socket."""

    def __init__(self) -> None:
        self.node, self.sock = socket.socketpair()
        self.pulse, self.other = socket.socketpair()
        plan: dict[str, Any] = {"paused": False, "component": "worker:a:0", "life": "1", "crews": {"c": {"queue": "q"}}}
        fd = self.sock.fileno()
        self.worker = Worker(fd, self.pulse.fileno(), Inbox(fd), iter(()), plan, -1, ForkLink())
        self.worker._claims = {("j", 7)}
        self.context = Context(self.worker, BODY)
        self._decoder = Decoder(1 << 20)

    def question(self) -> dict[str, Any]:
        (frame,) = self._decoder.feed(self.node.recv(1 << 16))
        assert isinstance(frame, Frame)
        return frame.read()

    def answer(self, number: int, *results: Any, more: bool = False) -> None:
        ends = [
            {"id": str(n), "nr": 0, "seq": n, "state": "done", "reason": None, "result": result, "error": None}
            for n, result in enumerate(results)
        ]
        self.node.sendall(encode("PAGE", {"number": number, "ends": ends, "more": more, "bytes": 10, "why": None}))

    def close(self) -> None:
        for each in (self.node, self.sock, self.pulse, self.other):
            each.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


# spec: FL-3
def test_pages_are_asked_for_until_the_last_and_other_frames_are_kept(desk: Desk) -> None:
    found: list[Any] = []
    job = desk.context.job(None)
    asking = threading.Thread(target=lambda: found.extend(job.results("c")))
    asking.start()
    first = desk.question()
    assert (first["id"], first["fence"], first["queue"], first["after"]) == ("j", 7, "q", None)
    desk.node.sendall(encode("STOP", {}))
    desk.answer(first["number"] + 1000, "of nobody")
    desk.answer(first["number"], "a", "b", more=True)
    second = desk.question()
    assert second["after"] == [0, 1]
    assert second["limit"] > first["limit"], "small results are read in larger pages"
    desk.answer(second["number"], "c")
    asking.join(20)
    assert found == ["a", "b", "c"]
    assert [frame.kind for frame in desk.worker.inbox.received()] == ["STOP"]
    assert not desk.worker.inbox.answers


# spec: FL-3 WK-8
def test_a_job_that_is_cancelled_while_it_asks_ends(desk: Desk) -> None:
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            list(desk.context.job(None).results("c"))
        except BaseException as error:
            raised.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    desk.question()
    desk.worker.cancelled.add(("j", 7))
    eventually(lambda: raised, what="it ends")
    asking.join(20)
    assert isinstance(raised[0], Cancelled)


# spec: FL-3
def test_results_that_cannot_be_read_are_an_error_of_the_store(desk: Desk) -> None:
    answered = threading.Thread(
        target=lambda: desk.node.sendall(encode("PAGE", {"number": desk.question()["number"], "why": "it is full"}))
    )
    answered.start()
    with pytest.raises(StoreError, match="it is full"):
        list(desk.context.job(None).results("c"))
    answered.join(20)


class Custom(OSError):
    pass


# spec: WK-16 WP-13
def test_exceptions_are_meant_by_their_names_and_those_of_their_bases() -> None:
    def kind(error: BaseException, **rules: Any) -> str:
        return perform.failure_frame({"id": "j", "fence": 7}, error, rules).partition(b"|")[0].decode()

    assert kind(Custom()) == "RAISED"
    assert kind(Custom(), retry_on=None, give_up_on=[]) == "RAISED"
    for name in ("Custom", "OSError", f"{__name__}.Custom", "builtins.OSError", "Exception"):
        assert kind(Custom(), give_up_on=[name]) == "GAVEUP"
        assert kind(Custom(), retry_on=[name]) == "RAISED"
    assert kind(Custom(), retry_on=["ValueError"]) == "GAVEUP"
    assert kind(Custom(), retry_on=["OSError"], give_up_on=["Custom"]) == "GAVEUP"
    assert kind(Custom(), retry_on=[]) == "GAVEUP"
