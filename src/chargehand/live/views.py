"""What a node shows of its workers: to those who ask it, and in the store to those who cannot."""

from typing import Any, Protocol

import msgspec

from chargehand.live import bodies
from chargehand.model.fleet.place import Place
from chargehand.model.fleet.policy import RestartPolicy, budget
from chargehand.model.health import will_work
from chargehand.model.held import Held
from chargehand.model.job import Claim
from chargehand.model.records import HealthNote
from chargehand.processes import proc
from chargehand.processes.child import Child
from chargehand.protocol.worker import HealthFrame

TIMERS = ("incarnation", "job_s", "heartbeat_s", "started_s", "ready_s", "restart_in_s")
"""What changes by itself, or is nobody's business."""


class WorkerProcess(Protocol):
    """A living worker process, as far as readers are shown it."""

    @property
    def child(self) -> Child: ...
    @property
    def health(self) -> HealthFrame | None: ...


def worker_view(
    place: Place, hand: WorkerProcess | None, held: Held | None, policy: RestartPolicy, now: float
) -> dict[str, Any]:
    """One worker, for readers."""
    left = budget(policy, place.history, place.ready_at, now)
    health = hand.health if hand else None
    return {
        "component": place.component,
        "crew": place.crew,
        "index": place.index,
        "status": place.status.value,
        "flags": list(place.flags),
        "reason": None if place.reason is None or place.ready_at is not None else place.reason.value,
        "text": None if place.ready_at is not None else place.text,
        "shortage": None if place.shortage is None else place.shortage.value,
        "pid": _pid(hand),
        "incarnation": hand.child.mark if hand else None,
        "current_job": named(held, place.crew),
        "batch_jobs": [_name(claim, place.crew) for claim in held.claims.values()] if held and held.others else [],
        "job_s": round(now - held.since, 3) if held else None,
        "progress": msgspec.to_builtins(health.progress) if health and held else None,
        "memory": health.memory if health else None,
        "jobs": place.jobs,
        "heartbeat_s": round(now - place.framed_at, 3) if place.alive and place.framed else None,
        "started_s": round(now - place.started_at, 3) if place.alive else None,
        "ready_s": None if place.ready_at is None else round(now - place.ready_at, 3),
        "restart_in_s": None if place.start_at is None else max(0.0, round(place.start_at - now, 3)),
        "restart_count": place.restarts,
        "budget": {"rapid_left": left.rapid_left, "lifetime_left": left.lifetime_left},
        "exit_code": place.exit_code,
        "signal": place.signal,
    }


def worker_event(
    view: dict[str, Any], node: str, since_ms: int | None, start_ms: int | None, started_ms: int | None
) -> dict[str, Any]:
    """The same as an event's body: moments instead of what counts seconds, so that it changes only with the worker."""
    body = {name: value for name, value in view.items() if name not in TIMERS}
    progress = body["progress"]
    return {
        **body,
        "node": node,
        "progress": None if progress is None else bodies.short_progress(progress),
        "memory": bodies.roughly(body["memory"]),
        "job_since_ms": since_ms,
        "restart_at_ms": start_ms,
        "started_ms": started_ms,
    }


def named(held: Held | None, crew: str) -> str | None:
    """The job in hand (of several the first) as people find it: by its id, or as the item that it is."""
    return None if held is None else _name(held.claim, crew)


def _name(claim: Claim, crew: str) -> str:
    return claim.id if claim.item is None else f"{crew}/{claim.item}"


def _pid(hand: WorkerProcess | None) -> int | None:
    """Only while that very process lives."""
    return hand.child.pid if hand and proc.alive(hand.child.pid, hand.child.start) else None


def health_note(place: Place, hand: WorkerProcess | None, held: Held | None, now: float) -> HealthNote:
    """The same for the store, in short."""
    health = hand.health if hand else None
    telemetry = {
        "memory": health.memory if health else None,
        "done": health.done if health else 0,
        "errors": health.errors if health else 0,
        "text": place.text,
        "crew": place.crew,
        "will_work": will_work(place),
    }
    return HealthNote(
        component=place.component,
        status=place.status.value,
        flags=place.flags,
        reason=None if place.reason is None or place.ready_at is not None else place.reason.value,
        pid=hand.child.pid if hand else None,
        pid_start=hand.child.start if hand else None,
        incarnation=hand.child.mark if hand else None,
        current_job=named(held, place.crew),
        heartbeat_age_ms=_ms(now, place.framed_at) if place.alive and place.framed else None,
        restart_count=place.restarts,
        restart_age_ms=None if place.restarted_at is None else _ms(now, place.restarted_at),
        exit_code=place.exit_code,
        signal=place.signal,
        created_age_ms=_ms(now, place.started_at) if place.alive else 0,
        metadata=msgspec.json.encode(telemetry).decode(),
    )


def _ms(now: float, then: float) -> int:
    return max(0, int((now - then) * 1000))
