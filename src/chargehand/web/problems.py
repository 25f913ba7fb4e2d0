"""Converts every error to a problem document (RFC 9457)."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from chargehand import codec, errors
from chargehand.web.methods import allowed
from chargehand.web.threads import Overdue

TYPE = "urn:chargehand:problem:"
MEDIA = "application/problem+json"
REQUEST_ID = "chargehand.request_id"
"""Where the request id is kept in the ASGI scope: `request.state` belongs to the application."""
MOST_FAULTS = 20
"""The maximum number of faults that a problem lists."""


class Fault(msgspec.Struct, frozen=True):
    """One error in a request."""

    pointer: str
    """The place in the request: `query/limit`, `body/payload/path`."""
    detail: str


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document (RFC 9457): `type` identifies the problem for programs; `detail` describes it for people."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    """The value of the header X-Request-ID, which the log contains, too."""
    errors: tuple[Fault, ...] = ()
    """The errors in the request."""


class Problem(HTTPException):
    """An error that becomes a problem response, wherever in a request it is raised."""

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
    errors.AmbiguousId: (409, "ambiguous-id"),
    errors.FlowNotFound: (404, "flow-not-found"),
    errors.RecurringNotFound: (404, "recurring-not-found"),
    errors.CrashNotFound: (404, "crash-not-found"),
    errors.UnknownCrew: (404, "unknown-crew"),
    errors.TopicError: (400, "no-such-topic"),
    errors.FlowEnded: (409, "flow-ended"),
    errors.Conflict: (409, "conflict"),
    errors.PayloadError: (422, "payload"),
    errors.ConfigurationError: (422, "invalid-request"),
    errors.StoreError: (503, "store-unusable"),
    errors.NobodyServes: (503, "no-node"),
    Overdue: (503, "store-slow"),
}
"""The status and the problem type of each exception; the first class that matches applies."""


def of_error(error: errors.ChargehandError) -> Problem:
    """Returns the problem for an exception of Chargehand."""
    status, kind = next((found for cls, found in KINDS.items() if isinstance(error, cls)), (409, "refused"))
    return Problem(status, kind, str(error), headers={"Retry-After": "1"} if status == 503 else None)


def answer(problem: Problem, request_id: str) -> Response:
    """Returns the response for a problem."""
    document = ProblemDocument(
        type=TYPE + problem.kind,
        title=HTTPStatus(problem.status_code).phrase,
        status=problem.status_code,
        detail=codec.readable(problem.detail),
        request_id=request_id,
        errors=problem.faults,
    )
    return Response(msgspec.json.encode(document), problem.status_code, problem.headers, MEDIA)


def of_http(error: AnyHTTPException) -> Problem:
    """Returns the problem for an error of the framework: unknown path, method not allowed, malformed body."""
    kinds = {404: "no-such-path", 405: "method-not-allowed", 400: "malformed-request"}
    detail = "there is nothing at this path" if error.status_code == 404 else str(error.detail)
    return Problem(error.status_code, kinds.get(error.status_code, "refused"), detail, headers=error.headers)


def of_validation(error: RequestValidationError) -> Problem:
    """Returns the problem for an invalid request. Values are not repeated, because they may be long or secret."""
    faults = faults_of(error.errors())
    if isinstance(error.body, bytes) and error.body:  # not decoded, because its type is not JSON
        faults = [Fault("body", "Content-Type is not application/json")]
    return Problem(422, "invalid-request", summary(faults), faults=faults)


_OF_OURS = "Value error, "
"""What pydantic writes before the text of an error that a check of ours has raised."""


def faults_of(found: Sequence[Any]) -> list[Fault]:
    """Returns the errors of pydantic as faults, MOST_FAULTS at most."""
    return [Fault(_pointer(one["loc"]), str(one["msg"]).removeprefix(_OF_OURS)) for one in found[:MOST_FAULTS]]


def summary(faults: Sequence[Fault]) -> str:
    """Returns the first three faults as text."""
    text = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults[:3])
    return text + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")


def _pointer(place: Sequence[int | str]) -> str:
    return "/".join(str(step)[:100] for step in place[:20])


def install(api: FastAPI) -> None:
    """Adds the exception handlers to the application."""

    async def handle(request: Request, error: Exception) -> Response:
        match error:
            case Problem():
                problem = error
            case RequestValidationError():
                problem = of_validation(error)
            case AnyHTTPException():
                problem = of_http(error)
                if error.status_code == 405:
                    problem.headers = {"Allow": allowed(request.app.routes, request.scope)}
            case errors.ChargehandError():
                problem = of_error(error)
            case _:
                raise error
        return answer(problem, request.scope[REQUEST_ID])

    for kind in (AnyHTTPException, RequestValidationError, errors.ChargehandError):
        api.add_exception_handler(kind, handle)
