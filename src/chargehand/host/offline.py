"""Live state while no node answers: workers, queues and jobs as the store has them, and a verdict that says so."""

from typing import TYPE_CHECKING

from chargehand.host import nodelock
from chargehand.host.feed import Shown
from chargehand.host.health import Component
from chargehand.live.bodies import HealthBody, JobBody, JobIdentity, WorkerBody, queue_bodies, rounded_memory
from chargehand.live.store_view import StoreLook
from chargehand.model.health import APP, Verdict
from chargehand.model.topic import HEALTH, Patterns, job_topic, queue_topic, worker_topic

if TYPE_CHECKING:
    from chargehand.host.readings import Readings


def states(readings: "Readings", wanted: Patterns) -> list[Shown]:
    """Returns the workers, the queues, the verdict and the wanted jobs."""
    seen = readings.look(StoreLook(jobs=wanted.jobs, ids=tuple(sorted(wanted.ids)), crews=True))
    found: list[Shown] = []
    for worker in readings.health():
        if worker.component != APP:
            topic = worker_topic(worker.component)
            found.append(Shown(f"{topic}@{worker.node}", topic, "worker", _worker(worker)))
    for body in queue_bodies(seen.counts or (), seen.waiting, seen.served, {}, 0.0):
        topic = queue_topic(body.name)
        found.append(Shown(topic, topic, "queue", body))
    for job in seen.jobs:
        topic = job_topic(job.id)
        found.append(Shown(topic, topic, "job", JobBody.of_record(job), aside=job.id not in seen.listed))
    for job_id in seen.gone:
        topic = job_topic(job_id)
        found.append(Shown(topic, topic, "job", JobIdentity(job_id), removed=True))
    found.append(Shown(HEALTH, HEALTH, "health", _health(readings)))
    return found


def _health(readings: "Readings") -> HealthBody:
    verdict = readings.verdict()
    silent = nodelock.holder(readings.location)
    if silent is None:
        return HealthBody.of(verdict)
    pid = silent.get("pid", "unknown")
    first = f"the node (pid {pid}) does not answer: it is starting, stopped or stuck"
    return HealthBody(Verdict.ERROR, (first, *verdict.reasons))


def _worker(worker: Component) -> WorkerBody:
    """Returns a worker from its health row; what only its node knows is left out."""
    _, _, rest = worker.component.partition(":")
    crew, _, index = rest.rpartition(":")
    return WorkerBody(
        component=worker.component,
        crew=worker.crew or crew,
        index=int(index) if index.isdigit() else None,
        status=worker.status,
        flags=worker.flags,
        reason=worker.reason,
        text=worker.text,
        pid=worker.pid,
        current_job=worker.current_job,
        memory=rounded_memory(worker.metadata.get("memory")) if worker.pid else None,
        jobs=worker.metadata.get("done", 0),
        restart_count=worker.restart_count,
        restarts_total=worker.restarts_total,
        exit_code=worker.exit_code,
        signal=worker.signal,
        node=worker.node,
    )
