"""Replies on the node's control socket: each names the call that it answers, and says what became of it."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from chargehand.errors import ChargehandError
from chargehand.model.batch import Result
from chargehand.model.fleet.orders import Answer
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.job import Enqueued
from chargehand.protocol.frame import encode


class Caller(Protocol):
    """Receives an answer: a connection to the control socket, or a request in the store."""

    def send(self, frame: bytes) -> None:
        """Sends a frame."""
        ...

    def send_now(self, frame: bytes) -> bool:
        """Sends a frame, and returns True, if that is possible at once. Any thread may call it."""
        ...

    def connected(self) -> bool:
        """Returns whether the caller still waits for an answer. Any thread may call it."""
        ...


Token = tuple[Caller, int]
"""A caller, and the number of its call."""


Answered = tuple[Token, tuple[Enqueued, ...]]
"""A caller, and what became of its jobs."""


def waits(token: Token) -> bool:
    """Returns whether the caller still waits for the answer. Any thread may call it."""
    return token[0].connected()


def reply(token: Token, **body: Any) -> None:
    """Answer a call."""
    caller, call = token
    caller.send(encode("REPLY", {"call": call, **body}))


def refuse(token: Token, why: str, kind: str = "ChargehandError", **more: str) -> None:
    """Answer that the request was not carried out. `kind` names the exception that the caller raises, with `more`."""
    reply(token, error=why, kind=kind, **more)


def refuse_with(token: Token, error: ChargehandError) -> None:
    """Answer with an error that the caller raises again."""
    refuse(token, str(error), type(error).__name__)


def answer_order(token: Token, answers: Sequence[Answer]) -> None:
    """Answer an order with what will happen to each worker."""
    reply(token, answers=msgspec.to_builtins(answers))


def answer_stacks(token: Token, found: WorkerStacks) -> None:
    """Answer with the stacks of a worker."""
    reply(token, stacks=msgspec.to_builtins(found))


def answer_enqueue(token: Token, enqueued: Sequence[Enqueued]) -> None:
    """Answer that the jobs are durable."""
    token[0].send(_durable(token, enqueued))


def is_answered_at_once(result: Result) -> bool:
    """Returns whether the store thread answers the callers whose jobs this result has made durable.

    If a worker waits for a job of the result, the main thread sends that first, and then answers.
    """
    return not any(grant.claims for grant in result.grants)


def answer_at_once(result: Result) -> tuple[Answered, ...]:
    """Answers callers whose jobs are durable, on the store thread. Returns those that the main thread must answer."""
    if not result.enqueued or not is_answered_at_once(result):
        return ()
    return tuple(each for each in result.enqueued if not each[0][0].send_now(_durable(*each)))


def _durable(token: Token, enqueued: Sequence[Enqueued]) -> bytes:
    body = {"call": token[1], "enqueued": [(job.id, job.created) for job in enqueued]}
    return b"REPLY|%b\n" % msgspec.json.encode(body)
