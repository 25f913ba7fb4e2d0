"""Every error as a problem document (RFC 9457): what is wrong, with what, and what to do."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from chargehand import errors
from chargehand.web.aside import Overdue

TYPE = "urn:chargehand:problem:"
MEDIA = "application/problem+json"
MOST_FAULTS = 20
"""Faults that are listed of one request."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request."""

    pointer: str
    """Where: `query/limit`, `body/payload/path`."""
    detail: str


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457. `type` says which problem it is, to programs; `detail` says it to people."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    """The same as in the header X-Request-ID and in the log."""
    errors: tuple[Fault, ...] = ()
    """What is wrong with the request, place by place."""


class Problem(HTTPException):
    """Raised anywhere in a request, also while its body is read: this is the answer to it."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.kind, self.faults = kind, tuple(faults)


KINDS: dict[type[errors.ChargehandError], tuple[int, str]] = {
    errors.JobNotFound: (404, "job-not-found"),
    errors.CrashNotFound: (404, "crash-not-found"),
    errors.UnknownCrew: (404, "unknown-crew"),
    errors.TopicError: (400, "no-such-topic"),
    errors.Conflict: (409, "conflict"),
    errors.PayloadError: (422, "payload"),
    errors.ConfigurationError: (422, "invalid-request"),
    errors.StoreError: (503, "store-unusable"),
    errors.NobodyServes: (503, "no-node"),
    Overdue: (503, "store-slow"),
}
"""Which answer an error of ours is; of two that fit, the first."""


def of_error(error: errors.ChargehandError) -> Problem:
    """The problem that an error of ours is."""
    status, kind = next((found for cls, found in KINDS.items() if isinstance(error, cls)), (409, "refused"))
    return Problem(status, kind, str(error), headers={"Retry-After": "1"} if status == 503 else None)


def answer(problem: Problem, request_id: str) -> Response:
    """The problem as a response."""
    document = ProblemDocument(
        type=TYPE + problem.kind,
        title=HTTPStatus(problem.status_code).phrase,
        status=problem.status_code,
        detail=problem.detail,
        request_id=request_id,
        errors=problem.faults,
    )
    return Response(msgspec.json.encode(document), problem.status_code, problem.headers, MEDIA)


def of_http(error: AnyHTTPException) -> Problem:
    """What the framework refuses by itself: no such path, method, body."""
    kinds = {404: "no-such-path", 405: "method-not-allowed", 400: "malformed-request"}
    detail = "there is nothing at this path" if error.status_code == 404 else str(error.detail)
    return Problem(error.status_code, kinds.get(error.status_code, "refused"), detail, headers=error.headers)


def of_validation(error: RequestValidationError) -> Problem:
    """What does not fit the request's description. Values are not repeated: they may be long, or secret."""
    faults = faults_of(error.errors())
    if isinstance(error.body, bytes) and error.body:  # nobody has read it: it does not say that it is JSON
        faults = [Fault("body", "Content-Type is not application/json")]
    return Problem(422, "invalid-request", in_words(faults), faults=faults)


def faults_of(found: Sequence[Any]) -> list[Fault]:
    """What pydantic found, as far as it is listed."""
    return [Fault(_pointer(one["loc"]), str(one["msg"])) for one in found[:MOST_FAULTS]]


def in_words(faults: Sequence[Fault]) -> str:
    """The first of them, for people."""
    said = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults[:3])
    return said + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")


def _pointer(place: Sequence[int | str]) -> str:
    return "/".join(str(step)[:100] for step in place[:20])


def install(api: FastAPI) -> None:
    """Have every error answered so."""

    async def ours(request: Request, error: Exception) -> Response:
        match error:
            case Problem():
                problem = error
            case RequestValidationError():
                problem = of_validation(error)
            case AnyHTTPException():
                problem = of_http(error)
            case errors.ChargehandError():
                problem = of_error(error)
            case _:
                raise error
        return answer(problem, request.state.request_id)

    for kind in (AnyHTTPException, RequestValidationError, errors.ChargehandError):
        api.add_exception_handler(kind, ours)
