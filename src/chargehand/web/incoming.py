"""Converts request bodies to jobs and flows: finds the crew, and checks the payload against the type that it takes."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from fastapi import Request
from pydantic import BaseModel, ValidationError

from chargehand import codec
from chargehand.errors import PayloadError
from chargehand.flow import sample_end
from chargehand.ids import new_id
from chargehand.model.flows import NewFlow, check_flow
from chargehand.model.job import NewJob
from chargehand.settings.plan import CrewPlan, new_job
from chargehand.web import bodies
from chargehand.web.bodies import invalid
from chargehand.web.documents import described, examples_of
from chargehand.web.problems import MOST_FAULTS, Fault, Problem, faults_of
from chargehand.web.requests import MOST_JOBS, EndIn, FlowIn, FlowJobIn, JobIn, Target, options_of

if TYPE_CHECKING:
    from chargehand.app import Chargehand

Model = TypeVar("Model", bound=BaseModel)

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


FLOW: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": described(FlowIn), "example": examples_of(FlowIn)[0]}},
    }
}
"""The OpenAPI description of the body that creates a flow."""


def read_many(request: Request, body: bytes) -> Callable[[], list[JobIn]]:
    """Returns a function that decodes the body of a bulk request; it is slow, and to be run in a thread."""
    is_json = _is_json(request)

    def read() -> list[JobIn]:
        _check_json(is_json)
        return _jobs(bodies.decoded(body, "body", _Bulk).jobs, JobIn)

    return read


def read_flow(request: Request, body: bytes) -> Callable[[], FlowIn]:
    """Returns a function that decodes a flow with its jobs; it is slow, and to be run in a thread."""
    is_json = _is_json(request)

    def read() -> FlowIn:
        _check_json(is_json)
        found = bodies.decoded(body, "body", _Flow)
        head = {"name": found.name, "order": found.order, "on_end": found.on_end}
        given = {name: bodies.decoded(raw, f"body/{name}") for name, raw in head.items() if memoryview(raw).nbytes}
        end = given.get("on_end")
        names = cast("dict[str, Any]", end) if isinstance(end, dict) else {}  # anything else is no EndIn
        unknown = [name for name in names if name not in EndIn.model_fields]
        if unknown:
            raise invalid([Fault(f"body/on_end/{name[:100]}", "there is no such field") for name in unknown])
        jobs = _jobs(found.jobs, FlowJobIn)
        return _valid(FlowIn, {**given, "jobs": jobs}, ("body",))

    return read


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _check_json(is_json: bool) -> None:
    if not is_json:
        raise invalid([Fault("body", "Content-Type is not application/json")])


def _jobs(text: msgspec.Raw, model: type[Model]) -> list[Model]:
    """Returns the jobs of a request, each checked by itself."""
    array = bodies.decoded(text, "body/jobs", _array_type()) if memoryview(text).nbytes else ()
    jobs = [job for job in (msgspec.structs.astuple(array) if array else ()) if memoryview(job).nbytes]
    if not jobs:
        raise invalid([Fault("body/jobs", f"is not an array of 1 to {MOST_JOBS:,} jobs")])
    return [_one(number, job, model) for number, job in enumerate(jobs)]


class _Bulk(msgspec.Struct, forbid_unknown_fields=True):
    """A bulk request."""

    jobs: msgspec.Raw


class _Flow(msgspec.Struct, forbid_unknown_fields=True):
    """A flow; its parts are decoded later."""

    jobs: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    order: msgspec.Raw = msgspec.Raw()
    on_end: msgspec.Raw = msgspec.Raw()


@cache
def _array_type() -> Any:
    """Returns the type of the jobs of a bulk request; each is decoded later, so that other threads run in between.

    The array is a struct with a field for each job, because msgspec refuses a further item when it reaches it. A list
    is built before its length is checked: millions of items would hold the interpreter for a second.
    """
    fields = [(f"job{number}", msgspec.Raw, msgspec.Raw()) for number in range(MOST_JOBS)]
    return msgspec.defstruct("JobArray", fields, array_like=True, forbid_unknown_fields=True)


def _one(number: int, job: msgspec.Raw, model: type[Model]) -> Model:
    return _valid(model, bodies.decode(job, model, f"body/jobs/{number}"), ("body", "jobs", number))


def _valid(model: type[Model], found: Any, place: tuple[str | int, ...]) -> Model:
    """Returns plain data as a model. Raises Problem, which names the place of each fault."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise invalid(faults_of([{**fault, "loc": (*place, *fault["loc"])} for fault in error.errors()])) from None


class CrewCache:
    """Finds crews: those of the application, with their payload types, and those registered in the store."""

    def __init__(self, hand: "Chargehand") -> None:
        self._own = [(crew.plan, crew.takes) for crew in hand.crews.values()]
        self._hand = hand
        self._stored: list[tuple[CrewPlan, Any]] | None = None

    def find(self, job: Target, where: str) -> tuple[CrewPlan, Any]:
        """Returns the crew of a job and its payload type (None: unknown).

        Raises Problem if there is no such crew; `where` is the place of the job in the request.
        """
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
        raise Problem(422, "unknown-crew", detail, faults=[Fault(f"{where}/{field}", detail)])


def _matches(job: Target, plan: CrewPlan) -> bool:
    return plan.name == job.crew if job.crew is not None else plan.queue == job.queue


def jobs_of(hand: "Chargehand", wanted: Sequence[JobIn]) -> list[NewJob]:
    """Returns the checked jobs. Raises Problem if a job has no crew or an invalid payload."""
    crews = CrewCache(hand)
    made: list[NewJob] = []
    for number, job in enumerate(wanted):
        where = "body" if len(wanted) == 1 else f"body/jobs/{number}"
        with _faults(where):
            made.append(_job(crews, job, options_of(job), where))
    return made


def flow_of(hand: "Chargehand", wanted: FlowIn) -> tuple[NewFlow, list[NewJob]]:
    """Returns the checked flow and its jobs, with new ids. Raises Problem, also if a job refers to a later one."""
    crews = CrewCache(hand)
    flow = _flow(crews, wanted)
    ids = [new_id() for _ in wanted.jobs]
    refs: dict[str, str | None] = {job.ref: None for job in wanted.jobs if job.ref is not None}  # None: comes later
    made: list[NewJob] = []
    for number, job in enumerate(wanted.jobs):
        where = f"body/jobs/{number}"
        options = {**options_of(job), "flow": flow.id, "after": _predecessors(job.after, ids, number, refs, where)}
        with _faults(where):
            made.append(_job(crews, job, options, where, ids[number]))
        if job.ref is not None:
            if refs[job.ref] is not None:
                raise invalid([Fault(f"{where}/ref", f"another job of the request has the ref {job.ref!r}")])
            refs[job.ref] = ids[number]
    return flow, made


def _flow(crews: CrewCache, wanted: FlowIn) -> NewFlow:
    end: NewJob | None = None
    if wanted.on_end is not None:
        with _faults("body/on_end"):
            plan, takes = crews.find(wanted.on_end, "body/on_end")
            _check_takes_end(plan, takes)
            end = new_job(plan, "null", **codec.restored(options_of(wanted.on_end), "on_end"))
    with _faults("body", "name"):
        name = codec.escape(codec.restored(wanted.name, "the name"))
        return check_flow(NewFlow(id=new_id(), name=name, arrival=wanted.order == "arrival", on_end=end))


def _check_takes_end(plan: CrewPlan, takes: Any) -> None:
    """Raises Problem if the crew cannot take a FlowEnd."""
    try:
        codec.as_type(msgspec.to_builtins(sample_end("flow")), takes, "chargehand.FlowEnd")
    except PayloadError as error:
        detail = f"on_end names crew {plan.name!r}, which does not take chargehand.FlowEnd: {error}"
        raise Problem(422, "payload", detail, faults=[Fault("body/on_end", detail)]) from error


def _predecessors(
    after: Sequence[int | str], ids: Sequence[str], before: int, refs: dict[str, str | None], where: str
) -> list[str]:
    """Returns the ids of the jobs that a job of a flow names; the first `before` jobs of `ids` precede it."""
    found: list[str] = []
    for number, each in enumerate(after):
        if isinstance(each, int):
            job = ids[each] if each < before else None
        else:
            job = refs.get(each, each)
        if job is None:
            what = "the position" if isinstance(each, int) else "the ref"
            raise invalid(
                [Fault(f"{where}/after/{number}", f"{each!r} is not {what} of an earlier job of the request")]
            )
        found.append(job)
    return list(dict.fromkeys(found))


@contextmanager
def _faults(where: str, value: str = "payload") -> Generator[None]:
    """Raises Problem, which names the place, for a PayloadError of the block: an option, or the value."""
    try:
        yield
    except PayloadError as error:
        places = error.places or (("", str(error)),)
        field = error.option or value
        faults = [Fault(f"{where}/{field}/{place}".rstrip("/"), text) for place, text in places[:MOST_FAULTS]]
        raise Problem(422, "payload", str(error), faults=faults) from None


def _job(
    crews: CrewCache, job: JobIn | FlowJobIn, options: dict[str, Any], where: str, id: str | None = None
) -> NewJob:
    plan, takes = crews.find(job, where)
    what = f"the payload for crew {plan.name!r}"
    payload = codec.as_type(codec.restored(job.payload, what), takes, what)
    text = codec.encode_typed(payload, takes, what)
    return new_job(plan, text, id=id, **codec.restored(options, "the options"))
