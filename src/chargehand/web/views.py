"""What is shown, put together from what the store and the node say: plain data in, plain data out."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chargehand import __version__
from chargehand.host.health import Component
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.lifecycle import ALIVE, Status
from chargehand.model.health import APP, is_healthy, shown_status
from chargehand.model.records import Counts, CrewRow, Pause
from chargehand.settings.plan import Page
from chargehand.web.answers import (
    Concurrency,
    CrewConcurrency,
    CrewInfo,
    CrewReadiness,
    Info,
    Queue,
    Readiness,
    RestartBudget,
    SupervisorInfo,
    WorkerStatus,
    WorkerThreads,
)

View = Mapping[str, Any]
"""What a node answers to STATUS."""
_FRESHER = ("reason", "text", "pid", "incarnation", "current_job", "restart_count", "exit_code", "signal")
"""What the node knows sooner than the store."""


def workers_of(components: Sequence[Component], view: View | None, now_ms: int) -> list[WorkerStatus]:
    """Every worker, by crew and index: its health row, and over it what its node says, if that answers."""
    found = {
        (each.node, each.component): WorkerStatus(**msgspec.structs.asdict(each), index=_index(each.component))
        for each in components
        if each.component != APP
    }
    for shown in view["workers"] if view is not None else ():
        node = str(view["node"]) if view is not None else ""
        name = (node, str(shown["component"]))
        found[name] = _fresher(found.get(name) or _unknown(shown, node, now_ms), shown, now_ms)
    return sorted(found.values(), key=lambda worker: (worker.node, worker.crew or "", worker.index or 0))


def _index(component: str) -> int | None:
    last = component.rpartition(":")[2]
    return int(last) if last.isdecimal() else None


def _unknown(shown: View, node: str, now_ms: int) -> WorkerStatus:
    """One that has no row yet."""
    return WorkerStatus(
        component=shown["component"], node=node, crew=shown["crew"], status=shown["status"], flags=(), reason=None,
        text=None, pid=None, incarnation=None, current_job=None, last_heartbeat_ms=None, restart_count=0,
        last_restart_ms=None, exit_code=None, signal=None, created_at_ms=now_ms, metadata={}, is_healthy=False,
        index=shown["index"],
    )  # fmt: skip


def _fresher(row: WorkerStatus, shown: View, now_ms: int) -> WorkerStatus:
    beat = shown["heartbeat_s"]
    age = None if beat is None else int(beat * 1000)
    flags = tuple(shown["flags"])
    return msgspec.structs.replace(
        row,
        **{name: shown[name] for name in _FRESHER},
        status=shown_status(shown["status"], flags, age if shown["pid"] else None),
        is_healthy=shown["pid"] is not None and is_healthy(shown["status"], flags, age),
        flags=flags,
        last_heartbeat_ms=row.last_heartbeat_ms if age is None else now_ms - age,
        progress=shown["progress"],
        memory=shown["memory"],
        jobs=shown["jobs"],
        budget=RestartBudget(**shown["budget"]),
        restart_in_s=shown["restart_in_s"],
    )


def info_of(
    node: str,
    enabled: bool,
    crews: Sequence[CrewRow],
    view: View | None,
    holder: View | None,
    queues: Sequence[str],
    pages: Sequence[Page] = (),
) -> Info:
    """What runs here. `holder`: who has the lock of the node."""
    supervisor = None
    if view is not None:
        supervisor = SupervisorInfo(
            node=view["node"], pid=view["pid"], version=view["version"], started_ms=view["started_ms"], answers=True,
            stopping=view["stopping"],
        )  # fmt: skip
    elif holder is not None:
        supervisor = SupervisorInfo(
            node=holder.get("node"), pid=holder.get("pid"), version=None, started_ms=None, answers=False
        )
    live = [worker["crew"] for worker in view["workers"] if worker["status"] in ALIVE] if view else []
    return Info(
        version=__version__,
        node=node,
        supervisor=supervisor,
        worker_enabled=enabled,
        workers=tuple(
            CrewInfo(crew=each.name, queue=each.queue, configured=_wanted(each), live=live.count(each.name))
            for each in crews
        ),
        queues=tuple(sorted({*queues, *(crew.queue for crew in crews)})),
        pages=tuple(pages),
    )


def _wanted(crew: CrewRow) -> int:
    return crew.workers if crew.scaled is None else crew.scaled


def queues_of(
    counts: Sequence[Counts],
    crews: Sequence[CrewRow],
    pauses: Sequence[Pause],
    waiting: Sequence[tuple[str, int]],
    view: View | None,
) -> list[Queue]:
    """Every queue that has jobs or a crew."""
    by_name = {count.queue: count for count in counts}
    paused, due = {pause.scope for pause in pauses}, dict(waiting)
    why: Mapping[str, str] = view["unserved"] if view is not None else {}
    found: list[Queue] = []
    for name in sorted({*by_name, *(crew.queue for crew in crews)}):
        serving = tuple(crew.name for crew in crews if crew.queue == name)
        nobody = why.get(name) or ("no node runs" if view is None and name in due else None)
        held = "*" in paused or (bool(serving) and all(crew in paused for crew in serving))
        found.append(
            Queue(
                **msgspec.structs.asdict(by_name.get(name, Counts(queue=name))),
                crews=serving,
                paused=held,
                oldest_wait_ms=due.get(name),
                unserved=nobody,
            )
        )
    return found


def readiness_of(
    crews: Sequence[CrewRow], view: View | None, holder: View | None, pauses: Sequence[Pause]
) -> Readiness:
    """Whether work gets done, crew by crew."""
    grave: list[str] = []
    if view is None:
        pid = holder.get("pid", "unknown") if holder else None
        grave.append("no node runs" if holder is None else f"the node (pid {pid}) does not answer")
    else:
        if view["stopping"]:
            grave.append(f"the node is stopping: {view['stopping']}")
        if view["store"]["failing"]:
            grave.append(f"the store fails: {view['store']['failing']}")
        grave += [f"queue {queue}: {why}" for queue, why in sorted(view["unserved"].items())]
    flags = {pause.scope: f"paused by {pause.who}: {pause.reason or 'no reason given'}" for pause in pauses}
    shown = [_crew_ready(crew, view, flags) for crew in crews]
    if not crews:
        grave.append("no crew is registered")
    grave += [f"crew {each.crew}: {each.reason}" for each in shown if not each.ready and view is not None]
    return Readiness(ready=not grave and all(each.ready for each in shown), reasons=tuple(grave), crews=tuple(shown))


def _crew_ready(crew: CrewRow, view: View | None, paused: Mapping[str, str]) -> CrewReadiness:
    workers = [worker for worker in view["workers"] if worker["crew"] == crew.name] if view is not None else []
    reason = paused.get(crew.name) or paused.get("*")
    if reason is None and view is None:
        reason = "no node answers"
    if reason is None and not workers:
        reason = f"it has no workers: chargehand scale {crew.name} 1"
    if reason is None and not any(_takes_work(worker) for worker in workers):
        first = workers[0]
        why = f" ({first['text']})" if first["text"] else ""
        reason = f"none of its {len(workers)} workers takes work: {first['component']} is {_shown(first)}{why}"
    return CrewReadiness(crew=crew.name, queue=crew.queue, ready=reason is None, reason=reason)


def _shown(worker: View) -> str:
    beat = worker["heartbeat_s"]
    return shown_status(worker["status"], worker["flags"], None if beat is None else int(beat * 1000))


def _takes_work(worker: View) -> bool:
    """Whether it is known to be well, or sleeps and comes back with the next job."""
    asleep = worker["status"] == Status.STOPPED and worker["reason"] == Reason.IDLE
    return asleep or _shown(worker) == Status.HEALTHY


def concurrency_of(
    crews: Sequence[CrewRow], view: View | None, configured: Mapping[str, int], threads: Mapping[int, int]
) -> Concurrency:
    """How much is done at the same time. `configured`: threads of each crew; `threads`: of each pid, as counted."""
    found: list[CrewConcurrency] = []
    for crew in crews:
        members = [worker for worker in view["workers"] if worker["crew"] == crew.name] if view is not None else []
        workers = tuple(
            WorkerThreads(
                component=each["component"],
                pid=each["pid"],
                busy=each["current_job"] is not None,
                threads=threads.get(each["pid"]),
            )
            for each in members
        )
        found.append(
            CrewConcurrency(
                crew=crew.name,
                configured=_wanted(crew),
                live=sum(each.pid is not None for each in workers),
                busy=sum(each.busy for each in workers),
                threads_configured=configured.get(crew.name),
                workers=workers,
            )
        )
    return Concurrency(tuple(found))
