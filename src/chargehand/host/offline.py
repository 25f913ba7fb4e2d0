"""Live state while no node tells it: the same things, as the store has them; and that there is no node."""

from typing import TYPE_CHECKING, Any

from chargehand.host import nodelock
from chargehand.host.feed import Shown
from chargehand.host.health import Component
from chargehand.live import bodies
from chargehand.live.bodies import StoreLook
from chargehand.model.health import APP, Verdict
from chargehand.model.topic import HEALTH, Patterns, job_topic, queue_topic, worker_topic

if TYPE_CHECKING:
    from chargehand.host.operations import Operations


def states(operations: "Operations", wanted: Patterns) -> list[Shown]:
    """The workers, the queues and the verdict, and those jobs that are wanted."""
    seen = operations.look(StoreLook(jobs=wanted.jobs, ids=tuple(sorted(wanted.ids)), crews=True))
    found: list[Shown] = []
    for worker in operations.health():
        if worker.component != APP:
            topic = worker_topic(worker.component)
            found.append(Shown(f"{topic}@{worker.node}", topic, "worker", _worker(worker)))
    for body in bodies.queues(seen.counts or (), seen.waiting, seen.served, {}, 0.0):
        topic = queue_topic(body["name"])
        found.append(Shown(topic, topic, "queue", body))
    for job in seen.jobs:
        topic = job_topic(job.id)
        found.append(Shown(topic, topic, "job", bodies.job_of_record(job), aside=job.id not in seen.listed))
    for job_id in seen.gone:
        topic = job_topic(job_id)
        found.append(Shown(topic, topic, "job", {"id": job_id}, removed=True))
    found.append(Shown(HEALTH, HEALTH, "health", _health(operations)))
    return found


def _health(operations: "Operations") -> dict[str, Any]:
    verdict = operations.verdict()
    errors = list(verdict.reasons)
    silent = nodelock.holder(operations.location)
    if silent is not None:
        pid = silent.get("pid", "unknown")
        errors = [f"the node (pid {pid}) does not answer: it is starting, stopped or stuck", *errors]
    status = Verdict.ERROR if silent is not None else verdict.status
    return {"status": status.value, "errors": errors}


def _worker(worker: Component) -> dict[str, Any]:
    """A worker as its health row has it: the fields of the node's own account, with less in them."""
    index = worker.component.rpartition(":")[2]
    return {
        "component": worker.component,
        "crew": worker.crew,
        "index": int(index) if index.isdigit() else None,
        "status": worker.status,
        "flags": list(worker.flags),
        "reason": worker.reason,
        "text": worker.text,
        "pid": worker.pid,
        "current_job": worker.current_job,
        "batch_jobs": [],
        "progress": None,
        "memory": bodies.roughly(worker.metadata.get("memory")) if worker.pid else None,
        "jobs": worker.metadata.get("done", 0),
        "restart_count": worker.restart_count,
        "budget": None,
        "exit_code": worker.exit_code,
        "signal": worker.signal,
        "node": worker.node,
        "job_since_ms": None,
        "restart_at_ms": None,
        "started_ms": None,
    }
