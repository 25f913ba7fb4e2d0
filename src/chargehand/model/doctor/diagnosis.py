"""The diagnosis: from facts to findings, each with its remedy, and a headline. Pure.

`causes` defines the causes, `facts` the input, and `ground`, `server`, `node`, `crews`, `queues` and `flows` the rules.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from chargehand.model.doctor import crews as by_crew
from chargehand.model.doctor import flows as by_flow
from chargehand.model.doctor import ground as by_ground
from chargehand.model.doctor import node as by_node
from chargehand.model.doctor import queues as by_queue
from chargehand.model.doctor import server as by_server
from chargehand.model.doctor.causes import Finding, Severity, in_order
from chargehand.model.doctor.facts import Facts, Other
from chargehand.model.doctor.wording import in_future, jobs, length
from chargehand.model.fleet.lifecycle import Status

GLOBAL = frozenset(
    {
        "no-store",
        "store-hung",
        "store-unusable",
        "store-damaged",
        "schema-new",
        "node-elsewhere",
        "node-stopped",
        "not-allowed",
    }
    | {"node-silent", "file-gone", "disk-full", "store-locked", "store-failing", "no-node"}
    | {"server-gone", "server-starting", "server-refuses", "bad-login", "bad-address", "no-database", "no-connections"}
    | {"server-read-only", "former-primary", "server-old", "no-rights", "no-driver"}
)
"""Causes that stop all jobs."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result: a headline, and the findings with their remedies, most severe first."""

    store: str
    status: Severity | None
    """The highest severity among the findings; None if there are none."""
    headline: str
    findings: tuple[Finding, ...] = ()
    others: tuple[Other, ...] = ()
    """Other stores and nodes that were seen."""
    at_ms: int = 0

    @property
    def well(self) -> bool:
        """Whether nothing is wrong; notes do not count."""
        return self.status in (None, Severity.NOTE)


def diagnose(facts: Facts, moment: Callable[[int], str]) -> Diagnosis:
    """Returns the diagnosis. `moment` formats a time."""
    if not facts.path:
        found = [by_ground.no_store(facts, f"no store was found: {'; '.join(facts.looked_in)}")]
    else:
        rules = (
            by_ground.ground,
            by_server.server,
            by_node.node,
            by_ground.two_stores,
            by_crew.crews,
            by_crew.replaced,
            by_queue.queues,
            by_queue.poison,
            by_queue.pauses,
            by_flow.flows,
        )
        found = in_order([finding for rule in rules for finding in rule(facts)])
    return Diagnosis(
        store=facts.path,
        status=next((each for each in Severity if any(each is finding.severity for finding in found)), None),
        headline=headline(facts, found, moment),
        findings=tuple(found),
        others=facts.others,
        at_ms=facts.now_ms,
    )


def headline(facts: Facts, findings: list[Finding], moment: Callable[[int], str]) -> str:
    """Returns a summary of all findings in one sentence."""
    grave = [finding for finding in findings if finding.severity is not Severity.NOTE]
    errors = [finding for finding in grave if finding.severity is Severity.ERROR]
    if errors and (errors[0].cause != "paused" or all(finding.cause == "paused" for finding in grave)):
        return f"{_not_working(facts, errors, moment)}{_backlog(facts)}"
    warnings = [finding for finding in grave if finding.severity is Severity.WARNING]
    if warnings:
        more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
        return f"{_doing(facts)}, but: {warnings[0].short}{more}{_backlog(facts)}"
    starting = next((finding for finding in findings if finding.cause == "node-starting"), None)
    return starting.short if starting else f"{_doing(facts)}{_backlog(facts)}{_last(facts)}"


def _not_working(facts: Facts, errors: list[Finding], moment: Callable[[int], str]) -> str:
    first = errors[0]
    workers = facts.node.view.workers if facts.node.view else ()
    affected = {finding.about for finding in errors}
    others = any(worker.status == Status.HEALTHY and worker.crew not in affected for worker in workers)
    if first.since_ms:  # nodes elsewhere may do the jobs
        queues = affected | {facts.queue_of(each) for each in affected}
        others |= any(at >= first.since_ms for queue, at in facts.last_done.items() if queue not in queues)
    partly = "partly " if first.cause not in GLOBAL and "*" not in affected and others else ""
    known = first.since_ms or (facts.done_ms if first.cause in GLOBAL else None)
    since = f" since {moment(known)}" if known else ""
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{partly}not working{since}: {first.short}{more}"


def _backlog(facts: Facts) -> str:
    if not facts.waits:
        return ""
    oldest = max(facts.waiting.values(), default=0)
    return f"; {facts.waits:,} waiting, the oldest {length(oldest / 1000)}"


def _last(facts: Facts) -> str:
    if facts.done_ms is None:
        return ""
    return f"; the last job was done {length(max(0, facts.now_ms - facts.done_ms) / 1000)} ago"


def _doing(facts: Facts) -> str:
    view = facts.node.view
    if view is None:
        peers = [] if facts.server is None else by_server.living(facts.server)
        return f"nodes elsewhere: {len(peers)}" if peers else "no node answers"
    busy = sum(worker.current_job is not None for worker in view.workers)
    of = Counter(worker.status for worker in view.workers)
    away = "".join(f", {of[status]} {status}" for status in (Status.PAUSED, Status.ASLEEP) if of[status])
    at = f"{of[Status.HEALTHY]} of {len(view.workers)} workers ready{away}"
    if busy:
        return f"working: {at}, {busy} busy"
    future, following = (sum(getattr(row, name) for row in facts.queues) for name in ("future", "following"))
    later = f", {in_future(future)}" if future else ""
    later += f", {jobs(following)} waiting for other jobs" if following else ""
    return f"{'no job is running' if facts.waits else 'nothing to do'}: {at}{later}"
