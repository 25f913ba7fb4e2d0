"""One turn of a node in one round trip: all statements of a Batch are sent as one transaction, then the answers read.

Some things need more: jobs with a key (`keyed`), chores that decide from what they read, and claims from queues with
limits or while there are suspects, which follow in a transaction of their own.

If a turn fails after its commit, or breaks so that nobody knows whether it has committed, the next turn first makes
sure that the old session is gone. Then it gives back what the broken turn may have claimed, which no worker has seen,
and it asks which outcomes were accepted: the ledger sends them again, and they are not lost.

On a new connection, the first turn looks which server it leads to, and compares the claims of the node with those that
the server has (`model.failover`): it may have replaced another one, and lack the last commits of that.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any, Protocol

import msgspec

from chargehand import clock, log
from chargehand.errors import StoreBusy, StoreError
from chargehand.ids import NewIds, new_claim
from chargehand.model import chores, failover
from chargehand.model.batch import NOTHING, NOTHING_LEFT, Batch, Finished, Grant, Request, Result, Want
from chargehand.model.doubts import Doubts
from chargehand.model.failover import Change, Comparison, Ends, Server, ServerClaim
from chargehand.model.job import Enqueued, JobPolicy, Settlement, State
from chargehand.model.records import Holder
from chargehand.model.wakeups import Wakeup
from chargehand.store import OnFailed, Store
from chargehand.stores.postgres import rates, statements
from chargehand.stores.postgres.adding import as_json, is_linked, linked_row_of, row_of
from chargehand.stores.postgres.beats import Beats, Seen
from chargehand.stores.postgres.claiming import Claiming, Taken
from chargehand.stores.postgres.edges import Effects
from chargehand.stores.postgres.jobs import PostgresJobs, Sent
from chargehand.stores.postgres.keyed import HeldKeys, Part, joined, part_of, split
from chargehand.stores.postgres.position import Positions
from chargehand.stores.postgres.session import Session
from chargehand.stores.postgres.transaction import PostgresTransaction
from chargehand.stores.rows import about_of
from chargehand.stores.turn import ABOUT_PAUSES, ABOUT_RECURRING, do, pauses_of, token_of, tokens_of, undone

_STORE = statements.load("store")
_FLEET = statements.load("fleet")
_CLAIM = statements.load("claim")
_END = statements.load("settle")
LOOK_AGAIN = 0.25
"""Seconds after which edges are looked at again that could not be decided, because others had rows locked."""


class Host(Store, Protocol):
    """What a turn needs of its store."""

    session: Session

    def parts(self) -> AbstractContextManager[PostgresTransaction]:
        """Returns the writing parts for a transaction that has begun."""
        ...

    def transaction(self) -> AbstractContextManager[PostgresTransaction]:
        """Begins a transaction."""
        ...

    def is_registered(self, holder: Holder) -> bool:
        """Returns whether this node was registered through this store."""
        ...

    def join(self) -> Holder:
        """Adds the row of the registered node again, as a new life, and returns that. Raises StoreError if another has
        its name."""
        ...


class Turns:
    """Executes the turns of a node, and remembers between them what must not get lost."""

    def __init__(self, store: Host, new_ids: NewIds, policy: JobPolicy, on_failed: OnFailed) -> None:
        """`policy` says after how many crashes a job fails that was running on nodes that died, and `on_failed` returns
        the jobs that tell of these."""
        self._policy, self._on_failed = policy, on_failed
        self._store, self._db, self._new_ids = store, store.session, new_ids
        self._doubts = Doubts()
        self._positions = Positions()
        self._held_keys = HeldKeys(self._db)
        self._beats = Beats()
        self._server: Server | None = None
        self._recognised: int | None = None
        """The connection on which the server was recognised last."""
        self._compared = True
        """Whether the claims were compared since the connection was lost, or a claim was."""
        self._replaced = False
        self._comparison: Comparison | None = None
        self._ends = Ends()
        self._edges = Edges()
        self._idle: set[str] = set()
        """The flows that may have ended in earlier turns."""
        self._alone = False
        """Whether there was no other node when the others were looked at last: no hint is sent to them."""

    def turn(
        self, batch: Batch, holder: Holder, monotonic: Callable[[], float], waits: Callable[[Any], bool]
    ) -> Result:
        """Executes a batch in this order: settle, note, enqueue, chores, claim; and ends flows whose last jobs ended in
        earlier turns. Those whose last jobs end in this one are left to the next turn, or to `finish`."""
        self._recognise()
        self._make_sure(holder)
        holder = self._compare(holder, monotonic())
        if self._store.is_registered(holder) and self._beats.is_due(clock.monotonic()):
            try:
                self._expire_others(holder)
            except StoreBusy as error:
                log.warning("dead nodes were not removed yet: rows of their jobs are locked", why=error)
        has_work = batch.hinted or batch.settlements or batch.notes or batch.requests or batch.chores or batch.wakeups
        changed = False
        if batch.poll and not has_work:
            others_wrote, holder = self._poll(holder)
            changed = others_wrote or batch.unsure
            if not changed:
                return Result()
        dropped = {token for token in tokens_of(batch) if not waits(token)}
        running = _Running(
            self._store, self._db, batch, holder, dropped, self._new_ids, self._positions, self._held_keys, monotonic,
            self._edges, self._idle,
        )  # fmt: skip
        self._db.open()
        try:
            running.send(batch.poll and bool(has_work))
            result = self._without_accepted(batch.settlements, running.result(changed or batch.unsure))
        except StoreError as error:
            if running.committed or not self._db.connected:
                self._doubts.add(running.claim, self._db.last_backend, self._server, batch.settlements)
            elif isinstance(error, StoreBusy):
                self._beat(holder)  # a caller that keeps rows locked must not make the node look dead
                self._db.watch.doubt()
            raise
        self._idle = running.idle
        if result.woken:
            self._tell()
        self._keep(batch, result, holder, monotonic())
        return result

    def finish(self) -> Finished:
        """Ends the flows that earlier turns have left, in a transaction of its own.

        The transaction in which the last job of a flow ends cannot end the flow: it does not see what others commit
        meanwhile. Flows that are locked by somebody else are left to that one, or to a sweep.
        """
        if not self._idle or not self._db.connected or self._recognised != self._db.number:
            return NOTHING_LEFT
        flows, self._idle = self._idle, set()
        try:
            with self._db.pipeline(), self._store.parts() as tx:
                tx.jobs.end_flows(flows)
                tx.complete()
                effects = tx.effects
        except StoreError:
            if not self._db.connected:
                self._idle |= flows
            raise
        if effects.woken:
            self._positions.forget(effects.woken)
            self._tell()
        return Finished(tuple(effects.ended_flows), frozenset(effects.woken))

    def _tell(self) -> None:
        """Tells the other nodes that jobs became ready; a node that has begun since the last look finds them itself."""
        if not self._alone:
            self._db.tell(Wakeup.JOBS)

    def _poll(self, holder: Holder) -> tuple[bool, Holder]:
        """Beats, and returns whether others have written, and the life as which the node goes on."""
        with self._ended_if_lost(), self._db.pipeline(poll=True) as polled:
            beat = self._db.send(_FLEET["beat"], (holder.life, self._db.backend))
        rows = beat.fetchall()
        self._edges.told(rows)
        holder = beaten(self._store, holder, rows)
        return polled.changed or self._edges.are_due(clock.monotonic()), holder

    @contextmanager
    def _ended_if_lost(self) -> Generator[None]:
        """Lets the next turn end the session of the block if its connection is lost.

        The server may not notice for long that nobody listens to the session, which keeps the row of this node locked.
        """
        try:
            yield
        except StoreError:
            if not self._db.connected:
                self._doubts.add(new_claim(), self._db.last_backend, self._server, ())
            raise

    def _beat(self, holder: Holder) -> None:
        """Beats. Raises StoreError, and not StoreBusy, which means that the node has beaten."""
        try:
            self._poll(holder)
        except StoreBusy as error:
            raise StoreError(str(error), error.code) from error

    def _expire_others(self, holder: Holder) -> None:
        """Removes dead nodes, and queues their jobs again. Any number of nodes may do this at once."""
        asked_at = clock.monotonic()  # an answer may be late
        rows = self._db.rows(_FLEET["others"], (holder.life,))
        self._alone = not rows
        connection = self._db.number
        dead = self._beats.dead([Seen(*row) for row in rows], clock.monotonic(), connection, asked_at)
        if not dead:
            return
        with self._store.transaction() as tx:
            if self._db.number != connection:
                return  # the server may have been away meanwhile, and nobody could beat
            rows = self._db.rows(_FLEET["expire"], (as_json(dead),))
            names = sorted(str(name) for name, _, _ in rows)
            self._db.send(_FLEET["left_by"], (self._db.now, names))
            died = [str(life) for _, life, about in rows if not about_of(about).asked]
            why = "the node of the job is gone"
            released = tx.jobs.recover(holder, why, died=died, policy=self._policy) if rows else []
            if told := self._on_failed(released):
                tx.jobs.enqueue(told)
        if names:
            self._positions.forget({each.queue for each in released})
            log.warning(
                "nodes are gone; their jobs were queued again", nodes=names, jobs=len(released),
                charged=sum(each.outcome == "crashed" for each in released),
            )  # fmt: skip

    # servers that replace others

    def _recognise(self) -> None:
        """Finds out which server the present connection leads to. Raises StoreError if that is a former primary.

        Behind a pooler the server may be replaced while the connection stays: it is asked again every second.
        """
        opened = self._db.open()
        known = self._recognised == self._db.number
        if known and not (opened.pooled and self._beats.is_due(clock.monotonic())):
            return
        found = self._db.server()
        change = failover.judge(self._server, found)
        if change is Change.OUTDATED:
            self._db.drop()
            raise StoreError(
                f"the server of {self._db.address.shown} is a former primary, which lacks what was committed since its "
                "replacement: stop it, or make it a standby; if it is the right one, restart the nodes",
                "former-primary",
            )
        if change is Change.REPLACED or not known:
            self._compared &= self._recognised is None
            self._replaced |= change is Change.REPLACED
            self._positions, self._beats = Positions(), Beats()
            if self._recognised is not None:  # what was seen on the former connection says nothing about this one
                self._db.watch.doubt()
        self._server, self._recognised = found or self._server, self._db.number

    def _compare(self, holder: Holder, now: float) -> Holder:
        """Compares the claims of the node with those that the server has, if they may differ. Returns the life as which
        the node goes on."""
        if self._compared or not self._store.is_registered(holder):
            return holder
        with self._ended_if_lost(), self._db.pipeline():
            beat = self._db.send(_FLEET["beat"], (holder.life, self._db.backend))
        holder = beaten(self._store, holder, beat.fetchall())
        claims = [ServerClaim(*row) for row in self._db.rows(_CLAIM["held_by"], (holder.life,))]
        ends = self._ends.recent(now)
        asked = as_json([{"seq": end.seq, "claim": end.claim} for end in ends])
        recorded = {(int(seq), int(claim)) for seq, claim in self._db.rows(_END["recorded"], (asked,))}
        self._comparison = failover.compare(ends, claims, recorded, replaced=self._replaced)
        self._compared, self._replaced = True, False
        return holder

    def take_comparison(self) -> Comparison | None:
        """Returns the comparison that the last turn has made, once."""
        found, self._comparison = self._comparison, None
        return found

    def _keep(self, batch: Batch, result: Result, holder: Holder, now: float) -> None:
        """Keeps the outcomes that were accepted, in case that the server loses them."""
        accepted = batch.settlements
        if result.lost or result.postponed.settlements:
            refused = set(result.lost)
            left = {(each.seq, each.claim) for each in result.postponed.settlements}
            accepted = tuple(s for s in accepted if s.claim_name not in refused and (s.seq, s.claim) not in left)
        self._ends.add(accepted, now)
        if result.lost or not self._store.is_registered(holder):
            self._compared = False

    # turns without an answer

    def _make_sure(self, holder: Holder) -> None:
        """Ends the sessions of broken turns, and gives back what these may have claimed."""
        while (broken := self._doubts.first()) is not None:
            if broken.may_run_on(self._server, self._db.backend):
                self._db.rows(_STORE["terminate"], (broken.session,))
            with self._db.transaction():
                its = (broken.claim, holder.life)
                if self._db.rows(_CLAIM["limited_of"], its):
                    rates.give_back(self._db, self._db.now, self._db.rows(_CLAIM["claimed_under"], its))
                self._db.send(_CLAIM["give_back"], its)
            self._doubts.made_sure()

    def _without_accepted(self, settlements: Sequence[Settlement], result: Result) -> Result:
        """Returns the result without those lost claims whose outcome a broken turn had settled already."""
        asked = self._doubts.asked(settlements, result.lost)
        if not asked:
            return result
        rows = [{"seq": s.seq, "claim": s.claim, "outcome": s.outcome} for s in asked]
        accepted = set(self._db.rows(_END["before"], (as_json(rows),)))
        known = {s.claim_name for s in asked if (s.seq, s.claim) in accepted}
        return msgspec.structs.replace(result, lost=tuple(each for each in result.lost if each not in known))


def beaten(store: Host, holder: Holder, rows: Sequence[Any]) -> Holder:
    """Lets a registered node whose row is gone join again: other nodes have taken it for dead, or the server has lost
    its registration. Returns the life as which it goes on.

    What it held, and others have not released yet, is its own again; its other outcomes are refused by their claims.
    """
    if not store.is_registered(holder) or rows:
        return holder
    joined = store.join()
    log.warning("other nodes had taken this one for dead, and may run its jobs; it joined again", node=holder.node)
    return joined


class Edges:
    """What a node knows of the jobs that wait for others, between two turns."""

    def __init__(self) -> None:
        self.some = False
        """Whether there were any when jobs ended last. If not, a turn saves the statements for them."""
        self._due = False
        self._not_before = 0.0

    def told(self, rows: Sequence[Any]) -> None:
        """Notes what a beat has found."""
        self._due = any(due for _, due in rows)

    def are_due(self, now: float) -> bool:
        """Returns whether edges must be looked at."""
        return self._due and now >= self._not_before

    def looked_at(self, now: float, *, decided: int) -> None:
        """Notes how many edges were decided. If there were only others, they wait for somebody else's transaction."""
        self._due = False
        self._not_before = now if decided else now + LOOK_AGAIN


class _Written(msgspec.Struct, frozen=True):
    """How to read the answers to what was written for settlements and requests."""

    sent: Sent
    created: Callable[[], list[tuple[Any, ...]]]


class _Running:
    """One turn: what was sent, and how to read the answers."""

    def __init__(
        self,
        store: Host,
        db: Session,
        batch: Batch,
        holder: Holder,
        dropped: set[Any],
        new_ids: NewIds,
        positions: Positions,
        held_keys: HeldKeys,
        monotonic: Callable[[], float],
        edges: Edges,
        idle: set[str],
    ) -> None:
        """`idle`: the flows that may have ended in earlier turns."""
        self._store, self._db, self._holder, self._dropped = store, db, holder, dropped
        self._edges, self._effects = edges, Effects()
        requests = (Request(each.token, ()) if each.token in dropped else each for each in batch.requests)
        self._batch = msgspec.structs.replace(batch, requests=tuple(requests))
        self._positions, self._held_keys, self._monotonic = positions, held_keys, monotonic
        registered = holder if store.is_registered(holder) else None
        self._claiming = Claiming(db, db.now, registered)
        self._jobs = PostgresJobs(db, db.now, new_ids, registered, self._effects)
        self._done: list[Any] = []
        self._takes: list[tuple[Want, Callable[[], Taken]]] = []
        self._written: list[_Written] = []
        self._idle, self._ends = idle, set[str]
        """Reads which flows have ended, and returns those that this turn cannot end."""
        self._late: frozenset[str] = frozenset()
        """The queues in which jobs became ready after the pipeline had claimed."""
        self._left: list[Part] = []
        """Parts that were not written, because a transaction of others holds their keys."""
        self._changed = False
        self.committed = False
        """Whether the pipeline has committed. What follows may still fail, and then the caller learns nothing of it."""

    @property
    def idle(self) -> set[str]:
        """The flows that may have ended, after `result`."""
        return self._idle | self._effects.flows

    @property
    def claim(self) -> int:
        """The number of this turn's claims."""
        return self._claiming.number

    def send(self, poll: bool) -> None:
        """Sends all statements, and commits. `poll`: finds out whether others have written."""
        batch, holder = self._batch, self._holder
        with self._db.pipeline(poll=poll) as polled:
            beat = self._db.send(_FLEET["beat"], (holder.life, self._db.backend))
            plain, keyed = split(batch)
            sent = self._jobs.end(plain.settlements, holder, following=self._edges.some)
            if batch.notes:
                self._jobs.note(batch.notes)
            self._written.append(_Written(sent, self._add(plain)))
            if keyed:
                written, self._left = self._held_keys.write(keyed, self._write)
                self._written += written
            if batch.chores:
                with self._store.parts() as tx:
                    self._do(tx)
                self._effects.join(tx.effects)
            self._positions.lower({(job.queue, -job.priority) for each in batch.requests for job in each.jobs})
            self._positions.forget(_placed(batch))
            self._positions.forget({each.queue for each in batch.settlements if each.state is State.QUEUED})
            for want in batch.wants:
                start = self._positions.start(want.queue)
                self._takes.append((want, self._claiming.take(want, holder, start)))
            if self._idle:
                self._ends = self._jobs.send_ends(self._idle)
            for what in batch.wakeups:
                self._db.wake(what)
        self.committed = True
        rows = beat.fetchall()
        self._edges.told(rows)
        beaten(self._store, holder, rows)
        self._changed = polled.changed

    def _add(self, batch: Batch) -> Callable[[], list[tuple[Any, ...]]]:
        jobs = [job for each in batch.requests for job in each.jobs]
        if not jobs:
            return list[tuple[Any, ...]]
        if any(map(is_linked, jobs)):
            return self._jobs.add_linked([linked_row_of(job) for job in jobs])
        return self._jobs.add([row_of(job) for job in jobs])

    def _write(self, parts: Sequence[Part]) -> _Written:
        batch = joined(parts)
        sent = self._jobs.end(batch.settlements, self._holder, following=self._edges.some)
        return _Written(sent, self._add(batch))

    def _do(self, tx: PostgresTransaction) -> None:
        for chore in self._batch.chores:
            if token_of(chore) in self._dropped:
                self._done.append(undone(chore))
                continue
            part = part_of(chore)
            if part is None:
                self._done.append(do(chore, tx, self._holder, self._monotonic()))
                continue
            done, left = self._held_keys.write([part], lambda _, it=chore: do(it, tx, self._holder, self._monotonic()))
            self._done += done
            self._left += left

    def result(self, changed: bool) -> Result:
        """Returns the result; claims that the pipeline had to leave, and reads, follow here."""
        changed = changed or self._changed
        left, batch = NOTHING, self._batch
        if self._left:
            left = joined(self._left)
            batch = batch.without(left)
        kinds = {type(chore) for chore in batch.chores}
        read_pauses = changed or not kinds.isdisjoint(ABOUT_PAUSES)
        read_recurring = not kinds.isdisjoint(ABOUT_RECURRING)
        jobs = self._store.jobs
        lost = [each for written in self._written for each in written.sent.lost()]
        self._complete()
        self._idle = self._ends()
        return Result(
            changed=changed,
            lost=tuple(lost),
            enqueued=self._enqueued(batch.requests),
            grants=tuple(self._grants()),
            done=tuple(self._done),
            postponed=left,
            dropped=tuple(self._dropped),
            cancelling=tuple(job_id for job_id, _ in jobs.cancelling()) if changed else None,
            pauses=pauses_of(self._store) if read_pauses else None,
            waiting=tuple(jobs.waiting()) if chores.LookAtQueues in kinds else None,
            recurring=tuple(jobs.recurring()) if read_recurring else None,
            woken=frozenset(self._effects.woken),
            ended_flows=tuple(self._effects.ended_flows),
            asked=tuple(self._store.fleet.requests(self._holder)) if changed else None,
        )

    def _complete(self) -> None:
        """Does what the outcomes mean for jobs that wait for others, as far as the pipeline has not.

        What is locked by somebody else is left to later turns, or to a sweep.
        """
        effects, sent = self._effects, [written.sent for written in self._written]
        before = frozenset(effects.woken)
        if any(each.ended for each in sent):
            self._edges.some = any(each.followed for each in sent)
        left = [claim for each in sent if each.followed and each.noted is None for claim in each.ended]
        effects.flows.update(*(each.flows for each in sent if each.noted is None))
        try:
            if left or effects.due or self._edges.are_due(clock.monotonic()):
                with self._store.transaction() as tx:
                    tx.jobs.close(left)
                    decided = tx.jobs.look()
                    flows, tx.effects.flows = tx.effects.flows, set()
                self._edges.looked_at(clock.monotonic(), decided=decided + len(left))
                effects.join(tx.effects)
                effects.flows |= flows
        except StoreBusy as error:
            log.warning("jobs that wait for others were not released yet: their rows are locked", why=error)
        if effects.woken:
            self._late = frozenset(effects.woken) - before
            self._positions.released(effects.ready)

    def _enqueued(self, requests: Sequence[Request]) -> tuple[tuple[Any, tuple[Enqueued, ...]], ...]:
        new = [job for each in requests for job in each.jobs]
        created = {str(job_id) for written in self._written for (job_id,) in written.created()}
        if len(created) == len(new):
            found = [Enqueued(job.id, True) for job in new]
        else:
            with self._db.transaction():
                found = self._jobs.answers(new, created)
        answers = iter(found)
        return tuple((each.token, tuple(next(answers) for _ in each.jobs)) for each in requests)

    def _grants(self) -> list[Grant]:
        grants: list[Grant] = []
        for want, take in self._takes:
            taken = take()
            if taken.special:
                with self._db.transaction():
                    grants.append(self._claiming.claim_special(want, self._holder))
                continue
            self._positions.took(want, taken)
            grants.append(self._more(want, taken.grant))
        return grants

    def _more(self, want: Want, grant: Grant) -> Grant:
        """Claims jobs that became ready only after the pipeline, if there is room for them."""
        room = want.limit - len(grant.claims)
        if want.queue not in self._late or room <= 0 or grant.limited:
            return grant
        with self._db.transaction():
            rest = msgspec.structs.replace(want, limit=room, early=min(want.early, room))
            (more,) = self._claiming.claim([rest], self._holder)
        return msgspec.structs.replace(more, claims=grant.claims + more.claims)


def _placed(batch: Batch) -> set[str]:
    """Returns the queues in which jobs may have been added before others."""
    asked = (job for each in batch.requests for job in each.jobs)
    followed = (job for each in batch.settlements for job in each.follow)
    return {job.queue for job in chain(asked, followed) if job.share is not None or job.flow is not None}
