"""A store for several nodes, in memory: what the PostgreSQL store does, without SQL, with states that can be restored.

`test_cluster_store.py` compares it with the PostgreSQL store. Rows are immutable, so that the state after every
commit can be kept: a failover restores an earlier one. Whatever the model decides is decided by the shipped model.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from standings import standing

from chargehand.errors import StoreError
from chargehand.model import limits, rates, suspects
from chargehand.model.batch import Grant, Note, Want
from chargehand.model.job import FINISHED, Claim, ClaimName, Enqueued, NewJob, Settlement, State
from chargehand.model.limits import NO_LIMIT, Limit
from chargehand.model.records import CrewRow, Holder, LastLife, NodeAbout
from chargehand.model.succession import name_taken
from chargehand.stores.postgres.beats import Seen

Answer = TypeVar("Answer")
Starts = tuple[tuple[int, int], ...]
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
    starts: dict[tuple[str, str], Starts] = msgspec.field(default_factory=dict[tuple[str, str], Starts])
    """What was started of a queue (key '') or a key in it: times and numbers, oldest first."""
    openings: dict[tuple[str, str], int] = msgspec.field(default_factory=dict[tuple[str, str], int])
    """When to look again at a queue's key whose jobs wait for its rate."""
    version: int = 0
    at: float = 0.0
    """When it was committed."""

    def draft(self) -> "Tables":
        """Returns a copy for a transaction; rows are shared."""
        return Tables(
            dict(self.jobs), dict(self.seqs), dict(self.nodes), dict(self.crews), dict(self.limits), dict(self.ends),
            dict(self.suspects), dict(self.starts), dict(self.openings), self.version, self.at,
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
            for which in [which for which in self.tables.openings if which[0] == queue]:
                del self.tables.openings[which]

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
            if each.outcome is None:
                self._unstart(row)
            self._end(row, each)
            self.tables.ends[(each.seq, each.claim)] = each.outcome
            self.enqueue(each.follow)
        for seq, _ in {(each.seq, each.claim): None for each in settlements}:  # those of lost claims, too
            if seq in self.tables.jobs:
                self._bring_back(self.tables.jobs[seq])
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
        for row in self._aside(freed.new.queue, freed.new.limit_key)[:1]:
            self._put(replace(row, waits=None))

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
                self._unstart(row)
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
        seqs = [seq for seq, row in jobs.items() if row.new.queue == queue and row.state not in FINISHED]
        if not seqs and not self.is_special(queue):
            return Grant(want.crew, (), None)
        for row in [jobs[seq] for seq in seqs]:
            if row.waits == "time" and row.due_ms <= self._now_ms:
                self._put(replace(row, waits=None))
        limit_of = self.tables.limits.get(queue, NO_LIMIT)
        running = [jobs[seq] for seq in seqs if jobs[seq].claim is not None]
        blocked, known = self._blocked(queue, holder), set(self.tables.suspects)
        room = limits.room(limit_of, len(running))
        if room == 0 and not want.ahead:
            return Grant(want.crew, (), None, limited=True)
        of_queue = self._standings(queue, rates.ANY_KEY, limit_of.rates)
        may_start = rates.room(of_queue)
        opens_in = rates.opens_in(of_queue, 0, self._now_ms) if may_start == 0 else None
        if may_start == 0 and not want.ahead:
            return Grant(want.crew, (), opens_in, limited=True)
        slots = limits.within(room, want.limit, want.asleep)
        most, asleep = limits.within(may_start, *slots)
        if (most or asleep) and limit_of.key_rates:
            self._reopen(queue, limit_of.key_rates)
        ready = sorted((jobs[seq] for seq in seqs if jobs[seq].ready and seq not in blocked), key=lambda row: row.order)
        next_in = opens_in
        unknown = registered and holder.life not in self.tables.nodes
        if unknown and not limit_of.of_keys:
            taken, waiting = list[Row](), min(len(ready), asleep)
        elif not limit_of.of_keys or not (most or asleep):
            taken, waiting = ready[:most], len(ready[most : most + asleep])
        else:
            used: dict[str, int] = {}
            for row in running:
                if row.new.limit_key is not None:
                    used[row.new.limit_key] = used.get(row.new.limit_key, 0) + 1
            near = [(row.seq, row.new.limit_key) for row in ready[: limits.jobs_needed(most, asleep)]]
            keys = {key for _, key in near if key is not None} if limit_of.key_rates else set[str]()
            by_key = {key: self._standings(queue, key, limit_of.key_rates) for key in keys}
            rooms = {key: rates.room(its) or 0 for key, its in by_key.items()} if limit_of.key_rates else None
            chosen = limits.choose(near, used, limit_of.key, most, asleep, rooms)
            for seq in chosen.over:
                self._put(replace(jobs[seq], waits="limit"))
            for key, opens_ms in rates.closed(by_key, chosen.fit, chosen.late, self._now_ms).items():
                self.tables.openings[queue, key] = opens_ms
            taken, waiting = [] if unknown else [jobs[seq] for seq in chosen.seqs], chosen.waiting
            opens = [opens_ms for (of, _), opens_ms in self.tables.openings.items() if of == queue]
            next_in = max(0, min(opens) - self._now_ms) if opens else None
            next_in = 0 if chosen.cut_short else next_in
        claims = tuple(suspects.mark([_claim(row, number, self._now_ms) for row in taken], known))
        self._start(limit_of, taken)
        for row in taken:
            self._put(
                replace(
                    row, state=State.RUNNING, claim=number, life=holder.life, node=holder.node, worker=None,
                    fence=row.fence + 1, started_ms=self._now_ms,
                )
            )  # fmt: skip
        urgent = 0
        if want.ahead:
            left = [jobs[seq] for seq in seqs if jobs[seq].ready and seq not in blocked]
            urgent = min(want.ahead, sum(row.new.priority > want.above for row in left))
        if (most or asleep) and len(claims) + waiting < most + asleep:
            later = [jobs[seq].due_ms for seq in seqs if jobs[seq].waits == "time"]
            next_in = limits.least(next_in, max(0, min(later) - self._now_ms) if later else None)
        elif (most or asleep) and (most, asleep) != slots:
            next_in = rates.opens_in(of_queue, len(claims) + waiting, self._now_ms)
        held_up = limit_of.of_keys or bool(blocked)
        limited = most < want.limit or (held_up and bool(most or asleep))
        return Grant(want.crew, claims, next_in, waiting, limited, urgent)

    # rates

    def _standings(self, queue: str, key: str, its: rates.Rates) -> list[rates.Standing]:
        return [standing(rate, self.tables.starts.get((queue, key), ()), self._now_ms) for rate in its]

    def _start(self, limit: Limit, rows: Sequence[Row]) -> None:
        """Counts these jobs as started now."""
        for row in rows:
            keys = [rates.ANY_KEY] if limit.rates else []
            keys += [row.new.limit_key] if limit.key_rates and row.new.limit_key is not None else []
            for which in ((row.new.queue, key) for key in keys):
                self.tables.starts[which] = (*self.tables.starts.get(which, ()), (self._now_ms, 1))

    def _unstart(self, row: Row) -> None:
        """Counts a job as not started that no worker had."""
        limit = self.tables.limits.get(row.new.queue, NO_LIMIT)
        keys = [rates.ANY_KEY] if limit.rates else []
        keys += [row.new.limit_key] if limit.key_rates and row.new.limit_key is not None else []
        for key in keys:
            which, start = (row.new.queue, key), (row.started_ms or 0, 1)
            known = self.tables.starts.get(which, ())
            if start in known:
                at = known.index(start)
                self.tables.starts[which] = known[:at] + known[at + 1 :]
            if which in self.tables.openings:
                self.tables.openings[which] = min(self.tables.openings[which], self._now_ms)

    def _reopen(self, queue: str, its: rates.Rates) -> None:
        """Brings back the next jobs of keys that have room again."""
        due = sorted((at, key) for (of, key), at in self.tables.openings.items() if of == queue and at <= self._now_ms)
        by_key = {key: self._standings(queue, key, its) for _, key in due[: limits.LOOK_AT_ONCE]}
        for each in rates.reopen(by_key, limits.LOOK_AT_ONCE, self._now_ms):
            aside = self._aside(queue, each.key)
            for row in aside[: each.back]:
                self._put(replace(row, waits=None))
            if len(aside) > each.back:
                self.tables.openings[queue, each.key] = each.opens_ms
            else:
                del self.tables.openings[queue, each.key]

    def _aside(self, queue: str, key: str | None) -> list[Row]:
        rows = self.tables.jobs.values()
        found = [row for row in rows if row.waits == "limit" and (row.new.queue, row.new.limit_key) == (queue, key)]
        return sorted(found, key=lambda row: row.order)


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
        return ask(self._begin(self.tables))

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
