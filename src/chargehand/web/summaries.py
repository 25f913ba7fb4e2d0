"""Combines the rows of the store and the status of the node into responses. The functions do no input or output."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from chargehand import __version__
from chargehand.live.bodies import NodeBody, QueueBody
from chargehand.live.components import GONE, Component, jobs_of, telemetry
from chargehand.model import address
from chargehand.model.figures import Share
from chargehand.model.fleet.lifecycle import ALIVE, Status
from chargehand.model.health import APP, is_healthy, shown_status
from chargehand.model.records import Counts, CrewRow, Pause
from chargehand.model.status import NodeStatus, NodeWorker
from chargehand.settings.plan import Page
from chargehand.web.answers import (
    Concurrency,
    CrewConcurrency,
    CrewInfo,
    CrewReadiness,
    Info,
    Queue,
    Readiness,
    SupervisorInfo,
    WorkerStatus,
    WorkerThreads,
)

Holder = Mapping[str, Any]
"""The content of the node's lock file."""


def workers_of(components: Sequence[Component], status: NodeStatus | None, now_ms: int) -> list[WorkerStatus]:
    """Returns every worker, ordered by node, crew and index; the node's own status takes precedence over its rows."""
    found = {(each.node, each.component): _of_row(each) for each in components if each.component != APP}
    if status is not None:
        for worker in status.workers:
            name = (status.node, worker.component)
            found[name] = _updated(found.get(name) or _without_row(worker, status.node, now_ms), worker, now_ms)
    return sorted(found.values(), key=lambda worker: (worker.node, worker.crew or "", worker.index or 0))


def _of_row(shown: Component) -> WorkerStatus:
    beside = telemetry(shown)
    return WorkerStatus(
        **msgspec.structs.asdict(shown),
        index=_index(shown.component),
        progress=beside.progress if shown.current_job else None,
        in_hand=jobs_of(shown, beside),
        concurrency=beside.concurrency,
        memory=beside.memory if shown.pid else None,
    )


def _index(component: str) -> int | None:
    last = component.rpartition(":")[2]
    return int(last) if last.isdecimal() else None


def _without_row(worker: NodeWorker, node: str, now_ms: int) -> WorkerStatus:
    """Returns a worker whose row has not been written yet."""
    return WorkerStatus(
        component=worker.component, node=node, crew=worker.crew, status=worker.status, flags=(), reason=None,
        text=None, pid=None, incarnation=None, current_job=None, last_heartbeat_ms=None, restart_count=0,
        restarts_total=0, last_restart_ms=None, exit_code=None, signal=None, created_at_ms=now_ms, metadata={},
        is_healthy=False, index=worker.index,
    )  # fmt: skip


def _updated(row: WorkerStatus, worker: NodeWorker, now_ms: int) -> WorkerStatus:
    age = worker.heartbeat_age_ms
    return msgspec.structs.replace(
        row,
        reason=worker.reason,
        text=worker.text,
        cause=worker.cause,
        cause_code=worker.cause_code,
        pid=worker.pid,
        incarnation=worker.incarnation,
        current_job=worker.current_job,
        restart_count=worker.restart_count,
        restarts_total=worker.restarts_total,
        exit_code=worker.exit_code,
        signal=worker.signal,
        status=shown_status(worker.status, worker.flags, age if worker.pid else None),
        is_healthy=worker.pid is not None and is_healthy(worker.status, worker.flags, age),
        flags=worker.flags,
        last_heartbeat_ms=row.last_heartbeat_ms if age is None else now_ms - age,
        progress=worker.progress,
        memory=worker.memory,
        gpus=worker.gpus,
        in_hand=worker.in_hand,
        concurrency=worker.concurrency,
        batch_jobs=worker.batch_jobs,
        jobs=worker.jobs,
        budget=worker.budget,
        restart_in_s=worker.restart_in_s,
    )


def info_of(
    node: str,
    embedded: bool,
    crews: Sequence[CrewRow],
    pauses: Sequence[Pause],
    status: NodeStatus | None,
    holder: Holder | None,
    queues: Sequence[str],
    pages: Sequence[Page] = (),
    nodes: Sequence[NodeBody] = (),
) -> Info:
    """Returns the versions, the node, the crews and the queues.

    `holder`: the process that holds the node lock. `nodes`: those that share the store, if several may.
    """
    supervisor = None
    if status is not None:
        supervisor = SupervisorInfo(
            node=status.node, pid=status.pid, version=status.version, started_ms=status.started_ms, answers=True,
            stopping=status.stopping,
        )  # fmt: skip
    elif holder is not None:
        supervisor = SupervisorInfo(
            node=holder.get("node"), pid=holder.get("pid"), version=None, started_ms=None, answers=False
        )
    live = Counter(worker.crew for worker in _workers(status) if worker.status in ALIVE)
    configured = {crew.name: _configured(crew) for crew in crews}
    if nodes:
        theirs = [crew for node in nodes if status is None or node.name != status.node for crew in node.crews]
        live.update({crew: sum(each.live for each in theirs if each.crew == crew) for crew in configured})
        running = [crew for node in nodes if node.status != GONE for crew in node.crews]
        configured = {crew: sum(each.configured for each in running if each.crew == crew) for crew in configured}
    return Info(
        version=__version__,
        node=node,
        supervisor=supervisor,
        worker_enabled=not _all_paused(crews, {pause.scope for pause in pauses}),
        embed_workers=embedded,
        workers=tuple(
            CrewInfo(crew=each.name, queue=each.queue, configured=configured[each.name], live=live[each.name])
            for each in crews
        ),
        queues=tuple(sorted({*queues, *(crew.queue for crew in crews)})),
        pages=tuple(pages),
    )


def _all_paused(crews: Sequence[CrewRow], paused: Set[str]) -> bool:
    """Returns whether every worker is paused: by a pause of everything, of its crew, or of its own."""

    def is_paused(crew: CrewRow) -> bool:
        count = _configured(crew)
        each = count > 0 and all(f"worker:{crew.name}:{index}" in paused for index in range(count))
        return crew.name in paused or each

    return "*" in paused or (bool(crews) and all(is_paused(crew) for crew in crews))


def _configured(crew: CrewRow) -> int:
    return crew.workers if crew.scaled is None else crew.scaled


def _workers(status: NodeStatus | None, crew: str | None = None) -> list[NodeWorker]:
    return [worker for worker in (status.workers if status else ()) if crew is None or worker.crew == crew]


def queues_of(
    counts: Sequence[Counts],
    crews: Sequence[CrewRow],
    pauses: Sequence[Pause],
    waiting: Sequence[tuple[str, int]],
    unserved: Mapping[str, str] | None,
    throughput: Mapping[str, Share] = MappingProxyType({}),
) -> list[Queue]:
    """Returns every queue that has jobs or a crew. `unserved`: why no worker takes their jobs; None: no node runs."""
    by_name = {count.queue: count for count in counts}
    paused, due = {pause.scope for pause in pauses}, dict(waiting)
    found: list[Queue] = []
    for name in sorted({*by_name, *(crew.queue for crew in crews)}):
        serving = tuple(crew.name for crew in crews if crew.queue == name)
        count = by_name.get(name, Counts(queue=name))
        figures = QueueBody.of(count, due.get(name), throughput.get(name, Share()))
        found.append(
            Queue(
                **msgspec.structs.asdict(count),
                crews=serving,
                paused="*" in paused or (bool(serving) and all(crew in paused for crew in serving)),
                oldest_wait_ms=due.get(name),
                unserved=unserved.get(name) if unserved is not None else "no node runs" if name in due else None,
                rate=figures.rate,
                mean_duration_s=figures.mean_duration_s,
                eta_s=figures.eta_s,
                wait_p50_s=figures.wait_p50_s,
                wait_p95_s=figures.wait_p95_s,
                run_p50_s=figures.run_p50_s,
                run_p95_s=figures.run_p95_s,
            )
        )
    return found


def readiness_of(
    crews: Sequence[CrewRow],
    status: NodeStatus | None,
    holder: Holder | None,
    pauses: Sequence[Pause],
    elsewhere: Sequence[Component] = (),
) -> Readiness:
    """Returns whether jobs are performed, for each crew. `elsewhere`: the workers of other nodes that run."""
    reasons: list[str] = []
    runs = status is not None or bool(elsewhere)
    if status is None and not elsewhere:
        pid = holder.get("pid", "unknown") if holder else None
        reasons.append("no node runs" if holder is None else f"the node (pid {pid}) does not answer")
    if status is not None:
        if status.stopping and not elsewhere:
            reasons.append(f"the node is stopping: {status.stopping}")
        if status.store.failing:
            reasons.append(f"the store fails: {status.store.failing}")
        reasons += [f"queue {queue}: {why}" for queue, why in sorted(status.unserved.items())]
    paused = {pause.scope: f"paused by {pause.who}: {pause.reason or 'no reason given'}" for pause in pauses}
    workers = [*(_taker(worker) for worker in _workers(status)), *(_taker_elsewhere(shown) for shown in elsewhere)]
    shown = [_crew_ready(crew, workers, paused, runs=runs) for crew in crews]
    if not crews:
        reasons.append("no crew is registered")
    reasons += [f"crew {each.crew}: {each.reason}" for each in shown if not each.ready and runs]
    ready = not reasons and all(each.ready for each in shown)
    return Readiness(ready=ready, reasons=tuple(reasons), crews=tuple(shown))


class Taker(NamedTuple):
    """A worker of any node, and whether it takes jobs."""

    name: str
    crew: str | None
    shown: str
    text: str | None
    takes: bool


def _taker(worker: NodeWorker) -> Taker:
    return Taker(worker.component, worker.crew, _shown(worker), worker.text, _takes_jobs(worker))


def _taker_elsewhere(shown: Component) -> Taker:
    takes = shown.status == Status.HEALTHY or (shown.status == Status.ASLEEP and bool(shown.metadata.get("will_work")))
    return Taker(address.written(shown.node, shown.component), shown.crew, shown.status, shown.text, takes)


def _crew_ready(crew: CrewRow, every: Sequence[Taker], paused: Mapping[str, str], *, runs: bool) -> CrewReadiness:
    workers = [worker for worker in every if worker.crew == crew.name]
    reason = paused.get(crew.name) or paused.get("*")
    if reason is None and not runs:
        reason = "no node answers"
    if reason is None and not workers:
        reason = f"it has no workers: chargehand scale {crew.name} 1"
    if reason is None and not any(worker.takes for worker in workers):
        first = workers[0]
        why = f" ({first.text})" if first.text else ""
        reason = f"none of its {len(workers)} workers takes jobs: {first.name} is {first.shown}{why}"
    return CrewReadiness(crew=crew.name, queue=crew.queue, ready=reason is None, reason=reason)


def _shown(worker: NodeWorker) -> str:
    return shown_status(worker.status, worker.flags, worker.heartbeat_age_ms)


def _takes_jobs(worker: NodeWorker) -> bool:
    """Returns whether the worker is healthy, or is started by the next job."""
    return _shown(worker) == Status.HEALTHY or (worker.status == Status.ASLEEP and worker.shortage is None)


def concurrency_of(
    crews: Sequence[CrewRow], status: NodeStatus | None, configured: Mapping[str, int], threads: Mapping[int, int]
) -> Concurrency:
    """Returns the workers and threads of each crew. `configured`: threads by crew; `threads`: measured, by pid."""
    found: list[CrewConcurrency] = []
    for crew in crews:
        workers = tuple(
            WorkerThreads(
                component=each.component,
                pid=each.pid,
                busy=each.current_job is not None,
                threads=None if each.pid is None else threads.get(each.pid),
            )
            for each in _workers(status, crew.name)
        )
        found.append(
            CrewConcurrency(
                crew=crew.name,
                configured=_configured(crew),
                live=sum(each.pid is not None for each in workers),
                busy=sum(each.busy for each in workers),
                threads_configured=configured.get(crew.name),
                workers=workers,
            )
        )
    return Concurrency(tuple(found))
