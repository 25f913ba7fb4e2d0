"""`chargehand status`: the node, its workers and the queues."""

from collections.abc import Sequence
from typing import Any

import typer
from msgspec import convert
from msgspec.structs import asdict

from chargehand import clock
from chargehand.cli import find, show
from chargehand.cli.board import is_well
from chargehand.cli.nodes import table as node_table
from chargehand.errors import EXIT_ERROR, StoreError, summary
from chargehand.host.restart_plan import RestartPlan
from chargehand.live.bodies import NodeBody, WorkerBody
from chargehand.live.components import GONE, Component, worker_of
from chargehand.model.health import APP, shown_status
from chargehand.model.records import Counts, Pause
from chargehand.model.status import NodeStatus, NodeWorker


def status(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show the node, its workers and the queues; where several nodes share the store, all of them.

    Works from any terminal on the machine (with PostgreSQL: on any machine), without importing the application. Exit
    status 1 if no node runs. If the store cannot be read, the node of this machine is shown all the same.
    """
    service = find.service(app, store)
    node = service.status()
    known = None if node is None else convert(node, NodeStatus)
    try:
        nodes = service.nodes()
    except StoreError:
        if known is not None and not json:
            show.line(f"store  {service.address}")
            show.paragraph("node", _node_line(known, None, None), indent=7)
            show.line("")
            _workers(known, None)
        raise
    silent = None if node is not None else service.silent_node()
    others = _others(nodes, known, silent)
    elsewhere = [each for each in service.health() if each.component != APP and each.node in others] if others else []
    coming = None if node is not None or silent is not None else service.next_node()
    counts, pauses = service.counts(), service.pauses()
    crews = {crew.name: crew.queue for crew in service.known_crews()} if pauses else {}
    if json:
        about = {"store": service.address, "node": node, "node_that_does_not_answer": silent, "next_node": coming}
        show.json({**about, "queues": counts, "pauses": pauses, "nodes": nodes, "other_workers": elsewhere})
    else:
        show.line(f"store  {service.address}")
        if known is not None or silent is not None or not others:
            show.paragraph("node", _node_line(known, silent, coming), indent=7)
        for pause in pauses:
            show.paragraph("paused", f"{_pause_line(pause)}{_waiting(pause, crews, counts)}", indent=7)
        if known is not None or others:
            verdict = service.verdict() if known is None or others else known.verdict
            show.line(f"verdict {verdict.status}")
            for reason in verdict.reasons:
                show.paragraph("", summary(reason), indent=2)
            for crew, why in known.breakers.items() if known is not None else ():
                show.paragraph("", f"crew {crew}: the circuit breaker is open, one worker is tried: {why}", indent=2)
            show.line("")
            if others:
                node_table(nodes)
                show.line("")
            _workers(known, elsewhere if others else None)
        show.line("")
        names = ("queue", "queued", "future", "running", "done", "failed", "cancelled")
        rows = [[getattr(count, n) for n in names] for count in counts]
        show.table([n.upper() for n in names], rows) if rows else show.line("no jobs")
        for count in counts:
            if count.following:
                verb = "waits" if count.following == 1 else "wait"
                show.line(f"queue {show.safe(count.queue)}: {count.following:,} {verb} for other jobs")
            if count.rate_next_ms is not None:
                show.line(f"queue {show.safe(count.queue)}: {show.rate_wait(count.rate_next_ms)}")
    if node is None and not others:
        raise typer.Exit(EXIT_ERROR)


def _node_line(node: NodeStatus | None, silent: dict[str, Any] | None, coming: RestartPlan | None) -> str:
    if node is None and silent is not None:
        return f"pid {silent.get('pid', 'unknown')} serves this store but does not answer: stopped, or starting?"
    if node is None and coming is not None:
        return f"none: {show.safe(coming.in_words(clock.now_ms()))}"
    if node is None:
        return "none: no jobs are processed; start one with `chargehand work APP`"
    text = f"{show.safe(node.node)}, pid {node.pid}, started {show.ago(node.started_ms)}"
    if node.store.failing:
        text += f"; the store fails: {show.safe(node.store.failing)}"
    elif (node.store.waiting_s or 0) > 1:
        text += f"; waiting for the store for {show.span(node.store.waiting_s or 0)}"
    if node.stopping:
        text += f"; stopping: {show.safe(node.stopping)}"
    return text


def _others(nodes: Sequence[NodeBody], known: NodeStatus | None, silent: dict[str, Any] | None) -> list[str]:
    """Returns the other nodes that share the store; none, if no node answers here and no other one runs."""
    own = known.node if known is not None else (silent or {}).get("node")
    others = [node for node in nodes if node.name != own]
    runs = known is not None or any(node.status != GONE for node in others)
    return [node.name for node in others] if runs else []


def _workers(known: NodeStatus | None, elsewhere: Sequence[Component] | None) -> None:
    """Prints the workers of the node that answers, and those of the others (None: there are none) beside their node;
    of each the unwell ones first."""
    own = sorted(known.workers, key=lambda worker: is_well(worker.status, worker.flags)) if known is not None else []
    gpus = ("GPU",) if any(worker.gpus for worker in own) else ()
    columns = ("WORKER", "STATUS", "PID", "MEMORY", *gpus, "JOB", "PROGRESS", "RESTARTS", "LEFT", "REASON")
    rows = [_worker_row(worker, gpus=bool(gpus)) for worker in own]
    if elsewhere is not None:
        elsewhere = sorted(elsewhere, key=lambda shown: is_well(shown.status, shown.flags))
        names = [known.node for _ in own] if known is not None else []
        names += [shown.node for shown in elsewhere]
        rows += [_row_elsewhere(worker_of(shown), gpus=bool(gpus)) for shown in elsewhere]
        columns, rows = ("NODE", *columns), [[name, *row] for name, row in zip(names, rows, strict=True)]
    show.table(columns, rows)


def _row_elsewhere(worker: WorkerBody, *, gpus: bool) -> list[Any]:
    memory = f"{worker.memory / 2**20:.0f} MiB" if worker.memory else None
    progress = show.progress({**(asdict(worker.progress) if worker.progress else {}), "detail": None})
    first = [worker.component, worker.status, worker.pid, memory, *([None] if gpus else [])]
    return [
        *first,
        show.in_hand(asdict(worker)),
        progress,
        worker.restart_count,
        None,
        worker.cause or summary(worker.text) or None,
    ]


def _pause_line(pause: Pause) -> str:
    what = "everything" if pause.scope == "*" else pause.scope
    until = "" if pause.left_ms is None else f", for another {show.span(pause.left_ms / 1000)}"
    return show.safe(f"{what}, by {pause.who}, {show.ago(pause.since_ms)}{until}: {pause.reason or 'no reason given'}")


def _waiting(pause: Pause, crews: dict[str, str], counts: Sequence[Counts]) -> str:
    """Returns how many due jobs a pause holds back, and the remedy. A pause is no fault, so the verdict ignores it."""
    queue = crews.get(pause.scope, pause.scope)
    due = sum(row.queued - row.future - row.following for row in counts if pause.scope == "*" or row.queue == queue)
    what = "" if pause.scope == "*" else f" {show.safe(pause.scope)}"
    return f"; {due:,} waiting: chargehand resume{what}" if due > 0 else ""


def _worker_row(worker: NodeWorker, *, gpus: bool) -> list[Any]:
    memory = f"{worker.memory / 2**20:.0f} MiB" if worker.memory else None
    progress = show.progress({**(asdict(worker.progress) if worker.progress else {}), "detail": None})
    status = shown_status(worker.status, worker.flags, worker.heartbeat_age_ms)
    left = f"{worker.budget.rapid_left}/{worker.budget.lifetime_left}" if worker.budget else None
    reason = worker.cause or summary(worker.text) or None
    if worker.restart_in_s is not None:
        reason = f"{reason}; back in {show.span(worker.restart_in_s)}"
    first = [worker.component, status, worker.pid, memory]
    first += [show.gpus([asdict(gpu) for gpu in worker.gpus])] if gpus else []
    return [*first, show.in_hand(asdict(worker)), progress, worker.restart_count, left, reason]
