"""What requests may say, checked at the edge; whatever is not listed here is refused."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from chargehand.model.fleet.orders import LONGEST_PAUSE_MS, MOST_WORKERS
from chargehand.model.job import LATEST_MS, LONGEST_DELAY_MS, NAME_LIMIT, PRIORITY_LIMIT

MOST_JOBS = 10_000


def _readable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("contains control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT), AfterValidator(_readable)]
Scope = Annotated[str | None, Field(max_length=2 * NAME_LIMIT, description="A crew, `worker:crew:0`; null: all.")]


class Body(BaseModel):
    """The root of all of them."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class JobIn(Body):
    """A job to be made, for a crew or for a queue; what is left out is the crew's."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"crew": "tag", "payload": {"path": "a.flac"}, "label": "a.flac"}]}
    )

    crew: Name | None = Field(default=None, description="The crew that is to do it.")
    queue: Name | None = Field(default=None, description="The queue that it goes to; a crew must serve it.")
    payload: Any = Field(default=None, description="JSON; checked against what the crew takes, where that is known.")
    label: Name | None = Field(default=None, description="For people.")
    key: Name | None = Field(
        default=None, description="Unique among queued and running jobs: a second one is the first."
    )
    priority: int | None = Field(default=None, ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT, description="Higher goes first.")
    delay_ms: int = Field(default=0, ge=0, le=LONGEST_DELAY_MS)
    run_at_ms: int | None = Field(default=None, ge=0, le=LATEST_MS, description="Not before then.")
    max_attempts: int | None = Field(default=None, ge=1, le=1_000_000)
    timeout_ms: int | None = Field(default=None, ge=1, le=LONGEST_DELAY_MS, description="Null: none; else the crew's.")
    limit_key: Name | None = Field(default=None, description="Jobs that share it are limited together.")

    @model_validator(mode="after")
    def one_of_both(self) -> Self:
        """A crew or a queue."""
        if (self.crew is None) == (self.queue is None):
            raise ValueError("give `crew` or `queue`, one of them")
        return self


class OrderIn(Body):
    """Whom an order is about."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "tag"}]})

    scope: Scope = None


class PauseIn(OrderIn):
    """What is to be paused, why, and for how long."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "tag", "reason": "new model", "for_s": 3600}]})

    reason: str | None = Field(default=None, max_length=1000)
    for_s: float | None = Field(default=None, gt=0, le=LONGEST_PAUSE_MS / 1000, description="Null: until a resume.")


class ScaleIn(Body):
    """How many workers a crew is to have."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "tag", "count": 4}]})

    scope: Name = Field(description="The crew.")
    count: int = Field(ge=0, le=MOST_WORKERS)


class ReleaseIn(Body):
    """Which claim is to be taken back; if the job has been claimed anew since, nothing happens."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"claim": 1}]})

    claim: int = Field(ge=1, le=1 << 53)


class SignIn(Body):
    """A key to sign in with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "ch_…"}]})

    key: str = Field(min_length=1, max_length=1000)
