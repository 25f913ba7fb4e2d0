"""The bodies of requests, validated on arrival; unknown fields are refused."""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator

from chargehand import codec
from chargehand.model.fleet.orders import LONGEST_PAUSE_MS, MOST_WORKERS
from chargehand.model.job import NAME_LIMIT, OPTIONS, TAG_LIMIT, Option, is_printable
from chargehand.settings.plan import CrewPlan

MOST_JOBS = 10_000


def _readable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("contains control characters")
    return text


def _text(limit: int) -> Any:
    """Returns the type of a short text of the application; its length is that of the text without escapes."""

    def check(text: str) -> str:
        length = len(codec.restore(text))
        if not 1 <= length <= limit:
            raise ValueError(f"has {length} characters; must have 1 to {limit}")
        if not is_printable(text):
            raise ValueError("contains control characters")
        return text

    return Annotated[str, AfterValidator(check), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": limit})]


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


class JobTarget(Body):
    """The crew or queue of a job to create, and its payload."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"crew": "tag", "payload": {"path": "a.flac"}, "label": "a.flac"}]}
    )

    crew: Name | None = Field(default=None, description="The crew that runs the job.")
    queue: Name | None = Field(default=None, description="The queue of the job; a crew must serve it.")
    payload: Any = Field(default=None, description="JSON; checked against the payload type of the crew, if known.")

    @model_validator(mode="after")
    def one_of_both(self) -> Self:
        """Raises ValueError unless either a crew or a queue is given."""
        if (self.crew is None) == (self.queue is None):
            raise ValueError("exactly one of `crew` and `queue` is required")
        return self


def _field(option: Option) -> tuple[Any, Any]:
    """Returns the type and the field of an option; an option that crews have, too, may be null."""
    required = not option.optional and option.name not in CrewPlan.__struct_fields__
    default = option.default if required else None
    kinds: dict[Any, Any] = {
        str: _text(option.high),
        int: Annotated[int, Field(ge=option.low, le=option.high)],
        tuple: Annotated[list[_text(TAG_LIMIT)], Field(max_length=option.high)],
    }
    kind = kinds[option.kind]
    return (kind if required else kind | None), Field(default=default, description=option.description)


if TYPE_CHECKING:
    JobIn = JobTarget
else:
    JobIn = create_model(
        "JobIn",
        __base__=JobTarget,
        __doc__="A job to create, for a crew or for a queue; options that are left out default to those of the crew.",
        **{option.name: _field(option) for option in OPTIONS},
    )


def options_of(job: JobTarget) -> dict[str, Any]:
    """Returns the options of a job that the request contains."""
    return {option.name: getattr(job, option.name) for option in OPTIONS if option.name in job.model_fields_set}


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


class SignIn(Body):
    """A key to sign in with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "ch_…"}]})

    key: str = Field(min_length=1, max_length=1000)
