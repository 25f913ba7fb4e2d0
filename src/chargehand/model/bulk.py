"""What is done to all jobs that match a filter: which states it applies to, and what came of it. Pure."""

from enum import StrEnum

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.model.job import State
from chargehand.model.records import JobFilter


class BulkVerb(StrEnum):
    """What can be done to many jobs."""

    RETRY = "retry"
    CANCEL = "cancel"
    DELETE = "delete"


_FINISHED = (State.DONE, State.FAILED, State.CANCELLED)
APPLIES_TO = {
    BulkVerb.RETRY: (State.FAILED, State.CANCELLED),
    BulkVerb.CANCEL: (State.QUEUED, State.RUNNING),
    BulkVerb.DELETE: _FINISHED,
}
"""The states of jobs that it can be done to."""
SELECTED = {BulkVerb.RETRY: (State.FAILED,), BulkVerb.CANCEL: (State.QUEUED,), BulkVerb.DELETE: _FINISHED}
"""The states of jobs that a filter without a state selects."""


class BulkPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a bulk operation goes on: the state, by its number among those selected, and the position of a job."""

    state: int
    below: int


class BulkDone(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one part of a bulk operation."""

    count: int = 0
    refused: int = 0
    """How many jobs were left as they are: their unique key is taken, or they ended meanwhile."""
    next: BulkPlace | None = None
    """Where the operation goes on; None: it is complete."""


def selected(verb: BulkVerb, which: JobFilter) -> list[JobFilter]:
    """Returns the filter for each state that is selected: of named jobs, all states that it applies to.

    Raises ConfigurationError for a state that is impossible.
    """
    if which.state is None:
        states = SELECTED[verb] if which.ids is None else APPLIES_TO[verb]
        return [msgspec.structs.replace(which, state=state) for state in states]
    if which.state not in APPLIES_TO[verb]:
        raise ConfigurationError(
            f"cannot {verb} jobs that are {which.state.value}; allowed are {in_words(APPLIES_TO[verb])} jobs"
        )
    return [which]


def in_words(states: tuple[State, ...]) -> str:
    """Returns states as text: `done, failed and cancelled`."""
    *most, last = (state.value for state in states)
    return f"{', '.join(most)} and {last}" if most else last
