"""Claims jobs from PostgreSQL. Part of a transaction: it neither begins nor ends one.

A claim from a queue without limits, while there are no suspects, is decided by one statement. In all other cases the
model decides (`model.limits`, `model.rates`, `model.suspects`), while the row of the queue's limit is locked.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chargehand.ids import new_claim
from chargehand.model import limits, rates, suspects
from chargehand.model.batch import Grant, Want
from chargehand.model.job import Claim, State
from chargehand.model.limits import NO_LIMIT, Chosen, Limit, least, within
from chargehand.model.records import CrewRow, Holder
from chargehand.model.suspects import Suspect, mark
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.rates import RateBook, Standings
from chargehand.stores.postgres.session import Session, numbers

PROMOTE_AT_ONCE = 200
"""How many scheduled jobs one claim makes due, at most: a million that become due together must not slow it down."""
FRONT = (-(1 << 31), -(1 << 63), -(1 << 63))
"""The position before every job: rank, place and seq."""

_SQL = statements.load("claim")
_tags = msgspec.json.Decoder(tuple[str, ...])

Position = tuple[int, int, int]


class Look(msgspec.Struct, frozen=True, array_like=True):
    """What `look` returns of a queue."""

    pauses: int
    pause_left_ms: int | None
    next_in_ms: int | None
    special: bool
    """Whether the queue has limits, or there are suspects."""
    waiting: int
    urgent: int


class Taken(msgspec.Struct, frozen=True):
    """The result of the statements of one Want."""

    grant: Grant
    special: bool
    """The claim must be repeated with `claim_special`, because of limits or suspects."""
    first: Position | None
    """The position of the first job that was taken."""


class Claiming:
    """The claims of one transaction; all of them have the same number."""

    def __init__(self, db: Session, now: int | None, registered: Holder | None) -> None:
        self._db, self._now, self._registered = db, now, registered
        self.number = new_claim()

    def claim(self, wants: Sequence[Want], holder: Holder) -> list[Grant]:
        """Takes jobs for each Want, whatever limits there are."""
        grants: list[Grant] = []
        for want in wants:
            taken = self.take(want, holder)()
            grants.append(self.claim_special(want, holder) if taken.special else taken.grant)
        return grants

    def take(self, want: Want, holder: Holder, start: Position = FRONT) -> Callable[[], Taken]:
        """Sends the statements of a claim from a queue without limits. The result returns what they did."""
        self._db.send(_SQL["promote"], (self._now, want.queue, PROMOTE_AT_ONCE))
        rows = self._db.send(_SQL["claim"], self._claim_args(self._now, want, want.limit, holder, False, (), start))
        look = self._db.send(_SQL["look"], self._look_args(want, want.asleep, (), holder))

        def taken() -> Taken:
            claims, first = self._claims(rows.fetchall())
            seen = Look(*look.fetchall()[0])
            if seen.pauses:
                return Taken(Grant(want.crew, (), seen.pause_left_ms, limited=True), False, None)
            next_in = None
            if (want.limit or want.asleep) and len(claims) + seen.waiting < want.limit + want.asleep:
                next_in = None if seen.next_in_ms is None else max(0, seen.next_in_ms)
            grant = Grant(want.crew, tuple(claims), next_in, seen.waiting, False, seen.urgent)
            return Taken(grant, seen.special, first)

        return taken

    def _claim_args(
        self,
        now: int | None,
        want: Want,
        limit: int,
        holder: Holder,
        special: bool,
        blocked: Sequence[int],
        start: Position,
    ) -> tuple[Any, ...]:
        return (
            now, want.queue, want.crew, limit, self.number, holder.life, holder.node, want.limit - want.early,
            holder == self._registered, special, numbers(blocked), *start,
        )  # fmt: skip

    def _look_args(self, want: Want, asleep: int, blocked: Sequence[int], holder: Holder) -> tuple[Any, ...]:
        return (self._now, want.queue, want.crew, asleep, -want.above, want.ahead, numbers(blocked), holder.node)

    def _claims(self, rows: Sequence[tuple[Any, ...]]) -> tuple[list[Claim], Position | None]:
        """Returns the claims in their order (the rows have none), and the position of the first."""
        ordered = sorted(rows)
        first = None if not ordered else (int(ordered[0][6]), int(ordered[0][15]), int(ordered[0][2]))
        return [self._claim_of(row) for row in ordered], first

    def _claim_of(self, row: tuple[Any, ...]) -> Claim:
        (
            _, job_id, seq, queue, payload, label, rank, attempts, max_attempts, crashes, timeout_ms, item, tags,
            waited_ms, failed_in, _, first, flow, kept, expired, meta, traceparent,
        ) = row  # fmt: skip
        return Claim(
            id=job_id, seq=seq, number=self.number, queue=queue, payload=payload, label=label, priority=-rank,
            failures=attempts, max_attempts=max_attempts, crashes=crashes, timeout_ms=timeout_ms, item=item,
            tags=None if tags is None else _tags.decode(tags), waited_ms=waited_ms, failed_in=failed_in,
            first=first, flow=flow, kept=kept, expired=bool(expired), meta=meta, traceparent=traceparent,
        )  # fmt: skip

    # limits and suspects

    def claim_special(self, want: Want, holder: Holder) -> Grant:
        """Takes jobs for a Want from a queue with limits or a rate, or while there are suspects."""
        rows = self._db.rows(_SQL["lock"], ([want.queue],))
        of = _limit(*rows[0][1:]) if rows else NO_LIMIT
        blocked, known = self._suspects(want.queue, holder)
        seen = self._look(want, 0, blocked, holder)
        if seen.pauses:
            return Grant(want.crew, (), seen.pause_left_ms, limited=True)
        room = self._room(want.queue, of)
        if room == 0 and not want.ahead:
            return Grant(want.crew, (), None, limited=True)  # the next claim after a slot is freed finds it
        book = RateBook(self._db, want.queue, of) if of.rated else None
        standings = [] if book is None else book.of_queue()
        may_start = rates.room(standings)
        now = self._now if book is None else book.now_ms
        opens_in = rates.opens_in(standings, 0, now or 0) if may_start == 0 else None
        if may_start == 0 and not want.ahead:
            return Grant(want.crew, (), opens_in, limited=True)
        self._db.send(_SQL["promote"], (self._now, want.queue, PROMOTE_AT_ONCE))
        slots = within(room, want.limit, want.asleep)
        limit, asleep = within(may_start, *slots)
        if not (limit or asleep):
            return Grant(want.crew, (), opens_in, limited=limit < want.limit, urgent=seen.urgent)
        next_in: int | None = None
        if not of.of_keys:
            found = self._db.rows(_SQL["claim"], self._claim_args(now, want, limit, holder, True, blocked, FRONT))
            if book is not None:
                book.start([None] * len(found))
            seen = self._look(want, asleep, blocked, holder)
            waiting = seen.waiting
        else:
            found, waiting, next_in = self._take_within_key_limits(want, limit, asleep, holder, blocked, of, book)
            seen = self._look(want, 0, blocked, holder)
        claims = mark(self._claims(found)[0], known)
        if len(claims) + waiting < limit + asleep:
            next_in = least(next_in, None if seen.next_in_ms is None else max(0, seen.next_in_ms))
        elif (limit, asleep) != slots:  # because of the rate
            next_in = rates.opens_in(standings, len(claims) + waiting, now or 0)
        limited = (limit < want.limit) or of.of_keys or bool(blocked)
        return Grant(want.crew, tuple(claims), next_in, waiting, limited, seen.urgent)

    def _look(self, want: Want, asleep: int, blocked: Sequence[int], holder: Holder) -> Look:
        return Look(*self._db.rows(_SQL["look"], self._look_args(want, asleep, blocked, holder))[0])

    def _room(self, queue: str, limit: Limit) -> int | None:
        if limit.queue is None:
            return None
        ((running,),) = self._db.rows(_SQL["running"], (queue,))
        return limits.room(limit, running)

    def _take_within_key_limits(
        self,
        want: Want,
        limit: int,
        asleep: int,
        holder: Holder,
        blocked: Sequence[int],
        of: Limit,
        book: RateBook | None,
    ) -> tuple[list[tuple[Any, ...]], int, int | None]:
        chosen = self._choose(want.queue, limit, asleep, blocked, of, book)
        now = self._now if book is None else book.now_ms
        args = (
            now, numbers(chosen.seqs), self.number, holder.life, holder.node, want.limit - want.early,
            holder == self._registered,
        )  # fmt: skip
        found = self._db.rows(_SQL["claim_these"], args)
        next_in = None
        if book is not None:
            key_of = dict(zip(chosen.seqs, chosen.keys, strict=True))
            book.start([key_of[row[2]] for row in found])
            next_in = book.next_in() if of.key_rates else None
        return found, chosen.waiting, 0 if chosen.cut_short else next_in

    def _choose(
        self, queue: str, limit: int, asleep: int, blocked: Sequence[int], of: Limit, book: RateBook | None
    ) -> Chosen:
        """Chooses the next jobs whose keys have a free slot, and sets aside the others."""
        keyed = book if of.key_rates else None
        if keyed is not None:
            keyed.reopen()
        running: dict[str, int] = {}
        if of.key is not None:
            running = {str(key): int(count) for key, count in self._db.rows(_SQL["running_by_key"], (queue,))}
        asked = (queue, limits.jobs_needed(limit, asleep), numbers(blocked))
        ready = [(int(seq), key) for seq, key in self._db.rows(_SQL["ready"], asked)]
        standings: Standings = {}
        rooms: dict[str, int] | None = None
        if keyed is not None:
            standings = keyed.of_keys({key for _, key in ready if key is not None})
            rooms = {key: rates.room(its) or 0 for key, its in standings.items()}
        chosen = limits.choose(ready, running, of.key, limit, asleep, rooms)
        if chosen.over:
            self._db.send(_SQL["set_aside"], (numbers(chosen.over),))
        if chosen.late and keyed is not None:
            keyed.close(rates.closed(standings, chosen.fit, chosen.late, keyed.now_ms))
        return chosen

    def _suspects(self, queue: str, holder: Holder) -> tuple[list[int], set[int]]:
        """Returns the jobs that a claim from this queue must leave, and all suspects; forgets finished ones."""
        found = [
            Suspect(
                seq=seq, state=None if state is None else State(state), queue=of, priority=priority,
                ready=bool(ready), here=bool(here),
            )
            for seq, state, of, priority, ready, here in self._db.rows(_SQL["suspects"], (holder.life,))
        ]  # fmt: skip
        gone = suspects.finished(found)
        if gone:
            self._db.send(_SQL["forget_suspects"], (numbers(gone),))
        return suspects.blocked(found, queue), {each.seq for each in found}


def set_limits(db: Session, crews: Sequence[CrewRow]) -> None:
    """Replaces all limits by those of these crews."""
    before = {str(queue): _limit(*row) for queue, *row in db.rows(_SQL["limits"])}
    after = {queue: limit for queue, limit in limits.limits_of(crews).items() if limit != NO_LIMIT}
    for queue in sorted(before.keys() | after.keys()):
        limit = after.get(queue)
        if limit is None:
            db.send(_SQL["drop_limit"], (queue,))
        elif limit != before.get(queue):
            its = (rates.to_text(limit.rates), rates.to_text(limit.key_rates))
            db.send(_SQL["set_limit"], (queue, limit.queue, limit.key, *its))
    # Code that knows no rates may have removed the limit of the queue since.
    waiting = {str(queue) for (queue,) in db.rows(_SQL["waiting_keys"])}
    unrated = {queue for queue in waiting if not after.get(queue, NO_LIMIT).key_rates}
    for queue in sorted({*limits.relaxed(before, after), *unrated}):
        with db.unhurried():  # there may be millions
            db.send(_SQL["bring_all_back"], (queue,))
            db.send(_SQL["open_all"], (queue,))


def _limit(queue: int | None, key: int | None, rate: str | None, rate_per_key: str | None) -> Limit:
    return Limit(queue, key, rates.from_text(rate), rates.from_text(rate_per_key))
