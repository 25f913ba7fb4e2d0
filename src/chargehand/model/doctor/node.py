"""Findings about the node: whether one runs, and what prevents it from working. Pure."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Facts, NodeFacts
from chargehand.model.doctor.ground import by_others
from chargehand.model.doctor.server import living
from chargehand.model.doctor.wording import length, times
from chargehand.model.wakeups import POLL_UNNOTIFIED

LONG_WAIT = 2.0
FORMER_PRIMARY = "former-primary"
"""Seconds of waiting for the store from which on it is reported as slow."""
YOUNG = 10.0
"""The age in seconds below which a node that does not answer may still be starting."""


def node(facts: Facts) -> Iterator[Finding]:
    """Yields the findings about the node."""
    found = facts.node
    if not found.held:
        yield from _absent(facts)
    elif found.view is None:
        yield _silent(facts, found)
    if found.held and found.gone_file:
        yield Finding(
            severity=Severity.ERROR,
            cause="file-gone",
            about=facts.path,
            short="the store was deleted while the node uses it",
            text=f"{found.gone_name or facts.path} was deleted or replaced while the node (pid {found.pid}) uses it: "
            "what it writes now is not in the file that others see",
            remedy=f"stop all processes that use it (kill -TERM {found.pid}), restore the file, and start them again",
        )
    if found.view is not None:
        yield from _working(facts)


def _absent(facts: Facts) -> Iterator[Finding]:
    if facts.stuck is not None or facts.ground.exists is False or facts.unusable:
        return  # another finding says that the store does not exist or cannot be examined
    if facts.server is not None and living(facts.server):
        return  # other machines perform the jobs
    elsewhere = next((other for other in facts.others if other.pid is not None), None)
    if elsewhere is not None:
        yield Finding(
            severity=Severity.WARNING,
            cause="two-stores",
            about=elsewhere.path,
            short="a node serves another store",
            text=f"no node serves {facts.path}, but another node of this user (pid {elsewhere.pid}) serves "
            f"{elsewhere.path}: are jobs enqueued in the wrong store?",
            remedy=f"export CHARGEHAND_URL={elsewhere.path}, if that is the right store",
        )
    plan = facts.node.restarts
    if plan is not None:
        wait = max(0, plan.at_ms - facts.now_ms) / 1000
        yield Finding(
            severity=Severity.ERROR,
            cause="node-dies",
            about=f"pid {plan.host}",
            short="the node exits repeatedly",
            since_ms=facts.last_beat_ms,
            text=f"the node of {facts.path} exited {times(plan.deaths)} within {length(plan.window)}, the last time "
            f"with {plan.last}; its host (pid {plan.host}) starts another in {length(wait)}",
            remedy=f"read the host's log; {facts.command('crashes')} shows which jobs ran; a job that ends its node "
            "is quarantined by itself",
        )
        return
    killed = facts.last_beat_ms is not None
    yield Finding(
        severity=Severity.ERROR,
        cause="no-node",
        about=facts.path,
        short="no node runs",
        since_ms=facts.last_beat_ms,
        text=f"no node serves {facts.path}: no jobs are performed"
        + ("; the last node did not shut down gracefully" if killed else ""),
        remedy="start one: chargehand work APP (as module:object), or your API",
    )
    if facts.orphans:
        pids = ", ".join(str(orphan.pid) for orphan in facts.orphans[:5])
        yield Finding(
            severity=Severity.WARNING,
            cause="orphans",
            about=facts.orphans[0].component,
            text=f"{len(facts.orphans)} process(es) of a dead node are still running (pid {pids})",
            remedy=f"the next node kills them when it starts; or: kill -KILL {' '.join(pids.split(', '))}",
            short="processes of a dead node are still running",
        )


def _silent(facts: Facts, found: NodeFacts) -> Finding:
    process = found.process
    who = f"the node that serves {facts.path} (pid {found.pid or 'unknown'})"
    since = facts.last_beat_ms
    if found.elsewhere:
        return Finding(
            severity=Severity.ERROR,
            cause="node-elsewhere",
            about=facts.path,
            short="the node is in another container",
            text=f"{who} runs in another pid namespace (another container?): its processes are not visible here",
            remedy="run all processes that use this file in one container, or use a separate store for each",
        )
    if process is not None and process.state in "Tt":
        return Finding(
            severity=Severity.ERROR,
            cause="node-stopped",
            about=f"pid {found.pid}",
            since_ms=since,
            text=f"{who} was stopped by a signal (Ctrl+Z, SIGSTOP or a debugger): it does nothing until continued",
            remedy=f"kill -CONT {found.pid}",
            short="the node was stopped by a signal",
        )
    if found.refused:
        owner = process.user if process else "another user"
        return Finding(
            severity=Severity.ERROR,
            cause="not-allowed",
            about=f"pid {found.pid}",
            short="the node belongs to another user",
            text=f"{who} belongs to {owner} and refuses the connection",
            remedy=f"sudo -u {owner} chargehand doctor --store {facts.path}",
        )
    if process is not None and process.age_s < YOUNG and not found.listens:
        return Finding(
            severity=Severity.NOTE,
            cause="node-starting",
            about=f"pid {found.pid}",
            short="the node is starting",
            text=f"{who} was started {length(process.age_s)} ago and does not answer yet",
            remedy="wait a moment, and try again",
        )
    if found.no_socket:
        return Finding(
            severity=Severity.WARNING,
            cause="socket-gone",
            about=f"{facts.path}-sock",
            short="the node's socket was deleted",
            text=f"the control socket of {who}, {facts.path}-sock, was deleted: the node performs jobs, but commands "
            "and API processes cannot reach it",
            remedy="wait 10 seconds, in which the node creates it again; if it does not: "
            f"kill -TERM {found.pid or 'PID'}, and its host starts another",
        )
    state = {"D": "; the kernel waits for its disk", "R": "; it is busy"}.get(process.state if process else "", "")
    return Finding(
        severity=Severity.ERROR,
        cause="node-silent",
        about=f"pid {found.pid}",
        since_ms=since,
        text=f"{who} does not answer ({found.silent or 'it does not listen'}{state})",
        short="the node does not answer",
        remedy=f"check its log; if it does not recover: kill -TERM {found.pid or 'PID'}, and its host starts another",
    )


def _working(facts: Facts) -> Iterator[Finding]:
    view = facts.node.view
    assert view is not None
    if view.store.failing and not facts.node.gone_file:
        yield Finding(
            severity=Severity.ERROR,
            cause=FORMER_PRIMARY if view.store.code == FORMER_PRIMARY else "store-failing",
            about=facts.path,
            short="the store cannot be written",
            text=f"the node cannot write to the store: {view.store.failing}",
            remedy="fix the error; outcomes wait in the node and are written afterwards",
        )
    elif (view.store.waiting_s or 0) > LONG_WAIT and not by_others(facts):
        yield Finding(
            severity=Severity.WARNING,
            cause="store-slow",
            about=facts.path,
            short="the store is slow",
            text=f"the node has waited for the store for {length(view.store.waiting_s or 0)}",
            remedy="check the disk (`iostat`), and which processes write to the file",
        )
    elif view.store.notified is False and view.store.unnotified and not (facts.server and facts.server.pooled):
        yield Finding(
            severity=Severity.NOTE,
            cause="no-listen",
            about=facts.path,
            short="no notifications arrive",
            text=f"no notifications arrive at the node ({view.store.unnotified}): it finds jobs of other processes by "
            f"polling, every {POLL_UNNOTIFIED:g} s",
            remedy="nothing, or give the nodes a URL that leads to the server itself",
        )
    if view.stopping:
        yield Finding(
            severity=Severity.WARNING,
            cause="node-stopping",
            about=f"pid {view.pid}",
            short="the node is stopping",
            text=f"the node (pid {view.pid}) is stopping: {view.stopping}",
            remedy="wait until it has stopped, then start its host again",
        )
    if view.version and view.version != facts.version:
        yield Finding(
            severity=Severity.WARNING,
            cause="version-skew",
            about=f"pid {view.pid}",
            text=f"the node (pid {view.pid}) runs Chargehand {view.version}, this is {facts.version}",
            remedy="restart the node's host, so that both have the same version",
            short=f"node {view.version}, command line {facts.version}",
        )
    for left in view.unkillable:
        yield Finding(
            severity=Severity.WARNING,
            cause="unkillable",
            about=left.component,
            short=f"pid {left.pid} cannot be killed",
            text=f"pid {left.pid}, formerly {left.component}, does not exit after SIGKILL: the kernel waits for a "
            "driver or disk; its job and its worker are blocked",
            remedy="check the driver or the disk that it waits for; if necessary, reboot",
        )
