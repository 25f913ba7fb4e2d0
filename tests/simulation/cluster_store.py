"""A store for several nodes, in memory: what the PostgreSQL store does, without SQL, with states that can be restored.

`test_cluster_store.py` compares it with the PostgreSQL store. Rows are immutable, so that the state after every
commit can be kept: a failover restores an earlier one. Whatever the model decides is decided by the shipped model.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from chargehand.errors import StoreError
from chargehand.model import limits, suspects
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import Claim, ClaimName, Enqueued, NewJob, Settlement, State
from chargehand.model.limits import NO_LIMIT, Limit
from chargehand.model.records import CrewRow, Holder, LastLife, NodeAbout
from chargehand.model.succession import name_taken
from chargehand.stores.postgres.beats import Seen

Answer = TypeVar("Answer")
KEPT = 400
"""How many states are kept for failovers."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    seq: int
    new: NewJob
    state: State = State.QUEUED
    due_ms: int = 0
    waits: str | None = None
    """Why a queued job cannot be claimed: `time` or `limit`."""
    claim: int | None = None
    life: str | None = None
    node: str | None = None
    worker: str | None = None
    fence: int = 0
    """How often it was claimed. No decision uses it."""
    started_ms: int | None = None
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    failed_in: str | None = None

    @property
    def ready(self) -> bool:
        return self.state is State.QUEUED and self.waits is None

    @property
    def order(self) -> tuple[int, int]:
        return -self.new.priority, self.seq


class NodeRow(msgspec.Struct, frozen=True):
    """One registered node."""

    life: str
    name: str
    about: NodeAbout
    session: int | None
    beat: int = 0


class Tables(msgspec.Struct):
    """The state after a commit."""

    jobs: dict[int, Row] = msgspec.field(default_factory=dict[int, Row])
    seqs: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    nodes: dict[str, NodeRow] = msgspec.field(default_factory=dict[str, NodeRow])
    """By incarnation."""
    crews: dict[str, tuple[CrewRow, ...]] = msgspec.field(default_factory=dict[str, tuple[CrewRow, ...]])
    limits: dict[str, Limit] = msgspec.field(default_factory=dict[str, Limit])
    ends: dict[tuple[int, int], str | None] = msgspec.field(default_factory=dict[tuple[int, int], str | None])
    """The outcome of every claim that was settled, by seq and number."""
    suspects: dict[int, str] = msgspec.field(default_factory=dict[int, str])
    """The seq of each suspect, and the life that died with it."""
    version: int = 0
    at: float = 0.0
    """When it was committed."""

    def draft(self) -> "Tables":
        """Returns a copy for a transaction; rows are shared."""
        return Tables(
            dict(self.jobs), dict(self.seqs), dict(self.nodes), dict(self.crews), dict(self.limits), dict(self.ends),
            dict(self.suspects), self.version, self.at,
        )  # fmt: skip


class Transaction:
    """The operations of one transaction. The names are those of the statements of the PostgreSQL store."""

    def __init__(self, tables: Tables, now_ms: int, sessions: Collection[int]) -> None:
        self.tables, self._now_ms, self._sessions = tables, now_ms, sessions

    # nodes

    def register(
        self, holder: Holder, crews: Sequence[CrewRow], about: NodeAbout, session: int | None, after: Collection[str]
    ) -> None:
        """Adds a node; `after` are lives that are dead. Raises StoreError if another node has its name."""
        nodes = self.tables.nodes
        for life in (holder.life, *after):
            nodes.pop(life, None)
        for row in nodes.values():
            if row.name == holder.node:
                raise StoreError(name_taken(holder.node, row.about))
        nodes[holder.life] = NodeRow(holder.life, holder.node, about, session)
        self.tables.crews[holder.node] = tuple(crews)
        self._set_limits()

    def _set_limits(self) -> None:
        living = {row.name for row in self.tables.nodes.values()}
        crews = [crew for name in sorted(living) for crew in self.tables.crews.get(name, ())]
        after = {queue: limit for queue, limit in limits.limits_of(crews).items() if limit != NO_LIMIT}
        before, self.tables.limits = self.tables.limits, after
        for queue in limits.relaxed(before, after):
            for row in list(self.tables.jobs.values()):
                if row.new.queue == queue and row.waits == "limit":
                    self._put(replace(row, waits=None))

    def beat(self, life: str, session: int | None) -> bool:
        """Returns whether the node has a row."""
        row = self.tables.nodes.get(life)
        if row is not None:
            self.tables.nodes[life] = replace(row, beat=row.beat + 1, session=session)
        return row is not None

    def others(self, life: str) -> list[Seen]:
        return [
            Seen(
                row.life, row.name, row.beat, row.session is not None and row.session not in self._sessions,
                msgspec.json.encode(row.about).decode(),
            )
            for row in self.tables.nodes.values()
            if row.life != life
        ]  # fmt: skip

    def look(self, queues: Sequence[str]) -> list[str]:
        """Returns those of the queues that have jobs."""
        rows = self.tables.jobs.values()
        return [queue for queue in queues if any(row.new.queue == queue and row.ready for row in rows)]

    def last_life(self, name: str) -> LastLife | None:
        for row in self.tables.nodes.values():
            if row.name == name:
                ended = row.session is not None and row.session not in self._sessions
                return LastLife(row.life, row.about, row.beat, ended)
        return None

    def expire(self, dead: Sequence[Seen]) -> list[NodeRow]:
        """Removes these nodes, unless they have beaten since."""
        gone: list[NodeRow] = []
        for seen in dead:
            row = self.tables.nodes.get(seen.incarnation)
            if row is not None and row.beat == seen.beat:
                del self.tables.nodes[seen.incarnation]
                gone.append(row)
        return gone

    def adopt(self, former: Collection[str], life: str) -> frozenset[tuple[int, int]]:
        """Gives the claims of these lives, which had not died, to this one, and returns all that it holds."""
        for seq in [seq for seq, of in self.tables.suspects.items() if of in former]:
            del self.tables.suspects[seq]
        for row in list(self.tables.jobs.values()):
            if row.claim is not None and row.life in former:
                self._put(replace(row, life=life))
        return self.held(life)

    def held_by(self, life: str) -> list[tuple[str, int, int, str]]:
        """Returns the id, seq, number and queue of every claim of this life."""
        rows = self.tables.jobs.values()
        held = [row for row in rows if row.claim is not None and row.life == life]
        return [(row.new.id, row.seq, row.claim or 0, row.new.queue) for row in held]

    def recorded(self, ends: Sequence[Settlement]) -> set[tuple[int, int]]:
        """Returns those of these claims that have ended."""
        return {(end.seq, end.claim) for end in ends} & self.tables.ends.keys()

    def held(self, life: str) -> frozenset[tuple[int, int]]:
        """Returns the seq and the number of every claim of this life."""
        rows = self.tables.jobs.values()
        return frozenset((row.seq, row.claim) for row in rows if row.claim is not None and row.life == life)

    # jobs

    def _put(self, row: Row) -> None:
        self.tables.jobs[row.seq] = row

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers: list[Enqueued] = []
        for job in jobs:
            assert job.key is None, "this store knows no keys"
            answers.append(Enqueued(job.id, job.id not in self.tables.seqs))
            if job.id in self.tables.seqs:
                continue
            # After a failover the numbers of forgotten jobs are given again: the worst that a server may do.
            seq = self.tables.seqs[job.id] = len(self.tables.jobs) + 1
            waits = "time" if job.delay_ms else None
            self._put(Row(seq=seq, new=job, due_ms=self._now_ms + job.delay_ms, waits=waits))
        return answers

    def settle(self, settlements: Sequence[Settlement]) -> list[ClaimName]:
        """Ends claims that hold. Returns the others."""
        lost: list[ClaimName] = []
        for each in settlements:
            row = self.tables.jobs.get(each.seq)
            if row is None or row.claim is None or row.claim != each.claim:
                lost.append(each.claim_name)
                continue
            self._end(row, each)
            self.tables.ends[(each.seq, each.claim)] = each.outcome
            self._bring_back(row)
            self.enqueue(each.follow)
        return lost

    def _end(self, row: Row, end: Settlement) -> None:
        queued, delayed = end.state is State.QUEUED, end.delay_ms > 0
        self._put(
            replace(
                row, state=end.state, claim=None, life=None, node=None, worker=None,
                waits="time" if queued and delayed else None,
                due_ms=self._now_ms + end.delay_ms if queued and delayed else row.due_ms,
                failures=row.failures + end.failures, crashes=row.crashes + end.crashes,
                interruptions=row.interruptions + end.interruptions, failed_in=end.failed_in or row.failed_in,
            )
        )  # fmt: skip

    def _bring_back(self, freed: Row) -> None:
        """Makes the next job of the key of a job claimable that has freed a slot."""
        limit = self.tables.limits.get(freed.new.queue, NO_LIMIT)
        if limit.key is None or freed.new.limit_key is None:
            return
        waiting = [
            row
            for row in self.tables.jobs.values()
            if row.waits == "limit" and (row.new.queue, row.new.limit_key) == (freed.new.queue, freed.new.limit_key)
        ]
        if waiting:
            self._put(replace(min(waiting, key=lambda row: row.order), waits=None))

    def before(self, settlements: Sequence[Settlement]) -> set[tuple[int, int]]:
        """Returns those of these claims that were settled with the same outcome before."""
        asked = ((each.seq, each.claim, each.outcome) for each in settlements)
        return {(seq, claim) for seq, claim, outcome in asked if self.tables.ends.get((seq, claim), "") == outcome}

    def note(self, notes: Sequence[Note]) -> None:
        for note in notes:
            row = self.tables.jobs.get(note.seq)
            if row is not None and row.claim == note.claim:
                self._put(replace(row, worker=note.worker, started_ms=self._now_ms - note.age_ms))

    def give_back(self, number: int, life: str) -> None:
        """Ends the claims of a turn whose commit was not acknowledged."""
        for row in list(self.tables.jobs.values()):
            if row.claim == number and row.life == life:
                self._put(replace(row, state=State.QUEUED, claim=None, life=None, node=None, worker=None))

    def recover(self, holder: Holder, why: str, died: Collection[str]) -> list[Settlement]:
        """Releases the claims of lives that are dead: other incarnations, unless they belong to a node of another name
        that has a row."""
        living = {row.life for row in self.tables.nodes.values() if row.name != holder.node}
        orphans = [
            suspects.Orphan(
                claim=_claim(row, row.claim, self._now_ms), node=row.node or "", life=row.life or "", worker=row.worker,
                duration_ms=0, suspect=row.seq in self.tables.suspects,
            )
            for row in sorted(self.tables.jobs.values(), key=lambda row: row.seq)
            if row.claim is not None and row.life != holder.life and row.life not in living
        ]  # fmt: skip
        settlements, new = suspects.release(orphans, died, why)
        for orphan in new:
            self.tables.suspects.setdefault(orphan.claim.seq, orphan.life)
        assert self.settle(settlements) == []
        return settlements

    # claims

    def is_special(self, queue: str) -> bool:
        """Returns whether a claim must take care of limits or suspects."""
        return queue in self.tables.limits or bool(self.tables.suspects)

    def _blocked(self, queue: str, holder: Holder) -> list[int]:
        found: list[suspects.Suspect] = []
        for seq in self.tables.suspects:
            row = self.tables.jobs.get(seq)
            if row is None:
                found.append(suspects.Suspect(seq=seq, state=None, queue=None, priority=None, ready=False, here=False))
                continue
            found.append(
                suspects.Suspect(
                    seq=seq, state=row.state, queue=row.new.queue, priority=row.new.priority, ready=row.waits is None,
                    here=row.life == holder.life,
                )
            )  # fmt: skip
        for seq in suspects.finished(found):
            del self.tables.suspects[seq]
        return suspects.blocked(found, queue)

    def claim(self, want: Want, holder: Holder, number: int, *, registered: bool) -> Grant:
        """Takes jobs. `registered`: only if the holder has a row."""
        queue, jobs = want.queue, self.tables.jobs
        for row in list(jobs.values()):
            if row.new.queue == queue and row.waits == "time" and row.due_ms <= self._now_ms:
                self._put(replace(row, waits=None))
        limit_of = self.tables.limits.get(queue, NO_LIMIT)
        running = [row for row in jobs.values() if row.new.queue == queue and row.claim is not None]
        blocked, known = self._blocked(queue, holder), set(self.tables.suspects)
        room = limits.room(limit_of, len(running))
        if room == 0 and not want.ahead:
            return Grant(want.crew, (), None, limited=True)
        most, asleep = want.limit, want.asleep
        if room is not None:
            most = min(most, room)
            asleep = min(asleep, room - most)
        ready = sorted(
            (row for row in jobs.values() if row.new.queue == queue and row.ready and row.seq not in blocked),
            key=lambda row: row.order,
        )
        next_in: int | None = None
        if registered and holder.life not in self.tables.nodes:
            taken, waiting = list[Row](), min(len(ready), asleep)
        elif limit_of.key is None or not (most or asleep):
            taken, waiting = ready[:most], len(ready[most : most + asleep])
        else:
            used: dict[str, int] = {}
            for row in running:
                if row.new.limit_key is not None:
                    used[row.new.limit_key] = used.get(row.new.limit_key, 0) + 1
            near = [(row.seq, row.new.limit_key) for row in ready[: limits.jobs_needed(most, asleep)]]
            chosen = limits.choose(near, used, limit_of.key, most, asleep)
            for seq in chosen.over:
                self._put(replace(jobs[seq], waits="limit"))
            taken, waiting = [jobs[seq] for seq in chosen.seqs], chosen.waiting
            next_in = 0 if chosen.cut_short else None
        claims = tuple(suspects.mark([_claim(row, number, self._now_ms) for row in taken], known))
        for row in taken:
            self._put(
                replace(
                    row, state=State.RUNNING, claim=number, life=holder.life, node=holder.node, worker=None,
                    fence=row.fence + 1, started_ms=self._now_ms,
                )
            )  # fmt: skip
        left = [row for row in jobs.values() if row.new.queue == queue and row.ready and row.seq not in blocked]
        urgent = min(want.ahead, sum(row.new.priority > want.above for row in left))
        if next_in is None and (most or asleep) and len(claims) + waiting < most + asleep:
            later = [row.due_ms for row in jobs.values() if row.new.queue == queue and row.waits == "time"]
            next_in = max(0, min(later) - self._now_ms) if later else None
        held_up = limit_of.key is not None or bool(blocked)
        limited = most < want.limit or (held_up and bool(most or asleep))
        return Grant(want.crew, claims, next_in, waiting, limited, urgent)


def _claim(row: Row, number: int, now_ms: int) -> Claim:
    return Claim(
        id=row.new.id, seq=row.seq, number=number, queue=row.new.queue, payload=row.new.payload, label=row.new.label,
        priority=row.new.priority, failures=row.failures, max_attempts=row.new.max_attempts, crashes=row.crashes,
        timeout_ms=row.new.timeout_ms, waited_ms=max(0, now_ms - row.due_ms), failed_in=row.failed_in,
        first=row.started_ms is None,
    )  # fmt: skip


class Server:
    """The server: its state, the states before, and the sessions of its clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.tables = Tables()
        self.past: deque[Tables] = deque([self.tables], KEPT)
        self.sessions: set[int] = set()
        self.timeline = 0
        self.up = True
        self.up_since = 0.0
        self._last_session = 0
        self.committed: Callable[[Tables, Tables], None] = lambda before, after: None
        """Called with the state before and after every commit."""

    def connect(self) -> int:
        """Begins a session."""
        self._last_session += 1
        self.sessions.add(self._last_session)
        return self._last_session

    def read(self, ask: Callable[[Transaction], Answer]) -> Answer:
        """Returns what a transaction reads that writes nothing."""
        return ask(self._begin(self.tables.draft()))

    def write(self, act: Callable[[Transaction], Answer]) -> Answer:
        """Commits what a transaction does; nothing of it if it raises."""
        draft = self.tables.draft()
        answer = act(self._begin(draft))
        draft.version, draft.at = draft.version + 1, self._now()
        before, self.tables = self.tables, draft
        self.past.append(draft)
        self.committed(before, draft)
        return answer

    def _begin(self, tables: Tables) -> Transaction:
        return Transaction(tables, int(self._now() * 1000), self.sessions)

    def stop(self) -> None:
        """Goes down; all sessions end."""
        self.up = False
        self.sessions.clear()

    def start(self, forget: int = 0) -> tuple[Tables, Tables]:
        """Comes up, without the last commits if it is a standby that was promoted. Returns the state before and now."""
        before = self.tables
        for _ in range(min(forget, len(self.past) - 1)):
            self.past.pop()
        self.tables = self.past[-1]
        self.timeline += forget > 0
        self.up, self.up_since = True, self._now()
        return before, self.tables
