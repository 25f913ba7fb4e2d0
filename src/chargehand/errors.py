"""Everything that Chargehand raises: one root, few leaves, each with the exit status that the command line gives it.

It must stay free of imports: workers, the node and the API all load it.
"""

EXIT_ERROR = 1
EXIT_CONFIGURATION = 2
EXIT_UNRECOVERABLE = 3
EXIT_STORE = 4
EXIT_SET_UP = 5


class ChargehandError(Exception):
    """The root: whoever catches this catches all that Chargehand raises on purpose."""

    exit_code = EXIT_ERROR


class ConfigurationError(ChargehandError):
    """A setting, a crew or a handler is wrong in a way that trying again cannot mend."""

    exit_code = EXIT_CONFIGURATION


class UnrecoverableError(ChargehandError):
    """Raised by a handler: this process cannot go on, and neither could its successor."""

    exit_code = EXIT_UNRECOVERABLE


class StoreError(ChargehandError):
    """The store cannot be used: absent, damaged, read-only, full, too new."""

    exit_code = EXIT_STORE


class StoreBusy(StoreError):
    """Somebody has held the store's write lock for longer than we wait."""


class PayloadError(ChargehandError, ValueError):
    """A payload, a result or a job's option is not JSON, too large, or of the wrong type."""

    exit_code = EXIT_CONFIGURATION
    places: tuple[tuple[str, str], ...] = ()
    """Where in it something does not fit (`songs/0/path`), and what."""


class UnknownCrew(ChargehandError, LookupError):
    """No crew has that name."""

    exit_code = EXIT_CONFIGURATION


class TopicError(ChargehandError, ValueError):
    """No topic can be of that name."""

    exit_code = EXIT_CONFIGURATION


class JobNotFound(ChargehandError, LookupError):
    """No job has that id (it never existed, or was pruned)."""


class CrashNotFound(ChargehandError, LookupError):
    """No crash report has that id (it never existed, or was pruned)."""


class NobodyServes(ChargehandError):
    """No node serves the store, or it does not answer."""


class Conflict(ChargehandError):
    """What was asked is not possible in the state that the job is in."""


class ClaimLost(ChargehandError):
    """The job is no longer this worker's to settle: it was declared dead and the job given to another."""


class JobFailed(ChargehandError):
    """The job that was waited for has failed for good."""

    def __init__(self, job_id: str, reason: str, error: str | None) -> None:
        text = summary(error)
        super().__init__(f"job {job_id} failed ({reason})" + (f": {text}" if text else ""))
        self.job_id, self.reason, self.error = job_id, reason, error


def summary(error: str | None, limit: int = 300) -> str:
    """Of a traceback the exception's own words, in one line; of any other text the text."""
    lines = (error or "").partition("; it stood here:")[0].splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if frames:
        after = range(frames[-1] + 1, len(lines))
        lines = lines[next((n for n in after if lines[n] and not lines[n].startswith(" ")), frames[-1]) :]
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= limit else f"{text[:limit]} …"


class JobCancelled(ChargehandError):
    """The job that was waited for was cancelled."""


class Retry(ChargehandError):
    """Raised by a handler: not now; try again after so many seconds."""

    def __init__(self, after: float, reason: str = "") -> None:
        super().__init__(reason or f"again in {after:g} s")
        self.after = after


class GiveUp(ChargehandError):
    """Raised by a handler: this job can never succeed; fail it at once, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Cancelled(ChargehandError):
    """Raised inside a handler by `job.progress`: somebody cancelled the job."""
