"""Findings about jobs that wait for other jobs, and about flows. Pure."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Awaited, Facts
from chargehand.model.doctor.wording import jobs, length
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.job import FINISHED, State

MOST_NAMED = 3
"""How many flows a finding names."""


def flows(facts: Facts) -> Iterator[Finding]:
    """Yields the queues in which every job waits for other jobs, and the flows that cannot go on."""
    for queue, awaited in sorted(facts.awaited.items()):
        yield _queue(facts, queue, awaited)
    yield from _flows(facts)


def _queue(facts: Facts, queue: str, awaited: Awaited) -> Finding:
    held = held_by(facts, awaited)
    why, remedy = held or _goes_on(facts, awaited)
    count = facts.count(queue).following
    wait = "waits" if count == 1 else "wait"
    return Finding(
        severity=Severity.ERROR if held else Severity.NOTE,
        cause="awaits-held" if held else "following",
        about=queue,
        short=f"{queue} waits for a job of {awaited.queue}",
        text=f"queue {queue}: {jobs(count)} {wait} for other jobs: for job {_named(awaited)}, which {why}",
        remedy=remedy,
    )


def _flows(facts: Facts) -> Iterator[Finding]:
    found = [(flow, held) for flow in facts.waiting_flows if (held := held_by(facts, flow.awaited)) is not None]
    if not found:
        return
    first, (why, remedy) = found[0]
    names = ", ".join(f"{flow.name} ({flow.id})" for flow, _ in found[:MOST_NAMED])
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    many = "1 flow has" if len(found) == 1 else f"{len(found)} flows have"
    yield Finding(
        severity=Severity.ERROR,
        cause="flow-held",
        about=first.id,
        short=f"{many} no job that can run",
        text=f"{many} no job that can run: {names}{more}; {first.name} waits for job {_named(first.awaited)}, which "
        f"{why}",
        remedy=f"{remedy}; {facts.command(f'flows show {first.id}')}",
    )


def _named(awaited: Awaited) -> str:
    label = f"{awaited.label}, " if awaited.label else ""
    return f"{awaited.id} ({label}queue {awaited.queue})"


def held_by(facts: Facts, awaited: Awaited) -> tuple[str, str] | None:
    """Returns why a job is not performed until a person acts, and the remedy; None if it will be."""
    if awaited.state in FINISHED:
        return _ended(facts, awaited)
    if awaited.state is State.RUNNING or facts.node.view is None or awaited.run_at_ms > facts.now_ms:
        return None
    crews = [row.name for row in facts.crews if row.queue == awaited.queue]
    if not crews:
        return "no crew serves", "declare its crew in the application that runs"
    paused = {pause.scope for pause in facts.pauses}
    if "*" in paused or paused.issuperset(crews):
        scope = "" if "*" in paused else f" {crews[0]}"
        return "is paused", facts.command(f"resume{scope}")
    members = [worker for worker in facts.node.view.workers if worker.crew in crews]
    if members and all(worker.status == Status.FAILED for worker in members):
        return f"waits for crew {crews[0]}, which was given up", facts.command(f"reset {crews[0]}")
    return None


def _ended(facts: Facts, awaited: Awaited) -> tuple[str, str]:
    """Returns why jobs still wait for one that has ended: a node completes that now and then."""
    reason = f" ({awaited.reason})" if awaited.reason else ""
    how = f"{'has failed' if awaited.state is State.FAILED else f'is {awaited.state.value}'}{reason}"
    if awaited.state is State.DONE:
        return how, "wait: a node that runs lets the jobs go on within a minute"
    return how, facts.command(f"jobs retry {awaited.id}")


def _goes_on(facts: Facts, awaited: Awaited) -> tuple[str, str]:
    shown = facts.command(f"jobs show {awaited.id}")
    if awaited.state is State.RUNNING:
        since = max(0, facts.now_ms - (awaited.started_ms or facts.now_ms)) / 1000
        return f"has been running for {length(since)}", f"wait; {shown}"
    if awaited.run_at_ms > facts.now_ms:
        return f"is due in {length((awaited.run_at_ms - facts.now_ms) / 1000)}", f"wait; {shown}"
    return "is queued", f"wait; {shown}"
