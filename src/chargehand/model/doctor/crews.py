"""Findings about crews and workers: why they do not perform their jobs. Pure."""

import math
from collections.abc import Iterator, Sequence

from chargehand.errors import summary
from chargehand.model.address import written
from chargehand.model.doctor import server as by_server
from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Crash, Facts, QueueFacts
from chargehand.model.doctor.wording import jobs, length, times
from chargehand.model.fleet.death import Reason, crash_line
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Shortage
from chargehand.model.job import DEFAULT_POLICY
from chargehand.model.status import NodeWorker

LONG_WAITING_MS = 15_000
"""A job that waits longer than this although a worker is free is reported as unexplained."""
FEW_LEFT = 1
"""The number of remaining restarts at which a crashing worker is reported."""
AT_WORK = (Status.HEALTHY, Status.PAUSED)


def crews(facts: Facts) -> Iterator[Finding]:
    """Yields the findings about the crews of a node that answers, or else those that the store contains."""
    view = facts.node.view
    if view is None:
        yield from _remembered(facts)
        return
    names = dict.fromkeys([*(row.name for row in facts.crews), *(worker.crew for worker in view.workers)])
    for name in names:
        members = [worker for worker in view.workers if worker.crew == name]
        yield from _crew(facts, name, members, view.breakers.get(name))
    for crew, why in view.blind.items():
        yield _blind(facts, crew, why)
    for worker in view.workers:
        yield from _worker(facts, worker)


def replaced(facts: Facts) -> Iterator[Finding]:
    """Yields the workers that were replaced lately, and the crews whose fresh processes fail, too."""
    for row in facts.replaced:
        shared = facts.server is not None  # other nodes may have workers of the same name
        name = written(row.node, row.component) if shared else row.component.removeprefix("worker:")
        ago = length(max(0, facts.now_ms - row.at_ms) / 1000)
        why = summary(row.text.removeprefix(f"{row.reason}: "))
        yield Finding(
            severity=Severity.WARNING,
            cause="replaced",
            about=row.component,
            short=f"{name} was replaced: {why}",
            text=f"{name if shared else row.component} was replaced {ago} ago: {why}",
            remedy=facts.command(f"crashes --worker {name}"),
            since_ms=row.at_ms,
        )
    view = facts.node.view
    suspect_after = DEFAULT_POLICY.suspect_after if view is None else view.suspect_after
    for crew in dict.fromkeys(row.crew for row in facts.replaced):
        last = max((row for row in facts.replaced if row.crew == crew), key=lambda row: row.at_ms)
        queue = facts.queue_of(crew)
        if last.failed_since < suspect_after or facts.last_done.get(queue, 0) >= last.at_ms:
            continue
        yield Finding(
            severity=Severity.ERROR,
            cause="failing",
            about=crew,
            short=f"every job of {crew} fails" + (f", {summary(last.error, 120)}" if last.error else ""),
            text=f"crew {crew}: {jobs(last.failed_since)} failed and none was done since {last.component} was "
            f"replaced: {last.error or 'the cause is not one process'}",
            remedy=f"{facts.command(f'jobs list --queue {queue} --state failed')} has the errors; fix the cause, then "
            f"{facts.command(f'jobs retry --queue {queue} --state failed')}",
            since_ms=last.at_ms,
        )


def died_of(facts: Facts, crew: str, otherwise: str) -> str:
    """Describes briefly why a crew's workers die."""
    last: Crash | None = next((crash for crash in facts.crashes if crash.crew == crew), None)
    if last is None:
        return summary(otherwise, 120)
    return summary(crash_line(last.reason, last.text, signal=last.signal, where=last.where).line, 120)


def _remembered(facts: Facts) -> Iterator[Finding]:
    """Yields the crews with workers that were given up, when no node answers here; others may run elsewhere."""
    nodes = [] if facts.server is None else [peer.name for peer in by_server.living(facts.server)]
    for crew in dict.fromkeys(mark.crew for mark in facts.given_up):
        marks = [mark for mark in facts.given_up if mark.crew == crew]
        elsewhere = [mark for mark in marks if mark.node in nodes]
        configured = next((row.workers for row in facts.crews if row.name == crew), 0) * len(nodes)
        if elsewhere:
            marks = elsewhere
            on = ", ".join(sorted({mark.node for mark in marks}))
            text = f"crew {crew}: {len(marks)} given up on {on}: {died_of(facts, crew, marks[-1].reason)}"
            remedy = f"{facts.command(f'crashes --crew {crew}')} has the reports; then {facts.command(f'reset {crew}')}"
        else:
            text = f"crew {crew}: {len(marks)} given up earlier ({summary(marks[-1].reason)}); the next node starts "
            text += "them only if the code or the settings have changed"
            remedy = f"{facts.command(f'crashes --crew {crew}')}; once a node runs: {facts.command(f'reset {crew}')}"
        yield Finding(
            severity=Severity.ERROR if 0 < configured <= len(elsewhere) else Severity.WARNING,
            cause="given-up",
            about=crew,
            since_ms=max(mark.at_ms for mark in marks),
            text=text,
            remedy=remedy,
            short=f"{crew}, {len(marks)} given up, {died_of(facts, crew, marks[-1].reason)}",
        )


def _crew(facts: Facts, crew: str, members: Sequence[NodeWorker], breaker: str | None) -> Iterator[Finding]:
    waiting = facts.waits_for(crew)
    if not members:
        view = facts.node.view
        others_serve = facts.server is not None and view is not None and facts.queue_of(crew) not in view.unserved
        if waiting and not others_serve:
            yield Finding(
                severity=Severity.ERROR,
                cause="no-workers",
                about=crew,
                short=f"{crew} has no workers",
                text=f"crew {crew} has no workers; {jobs(waiting)} waiting",
                remedy=facts.command(f"scale {crew} 1"),
            )
        return
    failed = [worker for worker in members if worker.status == Status.FAILED]
    if failed:
        yield _given_up(facts, crew, failed, len(members))
    if len(failed) == len(members):
        return
    left = [worker for worker in members if worker.status != Status.FAILED]
    if breaker is not None:
        yield _breaker(facts, crew, left, breaker)
    else:
        yield from _backoff(facts, crew, left)
    yield from _not_there(facts, crew, left, waiting)
    yield from _busy(facts, crew, left, waiting)


def _given_up(facts: Facts, crew: str, failed: Sequence[NodeWorker], of: int) -> Finding:
    marks = [mark.at_ms for mark in facts.given_up if mark.crew == crew]
    why = _why(failed)
    short = died_of(facts, crew, why)
    return Finding(
        severity=Severity.ERROR if len(failed) == of else Severity.WARNING,
        cause="given-up",
        about=crew,
        text=f"crew {crew}: {len(failed)} of {of} given up: {summary(why)}",
        remedy=f"{facts.command(f'crashes --crew {crew}')} has the reports; then {facts.command(f'reset {crew}')}",
        short=f"{crew}, {len(failed)} of {of} given up, {short}",
        since_ms=max(marks, default=None),
    )


def _why(workers: Sequence[NodeWorker]) -> str:
    """Returns why the first of the workers that says so is down, in one line."""
    return next((worker.cause or worker.text for worker in workers if worker.text), None) or "unknown reason"


def _blind(facts: Facts, crew: str, why: str) -> Finding:
    again = facts.command(f"restart {crew}"), facts.command(f"wake {crew}")
    return Finding(
        severity=Severity.ERROR,
        cause="blind",
        about=crew,
        text=f"crew {crew}: discover fails: {summary(why)}",
        remedy=f"fix the error; then {again[0]} if the code has changed, else {again[1]}",
        short=f"discover of {crew} fails",
    )


def _breaker(facts: Facts, crew: str, left: Sequence[NodeWorker], why: str) -> Finding:
    at_work = any(worker.status in AT_WORK for worker in left)
    since = next((crash.at_ms for crash in facts.crashes if crash.crew == crew), None)
    return Finding(
        severity=Severity.WARNING if at_work else Severity.ERROR,
        cause="breaker",
        about=crew,
        since_ms=since,
        text=f"crew {crew}: all workers crashed of one cause, so only one is restarted: {died_of(facts, crew, why)}",
        remedy=f"fix the cause ({facts.command(f'crashes --crew {crew}')}), then {facts.command(f'reset {crew}')}",
        short=f"{crew}, all crashed, {died_of(facts, crew, why)}",
    )


def _backoff(facts: Facts, crew: str, left: Sequence[NodeWorker]) -> Iterator[Finding]:
    crashed = [worker for worker in left if worker.status == Status.CRASHED]
    if not crashed:
        return
    soonest = min((worker.restart_in_s for worker in crashed if worker.restart_in_s is not None), default=None)
    back = "" if soonest is None else f"; the first restarts in {length(soonest)}"
    why = _why(crashed)
    yield Finding(
        severity=Severity.ERROR if len(crashed) == len(left) else Severity.WARNING,
        cause="backoff",
        about=crew,
        text=f"crew {crew}: {len(crashed)} of {len(left)} crashed and wait to be restarted: {summary(why)}{back}",
        remedy=f"{facts.command(f'crashes --crew {crew}')}; to restart at once: {facts.command(f'reset {crew}')}",
        short=f"{crew}, {len(crashed)} of {len(left)} crashed, {died_of(facts, crew, why)}",
        since_ms=next((crash.at_ms for crash in facts.crashes if crash.crew == crew), None),
    )


def _not_there(facts: Facts, crew: str, left: Sequence[NodeWorker], waiting: int) -> Iterator[Finding]:
    """Yields why no worker of the crew runs, if none crashed: loading, lack of memory, or stopped by an operator."""
    roomless = [worker for worker in left if worker.shortage is not None]
    if roomless:
        never = roomless[0].shortage is Shortage.PERMANENT
        yield Finding(
            severity=Severity.ERROR if never and len(roomless) == len(left) else Severity.WARNING,
            cause="no-room",
            about=crew,
            text=f"crew {crew}: {len(roomless)} of {len(left)} not started: {roomless[0].text}",
            remedy=f"declare less memory or fewer GPUs, or scale down another crew: {facts.command('scale CREW N')}",
            short=f"{crew}, no memory or GPU for {len(roomless)} of {len(left)}",
        )
    if any(worker.status in (*AT_WORK, Status.CRASHED) for worker in left):
        return
    loading = [worker for worker in left if worker.status == Status.STARTING]
    if loading:
        longest = max((worker.started_s or 0.0 for worker in loading), default=0.0)
        yield Finding(
            severity=Severity.WARNING if waiting else Severity.NOTE,
            cause="loading",
            about=crew,
            text=f"crew {crew}: {len(loading)} of {len(left)} still loading, for {length(longest)}; none is ready",
            remedy=f"wait; {facts.command(f'logs {crew}')} shows their output",
            short=f"{crew} is still loading",
        )
        return
    away = (Status.STOPPED, Status.STOPPING)
    stopped = [w for w in left if w.status in away and w.reason != Reason.IDLE and w not in roomless]
    if stopped and len(stopped) == len(left):
        how = stopped[0].text or stopped[0].reason or "stopping"
        yield Finding(
            severity=Severity.ERROR if waiting else Severity.NOTE,
            cause="stopped",
            about=crew,
            short=f"{crew} is stopped",
            text=f"crew {crew}: {'all workers' if len(left) > 1 else 'its only worker'} stopped"
            f"{'' if stopped[0].reason == Reason.STOPPED else f' ({how})'}; {jobs(waiting)} waiting",
            remedy=facts.command(f"start {crew}"),
        )


def _busy(facts: Facts, crew: str, left: Sequence[NodeWorker], waiting: int) -> Iterator[Finding]:
    """Yields why jobs wait although the crew is running."""
    queue = facts.queue_of(crew)
    count, rule = facts.count(queue), next((row for row in facts.crews if row.name == crew), None)
    allowed = None if rule is None else rule.limit
    if waiting and allowed is not None and count.running >= allowed:
        yield _limited(facts, queue, f"{count.running} jobs are running, the limit is {allowed}", waiting)
        return
    if count.rate_next_ms is not None and not _is_paused(facts, crew):
        yield _rated(facts, queue, count)
        return
    if count.limited:
        yield _limited(facts, queue, "the limit per key is reached", count.limited)
    at_work = [worker for worker in left if worker.status == Status.HEALTHY]
    if not waiting or not at_work or _is_paused(facts, crew):
        return
    free = [worker for worker in at_work if worker.current_job is None]
    if not free:
        longest = max(at_work, key=lambda worker: worker.job_s or 0.0)
        yield Finding(
            severity=Severity.NOTE,
            cause="busy",
            about=crew,
            short=f"all workers of {crew} are busy",
            text=f"crew {crew}: all {len(at_work)} busy, the longest ({longest.current_job}, {longest.component}) "
            f"for {length(longest.job_s or 0)}; {jobs(waiting)} waiting",
            remedy=facts.command(f"scale {crew} {len(left) + 1}") + ", if the machine has capacity",
        )
    elif (
        facts.waiting.get(queue, 0) > LONG_WAITING_MS
        and facts.now_ms - facts.last_done.get(queue, 0) > LONG_WAITING_MS  # otherwise it is between two jobs
        and min(worker.ready_s or 0 for worker in free) > 15
    ):
        yield Finding(
            severity=Severity.WARNING,
            cause="unexplained",
            about=crew,
            short=f"{crew} does not take its waiting jobs",
            text=f"crew {crew}: {jobs(waiting)} waiting, the oldest for {length(facts.waiting[queue] / 1000)}, but "
            f"{free[0].component} is free, for no known reason",
            remedy=f"report it with {facts.command('doctor --bundle FILE')}; then {facts.command(f'restart {crew}')}",
        )


def _limited(facts: Facts, queue: str, why: str, waiting: int) -> Finding:
    return Finding(
        severity=Severity.NOTE,
        cause="limit",
        about=queue,
        short=f"the limit of {queue} is reached",
        text=f"queue {queue}: {why}; {jobs(waiting)} waiting",
        remedy=f"{facts.command('claims')} shows the running jobs; to allow more, raise limit or limit_per_key",
    )


def _rated(facts: Facts, queue: str, count: QueueFacts) -> Finding:
    own = [row for row in facts.crews if row.queue == queue]
    said = [f"rate={row.rate}" for row in own if row.rate is not None]
    said += [f"rate_per_key={row.rate_per_key}" for row in own if row.rate_per_key is not None]
    wait = max(1, math.ceil(((count.rate_next_ms or 0) - facts.now_ms) / 1000))
    return Finding(
        severity=Severity.NOTE,
        cause="rate",
        about=queue,
        short=f"{queue} is limited by rate, next in {length(wait)}",
        text=f"queue {queue}: limited by rate ({', '.join(dict.fromkeys(said)) or 'of another node'}), next in "
        f"{length(wait)}; {jobs(count.queued - count.future - count.following)} waiting",
        remedy="wait; to allow more, raise rate or rate_per_key of the crew",
    )


def _is_paused(facts: Facts, crew: str) -> bool:
    return any(pause.scope in ("*", crew) for pause in facts.pauses)


def _why_not_killed(worker: NodeWorker, doing: str) -> str:
    if worker.concurrency == 1:
        return f"{doing}, but uses CPU time, so it is not killed"
    if worker.in_hand == 1:
        return ": its job blocks the event loop; the timeout of the job applies"
    return f": one of its {jobs(worker.in_hand)} blocks the event loop, and the others wait; their timeouts apply"


def _worker(facts: Facts, worker: NodeWorker) -> Iterator[Finding]:
    name = worker.component.removeprefix("worker:")
    if worker.flags and worker.status in AT_WORK:
        doing = f" in {worker.current_job}, for {length(worker.job_s or 0)}" if worker.current_job else ""
        yield Finding(
            severity=Severity.WARNING,
            cause="stuck",
            about=worker.component,
            short=f"{name} is {worker.flags[0]}",
            text=f"{worker.component} is {', '.join(worker.flags)}{_why_not_killed(worker, doing)}",
            remedy=f"wait, or {facts.command(f'restart {name}')}"
            if worker.concurrency == 1
            else f"{facts.command(f'stack {name}')} shows the code that blocks: await it, or use asyncio.to_thread",
        )
    if worker.budget is None or worker.status == Status.FAILED or not worker.restart_count:
        return
    left = min(worker.budget.rapid_left, worker.budget.lifetime_left)
    if left <= FEW_LEFT:
        yield Finding(
            severity=Severity.WARNING,
            cause="crashing",
            about=worker.component,
            short=f"{name} crashes repeatedly",
            text=f"{worker.component} has been restarted {times(worker.restart_count)}; {left} left before it is "
            f"given up: {died_of(facts, worker.crew, worker.text or '')}",
            remedy=facts.command(f"crashes --worker {name}"),
        )
