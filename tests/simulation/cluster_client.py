"""The simulated store object and store thread of a node: the turns of the PostgreSQL store, as round trips.

It follows `stores/postgres/turn.py`, `stores/postgres/store.py` and `node/store_thread.py`, step by step; whatever it
decides by itself is wrong.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cluster_line import Call, Open, Terminate, Trip, Wait
from cluster_store import Transaction
from msgspec.structs import replace

from chargehand import ids
from chargehand.errors import StoreError
from chargehand.model import failover
from chargehand.model.batch import Batch, Grant, Result, Want
from chargehand.model.doubts import Doubts
from chargehand.model.failover import Change, Comparison, Ends, ServerClaim
from chargehand.model.failover import Server as ServerId
from chargehand.model.job import Settlement
from chargehand.model.records import CrewRow, Holder, NewLife, NodeAbout
from chargehand.model.succession import Fate, Succession, name_taken
from chargehand.stores.postgres.beats import Beats

if TYPE_CHECKING:
    from cluster import World
    from cluster_line import Line

LOOK_AGAIN = 0.2
SLOW_ANSWER = 2.0
RECOVER_AGAIN = 0.5


class Client:
    """The store object of one node process."""

    def __init__(
        self, world: "World", line: "Line", holder: Holder, crews: Sequence[CrewRow], about: NodeAbout
    ) -> None:
        self._world, self._line, self.holder = world, line, holder
        self._crews, self._about = crews, about
        self._registered: Holder | None = None
        self._former: set[str] = set()
        self._doubts, self._beats = Doubts(), Beats()
        self._server: ServerId | None = None
        self._version: int | None = None
        self.new_life: NewLife | None = None
        self.comparison: Comparison | None = None
        self._recognised: int | None = None
        self._compared, self._replaced, self._ends = True, False, Ends()

    # a node starts

    def open(self, alive: Callable[[int, int], bool]) -> Call:
        """Takes the name, registers the node, and releases the claims of its earlier lives."""
        last = yield from self._take_name(alive)
        after = () if last is None else (last,)
        yield Trip(lambda tx: self._register(tx, self.holder, after))
        self._registered = self.holder
        self._former.update(after)
        while True:
            try:
                yield Trip(lambda tx: tx.recover(self.holder, "the node ended while the job was running", after))
                return
            except StoreError:
                yield Wait(RECOVER_AGAIN)

    def _take_name(self, alive: Callable[[int, int], bool]) -> Call:
        succession = Succession(self._about, alive)
        while True:
            before = self._world.now
            last = yield Trip(lambda tx: tx.last_life(self.holder.node), writes=False)
            now = self._world.now
            if now - before > SLOW_ANSWER:
                succession.forget()
            fate = Fate.DEAD if last is None else succession.judge(last, now)
            if last is None or fate is Fate.DEAD:
                return None if last is None else last.life
            if fate is Fate.LIVES:
                raise StoreError(name_taken(self.holder.node, last.about))
            yield Wait(LOOK_AGAIN)

    def _register(self, tx: Transaction, holder: Holder, after: Sequence[str]) -> None:
        tx.register(holder, self._crews, self._about, self._line.session, after)

    # turns

    def turn(self, batch: Batch) -> Call:
        """Executes a batch. Returns its result."""
        holder = self.holder
        yield from self._recognise()
        yield from self._make_sure(holder)
        holder = yield from self._compare(holder)
        registered = self._registered == holder
        if registered and self._beats.is_due(self._world.now):
            yield from self._expire_others(holder)
        has_work = batch.hinted or batch.settlements or batch.notes or batch.requests or batch.chores or batch.wakeups
        changed = False
        if batch.poll and not has_work:
            others_wrote, holder = yield from self._poll(holder)
            changed = others_wrote or batch.unsure
            if not changed:
                return Result()
        number, session = ids.new_claim(), (yield Open())
        try:
            result = yield from self._running(batch, holder, number, session, changed or batch.unsure)
            result = yield from self._without_accepted(batch.settlements, result)
        except StoreError:
            self._doubts.add(number, self._line.last_session, self._server, batch.settlements)
            raise
        self._keep(batch, result, holder)
        return result

    def _running(self, batch: Batch, holder: Holder, number: int, session: int, changed: bool) -> Call:
        registered = self._registered == holder

        def claim(tx: Transaction, want: Want) -> Grant:
            return tx.claim(want, holder, number, registered=registered)

        def pipeline(tx: Transaction) -> Any:
            seen = tx.tables.version
            beat = tx.beat(holder.life, session)
            lost = tx.settle(batch.settlements)
            tx.note(batch.notes)
            enqueued = tuple((each.token, tuple(tx.enqueue(each.jobs))) for each in batch.requests)
            taken = [None if tx.is_special(want.queue) else claim(tx, want) for want in batch.wants]
            return seen, beat, lost, enqueued, taken

        seen, beat, lost, enqueued, taken = yield Trip(pipeline)
        for what in sorted(batch.wakeups):
            self._world.notify(what, but=holder.node)
        if batch.poll:
            changed |= self._has_changed(seen)
        yield from self._beaten(holder, beat)
        grants: list[Grant] = []
        for want, grant in zip(batch.wants, taken, strict=True):
            grants.append(grant or (yield Trip(lambda tx, want=want: claim(tx, want))))
        return Result(
            changed=changed, lost=tuple(lost), enqueued=enqueued, grants=tuple(grants),
            done=tuple(None for _ in batch.chores),
        )  # fmt: skip

    def _has_changed(self, version: int) -> bool:
        before, self._version = self._version, version + 1
        return version != before

    def changed(self) -> bool:
        """Returns whether others have written, as the store thread sees it between two batches."""
        return self._world.server.tables.version != self._version

    def look(self, queues: Sequence[str]) -> Call:
        """Returns those of the queues that have jobs."""
        try:
            return (yield Trip(lambda tx: tx.look(queues), writes=False))
        except StoreError:
            return queues

    def _poll(self, holder: Holder) -> Call:
        session = yield Open()

        def act(tx: Transaction) -> tuple[int, bool]:
            return tx.tables.version, tx.beat(holder.life, session)

        version, beat = yield Trip(act)
        holder = yield from self._beaten(holder, beat)
        return self._has_changed(version), holder

    def _beaten(self, holder: Holder, beat: bool) -> Call:
        if self._registered != holder or beat:
            return holder
        return (yield from self._join(holder))

    def _join(self, former: Holder) -> Call:
        self._former.add(former.life)
        self._world.new_lives += 1
        holder = Holder(former.node, f"{former.node} again {self._world.new_lives}")
        lives = sorted(self._former)
        self._former.add(holder.life)

        def act(tx: Transaction) -> frozenset[tuple[int, int]]:
            self._register(tx, holder, lives)
            return tx.adopt(lives, holder.life)

        held = yield Trip(act)
        self._world.note(f"{former.node} begins a new life with {len(held)} claims")
        self._world.tally["new life"] += 1
        self._registered, self.new_life = holder, NewLife(holder, held)
        return holder

    def _expire_others(self, holder: Holder) -> Call:
        asked_at = self._world.now
        seen = yield Trip(lambda tx: tx.others(holder.life), writes=False)
        connection = self._line.number
        dead = self._beats.dead(seen, self._world.now, connection, asked_at)
        if not dead:
            return

        def act(tx: Transaction) -> list[str]:
            if self._line.number != connection:
                return []
            gone = tx.expire(dead)
            if gone:
                died = [row.life for row in gone if not row.about.asked]
                tx.recover(holder, "the node of the job is gone", died)
            return [row.name for row in gone]

        names = yield Trip(act)
        if names:
            self._world.note(f"{holder.node} expires {names}")
            self._world.tally["expired"] += len(names)

    # turns without an answer

    def _make_sure(self, holder: Holder) -> Call:
        while (broken := self._doubts.first()) is not None:
            session = yield Open()
            if broken.session is not None and broken.may_run_on(self._server, session):
                yield Terminate(broken.session)
            number = broken.claim
            yield Trip(lambda tx, number=number: tx.give_back(number, holder.life))
            self._doubts.made_sure()

    def _without_accepted(self, settlements: Sequence[Settlement], result: Result) -> Call:
        asked = self._doubts.asked(settlements, result.lost)
        if not asked:
            return result
        accepted = yield Trip(lambda tx: tx.before(asked), writes=False)
        known = {each.claim_name for each in asked if (each.seq, each.claim) in accepted}
        return replace(result, lost=tuple(each for each in result.lost if each not in known))

    # servers that replace others

    def _recognise(self) -> Call:
        yield Open()
        known = self._recognised == self._line.number
        if known:
            return
        found = yield Trip(lambda tx: ServerId("system", self._world.server.timeline, ""), writes=False)
        change = failover.judge(self._server, found)
        # `Beats` begins anew by itself on another connection, which the shipped turn does once more.
        assert change is not Change.OUTDATED
        self._compared &= self._recognised is None
        self._replaced |= change is Change.REPLACED
        self._server, self._recognised = found, self._line.number

    def _compare(self, holder: Holder) -> Call:
        if self._compared or self._registered != holder:
            return holder
        session = yield Open()
        beat = yield Trip(lambda tx: tx.beat(holder.life, session))
        holder = yield from self._beaten(holder, beat)
        claims = yield Trip(lambda tx: [ServerClaim(*row) for row in tx.held_by(holder.life)], writes=False)
        ends = self._ends.recent(self._world.now)
        recorded = yield Trip(lambda tx: tx.recorded(ends), writes=False)
        self.comparison = failover.compare(ends, claims, recorded, replaced=self._replaced)
        self._compared, self._replaced = True, False
        return holder

    def _keep(self, batch: Batch, result: Result, holder: Holder) -> None:
        refused = set(result.lost)
        self._ends.add((each for each in batch.settlements if each.claim_name not in refused), self._world.now)
        if result.lost or self._registered != holder:
            self._compared = False

    @property
    def up_to_date(self) -> bool:
        """Whether the node knows the present server, and what that has of its claims."""
        timeline = None if self._server is None else self._server.timeline
        return timeline == self._world.server.timeline and not self._replaced and self.comparison is None
