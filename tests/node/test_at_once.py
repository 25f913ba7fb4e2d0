"""Answers to callers: by the thread that has committed, unless a worker is to receive a job first."""

import socket
from collections.abc import Iterator

import pytest

from chargehand.model.batch import Grant, Result
from chargehand.model.job import Claim, Enqueued
from chargehand.node.loop import Channel, Loop
from chargehand.node.replies import answer_at_once, is_answered_at_once
from chargehand.protocol.frame import Decoder, Frame

CLAIM = Claim(
    id="j", seq=1, number=1, queue="q", payload="null", label=None, priority=0, failures=0, crashes=0, max_attempts=1,
    timeout_ms=None,
)  # fmt: skip


class Caller:
    """One end of a connection to a node, and the node's channel of it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.sock, theirs = socket.socketpair()
        self.channel = Channel(self.loop, theirs, 1000, lambda _, __: None, lambda _: None)

    def clog(self) -> None:
        """Sends so much that the rest is buffered."""
        while not self.channel.clogged:
            self.channel.send(b"x" * 100_000 + b"\n")

    def close(self) -> None:
        self.channel.close()
        self.sock.close()
        self.loop.close()


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.close()


def result(caller: Caller, *claims: Claim) -> Result:
    return Result(enqueued=(((caller.channel, 7), (Enqueued("j", True),)),), grants=(Grant("crew", claims, None),))


def test_a_caller_is_answered_by_the_thread_that_has_committed(caller: Caller) -> None:  # spec: WK-1
    found = result(caller)
    assert is_answered_at_once(found)
    assert answer_at_once(found) == ()
    (frame,) = Decoder(1000).feed(caller.sock.recv(1000))
    assert isinstance(frame, Frame)
    assert (frame.kind, frame.read()) == ("REPLY", {"call": 7, "enqueued": [["j", True]]})


def test_a_worker_receives_its_job_before_the_caller_is_answered(caller: Caller) -> None:
    found = result(caller, CLAIM)
    assert not is_answered_at_once(found), "the main thread answers, after it has sent the job"
    assert answer_at_once(found) == ()
    caller.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        caller.sock.recv(1)


def test_what_waits_to_be_sent_is_sent_first_by_the_main_thread(caller: Caller) -> None:
    caller.clog()
    found = result(caller)
    assert answer_at_once(found) == found.enqueued, "the main thread answers"


def test_a_caller_that_is_gone_is_not_answered_again(caller: Caller) -> None:
    caller.sock.close()
    assert answer_at_once(result(caller)) == (), "sending fails, and reading reports the end"
    caller.channel.close()
    assert answer_at_once(result(caller)) != ()
    caller.channel.send(b"to nobody\n")
