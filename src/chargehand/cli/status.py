"""`chargehand status`: what is going on."""

from typing import Any

import typer

from chargehand import nodelock
from chargehand.cli import find, show
from chargehand.errors import EXIT_ERROR, summary


def status(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show the node, its workers and the queues.

    Works from any terminal on the machine, without importing the application. Exit status 1 if no node runs.
    """
    hand = find.chargehand(app, store)
    node = hand.status()
    counts = hand.counts()
    if json:
        silent = None if node is not None else nodelock.holder(hand.path)
        show.json({"store": str(hand.path), "node": node, "node_that_does_not_answer": silent, "queues": counts})
    else:
        show.line(f"store  {hand.path}")
        show.line(f"node   {_node_line(node, nodelock.holder(hand.path))}")
        if node is not None:
            show.line("")
            columns = ("WORKER", "STATUS", "PID", "MEMORY", "JOB", "PROGRESS", "RESTARTS", "REASON")
            show.table(columns, [_worker_row(worker) for worker in node["workers"]])
        show.line("")
        names = ("queue", "queued", "future", "running", "done", "failed", "cancelled")
        show.table([n.upper() for n in names], [[getattr(count, n) for n in names] for count in counts])
    if node is None:
        raise typer.Exit(EXIT_ERROR)


def _node_line(node: dict[str, Any] | None, holder: dict[str, Any] | None) -> str:
    if node is None and holder is not None:
        return f"pid {holder.get('pid', 'unknown')} serves this store but does not answer: stopped, or starting?"
    if node is None:
        return "none: nothing is being done; start one with `chargehand work APP`"
    text = f"{show.safe(node['node'])}, pid {node['pid']}, started {show.ago(node['started_ms'])}"
    if node["store"]["failing"]:
        text += f"; the store fails: {show.safe(node['store']['failing'])}"
    elif (node["store"]["waiting_s"] or 0) > 1:
        text += f"; has waited for the store for {show.span(node['store']['waiting_s'])}"
    if node["stopping"]:
        text += f"; stopping: {show.safe(node['stopping'])}"
    return text


def _worker_row(worker: dict[str, Any]) -> list[Any]:
    memory = f"{worker['memory'] / 2**20:.0f} MiB" if worker["memory"] else None
    progress = _progress(worker["progress"] or {})
    first = [worker["component"], worker["status"], worker["pid"], memory]
    reason = None if worker["status"] == "healthy" else summary(worker["reason"]) or None
    return [*first, worker["current_job"], progress, worker["restart_count"], reason]


def _progress(progress: dict[str, Any]) -> str | None:
    done, total, stage = (progress.get(name) for name in ("done", "total", "stage"))
    share = f"{done:g}/{total:g}" if done is not None and total else None
    return " ".join(str(part) for part in (share, stage) if part) or None
