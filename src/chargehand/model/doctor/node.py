"""Whether there is a node, and what keeps it from working: pure, facts in, findings out."""

from collections.abc import Iterator

from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.facts import Facts, NodeFacts
from chargehand.model.doctor.ground import by_others
from chargehand.model.doctor.wording import length

LONG_WAIT = 2.0
"""Seconds that a node may wait for the store before that is remarkable."""
YOUNG = 10.0
"""Seconds in which a node may still be starting."""


def node(facts: Facts) -> Iterator[Finding]:
    """Whether there is one, and whether it can work."""
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
            short="the store was deleted under the node",
            text=f"{facts.path} was deleted or replaced while the node (pid {found.pid}) uses it: what is written now "
            "is not in the file that others see",
            remedy=f"stop everything that uses it, put the right file back, and start again: kill -TERM {found.pid}",
        )
    if found.view is not None:
        yield from _working(facts)


def _absent(facts: Facts) -> Iterator[Finding]:
    if facts.stuck is not None or facts.ground.exists is False:
        return  # what matters is that we could not look, or that there is nothing
    elsewhere = next((other for other in facts.others if other.pid is not None), None)
    if elsewhere is not None:
        yield Finding(
            severity=Severity.WARNING,
            cause="two-stores",
            about=elsewhere.path,
            short="a node serves another store",
            text=f"no node serves {facts.path}, but one of yours (pid {elsewhere.pid}) serves {elsewhere.path}: is "
            "work enqueued into one file and looked for in the other?",
            remedy=f"export CHARGEHAND_URL={elsewhere.path}, if that is the one that is meant",
        )
    killed = facts.last_beat_ms is not None
    yield Finding(
        severity=Severity.ERROR,
        cause="no-node",
        about=facts.path,
        short="no node runs",
        since_ms=facts.last_beat_ms,
        text=f"no node serves {facts.path}: nothing is being done"
        + ("; the last one did not end in order" if killed else ""),
        remedy="start one: chargehand work APP (as module:object), or your API",
    )
    if facts.orphans:
        pids = ", ".join(str(orphan.pid) for orphan in facts.orphans[:5])
        yield Finding(
            severity=Severity.WARNING,
            cause="orphans",
            about=facts.orphans[0].component,
            text=f"{len(facts.orphans)} process(es) of an ended node still run (pid {pids})",
            remedy=f"the next node ends them when it starts; or: kill -KILL {' '.join(pids.split(', '))}",
            short="processes of an ended node still run",
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
            text=f"{who} lives in another pid namespace (another container?): nobody here can see its processes",
            remedy="run everything that uses this file in one container, or give each a store of its own",
        )
    if process is not None and process.state in "Tt":
        return Finding(
            severity=Severity.ERROR,
            cause="node-stopped",
            about=f"pid {found.pid}",
            since_ms=since,
            text=f"{who} was stopped by a signal (Ctrl+Z, SIGSTOP or a debugger): it does nothing until it goes on",
            remedy=f"kill -CONT {found.pid}",
            short="the node was stopped by a signal",
        )
    if found.refused:
        owner = process.user if process else "another user"
        return Finding(
            severity=Severity.ERROR,
            cause="not-allowed",
            about=f"pid {found.pid}",
            short="the node is another user's",
            text=f"{who} belongs to {owner}, and you may not ask it",
            remedy=f"sudo -u {owner} chargehand doctor --store {facts.path}",
        )
    if process is not None and process.age_s < YOUNG and not found.listens:
        return Finding(
            severity=Severity.NOTE,
            cause="node-starting",
            about=f"pid {found.pid}",
            short="the node is starting",
            text=f"{who} was started {length(process.age_s)} ago and does not answer yet",
            remedy="wait a moment, and ask again",
        )
    state = {"D": "; the kernel waits for its disk", "R": "; it is busy"}.get(process.state if process else "", "")
    return Finding(
        severity=Severity.ERROR,
        cause="node-silent",
        about=f"pid {found.pid}",
        since_ms=since,
        text=f"{who} does not answer ({found.silent or 'nobody listens'}{state})",
        short="the node does not answer",
        remedy=f"look at its log; if it stays so: kill -TERM {found.pid or 'PID'}, and its host starts another",
    )


def _working(facts: Facts) -> Iterator[Finding]:
    view = facts.node.view
    assert view is not None
    if view.store.failing and not facts.node.gone_file:
        yield Finding(
            severity=Severity.ERROR,
            cause="store-failing",
            about=facts.path,
            short="the store cannot be written",
            text=f"the node cannot write: {view.store.failing}",
            remedy="mend what it says; outcomes wait in the node and are written afterwards",
        )
    elif (view.store.waiting_s or 0) > LONG_WAIT and not by_others(facts):
        yield Finding(
            severity=Severity.WARNING,
            cause="store-slow",
            about=facts.path,
            short="the store is slow",
            text=f"the node has waited for the store for {length(view.store.waiting_s or 0)}",
            remedy="look at the disk (`iostat`), and at who writes to the file",
        )
    if view.stopping:
        yield Finding(
            severity=Severity.WARNING,
            cause="node-stopping",
            about=f"pid {view.pid}",
            short="the node is stopping",
            text=f"the node (pid {view.pid}) is stopping: {view.stopping}",
            remedy="wait until it is gone, then start its host again, if it is to go on",
        )
    if view.version and view.version != facts.version:
        yield Finding(
            severity=Severity.WARNING,
            cause="version-skew",
            about=f"pid {view.pid}",
            text=f"the node (pid {view.pid}) runs Chargehand {view.version}, this is {facts.version}",
            remedy="restart the node's host, so that both are of one version",
            short=f"node {view.version}, command line {facts.version}",
        )
    for left in view.unkillable:
        yield Finding(
            severity=Severity.WARNING,
            cause="unkillable",
            about=left.component,
            short=f"pid {left.pid} cannot be killed",
            text=f"pid {left.pid}, once {left.component}, does not die of SIGKILL: the kernel waits for a driver or "
            "disk; it keeps its job and its place",
            remedy="see to the driver or the disk that it waits for; at worst, reboot",
        )
