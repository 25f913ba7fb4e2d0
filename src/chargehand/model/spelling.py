"""What a person probably meant: the nearest of the known names, and the module of a file. Pure."""

from collections.abc import Iterable
from typing import Any


def nearest(word: str, known: Iterable[str], before: str = "") -> str:
    """Returns "; did you mean …?" with `before` and the most similar known word, or an empty string."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), 1)
    return f"; did you mean {before}{found[0]}?" if found else ""


FOREIGN = {
    "accepts": "takes", "args": "payload", "autoretry_for": "retry_on", "concurrency": "workers", "countdown": "delay",
    "crew": "queue", "crontab": "cron", "depends_on": "after", "description": "label", "enqueue_at": "run_at",
    "enqueue_in": "delay", "env": "environment", "eta": "run_at", "input": "takes", "interval": "every",
    "job_id": "key", "job_timeout": "timeout", "kwargs": "payload", "lock": "sequence", "max_retries": "max_attempts",
    "max_tasks_per_child": "recycle_jobs", "name": "label", "output": "gives", "processes": "workers",
    "rate_limit": "rate", "result": "gives", "retries": "max_attempts", "retry_backoff": "backoff", "returns": "gives",
    "schedule": "cron", "schedule_at": "run_at", "schedule_in": "delay", "soft_time_limit": "timeout",
    "status": "state", "task": "crew", "task_id": "key", "task_name": "crew", "time_limit": "timeout",
    "timezone": "zone", "tz": "zone",
}  # fmt: skip
"""Options of other systems, by their names: the nearest one of ours. The number of retries is one less than that of
attempts."""
QUEUE = "; a crew has one queue: declare a crew for each, hand.crew(…, queue='…')"
_SCHEDULE = "cron crontab every schedule"
_OF_CREWS = (
    "backoff batch concurrency give_up_on gives gpus limit limit_per_key rate rate_per_key retry_on takes workers"
)
_OF_JOBS = "after delay expires key label limit_key meta run_at sequence share tags unique_for"


def unknown_option(names: Iterable[str], known: Iterable[str]) -> str:
    """Returns the message for options that do not exist."""
    names, known = sorted(names), sorted(known)
    name, ours = names[0], FOREIGN.get(names[0])
    if name == "queue":
        meant = QUEUE
    elif name == "within":
        meant = "; crew.enqueue, crew.enqueue_many and hand.flow take it: a transaction belongs to one thread"
    elif name in _OF_CREWS.split():
        meant = f"; it is an option of the crew: hand.crew(…, {name}=…)"
    elif "takes" in known and name in _OF_JOBS.split():
        meant = f"; it is an option of each job: crew.enqueue(payload, {name}=…)"
    elif "cron" not in known and name in _SCHEDULE.split():
        meant = "; a schedule is declared with hand.recurring('name', crew, payload, cron='0 3 * * *')"
    else:
        meant = f"; did you mean {ours}?" if ours in known else nearest(name, known)
    return f"unknown option {', '.join(names)}; there are: {', '.join(known)}{meant}"


def field_meant(name: str, known: Iterable[str]) -> str:
    """Returns "; did you mean …?" for an unknown field of a body, whose durations and times are milliseconds."""
    fields, ours = set(known), FOREIGN.get(name, name)
    if f"{ours}_ms" in fields:
        return f"; did you mean {ours}_ms, in milliseconds?"
    return f"; did you mean {ours}?" if ours in fields else nearest(name, fields)


ATTRIBUTES = (
    ("Crew", "apply apply_async defer delay kiq schedule send send_with_options submit",
     "use crew.enqueue(payload), with delay= or run_at= for later"),
    ("Crew", "defer_async", "use await crew.enqueue_async(payload)"),
    ("Crew", "perform run", "use crew.enqueue(payload); in a test, chargehand.testing.perform(Handler, payload)"),
    ("Crew", "batch_defer chunks map starmap", "use crew.enqueue_many(payloads)"),
    ("Crew", "s si signature", "use after= and job.spawn, or hand.flow(…)"),
    ("Chargehand", "enqueue enqueue_async send_task submit",
     "what hand.crew(…) returns has it: crew.enqueue(payload)"),
    ("Chargehand", "actor handler task worker", "jobs are performed by classes: hand.crew('name', 'module:Class')"),
    ("Chargehand", "cron every periodic_task schedule", "use hand.recurring('name', crew, cron='0 3 * * *')"),
    ("Chargehand", "run run_worker serve start_worker work worker_main",
     "use hand.attach(app), `with hand.running():` or the command `chargehand work module:hand`"),
    ("Flow", "add append apply_async chain chord group spawn submit then",
     "use flow.enqueue(crew, payload, after=…), or flow.enqueue_many(crew, payloads)"),
    ("Transaction", "enqueue enqueue_many", "use crew.enqueue(payload, within=tx)"),
    ("Transaction", "commit rollback", "the end of the block commits, an exception rolls back"),
    ("Ref", "get get_result latest_result return_value",
     "use ref.wait(timeout), or await ref.result(timeout) in a coroutine"),
    ("Ref", "failed get_status is_failed is_finished meta ready state status successful", "use ref.job().state"),
    ("Ref", "forget revoke", "use ref.cancel()"),
    ("Ref", "job_id task_id", "use ref.id"),
    ("Job", "retry", "use raise Retry(after=seconds), or raise GiveUp(reason)"),
    ("Job", "args get kwargs request", "use job.payload for what was enqueued, and job.id, job.attempt or job.meta"),
    ("Job", "log logger", "use logging or print: the log of the node has their lines, with the id of the job"),
    ("Job", "save_meta set_progress update_progress update_state", "use job.progress(done, total, stage='…')"),
    ("Handler", "retry", "use raise Retry(after=seconds), or raise GiveUp(reason)"),
    ("Handler", "request update_state", "use the job of perform(self, job), such as job.progress(done, total)"),
)  # fmt: skip
"""Methods of other systems: the class in which they are looked for, their names, and what to use instead."""


def unknown_attribute(kind: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """Returns the error for an attribute that does not exist; `known` are those that do."""
    use = next((f"; {use}" for of, names, use in ATTRIBUTES if of == kind and name in names.split()), "")
    if not use and not name.startswith("_"):
        use = nearest(name, (each for each in known if not each.startswith("_")))
    return AttributeError(f"{kind!r} object has no attribute {name!r}{use}")


def is_module(name: str) -> bool:
    """Returns whether this can be the name of a module, such as package.jobs."""
    return all(part.isidentifier() for part in name.split("."))


def as_module(name: str) -> str | None:
    """Returns `package.jobs:hand` for `./package/jobs.py:hand`; None if it cannot be the path of a module."""
    path, colon, attribute = name.partition(":")
    found = path.removeprefix("./").removesuffix(".py").replace("/", ".")
    return f"{found}{colon}{attribute}" if is_module(found) else None


def handler_fault(given: Any) -> str:
    """Returns what is wrong with a handler that is not of the form 'module:Class', and what to write."""
    form = "must be its name as a string, 'module:Class', because only workers import it"
    if not isinstance(given, str):
        kind: Any = given if isinstance(given, type) else type(given)
        if not isinstance(given, type) and not any(each.__name__ == "Handler" for each in kind.__mro__):
            return f"handler is {given!r}; {form}"
        name = f"{kind.__module__}:{kind.__qualname__}"
        if kind.__module__ == "__main__" or "<locals>" in name:
            return (
                f"handler is the class {kind.__name__} itself; {form}: put it into a module of its own, for example "
                f"handlers.py, and write 'handlers:{kind.__name__}'"
            )
        return f"handler is the class {kind.__name__} itself; {form}: write {name!r}"
    if given.startswith("__main__:"):
        return (
            f"handler {given!r} names the script that is run, which is another one in a worker: write the name of its "
            f"file without .py, 'module:{given.partition(':')[2]}'"
        )
    meant = as_module(given)
    if meant is not None and ":" not in meant and "." in meant:
        meant = ":".join(meant.rsplit(".", 1))
    hint = f"; did you mean {meant!r}?" if meant is not None and ":" in meant and meant != given else ""
    return f"handler {given!r} is not of the form 'module:Class'{hint}"
