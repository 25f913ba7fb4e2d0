"""Settings, read and checked once: what a crew is, what a node is told. Plain data that can cross a socket."""

import re
from typing import Any, get_origin

import msgspec

from chargehand.errors import ConfigurationError, PayloadError
from chargehand.ids import new_id
from chargehand.model.fleet.orders import MOST_WORKERS
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.model.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIMEOUT_MS,
    LONGEST_DELAY_MS,
    NAME_LIMIT,
    NewJob,
    check,
    check_size,
)
from chargehand.model.records import Retention
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
"""The environment variables by which numeric libraries are told how many threads to make; read when they are loaded."""
MOST_AT_ONCE = 1000
"""Jobs in a batch."""
LONGEST_GATHERING_MS = 60_000
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


class Page(msgspec.Struct, frozen=True):
    """A page of the application's own, for the dashboard's navigation: `hand.pages.append(Page("Songs", "/songs"))`."""

    title: str
    url: str

    def __post_init__(self) -> None:
        if not self.title.strip() or not self.url.startswith(("/", "http://", "https://")):
            raise ConfigurationError(
                f"page {self.title!r} at {self.url!r}: it needs a title, and an address that begins with /, http:// or "
                "https://"
            )


class CrewPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One crew: who performs which queue's jobs, and what a job is given unless it says otherwise."""

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
    threads: int = 1
    batch: int = 1
    """So many jobs a worker is handed at once, at most; with more than one its handler has `perform_batch`."""
    batch_wait_ms: int = 20
    """How long jobs wait for others to be handed out with."""
    recycle_jobs: int | None = None
    recycle_memory: int | None = None
    idle_exit: float | None = None
    memory: int | None = None
    gpu_memory: int | None = None

    def terms(self) -> Terms:
        """What it asks of its supervisor."""
        return Terms(
            workers=self.workers,
            recycle_jobs=self.recycle_jobs,
            recycle_memory=self.recycle_memory,
            idle_exit=self.idle_exit,
            memory=self.memory,
            gpu_memory=self.gpu_memory,
        )

    def environment_of(self, index: int) -> dict[str, str]:
        """What one of its workers finds in its environment: thread limits first, the crew's own words last."""
        own = {name: text.replace("{index}", str(index)) for name, text in self.environment.items()}
        return {THREADS: str(self.threads), **dict.fromkeys(THREAD_LIMITS, str(self.threads)), **own}


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a node needs to know; the host sends it when it starts one."""

    store: str
    node: str
    crews: tuple[CrewPlan, ...]
    python_path: tuple[str, ...]
    restart: RestartPolicy = RestartPolicy()
    liveness: LivenessPolicy = LivenessPolicy()
    starts: StartPolicy = StartPolicy()
    recurring: tuple[RecurringJob, ...] = ()
    retention: Retention = Retention()
    history: bool = False
    log_level: str = "INFO"
    log: str = "human"
    synchronous: str = "full"


def check_crew(plan: CrewPlan) -> CrewPlan:
    """The plan, or a ConfigurationError that names the setting, the value and what is allowed."""
    try:
        msgspec.convert(msgspec.to_builtins(plan), CrewPlan)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigurationError(f"crew {plan.name!r}: {error}") from None
    for name, value in (("name", plan.name), ("queue", plan.queue)):
        if not 1 <= len(value) <= NAME_LIMIT or not value.isprintable() or any(c in value for c in ":*/ "):
            raise ConfigurationError(
                f"crew {name} {value!r}: allowed are 1 to {NAME_LIMIT} printable characters without : * / or blanks"
            )
    module, colon, attribute = plan.handler.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise ConfigurationError(f"crew {plan.name!r}: handler {plan.handler!r} is not of the form 'module:Class'")
    if not 0 <= plan.workers <= MOST_WORKERS:
        raise ConfigurationError(f"crew {plan.name!r}: workers is {plan.workers}; allowed is 0 to {MOST_WORKERS}")
    try:
        own = NewJob(id="x", queue=plan.queue, max_attempts=plan.max_attempts, timeout_ms=plan.timeout_ms)
        check(msgspec.structs.replace(own, priority=plan.priority))
    except PayloadError as error:
        raise ConfigurationError(f"crew {plan.name!r}: {error}") from None
    _at_least("threads", plan, 1)
    _within("batch", plan, 1, MOST_AT_ONCE)
    _within("batch_wait_ms", plan, 0, LONGEST_GATHERING_MS)
    if plan.batch > 1 and plan.transactional:
        raise ConfigurationError(
            f"crew {plan.name!r}: batch is {plan.batch} and transactional is True; allowed is one of them: "
            "a job of a batch cannot be settled in a transaction of its handler's own"
        )
    for name in ("recycle_jobs", "limit", "limit_per_key"):
        _at_least(name, plan, 1)
    for name in ("idle_exit", "recycle_memory", "memory", "gpu_memory"):
        _at_least(name, plan, 0)
    for key, text in plan.environment.items():
        pair: tuple[Any, Any] = (key, text)
        if not all(isinstance(part, str) and "\0" not in part for part in pair) or not key or "=" in key:
            raise ConfigurationError(
                f"crew {plan.name!r}: environment {key!r}={text!r}; expected texts, the name without '='"
            )
    return plan


def check_type(crew: str, word: str, kind: Any) -> None:
    """ConfigurationError unless it is a type, or nothing."""
    meant = kind is None or kind is Any or isinstance(kind, type) or get_origin(kind) is not None
    if not meant and not hasattr(kind, "__supertype__") and not hasattr(kind, "__value__"):  # NewType, type X = ...
        raise ConfigurationError(
            f"crew {crew!r}: {word} is {kind!r}, which is no type; give a class, such as a dataclass, or dict, str"
        )


def _at_least(name: str, plan: CrewPlan, least: int) -> None:
    value = getattr(plan, name)
    if value is not None and not value >= least:
        raise ConfigurationError(f"crew {plan.name!r}: {name} is {value!r}; allowed is {least} or more")


def _within(name: str, plan: CrewPlan, least: int, most: int) -> None:
    value = getattr(plan, name)
    if not least <= value <= most:
        raise ConfigurationError(f"crew {plan.name!r}: {name} is {value!r}; allowed is {least} to {most}")


def size(name: str, value: Any) -> int | None:
    """A number of bytes from a user: a whole number, or a text such as '800 MB' or '1.5 GiB'."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ConfigurationError(f"{name} is {value!r}; expected bytes, or a text such as '800 MB' or '1.5 GiB'")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** " KMGT".index(found[2].upper() or " "))


def milliseconds(name: str, seconds: float) -> int:
    """Seconds from a user, as the whole milliseconds that everything inside uses."""
    number: Any = seconds
    if not isinstance(number, int | float) or isinstance(number, bool) or number - number != 0:
        raise PayloadError(f"{name} is {seconds!r}; expected a number of seconds")
    if abs(number) > LONGEST_DELAY_MS // 1000:
        raise PayloadError(f"{name} is too many seconds; allowed are up to {LONGEST_DELAY_MS // 1000}")
    return round(number * 1000)


UNSET: Any = object()
"""For options whose None means something (no timeout)."""


def new_job(
    plan: CrewPlan,
    payload: str,
    *,
    id: str | None = None,
    label: str | None = None,
    key: str | None = None,
    priority: int | None = None,
    delay: float = 0,
    run_at_ms: int | None = None,
    max_attempts: int | None = None,
    timeout: float | None = UNSET,
    limit_key: str | None = None,
) -> NewJob:
    """A job for this crew: its own options, and the crew's where it has none. Checked."""
    if run_at_ms is not None and delay:
        raise PayloadError("delay and run_at both say when: give one of them")
    job = NewJob(
        id=id or new_id(),
        queue=plan.queue,
        payload=payload,
        label=label,
        key=key,
        limit_key=limit_key,
        priority=plan.priority if priority is None else priority,
        delay_ms=milliseconds("delay", delay),
        run_at_ms=run_at_ms,
        max_attempts=plan.max_attempts if max_attempts is None else max_attempts,
        timeout_ms=plan.timeout_ms
        if timeout is UNSET
        else None
        if timeout is None
        else milliseconds("timeout", timeout),
    )
    for name in ("label", "key", "limit_key"):
        text: Any = getattr(job, name)
        if text is not None and not isinstance(text, str):
            raise PayloadError(f"{name} is {text!r}; expected a text")
    for name in ("priority", "max_attempts", "run_at_ms"):
        value: Any = getattr(job, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise PayloadError(f"{name} is {value!r}; expected a whole number")
    return check(job)


def with_payload(model: NewJob, id: str, payload: str) -> NewJob:
    """Another job like the model, which was checked already."""
    return msgspec.structs.replace(model, id=id, payload=check_size(payload))
