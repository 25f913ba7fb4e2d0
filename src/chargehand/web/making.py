"""Creates jobs and flows for requests; a request that is repeated with its Idempotency-Key creates nothing."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from fastapi import Header, Request

from chargehand.host.actor import enqueue_deeds
from chargehand.model.access import Remembered
from chargehand.model.flows import NewFlow
from chargehand.model.job import Enqueued, NewJob
from chargehand.store import Transaction
from chargehand.web.answers import FlowMade, Made
from chargehand.web.auth import caller_of
from chargehand.web.deps import act
from chargehand.web.incoming import flow_of, jobs_of
from chargehand.web.problems import Problem
from chargehand.web.requests import FlowIn, JobIn

if TYPE_CHECKING:
    from chargehand.app import Chargehand

Once = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="If the request is repeated within 24 hours, it returns the first response and creates no job.",
    ),
]
Reply = tuple[int, bytes, dict[str, str]]
"""Status, body and headers of a response."""


class Making(Protocol):
    """Something to create, checked: alone, or in a transaction. Both return the status and the response."""

    def alone(self) -> tuple[int, Any]: ...
    def within(self, tx: Transaction) -> tuple[int, Any]: ...


class JobsMaking:
    """Jobs to enqueue; `answer_of` returns the response."""

    def __init__(
        self, hand: "Chargehand", wanted: Sequence[JobIn], answer_of: Callable[[list[Made]], tuple[int, Any]]
    ) -> None:
        self._hand, self._answer_of = hand, answer_of
        self._jobs = jobs_of(hand, wanted)

    def alone(self) -> tuple[int, Any]:
        return self._answer_of(_made(self._jobs, self._hand.internal.enqueue(self._jobs)))

    def within(self, tx: Transaction) -> tuple[int, Any]:
        done = tx.jobs.enqueue(self._jobs)
        tx.access.log(enqueue_deeds(self._jobs, done))
        return self._answer_of(_made(self._jobs, done))


class FlowMaking:
    """A flow to begin with its first jobs."""

    def __init__(self, hand: "Chargehand", wanted: FlowIn) -> None:
        self._hand = hand
        self._flow: NewFlow
        self._flow, self._jobs = flow_of(hand, wanted)

    def alone(self) -> tuple[int, Any]:
        return self._answer(self._hand.internal.begin_flow(self._flow, self._jobs))

    def within(self, tx: Transaction) -> tuple[int, Any]:
        done = self._hand.internal.begin_flow(self._flow, self._jobs, tx)
        tx.access.log(enqueue_deeds(self._jobs, done))
        return self._answer(done)

    def _answer(self, done: Sequence[Enqueued]) -> tuple[int, Any]:
        return 201, FlowMade(id=self._flow.id, name=self._flow.name, jobs=tuple(_made(self._jobs, done)))


async def make(request: Request, once: str | None, making_of: Callable[["Chargehand"], Making]) -> Reply:
    """Creates what is wanted and returns the response. With an Idempotency-Key it is stored in the same transaction.

    `making_of` is called in a thread.
    """
    hand: Chargehand = request.app.state.site.hand
    caller = await caller_of(request)
    digest = sha256(request.scope["route"].path.encode() + b"\n" + await request.body()).hexdigest()

    def work() -> Reply:
        making = making_of(hand)
        if once is None:
            status, answer = making.alone()
            return status, msgspec.json.encode(answer), {}
        with hand.transaction() as tx:
            before = tx.access.remembered(caller.name, once)
            if before is not None:
                if before.digest != digest:
                    raise Problem(422, "idempotency-key-reused", "this Idempotency-Key was used for another request")
                return before.status, before.body.encode(), {"Idempotency-Replayed": "true"}
            status, answer = making.within(tx)
            body = msgspec.json.encode(answer)
            tx.access.remember(
                Remembered(caller=caller.name, key=once, digest=digest, status=status, body=body.decode())
            )
        return status, body, {}

    return await act(request, work)


def _made(jobs: Sequence[NewJob], done: Sequence[Enqueued]) -> list[Made]:
    return [
        Made(id=each.id, queue=job.queue, created=each.created, replaced=each.replaced)
        for job, each in zip(jobs, done, strict=True)
    ]
