"""The bodies of requests, validated on arrival; unknown fields are refused."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    model_validator,
)

from chargehand import codec
from chargehand.model.fleet.orders import LONGEST_PAUSE_MS, MOST_WORKERS
from chargehand.model.job import MOST_PREDECESSORS, NAME_LIMIT, OPTIONS, TAG_LIMIT, Option, is_printable
from chargehand.model.job_query import MOST_CHARACTERS
from chargehand.settings.plan import CrewPlan

MOST_JOBS = 10_000
MOST_NAMED = 300
"""The number of jobs that one request names."""


def _readable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("contains control characters")
    return text


def _text_check(limit: int) -> Callable[[str], str]:
    """Returns the check of a short text of the application; its length is that of the text without escapes."""

    def check(text: str) -> str:
        length = len(codec.restore(text))
        if not 1 <= length <= limit:
            raise ValueError(f"has {length} characters; must have 1 to {limit}")
        if not is_printable(text):
            raise ValueError("contains control characters")
        return text

    return check


def _text_schema(limit: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": limit})


def _text(limit: int) -> Any:
    """Returns the type of a short text of the application."""
    return Annotated[str, AfterValidator(_text_check(limit)), _text_schema(limit)]


Name = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT), AfterValidator(_readable)]
Scope = Annotated[
    str | None,
    Field(
        max_length=3 * NAME_LIMIT,
        description="A crew, `worker:crew:0`, or everything (null or `*`); with `node/` in front, of this node alone.",
    ),
]


class Body(BaseModel):
    """The base of all request bodies."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Target(Body):
    """The crew or queue of a job to create."""

    crew: Name | None = Field(default=None, description="The crew that runs the job.")
    queue: Name | None = Field(default=None, description="The queue of the job; a crew must serve it.")

    @model_validator(mode="after")
    def one_of_both(self) -> Self:
        """Raises ValueError unless either a crew or a queue is given."""
        if (self.crew is None) == (self.queue is None):
            raise ValueError("exactly one of `crew` and `queue` is required")
        return self


class JobTarget(Target):
    """The crew or queue of a job to create, and its payload."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"crew": "tag", "payload": {"path": "a.flac"}, "label": "a.flac"}]}
    )

    payload: Any = Field(default=None, description="JSON; checked against the payload type of the crew, if known.")


def _each(option: Option) -> Any:
    """Returns the type of one text of an option that has several; ids have no escapes, and there may be many."""
    return _text(TAG_LIMIT) if option.name == "tags" else Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)]


def _field(option: Option) -> tuple[Any, Any]:
    """Returns the type and the field of an option; an option that crews have, too, may be null."""
    required = not option.optional and option.name not in CrewPlan.__struct_fields__
    default = option.default if required else None
    kinds: dict[Any, Any] = {
        str: _text(option.high),
        int: Annotated[int, Field(ge=option.low, le=option.high)],
        bool: bool,
        tuple: Annotated[list[_each(option)], Field(max_length=option.high)],
        dict: dict[str, Any],
    }
    kind: Any = Literal[option.allowed] if option.allowed else kinds[option.kind]
    return (kind if required else kind | None), Field(default=default, description=option.description)


def _fields(*without: str) -> Any:
    """Returns the fields of all options but these."""
    return {option.name: _field(option) for option in OPTIONS if option.name not in without}


def _one_predecessor(value: Any, check: ValidatorFunctionWrapHandler) -> int | str:
    """Returns a valid predecessor. Raises ValueError once, and not for each type that the value does not have."""
    try:
        return check(value)
    except ValidationError:
        text = f"must be the position of an earlier job (0 to {MOST_JOBS - 1}), the ref of one, or the id of a job"
        raise ValueError(text) from None


Predecessor = Annotated[
    Annotated[int, Field(ge=0, lt=MOST_JOBS)] | Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)],
    WrapValidator(_one_predecessor),
]


class FlowJobTarget(JobTarget):
    """A job of a flow: others of the same request may refer to it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"crew": "join", "payload": {"path": "a.mp4"}, "after": ["decode", 1]}]}
    )

    ref: Name | None = Field(default=None, description="A name for this job in `after` of later jobs of the request.")
    after: Annotated[list[Predecessor], Field(max_length=MOST_PREDECESSORS)] = Field(
        default=[],
        description="The jobs that must end before this one is started: each the position of an earlier job of the "
        "request (from 0), the `ref` of one, or the id of a job that exists.",
    )


if TYPE_CHECKING:
    JobIn = JobTarget
    FlowJobIn = FlowJobTarget
    EndIn = Target
else:
    JobIn = create_model(
        "JobIn",
        __base__=JobTarget,
        __doc__="A job to create, for a crew or for a queue; options that are left out default to those of the crew.",
        **_fields(),
    )
    FlowJobIn = create_model(
        "FlowJobIn",
        __base__=FlowJobTarget,
        __doc__="A job to create in a flow, for a crew or for a queue.",
        **_fields("after", "flow"),
    )
    EndIn = create_model(
        "EndIn",
        __base__=Target,
        __doc__="The job that is enqueued when a flow has ended, however it ended. Its payload describes the end.",
        **_fields("after", "if_failed", "flow", "key", "unique_for_ms", "replace"),
    )


class FlowIn(Body):
    """A flow to create with its first jobs: all of them or none."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "summer.mp4",
                    "jobs": [
                        {"crew": "decode", "payload": {"path": "summer.mp4"}, "ref": "decode"},
                        {"crew": "classify", "payload": {"path": "summer.mp4"}, "after": ["decode"]},
                    ],
                    "on_end": {"crew": "mail"},
                }
            ]
        }
    )

    name: Annotated[str, AfterValidator(_text_check(NAME_LIMIT)), _text_schema(NAME_LIMIT)] = Field(
        description="A text that is shown with the flow."
    )
    order: Literal["flow", "arrival"] = Field(
        default="flow",
        description="`flow`: jobs that follow others, or are added by jobs of the flow, take the flow's place in their "
        "queue, so that flows are finished one after the other. `arrival`: each takes its own.",
    )
    on_end: EndIn | None = Field(default=None, description="A job that is enqueued when the flow has ended.")
    jobs: Annotated[list[FlowJobIn], Field(min_length=1, max_length=MOST_JOBS)]


def options_of(job: Body) -> dict[str, Any]:
    """Returns the options of a job that the request contains."""
    return {option.name: getattr(job, option.name) for option in OPTIONS if option.name in job.model_fields_set}


class BulkIn(Body):
    """The jobs of an operation on many."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"filter": 'state:failed error:"CUDA"'}]})

    filter: Annotated[
        str | None, Field(max_length=MOST_CHARACTERS, description="The jobs that match, in the filter language.")
    ] = None
    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)]] | None,
        Field(min_length=1, max_length=MOST_NAMED, description="These jobs; of them those that match the filter."),
    ] = None
    all: Annotated[bool, Field(description="Needed if there is neither a filter nor ids.")] = False
    dry_run: Annotated[bool, Field(description="Only count the jobs that would be changed.")] = False
    after: Annotated[str | None, Field(max_length=500, description="`next` of the response before.")] = None


class OrderIn(Body):
    """The scope of an order."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "tag"}]})

    scope: Scope = None


class DrainIn(OrderIn):
    """The scope of a drain, and whether the node ends then."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "gpu-1/*", "end": True}]})

    end: bool = Field(default=False, description="The node ends when it is drained; only for a whole node.")


class PauseIn(OrderIn):
    """The scope, the reason and the duration of a pause."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "tag", "reason": "new model", "for_s": 3600}]})

    reason: str | None = Field(default=None, max_length=1000)
    for_s: float | None = Field(default=None, gt=0, le=LONGEST_PAUSE_MS / 1000, description="Seconds; null: no limit.")


class ScaleIn(Body):
    """The number of workers of a crew."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "tag", "count": 4}]})

    scope: Annotated[str, Field(min_length=1, max_length=2 * NAME_LIMIT), AfterValidator(_readable)] = Field(
        description="The crew, on each node that has it; with `node/` in front, on this node alone."
    )
    count: int = Field(ge=0, le=MOST_WORKERS)


class ReleaseIn(Body):
    """The claim to release; nothing happens if the job has been claimed again since."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"claim": "7507797606400001234"}]})

    claim: str = Field(pattern=r"^[0-9]{1,19}$", description="The number of the claim, as text.")


class RecurringIn(Body):
    """A recurring job by its name."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "nightly scan"}]})

    name: str = Field(min_length=1, max_length=1000)


class PauseRecurringIn(RecurringIn):
    """A recurring job by its name, and the reason of its pause."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "nightly scan", "reason": "new disk"}]})

    reason: str | None = Field(default=None, max_length=1000)


class KeyIn(Body):
    """A key to create."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ann", "scopes": ["read"], "expires_s": 86400}]})

    name: Name
    scopes: Annotated[list[Literal["read", "enqueue", "control"]], Field(min_length=1, max_length=3)] = Field(
        description="What the key allows; only scopes that the caller has."
    )
    expires_s: float | None = Field(
        default=None, gt=0, le=10 * LONGEST_PAUSE_MS / 1000, description="Seconds until it expires; null: never."
    )


class SignIn(Body):
    """A key to sign in with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "ch_…"}]})

    key: str = Field(min_length=1, max_length=1000)
