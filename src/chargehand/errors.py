"""The exceptions that Chargehand raises, each with the exit status that the command line returns for it.

This module must not import anything: workers, the node and the API all load it.
"""

TYPE_CHECKING = False  # as of `typing`, which is not imported
if TYPE_CHECKING:
    from chargehand.model.flows import FlowRecord

EXIT_ERROR = 1
EXIT_CONFIGURATION = 2
EXIT_UNRECOVERABLE = 3
EXIT_STORE = 4
EXIT_SET_UP = 5
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

STACKS_FOLLOW = "; it stood here:\n"
"""Separates a crash's description from the stack traces in a stored error text."""


class ChargehandError(Exception):
    """The base class of all exceptions that Chargehand raises on purpose."""

    exit_code = EXIT_ERROR
    code: str = "refused"
    """Identifies the error for programs and in the documentation."""
    has_place = False
    """Whether the message names the file to change, which is not one of the application's modules."""


class ConfigurationError(ChargehandError):
    """A setting, a crew or a handler is invalid; retrying cannot help."""

    exit_code = EXIT_CONFIGURATION
    code = "configuration"


class NoDriver(ConfigurationError):
    """The driver for the store is not installed."""

    code = "no-driver"
    """The cause, as in StoreError."""


class UnrecoverableError(ChargehandError):
    """Raised by a handler: the process cannot continue, and restarting it cannot help."""

    exit_code = EXIT_UNRECOVERABLE
    code = "unrecoverable"


class WorkerBroken(ChargehandError):
    """Raised by a handler: this process can do no job any more, for example because its GPU context is lost.

    The worker is replaced. The job counts as crashed, as if the process had died.
    """

    code = "worker-broken"


class StoreError(ChargehandError):
    """The store cannot be used: it is missing, damaged, read-only, full, or has a newer schema."""

    exit_code = EXIT_STORE
    code = "store-unusable"
    """The cause, one of those of `chargehand doctor`."""

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class StoreBusy(StoreError):
    """Another process held the store's write lock for longer than the busy timeout."""

    code = "store-locked"


class PayloadError(ChargehandError, ValueError):
    """A payload, a result or a job option is not valid JSON, is too large, or has the wrong type."""

    exit_code = EXIT_CONFIGURATION
    code = "payload"
    places: tuple[tuple[str, str], ...] = ()
    """The validation errors, each as a path into the value (`songs/0/path`) and a message."""
    option: str = ""
    """The name of the option that is wrong, as in HTTP; empty: it is the value."""


class UnknownCrew(ChargehandError, LookupError):
    """No crew has this name."""

    exit_code = EXIT_CONFIGURATION
    code = "unknown-crew"


class TopicError(ChargehandError, ValueError):
    """The topic or topic pattern is invalid."""

    exit_code = EXIT_CONFIGURATION
    code = "no-such-topic"


class JobNotFound(ChargehandError, LookupError):
    """No job has this id: it never existed, or it was pruned."""

    code = "job-not-found"


class AmbiguousId(ChargehandError, LookupError):
    """Several jobs have an id with this end."""

    code = "ambiguous-id"


class FlowNotFound(ChargehandError, LookupError):
    """No flow has this id: it never existed, or it was pruned."""

    code = "flow-not-found"


class RecurringNotFound(ChargehandError, LookupError):
    """No node declares a recurring job of this name."""

    code = "recurring-not-found"


class CrashNotFound(ChargehandError, LookupError):
    """No crash report has this id: it never existed, or it was pruned."""

    code = "crash-not-found"


class NobodyServes(ChargehandError):
    """No node serves the store, or the node does not answer."""

    code = "no-node"


class Conflict(ChargehandError):
    """The operation is not possible in the job's current state."""

    code = "conflict"


class FlowEnded(Conflict):
    """The flow has ended: only its own retry adds to it."""

    code = "flow-ended"


class FlowFailed(ChargehandError):
    """A job of the flow that the caller waited for has failed."""

    code = "flow-failed"

    def __init__(self, text: str, record: "FlowRecord", jobs: "dict[str, str]") -> None:
        super().__init__(text)
        self.record = record
        """The flow when it had ended."""
        self.jobs = jobs
        """The ids of jobs that failed or were cancelled, each with its reason; of many, the oldest. Jobs that failed
        only because a predecessor did come last."""


class FlowCancelled(FlowFailed):
    """The flow that the caller waited for was cancelled, or one of its jobs was and none has failed."""

    code = "flow-cancelled"


class FolderFull(ChargehandError):
    """The files of a job or a flow have reached the size that CHARGEHAND_FILES_LIMIT allows."""

    code = "folder-full"


class ClaimLost(ChargehandError):
    """The job no longer belongs to this worker: the worker was declared dead and the job was given to another one."""

    code = "claim-lost"


class JobFailed(ChargehandError):
    """The job that the caller waited for has failed permanently."""

    code = "job-failed"

    def __init__(self, job_id: str, reason: str, error: str | None) -> None:
        text = summary(error)
        super().__init__(f"job {job_id} failed ({reason})" + (f": {text}" if text else ""))
        self.job_id, self.reason, self.error = job_id, reason, error


def summary(error: str | None, limit: int = 300) -> str:
    """Returns an error text in one line: the message of a traceback's exception, other texts without stack traces."""
    lines = (error or "").partition(STACKS_FOLLOW)[0].splitlines()
    lines = _group(lines) or lines
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if frames:
        after = range(frames[-1] + 1, len(lines))
        lines = lines[next((n for n in after if lines[n] and not lines[n].startswith(" ")), frames[-1]) :]
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= limit else f"{text[:limit]} …"


def _group(lines: list[str]) -> list[str]:
    """Returns the own line of an exception group and its first member, as one line, if the traceback ends with one."""
    heads = [at for at, line in enumerate(lines) if line.startswith(("Traceback (", "  + Exception Group Traceback ("))]
    if not heads or not lines[heads[-1]].startswith("  +"):
        return []
    own, member = (
        [line[len(mark) :] for line in lines[heads[-1] :] if line.startswith(mark) and line[len(mark) :][:1].strip()]
        for mark in ("  | ", "    | ")
    )
    member = [line for line in member if not line.startswith("Traceback (")]
    return [", first ".join([*own[:1], *member[:1]])]


class JobCancelled(ChargehandError):
    """The job that the caller waited for was cancelled."""

    code = "job-cancelled"

    def __init__(self, text: str, job_id: str | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id


class ResultTimeout(ChargehandError, TimeoutError):
    """The job that the caller waited for has not ended in time."""

    code = "result-timeout"

    def __init__(self, text: str, job_id: str, state: str, why: str | None = None) -> None:
        super().__init__(text)
        self.job_id, self.state = job_id, state
        self.why = why
        """Why no worker will take the job, if it waits and none will: its crew is paused, was given up, …"""


class Retry(ChargehandError):
    """Raised by a handler: retry the job after `after` seconds."""

    code = "retry"

    def __init__(self, after: float, reason: str = "") -> None:
        if not hasattr(after, "__float__"):  # a text, or a timedelta
            raise TypeError(f"Retry: after is {after!r}; must be a number of seconds, such as 90")
        super().__init__(reason or f"retry in {after:g} s")
        self.after = after


class GiveUp(ChargehandError):
    """Raised by a handler: the job can never succeed; it fails at once with this reason and is not retried."""

    code = "gave-up"

    def __init__(self, reason: str = "the handler gave up, and did not say why") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancelled(ChargehandError):
    """Raised inside a handler by `job.progress` when the job has been cancelled."""

    code = "cancelled"
