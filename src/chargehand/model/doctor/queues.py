"""Findings about queues and pauses. Pure."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Facts, PoisonFact
from chargehand.model.doctor.server import living
from chargehand.model.doctor.wording import in_future, jobs, length, times
from chargehand.model.job import State

MOST_NAMED = 3
"""How many jobs a finding names."""

_ONE_NODE = (
    "declare its crew in the application that runs, and restart it (a second one on the same store only waits), give "
    "the other application its own store, or use the right queue name"
)
_SEVERAL_NODES = (
    "declare its crew in an application that runs, start a node of the application that has it (on a machine with "
    "another node, with another NODE_NAME), or use the right queue name"
)


def _elsewhere(facts: Facts, known: set[str]) -> Iterator[Finding]:
    """Yields the queues that no node serves, while nodes run on other machines only."""
    for queue, why in sorted(facts.unserved.items()):
        count = jobs(max(1, facts.count(queue).due))
        status = f"{facts.command('status')} shows the workers of all nodes; `chargehand doctor` there says more"
        yield Finding(
            severity=Severity.ERROR,
            cause="no-workers" if queue in known else "no-crew",
            about=queue,
            short=f"no node serves {queue}",
            text=f"queue {queue}: {count} waiting that no worker of any node takes: {why}",
            remedy=status if queue in known else _SEVERAL_NODES,
        )


def queues(facts: Facts) -> Iterator[Finding]:
    """Yields the findings about queues."""
    served = {row.queue for row in facts.crews}
    if facts.node.view is not None:
        for queue in sorted(set(facts.waiting) - served):
            yield Finding(
                severity=Severity.ERROR,
                cause="no-crew",
                about=queue,
                short=f"no crew serves {queue}",
                text=f"queue {queue}: {jobs(max(1, facts.count(queue).due))} waiting, but no crew serves it",
                remedy=_ONE_NODE if facts.server is None else _SEVERAL_NODES,
            )
    elif facts.server is not None and living(facts.server):
        yield from _elsewhere(facts, served)
    running, future = (sum(getattr(row, name) for row in facts.queues) for name in ("running", "future"))
    if future and not facts.waits and not running:
        first = min(facts.next_run.values(), default=None)
        soon = "" if first is None else f", the first in {length(max(0, first) / 1000)}"
        yield Finding(
            severity=Severity.NOTE,
            cause="future",
            about="queues",
            short=f"{in_future(future)}{soon}",
            text=f"all waiting jobs are scheduled for later: {jobs(future)}{soon}",
            remedy=facts.command("jobs list"),
        )
    failed = {row.queue: row.failed for row in facts.queues if row.failed}
    if failed:
        each = ", ".join(f"{queue} {count:,}" for queue, count in failed.items())
        yield Finding(
            severity=Severity.NOTE,
            cause="failed-jobs",
            about="queues",
            short=f"{jobs(sum(failed.values()))} failed",
            text=f"{jobs(sum(failed.values()))} failed permanently: {each}",
            remedy=f"{facts.command('jobs list --state failed')}; {facts.command('jobs retry --all')} retries them",
        )


def poison(facts: Facts) -> Iterator[Finding]:
    """Yields the jobs that crash their workers: the first of them by name, and how many there are."""
    if not facts.poison:
        return
    first, count = facts.poison[0], len(facts.poison)
    named = ", ".join(_poison(job) for job in facts.poison[:MOST_NAMED])
    more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    alive = first.state is not State.FAILED
    again = "it is tried again" if alive else f"after the fix: {facts.command(f'jobs retry {first.id}')}"
    yield Finding(
        severity=Severity.WARNING if alive else Severity.NOTE,
        cause="poison",
        about=first.id,
        short=f"{jobs(count)} crashed several workers",
        text=f"{jobs(count)} crashed several workers: {named}{more}",
        remedy=f"{facts.command(f'jobs show {first.id}')}; {facts.command(f'crashes --job {first.id}')} has the "
        f"reports; {again}",
    )


def _poison(job: PoisonFact) -> str:
    where = f"queue {job.queue}, {times(job.crashes)}"
    return f"{job.label} ({job.id}, {where})" if job.label else f"{job.id} ({where})"


def pauses(facts: Facts) -> Iterator[Finding]:
    """Yields the pauses: what is paused, by whom, why and until when."""
    for pause in facts.pauses:
        crew = pause.scope.removeprefix("worker:").partition(":")[0]
        waiting = facts.waits if pause.scope == "*" else facts.waits_for(crew)
        whole = not pause.scope.startswith("worker:")
        what = "everything" if pause.scope == "*" else pause.scope
        who = "resume" if pause.scope == "*" else f"resume {pause.scope.removeprefix('worker:')}"
        until = "until it is resumed" if pause.left_ms is None else f"for another {length(pause.left_ms / 1000)}"
        ago = length(max(0, facts.now_ms - pause.since_ms) / 1000)
        yield Finding(
            severity=Severity.NOTE if not waiting else Severity.ERROR if whole else Severity.WARNING,
            cause="paused",
            text=f"{what} was paused by {pause.who} {ago} ago, {until}: {pause.reason or 'no reason was given'}",
            remedy=facts.command(who),
            about=pause.scope,
            since_ms=pause.since_ms,
            short=f"{what} paused by {pause.who}" + (f" ({pause.reason})" if pause.reason else ""),
        )
