"""The plans of crews and of a node: checked settings as plain data that can be sent over a socket."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, cast, get_origin

import msgspec

from chargehand import codec, tracing
from chargehand.errors import ConfigurationError, PayloadError
from chargehand.ids import new_id
from chargehand.model import rates
from chargehand.model.fleet.cards import VISIBLE, Need
from chargehand.model.fleet.orders import MOST_WORKERS
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.model.hooks import NO_HOOKS, Hooks
from chargehand.model.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIMEOUT_MS,
    LONGEST_DELAY_MS,
    NAME_LIMIT,
    OPTIONS,
    JobPolicy,
    NewJob,
    check,
    check_size,
)
from chargehand.model.lease import LONGEST_CANCEL, longest_end
from chargehand.model.records import Retention
from chargehand.model.search import DiscoveryPolicy
from chargehand.model.spelling import handler_fault, is_module, unknown_option
from chargehand.settings.schedule import RecurringJob

THREADS = "PIPELINE_THREADS_PER_JOB"
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""The environment variables that limit the threads of numeric libraries, which read them when they are loaded."""
MOST_AT_ONCE = 1000
"""The maximum number of jobs in a batch, and of jobs that a worker performs at the same time."""
LONGEST_BATCH_WAIT_MS = 60_000
MOST_GPUS = 64
WhenCutOff = Literal["go on", "stop"]
ExceptionTypes = type[BaseException] | str | Sequence[type[BaseException] | str]
"""Types of exceptions: classes, or their names with or without the module."""
_KINDS: dict[Any, str] = {
    WhenCutOff: "'go on' or 'stop'",
    str: "a string",
    int: "a whole number",
    int | None: "a whole number or None",
    float | None: "a number or None",
    str | None: "a string or None",
    bool: "True or False",
    dict[str, str]: "a dict of strings by names",
    tuple[str, ...]: "exception types or their names",
    tuple[str, ...] | None: "exception types or their names",
    float | tuple[float, ...] | None: "a number of seconds, or a list of them",
}
"""The types of a crew's options, in words."""
_MUST = {
    **dict.fromkeys(("rate", "rate_per_key"), "a string such as '10/s' or '600/min'"),
    "hide": "names of fields, such as ['token']",
}
"""The same for options whose type does not say enough."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


class Page(msgspec.Struct, frozen=True):
    """A page of the application for the dashboard's navigation: `hand.pages.append(Page("Songs", "/songs"))`."""

    title: str
    url: str

    def __post_init__(self) -> None:
        if not self.title.strip() or not self.url.startswith(("/", "http://", "https://")):
            raise ConfigurationError(
                f"page {self.title!r} at {self.url!r}: must have a title, and an address that begins with /, http:// "
                "or https://"
            )


class CrewPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One crew: its queue, its handler, its workers, and the default options of its jobs."""

    name: str
    queue: str
    handler: str
    workers: int = 1
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    transactional: bool = False
    environment: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    discovers: bool = False
    limit: int | None = None
    limit_per_key: int | None = None
    rate: str | None = None
    """How many jobs of the queue may be started within a period, such as `600/min`."""
    rate_per_key: str | None = None
    """How many jobs of each `limit_key` may be started within a period."""
    threads: int = 1
    batch: int = 1
    """The maximum number of jobs that a worker receives at once; above 1 the handler needs `perform_batch`."""
    batch_wait_ms: int = 20
    """How long a job may wait for others to form a batch."""
    concurrency: int = 1
    """How many jobs a worker performs at the same time; above 1 the handler needs `async def perform`."""
    recycle_jobs: int | None = None
    recycle_memory: int | None = None
    idle_exit: float | None = None
    memory: int | None = None
    gpu_memory: int | None = None
    gpus: int = 0
    """The number of GPUs that the node assigns to each worker; with `gpu_memory` alone one, if there are GPUs."""
    when_cut_off: WhenCutOff = "go on"
    """What running jobs do while the node cannot reach a store for many nodes: `go on`, or `stop` before its lease ends
    and other nodes may run them."""
    retry_on: tuple[str, ...] | None = None
    """The names of the exception types after which a job is tried again; after others it fails. None: after any."""
    give_up_on: tuple[str, ...] = ()
    """The names of the exception types after which a job fails at once."""
    backoff: float | tuple[float, ...] | None = None
    """The seconds between attempts, as `model.job.Backoff`; None: as in JobPolicy."""

    hide: tuple[str, ...] = ()
    """The names of fields of payloads, results, `meta` and log records whose values readers are not shown."""
    takes: str | None = None
    """The name of the type that jobs take, as `handler.type_name`: a worker whose handler differs does not start."""
    gives: str | None = None

    def terms(self) -> Terms:
        """Returns the part of the plan that the supervisor needs."""
        return Terms(
            workers=self.workers,
            recycle_jobs=self.recycle_jobs,
            recycle_memory=self.recycle_memory,
            idle_exit=self.idle_exit,
            memory=self.memory,
            gpu_memory=self.gpu_memory,
            gpus=self._gpus(),
            concurrency=self.concurrency,
        )

    def _gpus(self) -> Need | None:
        if self.gpus:
            return Need(count=self.gpus, memory=self.gpu_memory or None)
        managed = self.gpu_memory and VISIBLE not in self.environment
        return Need(count=1, memory=self.gpu_memory, required=False) if managed else None

    def sendable(self) -> "CrewPlan":
        """Returns this plan with its environment as escaped texts: values may be names of files that are not UTF-8."""
        escaped = {codec.escape(name): codec.escape(text) for name, text in self.environment.items()}
        return msgspec.structs.replace(self, environment=escaped)

    def environment_of(self, index: int) -> dict[str, str]:
        """Returns a worker's additional environment variables: thread limits first, overridden by the crew's own."""
        own = {
            codec.restore(name): codec.restore(text).replace("{index}", str(index))
            for name, text in self.environment.items()
        }
        return {THREADS: str(self.threads), **dict.fromkeys(THREAD_LIMITS, str(self.threads)), **own}


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a node; the host sends it when it starts one."""

    store: str
    node: str
    crews: tuple[CrewPlan, ...]
    python_path: tuple[str, ...]
    """As escaped texts: folders may have names that are not UTF-8."""
    restart: RestartPolicy = RestartPolicy()
    liveness: LivenessPolicy = LivenessPolicy()
    starts: StartPolicy = StartPolicy()
    recurring: tuple[RecurringJob, ...] = ()
    hooks: Hooks = NO_HOOKS
    retention: Retention = Retention()
    jobs: JobPolicy = JobPolicy()
    discovery: DiscoveryPolicy = DiscoveryPolicy()
    history: bool = False
    log_level: str = "INFO"
    log: str = "human"
    synchronous: str = "full"
    nvidia_smi: str = "nvidia-smi"
    files: str | None = None
    """The folder for the files of flows and jobs; None: there is none."""
    files_limit: int | None = None


def check_crew(plan: CrewPlan) -> CrewPlan:
    """Returns the plan. Raises a ConfigurationError that names the setting, the value and the allowed values."""
    handler: Any = plan.handler
    if not isinstance(handler, str):
        raise ConfigurationError(f"crew {plan.name!r}: {handler_fault(handler)}")
    for field in msgspec.structs.fields(CrewPlan):
        _check_kind(plan, field.name, field.type)
    for name, value in (("name", plan.name), ("queue", plan.queue)):
        if not 1 <= len(value) <= NAME_LIMIT or not value.isprintable() or any(c in value for c in ":*/ "):
            raise ConfigurationError(
                f"crew {name} {value!r}: must have 1 to {NAME_LIMIT} printable characters, without : * / or blanks"
            )
    module, colon, attribute = plan.handler.partition(":")
    named = colon and is_module(module) and module != "__main__" and not module.endswith(".py")
    if not named or not is_module(attribute):
        raise ConfigurationError(f"crew {plan.name!r}: {handler_fault(plan.handler)}")
    if not 0 <= plan.workers <= MOST_WORKERS:
        raise ConfigurationError(f"crew {plan.name!r}: workers is {plan.workers}; must be 0 to {MOST_WORKERS}")
    try:
        own = NewJob(id="x", queue=plan.queue, max_attempts=plan.max_attempts, timeout_ms=plan.timeout_ms)
        check(msgspec.structs.replace(own, priority=plan.priority))
    except PayloadError as error:
        raise ConfigurationError(f"crew {plan.name!r}: {error}") from None
    _at_least("threads", plan, 1)
    _within("batch", plan, 1, MOST_AT_ONCE)
    _within("batch_wait_ms", plan, 0, LONGEST_BATCH_WAIT_MS)
    if plan.batch > 1 and plan.transactional:
        raise ConfigurationError(
            f"crew {plan.name!r}: batch is {plan.batch} and transactional is True; the two cannot be combined: "
            "a job of a batch cannot be settled in a transaction of its handler"
        )
    _within("concurrency", plan, 1, MOST_AT_ONCE)
    if plan.batch > 1 and plan.concurrency > 1:
        raise ConfigurationError(
            f"crew {plan.name!r}: batch is {plan.batch} and concurrency is {plan.concurrency}; the two cannot be "
            "combined: use batch for one call with many jobs, concurrency for many calls at the same time"
        )
    for name in ("recycle_jobs", "limit", "limit_per_key"):
        _at_least(name, plan, 1)
    for name in ("rate", "rate_per_key"):
        _check_rate(name, plan)
    for name in ("idle_exit", "recycle_memory", "memory", "gpu_memory"):
        _at_least(name, plan, 0)
    _check_retries(plan)
    if not all(name.strip() for name in plan.hide):
        raise ConfigurationError(f"crew {plan.name!r}: hide is {list(plan.hide)}; must be the names of fields")
    _within("gpus", plan, 0, MOST_GPUS)
    if plan.gpus and VISIBLE in plan.environment:
        raise ConfigurationError(
            f"crew {plan.name!r}: gpus is {plan.gpus} and environment sets {VISIBLE}; the two cannot be combined: "
            f"gpus sets {VISIBLE} for each worker"
        )
    for key, text in plan.environment.items():
        pair: tuple[Any, Any] = (key, text)
        if not all(isinstance(part, str) and "\0" not in part for part in pair) or not key or "=" in key:
            raise ConfigurationError(
                f"crew {plan.name!r}: environment {key!r}={text!r}; both must be str, the name without '='"
            )
        try:
            os.fsencode(key + text)
        except UnicodeEncodeError:
            raise ConfigurationError(f"crew {plan.name!r}: environment {key!r}={text!r} is not valid Unicode") from None
    return plan


def _check_retries(plan: CrewPlan) -> None:
    """Raises ConfigurationError if the rules for retries cannot be used."""
    for option in ("retry_on", "give_up_on"):
        for each in getattr(plan, option) or ():
            if not all(part.isidentifier() or part == "<locals>" for part in each.split(".")):
                raise ConfigurationError(
                    f"crew {plan.name!r}: {option} contains {each!r}; must be the name of an exception type, such as "
                    "'OSError' or 'my.module.Error'"
                )
    both = sorted({*(plan.retry_on or ())} & {*plan.give_up_on})
    if both:
        raise ConfigurationError(f"crew {plan.name!r}: {both[0]} is in retry_on and in give_up_on; choose one")
    delays = plan.backoff if isinstance(plan.backoff, tuple) else () if plan.backoff is None else (plan.backoff,)
    if plan.backoff == () or not all(0 <= delay <= LONGEST_DELAY_MS / 1000 for delay in delays):
        raise ConfigurationError(
            f"crew {plan.name!r}: backoff is {plan.backoff!r}; must be seconds, 0 or more, or a list of them"
        )


def exception_names(owner: str, given: Any) -> tuple[str, ...]:
    """Returns the names of exception types, which are given as classes or names. Raises ConfigurationError."""
    found: list[str] = []
    for each in several(given):
        if isinstance(each, str):
            found.append(each.strip())
        elif isinstance(each, type) and issubclass(each, BaseException):
            own = each.__module__ != "builtins"
            found.append(f"{each.__module__}.{each.__qualname__}" if own else each.__qualname__)
        else:
            raise ConfigurationError(f"{owner} contains {each!r}; must be an exception type or its name")
    return tuple(found)


def check_node(plan: NodePlan) -> NodePlan:
    """Returns the plan. Raises ConfigurationError if its settings cannot be combined."""
    ends, lease = longest_end(plan.liveness), plan.liveness.lease
    stopping = [crew.name for crew in plan.crews if crew.when_cut_off == "stop"]
    if stopping and ends > lease * LONGEST_CANCEL:
        raise ConfigurationError(
            f"crew {stopping[0]!r}: when_cut_off is 'stop', but a cancelled job may take {ends:g} s to end; with a "
            f"liveness.lease of {lease:g} s, the sum of liveness.cancel and liveness.stacks "
            f"must be at most {lease * LONGEST_CANCEL:g} s"
        )
    return plan


def check_type(crew: str, word: str, kind: Any) -> None:
    """Raises ConfigurationError unless `kind` is a type or None."""
    meant = kind is None or kind is Any or isinstance(kind, type) or get_origin(kind) is not None
    if not meant and not hasattr(kind, "__supertype__") and not hasattr(kind, "__value__"):  # NewType, type X = ...
        raise ConfigurationError(
            f"crew {crew!r}: {word} is {kind!r}, which is not a type; use a class, such as a dataclass, dict or str"
        )


def _check_kind(plan: CrewPlan, name: str, kind: Any) -> None:
    value = getattr(plan, name)
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        must = _MUST.get(name) or _KINDS[kind]
        raise ConfigurationError(f"crew {plan.name!r}: {name} is {value!r}; must be {must}") from None


def _at_least(name: str, plan: CrewPlan, least: int) -> None:
    value = getattr(plan, name)
    if value is not None and not value >= least:
        raise ConfigurationError(f"crew {plan.name!r}: {name} is {value!r}; must be {least} or more")


def _check_rate(name: str, plan: CrewPlan) -> None:
    value = getattr(plan, name)
    try:
        if value is not None:
            rates.parse(value)
    except ValueError as error:
        raise ConfigurationError(f"crew {plan.name!r}: {name} is {value!r}; {error}") from None


def _within(name: str, plan: CrewPlan, least: int, most: int) -> None:
    value = getattr(plan, name)
    if not least <= value <= most:
        raise ConfigurationError(f"crew {plan.name!r}: {name} is {value!r}; must be {least} to {most}")


def size(name: str, value: Any) -> int | None:
    """Returns a number of bytes, given as an int or as a string such as '800 MB' or '1.5 GiB'."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ConfigurationError(
            f"{name} is {value!r}; must be a number of bytes, or a string such as '800 MB' or '1.5 GiB'"
        )
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** " KMGT".index(found[2].upper() or " "))


def milliseconds(name: str, seconds: float) -> int:
    """Converts seconds to whole milliseconds. Raises PayloadError."""
    number: Any = seconds
    if not isinstance(number, int | float) or isinstance(number, bool) or number - number != 0:
        instead = ": use its total_seconds()" if hasattr(number, "total_seconds") else ", such as 90"
        raise PayloadError(f"{name} is {seconds!r}; must be a number of seconds{instead}")
    if abs(number) > LONGEST_DELAY_MS // 1000:
        raise PayloadError(f"{name} is too long; the maximum is {LONGEST_DELAY_MS // 1000} seconds")
    return round(number * 1000)


def _option_ms(name: str, seconds: float) -> int:
    """Converts an option of a job to whole milliseconds. Raises PayloadError, also if it is too short."""
    found, option = milliseconds(name, seconds), _OPTIONS.get(f"{name}_ms")
    if option is not None and found < option.low:
        raise PayloadError(f"{name} is {seconds:g} s; must be {'more than 0' if option.low else '0 or more'}")
    return found


def duration(owner: str, name: str, seconds: float) -> int:
    """Converts a setting in seconds to whole milliseconds. Raises ConfigurationError, which names its owner."""
    try:
        return _option_ms(name, seconds)
    except PayloadError as error:
        raise ConfigurationError(f"{owner}: {error}") from None


UNSET: Any = object()
"""The default of options for which None has a meaning, such as no timeout."""


_IN_SECONDS = ("delay", "timeout", "unique_for", "expires")
_OPTIONS = {option.name: option for option in OPTIONS}
_OF_CREW = tuple(name for name in _OPTIONS if name in CrewPlan.__struct_fields__)
"""The options that a crew has as well, for jobs without them."""


def new_job(plan: CrewPlan, payload: str, *, id: str | None = None, **options: Any) -> NewJob:
    """Returns a checked job for this crew; options that are not given are the crew's.

    The options are those of `JobSpec`. `delay` and `timeout` may be given in seconds instead, and `run_at` as a
    datetime. Raises PayloadError if an option is unknown or has a value that is not allowed.
    """
    given = _in_milliseconds(options)
    unknown = given.keys() - _OPTIONS.keys() if given else ()
    if unknown:
        raise PayloadError(unknown_option(unknown, {name.removesuffix("_ms") for name in _OPTIONS}))
    if given.get("run_at_ms") is not None and given.get("delay_ms"):
        raise PayloadError("delay and run_at cannot be combined")
    if "after" in given:
        given["after"] = _predecessors(given["after"])
    if "flow" in given:
        given["flow"] = getattr(given["flow"], "id", given["flow"])
    chosen: dict[str, Any] = {name: getattr(plan, name) for name in _OF_CREW}
    if "traceparent" not in given:
        chosen["traceparent"] = tracing.current()
    for name, value in given.items():
        if value is not None or _OPTIONS[name].optional:
            tags = _OPTIONS[name].kind is tuple and isinstance(value, list)
            chosen[name] = _escaped(tuple(cast(list[Any], value)) if tags else value)
    return check(NewJob(id=id or new_id(), queue=plan.queue, payload=payload, **chosen))


def _predecessors(after: Any) -> tuple[Any, ...]:
    """Returns the ids of the jobs that `after` names: references to jobs, ids, or several of them."""
    if isinstance(after, int | float) and not isinstance(after, bool):
        raise PayloadError(f"after is {after!r}; it names the jobs to wait for: use delay={after!r} to wait for a time")
    named: list[Any] = []
    for each in several(after):
        found = getattr(each, "id", each)
        if not isinstance(found, str):
            what = "after is" if each is after else "after contains"
            raise PayloadError(f"{what} {each!r}; it names the jobs to wait for: {_instead(each)}")
        named.append(found)
    return tuple(dict.fromkeys(named))


def _instead(each: Any) -> str:
    """Returns what to write in the place of something that `after` cannot name."""
    if isinstance(each, timedelta):
        return f"use delay={each.total_seconds():g} to wait for a time"
    if isinstance(each, datetime):
        return "use run_at= to wait until a time"
    return "pass what enqueue returned, the id of a job, or a list of them"


def several(given: Any) -> list[Any]:
    """Returns what an option names that takes one thing, several, or none."""
    if isinstance(given, list | tuple | set | frozenset):
        return list(cast(Iterable[Any], given))
    return [] if given is None else [given]


def _escaped(value: Any) -> Any:
    """Returns an option with its texts escaped; a value of a wrong type is left to the check."""
    if isinstance(value, str):
        return codec.escape(value)
    if isinstance(value, dict):
        return json.loads(codec.to_json(value, "meta"))
    return tuple(_escaped(each) for each in cast(tuple[Any, ...], value)) if isinstance(value, tuple) else value


def _in_milliseconds(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not UNSET}
    for name in _IN_SECONDS:
        if name in given:
            seconds = given.pop(name)
            given[f"{name}_ms"] = None if seconds is None else _option_ms(name, seconds)
    run_at = given.pop("run_at", None)
    if run_at is not None:
        if not isinstance(run_at, datetime) or run_at.tzinfo is None:
            raise PayloadError(f"run_at is {run_at!r}; must be a datetime with a time zone")
        given["run_at_ms"] = int(run_at.timestamp() * 1000)
    return given


def with_payload(model: NewJob, id: str, payload: str) -> NewJob:
    """Returns a copy of an already checked job with another id and payload."""
    return msgspec.structs.replace(model, id=id, payload=check_size(payload))
