"""Chargehand: durable background jobs for Python services, run by supervised worker processes."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from chargehand.app import Chargehand, CrewOptions
    from chargehand.crew import Crew, JobOptions, Ref
    from chargehand.errors import (
        AmbiguousId,
        Cancelled,
        ChargehandError,
        ClaimLost,
        ConfigurationError,
        Conflict,
        CrashNotFound,
        FlowCancelled,
        FlowEnded,
        FlowFailed,
        FlowNotFound,
        FolderFull,
        GiveUp,
        JobCancelled,
        JobFailed,
        JobNotFound,
        NobodyServes,
        PayloadError,
        RecurringNotFound,
        ResultTimeout,
        Retry,
        StoreBusy,
        StoreError,
        TopicError,
        UnknownCrew,
        UnrecoverableError,
        WorkerBroken,
    )
    from chargehand.flow import Flow
    from chargehand.handler import Handler, Item, Job, Results
    from chargehand.host.host import Host
    from chargehand.live.components import Component
    from chargehand.model.access import ApiKey, Operation, OperationFilter, Scope
    from chargehand.model.fleet.orders import Answer, AnswerCode
    from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy
    from chargehand.model.fleet.stacks import StackCode, WorkerStacks
    from chargehand.model.flows import FlowCounts, FlowEnd, FlowFilter, FlowRecord
    from chargehand.model.health import Findings, Verdict
    from chargehand.model.hooks import HookEvent
    from chargehand.model.job import Attempt, JobPolicy, JobRecord, NewJob, State
    from chargehand.model.records import (
        ClaimRow,
        Counts,
        CrashFilter,
        CrashRecord,
        CrewRow,
        JobFilter,
        JobMatch,
        JobRun,
        Pause,
        Recurrence,
        RecurringPlan,
        Retention,
        Snapshot,
    )
    from chargehand.model.search import DiscoveryPolicy
    from chargehand.settings.plan import CrewPlan, Page
    from chargehand.store import Transaction
    from chargehand.stores.location import Location

_HOME = {
    **dict.fromkeys(("Chargehand", "CrewOptions"), "chargehand.app"),
    **dict.fromkeys(("Crew", "JobOptions", "Ref"), "chargehand.crew"),
    "Flow": "chargehand.flow",
    **dict.fromkeys(("Handler", "Item", "Job", "Results"), "chargehand.handler"),
    "Component": "chargehand.live.components",
    "Host": "chargehand.host.host",
    "HookEvent": "chargehand.model.hooks",
    **dict.fromkeys(("ApiKey", "Operation", "OperationFilter", "Scope"), "chargehand.model.access"),
    **dict.fromkeys(("Answer", "AnswerCode"), "chargehand.model.fleet.orders"),
    **dict.fromkeys(("StackCode", "WorkerStacks"), "chargehand.model.fleet.stacks"),
    **dict.fromkeys(("LivenessPolicy", "RestartPolicy", "StartPolicy"), "chargehand.model.fleet.policy"),
    **dict.fromkeys(("FlowCounts", "FlowEnd", "FlowFilter", "FlowRecord"), "chargehand.model.flows"),
    **dict.fromkeys(("Findings", "Verdict"), "chargehand.model.health"),
    **dict.fromkeys(("Attempt", "JobPolicy", "JobRecord", "NewJob", "State"), "chargehand.model.job"),
    "DiscoveryPolicy": "chargehand.model.search",
    **dict.fromkeys(
        (
            "ClaimRow",
            "Counts",
            "CrashFilter",
            "CrashRecord",
            "CrewRow",
            "JobFilter",
            "JobMatch",
            "JobRun",
            "Pause",
            "Recurrence",
            "RecurringPlan",
            "Retention",
            "Snapshot",
        ),
        "chargehand.model.records",
    ),
    **dict.fromkeys(("CrewPlan", "Page"), "chargehand.settings.plan"),
    "Transaction": "chargehand.store",
    "Location": "chargehand.stores.location",
}
"""The module of each name that is not an error."""

__all__ = [
    "AmbiguousId",
    "Answer",
    "AnswerCode",
    "ApiKey",
    "Attempt",
    "Cancelled",
    "Chargehand",
    "ChargehandError",
    "ClaimLost",
    "ClaimRow",
    "Component",
    "ConfigurationError",
    "Conflict",
    "Counts",
    "CrashFilter",
    "CrashNotFound",
    "CrashRecord",
    "Crew",
    "CrewOptions",
    "CrewPlan",
    "CrewRow",
    "DiscoveryPolicy",
    "Findings",
    "Flow",
    "FlowCancelled",
    "FlowCounts",
    "FlowEnd",
    "FlowEnded",
    "FlowFailed",
    "FlowFilter",
    "FlowNotFound",
    "FlowRecord",
    "FolderFull",
    "GiveUp",
    "Handler",
    "HookEvent",
    "Host",
    "Item",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobFilter",
    "JobMatch",
    "JobNotFound",
    "JobOptions",
    "JobPolicy",
    "JobRecord",
    "JobRun",
    "LivenessPolicy",
    "Location",
    "NewJob",
    "NobodyServes",
    "Operation",
    "OperationFilter",
    "Page",
    "Pause",
    "PayloadError",
    "Recurrence",
    "RecurringNotFound",
    "RecurringPlan",
    "Ref",
    "RestartPolicy",
    "ResultTimeout",
    "Results",
    "Retention",
    "Retry",
    "Scope",
    "Snapshot",
    "StackCode",
    "StartPolicy",
    "State",
    "StoreBusy",
    "StoreError",
    "TopicError",
    "Transaction",
    "UnknownCrew",
    "UnrecoverableError",
    "Verdict",
    "WorkerBroken",
    "WorkerStacks",
]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use: a worker that needs only `Handler` loads little and starts fast."""
    if name not in __all__:
        raise AttributeError(f"module 'chargehand' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_HOME.get(name, "chargehand.errors")), name)
    except ImportError:
        from chargehand.system.linux import require_linux

        require_linux()  # modules of the standard library are missing on another system: it says so in words
        raise
