"""Converts request bodies to jobs: finds the crew, and checks the payload against the type that it takes."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request
from pydantic import ValidationError

from chargehand import codec
from chargehand.errors import PayloadError
from chargehand.model.job import NewJob
from chargehand.settings.plan import CrewPlan, new_job
from chargehand.web import bodies
from chargehand.web.bodies import invalid
from chargehand.web.problems import MOST_FAULTS, Fault, Problem, faults_of
from chargehand.web.requests import MOST_JOBS, JobIn, options_of

if TYPE_CHECKING:
    from chargehand.app import Chargehand


MANY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "title": "JobsIn",
                    "description": "Jobs to create: all of them or none.",
                    "type": "object",
                    "required": ["jobs"],
                    "additionalProperties": False,
                    "properties": {
                        "jobs": {
                            "type": "array",
                            "items": {"$ref": "#/components/schemas/JobIn"},
                            "minItems": 1,
                            "maxItems": MOST_JOBS,
                        }
                    },
                },
                "example": {"jobs": [{"crew": "tag", "payload": {"path": "a.flac"}}]},
            }
        },
    }
}
"""The OpenAPI description of the body of a bulk request."""


def read_many(request: Request, body: bytes) -> Callable[[], list[JobIn]]:
    """Returns a function that decodes the body of a bulk request; it is slow, and to be run in a thread."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()

    def read() -> list[JobIn]:
        if kind != "application/json":
            raise invalid([Fault("body", "Content-Type is not application/json")])
        array = bodies.decoded(bodies.decoded(body, "body", _Bulk).jobs, "body/jobs", _array_type())
        jobs = [job for job in msgspec.structs.astuple(array) if memoryview(job).nbytes]
        if not jobs:
            raise invalid([Fault("body/jobs", f"is not an array of 1 to {MOST_JOBS:,} jobs")])
        return [_one(number, job) for number, job in enumerate(jobs)]

    return read


class _Bulk(msgspec.Struct, forbid_unknown_fields=True):
    """A bulk request."""

    jobs: msgspec.Raw


@cache
def _array_type() -> Any:
    """Returns the type of the jobs of a bulk request; each is decoded later, so that other threads run in between.

    The array is a struct with a field for each job, because msgspec refuses a further item when it reaches it. A list
    is built before its length is checked: millions of items would hold the interpreter for a second.
    """
    fields = [(f"job{number}", msgspec.Raw, msgspec.Raw()) for number in range(MOST_JOBS)]
    return msgspec.defstruct("JobArray", fields, array_like=True, forbid_unknown_fields=True)


def _one(number: int, job: msgspec.Raw) -> JobIn:
    where = f"body/jobs/{number}"
    found = bodies.decode(job, JobIn, where)
    try:
        return JobIn.model_validate(found)
    except ValidationError as error:
        place = ("body", "jobs", number)
        raise invalid(faults_of([{**fault, "loc": (*place, *fault["loc"])} for fault in error.errors()])) from None


class CrewCache:
    """Finds crews: those of the application, with their payload types, and those registered in the store."""

    def __init__(self, hand: "Chargehand") -> None:
        self._own = [(crew.plan, crew.takes) for crew in hand.crews.values()]
        self._hand = hand
        self._stored: list[tuple[CrewPlan, Any]] | None = None

    def find(self, job: JobIn) -> tuple[CrewPlan, Any]:
        """Returns the crew of a job and its payload type (None: unknown). Raises Problem if there is no such crew."""
        own = next((found for found in self._own if _matches(job, found[0])), None)
        if own is not None:
            return own
        if self._stored is None:
            rows = self._hand.known_crews()
            self._stored = [(msgspec.convert(row, CrewPlan, from_attributes=True), None) for row in rows]
        stored = next((found for found in self._stored if _matches(job, found[0])), None)
        if stored is not None:
            return stored
        field = "crew" if job.crew is not None else "queue"
        existing = sorted({getattr(plan, "name" if job.crew else "queue") for plan, _ in (*self._own, *self._stored)})
        which = f"there is no crew {job.crew!r}" if job.crew is not None else f"no crew serves queue {job.queue!r}"
        detail = f"{which}; there are: {', '.join(existing) or 'none yet; a node registers its crews when it starts'}"
        raise Problem(422, "unknown-crew", detail, faults=[Fault(f"body/{field}", detail)])


def _matches(job: JobIn, plan: CrewPlan) -> bool:
    return plan.name == job.crew if job.crew is not None else plan.queue == job.queue


def jobs_of(hand: "Chargehand", wanted: Sequence[JobIn]) -> list[NewJob]:
    """Returns the checked jobs. Raises Problem if a job has no crew or an invalid payload."""
    crews = CrewCache(hand)
    made: list[NewJob] = []
    for number, job in enumerate(wanted):
        try:
            made.append(_job(crews, job))
        except PayloadError as error:
            where = "body" if len(wanted) == 1 else f"body/jobs/{number}"
            places = error.places or (("", str(error)),)
            faults = [Fault(f"{where}/payload/{place}".rstrip("/"), text) for place, text in places[:MOST_FAULTS]]
            raise Problem(422, "payload", str(error), faults=faults) from None
    return made


def _job(crews: CrewCache, job: JobIn) -> NewJob:
    plan, takes = crews.find(job)
    what = f"the payload for crew {plan.name!r}"
    payload = codec.as_type(codec.restored(job.payload, what), takes, what)
    return new_job(plan, codec.encode_typed(payload, takes, what), **codec.restored(options_of(job), "the options"))
