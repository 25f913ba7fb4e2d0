"""Lets jobs go on when those that they wait for have ended, in PostgreSQL; `model.flows` decides what becomes of them.

Part of a transaction: it neither begins nor ends one. An outcome of a node waits for no other transaction here. What it
cannot decide at once, because somebody else has locked a follower, is left in the store as due, and looked at again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from chargehand import clock
from chargehand.errors import StoreBusy
from chargehand.model.flows import Ended, fail_further, why_failed, why_in_circle, why_no_flow, why_not_found
from chargehand.model.job import PREDECESSOR, State
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.adding import as_json
from chargehand.stores.postgres.session import Session, numbers
from chargehand.stores.rows import readable

PATIENCE_MS, PATIENCE_OF_OTHERS_MS = 50, 500
"""How long a node waits for other transactions to look at edges and flows: turns of other nodes are shorter. A process
that is no node holds nobody up; but it gives way before the server, after a second, looks for deadlocks and ends one of
those that wait for each other."""
LONGEST_WAIT = 30.0
"""Seconds for which an operation of a person waits for others in all."""
LOOK_AT_ONCE = 1000
"""How many edges are looked at before the next ones are read."""
MOST_BELOW = 10_000
"""How many edges are read at a time to find what fails together with jobs."""
IN_SEQUENCE = -1
"""The `nr` of an edge between two jobs of a sequence."""
IN_CIRCLE = -3
"""The `nr` of an edge of a job that would wait for itself."""
OUTSIDE = -2
"""The `nr` of an edge of a job whose flow has ended or does not exist."""
NO_FLOW = "flow"
"""The reason of a job that failed because its flow has ended or does not exist."""
_FIRST = (-1, -(1 << 31), -(1 << 63))

_SQL = statements.load("flows")


def patience(db: Session) -> int:
    """Returns for how many ms a transaction waits for others."""
    return PATIENCE_OF_OTHERS_MS if db.announces else PATIENCE_MS


def lock(db: Session, sql: bytes, args: Sequence[Any], seconds: float = LONGEST_WAIT) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement that locks them for an operation of a person. Raises StoreBusy.

    Between its attempts it holds none of them: others that have some of them locked, and wait for the rest, go first.
    """
    until = clock.monotonic() + seconds
    while True:
        try:
            with db.attempt(patience(db)):
                return db.rows(sql, args)
        except StoreBusy:
            if clock.monotonic() >= until or not db.announces:
                raise


class Ready(NamedTuple):
    """A job that can be claimed, by its place in its queue."""

    queue: str
    rank: int
    place: int
    seq: int


class Effects:
    """What the ends of jobs in one transaction meant for others."""

    def __init__(self) -> None:
        self.ready: list[Ready] = []
        """The jobs that became ready."""
        self.flows: set[str] = set()
        """The flows that may have ended."""
        self.due = False
        """Whether edges must be looked at."""
        self.woken: set[str] = set()
        """The queues of the jobs that became ready, and of those that were enqueued because flows ended."""
        self.ended_flows: list[str] = []

    def add(self, released: Iterable[tuple[str, int, int, int, bool]]) -> None:
        """Notes jobs that wait for no other any more, and whether they can be claimed."""
        for queue, rank, place, seq, ready in released:
            if ready:
                self.ready.append(Ready(queue, rank, place, seq))
                self.woken.add(queue)

    def join(self, other: "Effects") -> None:
        """Adds the effects of another part of the same turn."""
        self.ready += other.ready
        self.flows |= other.flows
        self.due |= other.due
        self.woken |= other.woken
        self.ended_flows += other.ended_flows


class Edge(NamedTuple):
    """A job and one that it waits for."""

    job: int
    nr: int
    predecessor: int
    strict: bool
    ordinal: int | None = None


class _Page(msgspec.Struct):
    """What was decided about a page of edges."""

    looked_at: list[tuple[Edge, bool]] = msgspec.field(default_factory=list[tuple[Edge, bool]])
    """Edges that are no longer due, and whether they stay open."""
    failed: dict[int, tuple[str, str]] = msgspec.field(default_factory=dict[int, tuple[str, str]])
    """The jobs that fail, each with the reason and the error."""
    added: list[Edge] = msgspec.field(default_factory=list[Edge])


class Following:
    """The followers of jobs that have ended, in one transaction."""

    def __init__(self, db: Session, now: int | None, effects: Effects) -> None:
        self._db, self._now, self.effects = db, now, effects

    def close(self, claims: Collection[tuple[int, int]], flows: Collection[str]) -> Callable[[], None]:
        """Sends the statements that let followers of jobs with these claims go on, and find out which of the flows may
        have ended. The result notes what they did.

        Sent after the statement that settles: it must see edges that were added until the jobs were locked.
        """
        seqs = numbers([seq for seq, _ in claims])
        self._wait_for_followers(seqs)
        closed = self._db.send(_SQL["close"], (seqs, numbers([claim for _, claim in claims])))
        ready = self._db.send(_SQL["release"], (self._now, seqs, "{}"))
        idle = self._db.send(_SQL["idle"], (as_json(sorted(flows)),)) if flows else None

        def noted() -> None:
            self.effects.due |= closed.fetchall()[0][0]
            self.effects.add(ready.fetchall())
            if idle is not None:
                self.effects.flows |= {str(flow) for (flow,) in idle.fetchall()}

        return noted

    def _wait_for_followers(self, seqs: str) -> None:
        """Locks the followers of jobs in their order, unless this is a node, which waits for nobody.

        `close` locks those that are free. Two transactions that both have some of the same followers, and then look at
        the others, would wait for each other.
        """
        if self._db.announces and self._db.rows(_SQL["followed"], (seqs,)):
            with suppress(StoreBusy), self._db.attempt(patience(self._db)):
                self._db.rows(_SQL["lock_followers_of"], (seqs,))

    def ended(self, seqs: Sequence[int]) -> None:
        """Lets followers of jobs that ended without having been claimed go on, or fail."""
        if seqs:
            self._db.send(_SQL["mark_due"], (numbers(seqs),))
            self.look()

    def look(self, most: int = 100 * LOOK_AT_ONCE) -> int:
        """Looks at the edges that are due, and at those that become due by that. Returns how many it has decided."""
        total = 0
        while total < most:
            found = self._look_at_all(most - total)
            total += found
            if not found:
                break
        return total

    def _look_at_all(self, most: int) -> int:
        position, decided = _FIRST, 0
        while decided < most:
            rows = self._db.rows(_SQL["due"], (*position, LOOK_AT_ONCE))
            if not rows:
                break
            edges = [Edge(*row) for row in rows]
            position = edges[-1][:3]
            decided += self._look_at(edges)
        return decided

    def _look_at(self, edges: Sequence[Edge]) -> int:
        waiting, others = self._lock(sorted({edge.job for edge in edges}))
        page = _Page()
        decided = [edge for edge in edges if edge.job not in others]
        # What a job of a sequence waited for when it ended, the next job of the sequence waits for.
        kept = [edge for edge in decided if edge.job in waiting or edge.nr == IN_SEQUENCE]
        page.looked_at = [(edge, False) for edge in decided if edge.job not in waiting and edge.nr != IN_SEQUENCE]
        self._judge(kept, waiting, page)
        self._write(page)
        return len(page.looked_at)

    def _lock(self, jobs: Sequence[int]) -> tuple[dict[int, str | None], set[int]]:
        """Locks these jobs. Returns those that wait for others, with what they lack, and those that were not free."""
        try:
            with self._db.attempt(patience(self._db)):
                rows = self._db.rows(_SQL["lock_followers"], (numbers(jobs),))
                others = set[int]()
        except StoreBusy:
            rows = self._db.rows(_SQL["lock_followers_at_once"], (numbers(jobs),))
            others = {int(seq) for (seq,) in self._db.rows(_SQL["living"], (numbers(jobs),))} - {row[0] for row in rows}
        return {int(seq): lacks for seq, waits, lacks in rows if waits}, others

    def _judge(self, edges: Sequence[Edge], waiting: dict[int, str | None], page: _Page) -> None:
        if not edges:
            return
        asked = numbers(sorted({edge.predecessor for edge in edges}))
        try:
            with self._db.attempt(patience(self._db)):
                rows = self._db.rows(_SQL["lock_predecessors"], (asked,))
        except StoreBusy:
            rows = self._db.rows(_SQL["lock_predecessors_at_once"], (asked,))
        safe = {int(seq) for (seq,) in rows}
        known = {int(seq): (lives, ended) for seq, lives, *ended in self._db.rows(_SQL["predecessors"], (asked,))}
        over: list[Edge] = []
        for edge in edges:
            lives, ended = known.get(edge.predecessor, (False, None))
            if edge.predecessor in safe:
                page.looked_at.append((edge, True))
            elif not lives:
                needed = edge.strict or edge.predecessor < 0  # one that never existed cannot have failed
                error = self._why(edge, ended, waiting.get(edge.job)) if needed else None
                page.looked_at.append((edge, False))
                if error is None:
                    over.append(edge)
                else:
                    page.failed.setdefault(edge.job, error)
        self._go_on(over, page)

    def _why(self, edge: Edge, ended: Sequence[str] | None, lacks: str | None) -> tuple[str, str] | None:
        """Returns why a job fails because of a predecessor that does not live; None if that was done."""
        if ended is not None:
            job_id, name, state, error = ended
            return None if state == State.DONE else (PREDECESSOR, why_failed(Ended(job_id, name, State(state), error)))
        if edge.nr == OUTSIDE:
            known = self._db.rows(_SQL["exists"], ([lacks or ""],))
            return NO_FLOW, why_no_flow(lacks or "", ended=bool(known))
        if edge.nr == IN_CIRCLE:
            return PREDECESSOR, why_in_circle(lacks or "")
        return PREDECESSOR, why_not_found(lacks or f"number {edge.predecessor}")

    def _go_on(self, over: Sequence[Edge], page: _Page) -> None:
        """Lets jobs wait for what comes after a predecessor that has ended: its children, or in a sequence what is
        before it."""
        parents = [edge for edge in over if edge.nr >= 0]
        after: dict[tuple[int, int], list[tuple[int, int | None]]] = {}
        if parents:
            asked = numbers([edge.job for edge in parents]), numbers([edge.predecessor for edge in parents])
            for job, root, seq, ordinal in self._db.rows(_SQL["children"], asked):
                after.setdefault((job, root), []).append((seq, ordinal))
        heads = sorted({edge.predecessor for edge in over if edge.nr == IN_SEQUENCE})
        before: dict[int, list[tuple[int, int | None]]] = {}
        if heads:
            for job, predecessor in self._db.rows(_SQL["before_in_sequence"], (numbers(heads),)):
                before.setdefault(job, []).append((predecessor, None))
        for edge in over:
            further = (
                before.get(edge.predecessor, ())
                if edge.nr == IN_SEQUENCE
                else after.get((edge.job, edge.predecessor), ())
            )
            page.added += [edge._replace(predecessor=seq, ordinal=ordinal) for seq, ordinal in further]

    def _fail_further(self, page: _Page) -> None:
        """Lets fail what waits for jobs that fail, and what waits for that: a look at each level of a long chain would
        take seconds. Of what others have locked, and of what follows it, the edges become due, as all others do."""
        found = self._db.rows(_SQL["below"], (numbers(sorted(page.failed)), MOST_BELOW))
        edges = [Edge(job, nr, predecessor, True) for job, nr, predecessor, *_ in found]
        if not edges:
            return
        waiting, _ = self._lock(sorted({edge.job for edge in edges}))
        named = {predecessor: Ended(job_id, name, State.FAILED) for _, _, predecessor, job_id, name in found}
        first = {seq: readable(error) or "" for seq, (_, error) in page.failed.items()}
        further = fail_further(first, [edge[:3] for edge in edges], named, waiting)
        page.failed |= {seq: (PREDECESSOR, error) for seq, error in further.items()}
        page.looked_at += [(edge, False) for edge in edges if edge.job in further and edge.predecessor in page.failed]

    def _write(self, page: _Page) -> None:
        if page.failed:
            self._fail_further(page)
        if page.added:
            rows = [edge._asdict() | {"over": edge.job in page.failed} for edge in page.added]
            self._db.send(_SQL["add_due"], (as_json(rows),))
            if any(edge.ordinal is not None for edge in page.added):
                self._db.send(_SQL["untangle"], (as_json([e._asdict() for e in page.added if e.ordinal is not None]),))
        rows = [edge._asdict() | {"open": stays} for edge, stays in page.looked_at]
        self._db.send(_SQL["looked_at"], (as_json(rows),))
        if page.failed:
            rows = [
                {"seq": seq, "reason": reason, "error": readable(error)} for seq, (reason, error) in page.failed.items()
            ]
            failed = self._db.rows(_SQL["fail"], (self._now, as_json(rows)))
            self._db.send(_SQL["mark_due"], (numbers([seq for seq, _ in failed]),))
            self.effects.flows |= {str(flow) for _, flow in failed if flow is not None}
        closed = {edge.job for edge, stays in page.looked_at if not stays} - page.failed.keys()
        if closed:
            self.effects.add(self._db.rows(_SQL["release"], (self._now, "{}", numbers(sorted(closed)))))
