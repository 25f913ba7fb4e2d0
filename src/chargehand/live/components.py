"""The health of nodes and workers as the store has it, for readers in any process.

A pid is checked only if it belongs to this machine and pid namespace: of a process elsewhere, only its node knows
whether it runs. This module reads no store.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from chargehand.live.bodies import NodeBody, NodeCrewBody, WorkerBody, rounded_memory
from chargehand.model import address
from chargehand.model.figures import Share
from chargehand.model.health import APP, Member, is_healthy, shown_status
from chargehand.model.records import HealthRow, NodeRow
from chargehand.model.status import Progress
from chargehand.processes import proc

GONE = "gone"
"""The status of a node that has disappeared without having been stopped."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the node (`app`) or of a worker: `healthy` only with a recent heartbeat, a pid only if it runs."""

    component: str
    node: str
    crew: str | None
    status: str
    flags: tuple[str, ...]
    reason: str | None
    text: str | None
    pid: int | None
    incarnation: str | None
    current_job: str | None
    last_heartbeat_ms: int | None
    restart_count: int
    restarts_total: int = 0
    last_restart_ms: int | None
    exit_code: int | None
    signal: int | None
    created_at_ms: int
    metadata: dict[str, Any]
    is_healthy: bool
    cause: str | None = None
    """Why a worker is not at work, in one line."""
    cause_code: str | None = None


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What a node writes beside the health of a component, as far as readers show it."""

    memory: int | None = None
    done: int = 0
    progress: Progress | None = None
    concurrency: int = 1
    in_hand: int | None = None
    """The number of jobs, of a worker that performs several at the same time."""
    machine: str | None = None
    version: str | None = None
    started_ms: int | None = None
    """When the node started, by the clock of its machine."""
    drain: str | None = None
    rates: dict[str, Share] = {}
    """By queue: the share of a node in its throughput."""


def telemetry(shown: Component) -> Telemetry:
    """Returns what the node of a component wrote beside its health."""
    return msgspec.convert(shown.metadata, Telemetry)


def jobs_of(shown: Component, beside: Telemetry) -> int:
    """Returns how many jobs a worker had when its health was written."""
    return int(shown.current_job is not None) if beside.in_hand is None else beside.in_hand


@cache
def _here() -> tuple[str, str]:
    """Returns what identifies the pids of this process: they stay the same while it lives."""
    return proc.boot_id(), proc.pid_namespace()


def live_pid(row: HealthRow) -> int | None:
    """Returns the pid of a row if that process still runs; a reused pid does not count.

    Of a process of another machine or pid namespace, only its node knows whether it runs.
    """
    if row.pid is None or row.pid_start is None or not row.node_lives:
        return None
    here = row.boot is None or (row.boot, row.pid_namespace) == _here()
    return row.pid if not here or proc.alive(row.pid, row.pid_start) else None


def component_of(row: HealthRow) -> Component:
    """Returns the component that a row describes."""
    pid = live_pid(row)
    metadata: dict[str, Any] = msgspec.json.decode(row.metadata, type=dict[str, Any])
    status = shown_status(row.status, row.flags, row.age_ms if pid is not None else None)
    if not row.node_lives:
        status = "unknown"
        metadata |= {"text": f"its node {row.node} is gone", "will_work": False, "cause": None}
        row = msgspec.structs.replace(row, current_job=None)  # others have it, or will
    own: dict[str, Any] = {name: getattr(row, name) for name in Component.__struct_fields__ if hasattr(row, name)}
    own |= {"status": status, "pid": pid, "metadata": metadata}
    own |= {"crew": metadata.get("crew"), "text": metadata.get("text")}
    own |= {"cause": metadata.get("cause"), "cause_code": metadata.get("cause_code")}
    own["restarts_total"] = metadata.get("restarts_total", row.restart_count)
    own["is_healthy"] = pid is not None and is_healthy(row.status, row.flags, row.age_ms)
    return Component(**own)


def member_of_component(shown: Component) -> Member:
    """Returns a worker as the verdict on its queue needs it."""
    return Member(str(shown.crew), shown.status, shown.cause or shown.text, bool(shown.metadata.get("will_work")))


def worker_of(shown: Component) -> WorkerBody:
    """Returns a worker from its health row; what only its node knows is left out."""
    crew, _, index = shown.component.removeprefix("worker:").rpartition(":")
    beside = telemetry(shown)
    return WorkerBody(
        component=shown.component,
        crew=shown.crew or crew,
        index=int(index) if index.isdigit() else None,
        status=shown.status,
        flags=shown.flags,
        reason=shown.reason,
        text=shown.text,
        cause=shown.cause,
        cause_code=shown.cause_code,
        pid=shown.pid,
        current_job=shown.current_job,
        progress=beside.progress if shown.current_job else None,
        concurrency=beside.concurrency,
        in_hand=jobs_of(shown, beside),
        memory=rounded_memory(beside.memory) if shown.pid else None,
        jobs=beside.done,
        restart_count=shown.restart_count,
        restarts_total=shown.restarts_total,
        exit_code=shown.exit_code,
        signal=shown.signal,
        node=shown.node,
    )


def nodes_of(rows: Sequence[NodeRow], components: Sequence[Component | WorkerBody]) -> list[NodeBody]:
    """Returns every node with the crews that it serves. `components` are those of all nodes."""
    by_node: dict[str, list[Component | WorkerBody]] = {}
    for each in components:
        by_node.setdefault(each.node, []).append(each)
    return [_node(row, by_node.get(row.name, [])) for row in rows]


def _node(row: NodeRow, components: Sequence[Component | WorkerBody]) -> NodeBody:
    own = next((each for each in components if isinstance(each, Component) and each.component == APP), None)
    beside = telemetry(own) if own is not None else Telemetry()
    machine, version = (row.about.machine, row.about.version) if row.about is not None else (None, None)
    gone = not row.lives or (own is not None and own.pid is None)  # of a process elsewhere, the pid is believed
    return NodeBody(
        name=row.name,
        status=GONE if gone else own.status if own is not None else "starting",
        reason=own.reason if own is not None and not gone else None,
        drain=None if gone else beside.drain,
        machine=machine or beside.machine,
        version=version or beside.version,
        pid=own.pid if own is not None else None,
        started_ms=row.started_ms or beside.started_ms,
        last_beat_ms=row.last_heartbeat_ms,
        beat_age_ms=row.age_ms,
        crews=tuple(
            NodeCrewBody(
                crew=crew.name,
                queue=crew.queue,
                configured=crew.workers,
                live=sum(each.crew == crew.name and each.pid is not None for each in components),
                busy=sum(each.crew == crew.name and each.current_job is not None for each in components),
            )
            for crew in row.crews
        ),
    )


def shares(components: Iterable[Component]) -> dict[str, list[Share]]:
    """Returns by queue what each node that runs says about its throughput."""
    found: dict[str, list[Share]] = {}
    for own in components:
        if own.component == APP and own.is_healthy:
            for queue, share in telemetry(own).rates.items():
                found.setdefault(queue, []).append(share)
    return found


Worker = TypeVar("Worker", WorkerBody, Component)


def addressed(workers: Sequence[Worker]) -> list[Worker]:
    """Returns the workers for sentences: if they belong to several nodes, each under its address."""
    if len({worker.node for worker in workers}) < 2:
        return list(workers)
    return [
        msgspec.structs.replace(worker, component=address.written(worker.node, worker.component)) for worker in workers
    ]
