"""What the tests of the ledger share: ledgers with workers, claims, requests and answers of a store."""

from collections.abc import Collection, Container
from typing import Any

import msgspec

from chargehand.model.batch import Grant, Request, Result
from chargehand.model.job import (
    Claim,
    JobPolicy,
    NewJob,
)
from chargehand.model.ledger import Hand, Ledger, Todo
from chargehand.model.search import Look

T = 1000.0


def ledger(
    *crews: str,
    batching: dict[str, tuple[int, float]] | None = None,
    awaited: Container[str] = (),
    most_in_hand: int = 1,
    limited: Collection[str] = (),
) -> Ledger:
    names = [(crew, f"queue-{crew}") for crew in crews or ("a",)]
    policy = JobPolicy(most_in_hand=most_in_hand)
    return Ledger(names, lambda: 0.0, T, batching=batching, awaited=awaited, policy=policy, limited=limited)


def claims(*numbers: int, crew: str = "a", **about: Any) -> tuple[Claim, ...]:
    usual = Claim(
        id="", seq=0, number=1, first=True, queue=f"queue-{crew}", payload="null", label=None, priority=0, failures=0,
        max_attempts=3, crashes=0, timeout_ms=None,
    )  # fmt: skip
    return tuple(msgspec.structs.replace(usual, id=f"job-{n}", seq=n, **about) for n in numbers)


def request(*ids: str, queue: str = "queue-a", token: Any = "token", **options: Any) -> Request:
    return Request(token, tuple(NewJob(id=one, queue=queue, **options) for one in ids))


def grant(of: Ledger, *numbers: int, crew: str = "a", next_in_ms: int | None = None, now: float = T) -> list[str]:
    """The batch in flight is answered with these claims: who was handed which, as words."""
    assert of.in_flight is not None
    asked = any(want.crew == crew for want in of.in_flight.wants)
    assert asked or not numbers, "nobody asked for these"
    grants = (Grant(crew, claims(*numbers, crew=crew), next_in_ms),) if asked else ()
    handed = of.confirm(Result(grants=grants), now)
    return [f"{worker} {named(todo)}" for worker, todo in handed]


def named(todo: Todo | None) -> str:
    """What was handed out, as words: ids, with blanks between those that go together, and + before those for later."""
    assert not isinstance(todo, Look)
    if isinstance(todo, Hand):
        return " ".join([*([] if todo.first is None else [todo.first.id]), *(f"+{claim.id}" for claim in todo.ahead)])
    return "nothing" if todo is None else " ".join(claim.id for claim in (todo if isinstance(todo, list) else [todo]))


def serve(of: Ledger, *workers: str, crew: str = "a", now: float = T) -> None:
    for worker in workers:
        of.welcome(worker, crew, now)


def working(workers: int = 1, now: float = T, awaited: Container[str] = ()) -> Ledger:
    """A ledger whose workers each have a job: w0 has job-0, and so on."""
    made = ledger(awaited=awaited)
    serve(made, *(f"w{n}" for n in range(workers)), now=now)
    made.next_batch(now)
    assert len(grant(made, *range(workers), now=now)) == workers
    return made


def fast(of: Ledger, mean: float) -> Ledger:
    """As if jobs had been taking so long on average."""
    of.pools["a"].mean = mean
    return of
