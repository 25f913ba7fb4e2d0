"""Live state while no node of this machine answers: nodes, workers, queues, jobs and flows as the store has them."""

from typing import TYPE_CHECKING

from chargehand.host import nodelock
from chargehand.host.feed import Shown
from chargehand.live.bodies import FlowBody, FlowIdentity, HealthBody, JobBody, JobIdentity, queue_bodies
from chargehand.live.components import component_of, nodes_of, shares, worker_of
from chargehand.live.store_view import StoreLook
from chargehand.model.figures import together
from chargehand.model.health import APP, Verdict
from chargehand.model.topic import HEALTH, Patterns, flow_topic, job_topic, node_topic, queue_topic, worker_topic

if TYPE_CHECKING:
    from chargehand.host.readings import Readings


def states(readings: "Readings", wanted: Patterns) -> list[Shown]:
    """Returns the nodes, the workers, the queues, the verdict, and the wanted jobs and flows."""
    seen = readings.look(
        StoreLook(
            jobs=wanted.jobs, ids=tuple(sorted(wanted.ids)), flows=wanted.flows,
            flow_ids=tuple(sorted(wanted.flow_ids)), crews=True, fleet=True,
        )
    )  # fmt: skip
    nodes, rows = seen.fleet or ((), ())
    components = [component_of(row) for row in rows]
    found: list[Shown] = []
    for shown in components:
        if shown.component != APP:
            topic = worker_topic(shown.component)
            found.append(Shown(f"{topic}@{shown.node}", topic, "worker", worker_of(shown)))
    if readings.location.server is not None:
        for node in nodes_of(nodes, components):
            topic = node_topic(node.name)
            found.append(Shown(topic, topic, "node", node))
    throughput = {queue: together(each) for queue, each in shares(components).items()}
    for body in queue_bodies(seen.counts or (), seen.waiting, seen.served, throughput):
        topic = queue_topic(body.name)
        found.append(Shown(topic, topic, "queue", body))
    for job in readings.shown(seen.jobs):
        topic = job_topic(job.id)
        found.append(Shown(topic, topic, "job", JobBody.of_record(job), aside=job.id not in seen.listed))
    for job_id in seen.gone:
        topic = job_topic(job_id)
        found.append(Shown(topic, topic, "job", JobIdentity(job_id), removed=True))
    for flow in seen.flows:
        topic = flow_topic(flow.id)
        found.append(Shown(topic, topic, "flow", FlowBody.of(flow)))
    for flow_id in seen.gone_flows:
        topic = flow_topic(flow_id)
        found.append(Shown(topic, topic, "flow", FlowIdentity(flow_id), removed=True))
    found.append(Shown(HEALTH, HEALTH, "health", _health(readings)))
    return found


def _health(readings: "Readings") -> HealthBody:
    verdict = readings.verdict()
    silent = nodelock.holder(nodelock.nearest(readings.location))
    if silent is None:
        return HealthBody.of(verdict)
    pid = silent.get("pid", "unknown")
    first = f"the node (pid {pid}) does not answer: it is starting, stopped or stuck"
    return HealthBody(Verdict.ERROR, (first, *verdict.reasons))
