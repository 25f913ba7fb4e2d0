"""The code of every error that callers see, with its meaning and what to do: the registry behind the page of errors.

Causes that `doctor` can find, such as those of a StoreError, are in `model.doctor.causes`.
"""

import msgspec


class ErrorCode(msgspec.Struct, frozen=True):
    """What a code means, and what to do."""

    meaning: str
    remedy: str


CODES: dict[str, ErrorCode] = {
    "cancelled": ErrorCode(
        "Raised in a handler by `job.progress`, because the job was cancelled.",
        "clean up if necessary, and let the exception pass",
    ),
    "claim-lost": ErrorCode(
        "The job no longer belongs to this worker; what `job.settle` would have written was not written.",
        "nothing: the job was given to another worker, whose outcome counts",
    ),
    "configuration": ErrorCode(
        "A setting, a crew, a handler or an argument is invalid, or a package is missing.",
        "correct what the text names; `chargehand check APP` examines all crews and handlers",
    ),
    "conflict": ErrorCode(
        "The operation is not possible in the present state of the job or flow.",
        "the text states the state; `chargehand jobs show ID` shows it",
    ),
    "recurring-not-found": ErrorCode(
        "No node declares a recurring job of this name, or no longer.", "`chargehand recurring`"
    ),
    "crash-not-found": ErrorCode("There is no crash report with this id, or no longer.", "`chargehand crashes`"),
    "cross-site": ErrorCode(
        "A page of another site sent the request, or a proxy changes the header Host.",
        "send requests from the dashboard's own pages; let the proxy pass the Host header on with its port",
    ),
    "csrf": ErrorCode(
        "A request with a session cookie lacks the header X-CSRF-Token, or has a wrong one.",
        "`GET api/web/session` returns the token",
    ),
    "flow-cancelled": ErrorCode(
        "The flow was cancelled, or one of its jobs was and none has failed.",
        "`chargehand flows retry ID` queues the cancelled jobs again",
    ),
    "flow-ended": ErrorCode("The flow has ended: nothing can be added to it.", "retry the flow, or create a new one"),
    "flow-failed": ErrorCode(
        "A job of the flow has failed.", "`chargehand flows show ID` names it; `chargehand flows retry ID` after that"
    ),
    "flow-not-found": ErrorCode(
        "There is no flow with this id: it never existed, or it was pruned.", "`chargehand flows`"
    ),
    "folder-full": ErrorCode(
        "The files of a job or a flow have reached the limit.",
        "write less, delete files in `job.folder`, or raise `CHARGEHAND_FILES_LIMIT`",
    ),
    "gave-up": ErrorCode("Raised by a handler to fail its job at once.", "correct what the reason names, and retry"),
    "headers-too-large": ErrorCode(
        "The headers of the request are too large.", "send less, or raise `http.header_size`"
    ),
    "idempotency-key-reused": ErrorCode(
        "The Idempotency-Key was used for another request within 24 hours.", "use a new key for a new request"
    ),
    "invalid-request": ErrorCode(
        "The request is malformed: `errors` has the place of each fault.", "correct the request; see `GET openapi.json`"
    ),
    "job-cancelled": ErrorCode("The job that the caller waited for was cancelled.", "`ref.retry()` queues it again"),
    "job-failed": ErrorCode(
        "The job that the caller waited for has failed for good; `reason` and `error` say why.",
        "`chargehand jobs show ID`; after the cause is mended, `chargehand jobs retry ID`",
    ),
    "ambiguous-id": ErrorCode(
        "The ids of several jobs end with the given characters.",
        "give more characters of the id; the message has the whole ids",
    ),
    "job-not-found": ErrorCode(
        "There is no job with this id: it never existed, or it was pruned.",
        "check the id and the store; `CHARGEHAND_RETENTION_AGE_MS` says how long jobs are kept",
    ),
    "key-needed": ErrorCode(
        "The request has no API key or token.",
        "send `Authorization: Bearer …`; `chargehand keys create NAME --scope read` creates a key",
    ),
    "key-unknown": ErrorCode("The key or token is unknown, revoked or expired.", "create another key"),
    "malformed-request": ErrorCode("The request is not valid HTTP, or has too many parts.", "correct the client"),
    "method-not-allowed": ErrorCode("The path does not support the method.", "the header Allow lists those it does"),
    "no-such-component": ErrorCode("There is no node or worker of this name.", "`GET api/v1/health` lists all"),
    "no-such-path": ErrorCode("There is nothing at this path.", "see `GET openapi.json`; an application has a prefix"),
    "no-such-key": ErrorCode("There is no API key with this id.", "`GET api/v1/keys` lists all"),
    "no-such-queue": ErrorCode("There is no queue of this name.", "`GET api/v1/queues` lists all"),
    "no-such-topic": ErrorCode("The topic or pattern is invalid.", "see the page on events for all topics"),
    "output": ErrorCode(
        "The output of a command could not be written.", "check the disk, or the program that reads it"
    ),
    "payload": ErrorCode(
        "A payload, a result or an option of a job has the wrong type, is not JSON, or is too large.",
        "the text names the place; the reference has the limits",
    ),
    "refused": ErrorCode("The operation is not possible; the text says why.", "correct what the text names"),
    "result-timeout": ErrorCode(
        "The job has not ended in time. `why` states the reason if no worker takes it.",
        "`chargehand doctor`, or wait longer: the job goes on",
    ),
    "retry": ErrorCode("Raised by a handler to be called again after some time.", "nothing"),
    "scope": ErrorCode("The key does not have the scope that the route needs.", "create a key with this scope"),
    "shut": ErrorCode(
        "The route does not declare a scope, and denies all requests.", "report it: this is a bug of Chargehand"
    ),
    "signed-out": ErrorCode("The session of the dashboard has ended.", "sign in again"),
    "slow-down": ErrorCode("Too many rejected sign-ins from this address.", "wait for the time in Retry-After"),
    "stopping": ErrorCode("The server is stopping.", "repeat the request after its restart"),
    "too-large": ErrorCode(
        "The body of the request is too large.",
        "send less, or raise `http.body_size`; store large data elsewhere and pass a reference",
    ),
    "too-slow": ErrorCode("The body of the request did not arrive in time.", "repeat it, or raise `http.body_time`"),
    "unforeseen": ErrorCode(
        "An error that Chargehand did not expect.", "the log has the traceback under the request id: report it"
    ),
    "unknown-crew": ErrorCode("There is no crew of this name.", "`chargehand status` lists the crews; check `--app`"),
    "unreachable": ErrorCode("No server answers at the address.", "check `--url`, the network and the server"),
    "unrecoverable": ErrorCode(
        "Raised by a handler whose process cannot work, also after a restart: the worker is given up.",
        "mend the cause, then `chargehand reset CREW`",
    ),
    "worker-broken": ErrorCode(
        "Raised by a handler whose process can do no job any more: it is replaced, and the job runs in another one.",
        "nothing; `chargehand crashes` has a report with the reason `broken`",
    ),
    "wrong-host": ErrorCode(
        "The server does not serve this host name.", "add it to `CHARGEHAND_ALLOWED_HOSTS`, or correct the proxy"
    ),
}
"""Every code that is no cause of `doctor`."""
