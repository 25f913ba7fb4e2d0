"""Chargehand: durable background work for Python services, done by supervised worker processes."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from chargehand.app import Chargehand
    from chargehand.crew import Crew, Ref
    from chargehand.errors import (
        Cancelled,
        ChargehandError,
        ClaimLost,
        ConfigurationError,
        Conflict,
        GiveUp,
        JobCancelled,
        JobFailed,
        JobNotFound,
        PayloadError,
        Retry,
        StoreBusy,
        StoreError,
        UnknownCrew,
        UnrecoverableError,
    )
    from chargehand.handler import Handler, Item, Job
    from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy
    from chargehand.model.job import JobRecord, State
    from chargehand.model.records import CrashFilter, JobFilter, Retention
    from chargehand.settings.plan import Page

_HOME = {
    "Chargehand": "chargehand.app",
    "Page": "chargehand.settings.plan",
    **dict.fromkeys(("Crew", "Ref"), "chargehand.crew"),
    **dict.fromkeys(("Handler", "Item", "Job"), "chargehand.handler"),
    **dict.fromkeys(("JobRecord", "State"), "chargehand.model.job"),
    **dict.fromkeys(("LivenessPolicy", "RestartPolicy", "StartPolicy"), "chargehand.model.fleet.policy"),
    **dict.fromkeys(("CrashFilter", "JobFilter", "Retention"), "chargehand.model.records"),
}

__all__ = [
    "Cancelled",
    "Chargehand",
    "ChargehandError",
    "ClaimLost",
    "ConfigurationError",
    "Conflict",
    "CrashFilter",
    "Crew",
    "GiveUp",
    "Handler",
    "Item",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobFilter",
    "JobNotFound",
    "JobRecord",
    "LivenessPolicy",
    "Page",
    "PayloadError",
    "Ref",
    "RestartPolicy",
    "Retention",
    "Retry",
    "StartPolicy",
    "State",
    "StoreBusy",
    "StoreError",
    "UnknownCrew",
    "UnrecoverableError",
]


def __getattr__(name: str) -> Any:
    """Public names are loaded when they are used: a worker that needs only `Handler` stays small and starts fast."""
    if name not in __all__:
        raise AttributeError(f"module 'chargehand' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME.get(name, "chargehand.errors")), name)
