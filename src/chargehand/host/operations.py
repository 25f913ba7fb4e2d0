"""Operations on one store and its node, from any process of the machine, without the handlers of the application.

`Chargehand`, the web package and the commands use it. It starts no node and no worker.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import msgspec

from chargehand import clock, log
from chargehand.errors import (
    ChargehandError,
    ConfigurationError,
    Conflict,
    NobodyServes,
    RecurringNotFound,
    StoreBusy,
    UnknownCrew,
)
from chargehand.host import place
from chargehand.host.actor import actor, enqueue_deeds, log_deeds
from chargehand.host.calls import NoAnswer, NodeLeft, NoNode
from chargehand.host.flows import FlowOperations
from chargehand.host.reach import Reply
from chargehand.host.readings import found_by_end
from chargehand.model import routing
from chargehand.model.access import ApiKey, Scope
from chargehand.model.bulk import BulkDone, BulkPlace, BulkVerb, selected
from chargehand.model.fleet.orders import LONGEST_PAUSE_MS, Answer, AnswerCode, Verb, detail_of, replacing
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.flows import NewFlow
from chargehand.model.job import FINISHED, Enqueued, JobRecord, NewJob, State
from chargehand.model.job_query import text_of
from chargehand.model.records import (
    JobFilter,
    JobSize,
    Migrated,
    RecurringPlan,
    SearchPlace,
)
from chargehand.model.routing import Target
from chargehand.settings import schedule
from chargehand.settings.plan import milliseconds
from chargehand.store import Transaction
from chargehand.stores import migrate
from chargehand.system import forks

NO_RECURRING = "there is no recurring job {name!r}: `chargehand recurring` lists all that nodes have declared"
AT_ONCE = 500
"""Jobs cancelled, retried or deleted in one transaction."""
AT_MOST = 10_000
"""Jobs of a queue that one call retries or clears."""
BULK_SECONDS = 4.0
"""Seconds after which a bulk operation returns, and says where it goes on: a request is answered within 10 s."""
LONGEST_DETAIL = 500
"""The number of characters of a filter in the operator log."""
BYTES_AT_ONCE = 8 << 20
"""Bytes of payloads and results that one transaction deletes: SQLite frees each of their pages."""
THROUGH_THE_NODE = 32
"""Up to this many jobs are enqueued through the node, which commits several callers together; more are written here."""
BYTES_THROUGH_THE_NODE = 1 << 18

_inside: ContextVar[bool] = ContextVar("chargehand_inside_transaction", default=False)


def _after_fork() -> None:
    _inside.set(False)  # the transaction is the parent's


forks.in_child(_after_fork)


class Operations(FlowOperations):
    """Everything that can be done with one store and its node; a subclass, because most operations read as well."""

    # workers

    def start(self, scope: str | None = None) -> list[Answer]:
        return self._order(Verb.START, scope)

    def stop(self, scope: str | None = None) -> list[Answer]:
        return self._order(Verb.STOP, scope)

    def drain(self, scope: str | None = None, *, end: bool = False) -> list[Answer]:
        return self._order(Verb.DRAIN, scope, **({"end": True} if end else {}))

    def restart(self, scope: str | None = None) -> list[Answer]:
        return self._order(Verb.RESTART, scope)

    def reset(self, scope: str | None = None) -> list[Answer]:
        return self._order(Verb.RESET, scope)

    def scale(self, crew: str, count: int) -> list[Answer]:
        return self._order(Verb.SCALE, crew, count=count)

    def pause(
        self,
        scope: str | None = None,
        *,
        reason: str | None = None,
        seconds: float | None = None,
        who: str | None = None,
        declared: Iterable[str] = (),
    ) -> list[Answer]:
        """Pauses workers. Without a node, `declared` are crews that exist besides those that nodes have registered."""
        for_ms = None if seconds is None else milliseconds("the length of the pause", seconds)
        if for_ms is not None and not 0 < for_ms <= LONGEST_PAUSE_MS:
            raise ConfigurationError(f"a pause of {seconds:g} s; allowed is more than 0 and up to a year")
        if self.reach.may_be_many:
            return self._pause_in_store(scope, who or actor().who, reason, for_ms)
        try:
            return self._order(Verb.PAUSE, scope, reason=reason, for_ms=for_ms, who=who or actor().who)
        except NoNode:
            self._node_must_be_absent()
            with self.stores.use(create=False) as store:
                _check_known(scope, sorted({*(crew.name for crew in store.fleet.crews()), *declared}))
                with store.transaction() as tx:
                    before = tx.fleet.pause(_stored(scope), who or actor().who, reason, for_ms)
                    log_deeds(tx, "pause", [_stored(scope)], reason, who)
        text = "is paused; no node runs, and the next one takes no jobs either"
        return [Answer(scope or "*", f"{text}{replacing(before)}", AnswerCode.PAUSED)]

    def resume(self, scope: str | None = None) -> list[Answer]:
        if self.reach.may_be_many:
            return self._resume_in_store(scope)
        try:
            return self._order(Verb.RESUME, scope)
        except NoNode:
            self._node_must_be_absent()
            with self.stores.use(create=False) as store, store.transaction() as tx:
                found = tx.fleet.resume(_stored(scope))
                log_deeds(tx, "resume", [_stored(scope)])
        if found:
            return [Answer(scope or "*", "is no longer paused; no node runs", AnswerCode.RESUMED)]
        return [Answer(scope or "*", "was not paused", AnswerCode.NOT_PAUSED)]

    def _pause_in_store(self, scope: str | None, who: str, reason: str | None, for_ms: int | None) -> list[Answer]:
        """Pauses workers of any node: claims check the flag, and every node is notified."""
        self.reach.check_node(scope, self.reach.living())
        found = self._concerned(scope)
        stored = routing.stored(scope, found)
        with self.stores.use(create=False) as store:
            with store.transaction() as tx:
                before = tx.fleet.pause(stored, who, reason, for_ms)
                log_deeds(tx, "pause", [stored], detail_of(reason, for_ms), who)
            rows = store.fleet.health()
        self.calls.hint(None)
        return routing.paused(stored, rows, found, replacing(before))

    def _resume_in_store(self, scope: str | None) -> list[Answer]:
        try:
            found = self._concerned(scope)
        except NobodyServes:  # the pause of a node may outlive it
            found = []
        stored = routing.stored(scope, found)
        with self.stores.use(create=False) as store:
            with store.transaction() as tx:
                was_paused = [tx.fleet.resume(each) for each in routing.also_resumed(stored)]
                log_deeds(tx, "resume", [stored])
            rows, pauses = store.fleet.health(), store.fleet.pauses()
        self.calls.hint(None)
        return routing.resumed(stored, rows, found, pauses, was_paused=any(was_paused))

    def _concerned(self, scope: str | None) -> list[Target]:
        """Returns the living nodes that a pause concerns; none for a crew that only nodes of the past have."""
        nodes = self.reach.living()
        try:
            if nodes:
                return routing.targets(scope, nodes)
        except UnknownCrew:
            crews = [row.name for row in self.known_crews()]
            if (routing.split(scope)[1] or "").removeprefix("worker:").partition(":")[0] not in crews:
                raise
            return []
        _check_known(routing.split(scope)[1], [row.name for row in self.known_crews()])
        return []

    def wake(self, crew: str, declared: Collection[str] = ()) -> None:
        if self.reach.may_be_many:
            self._wake_many(crew, declared)
            return
        try:
            self.calls.call("WAKE", id=crew)
        except NoNode:  # a node that starts looks for work anyway
            if crew not in declared:
                stored = [row.name for row in self.known_crews()] if self.location.exists() else []
                _check_known(crew, sorted({*declared, *stored}))

    def _wake_many(self, crew: str, declared: Collection[str]) -> None:
        """Wakes the node of this machine, and lets those elsewhere know: one of them calls `discover`."""
        nodes = [node for node in self.reach.living() if crew in node.crews]
        if not nodes and crew not in declared:
            _check_known(crew, sorted({*declared, *(row.name for row in self.known_crews())}))
        own = self.reach.here().get("node")
        self.reach.wake([node for node in nodes if node.name != own], crew)
        if any(node.name == own for node in nodes):
            with suppress(NoNode):  # a node that starts looks for work anyway
                self.calls.call("WAKE", id=crew)

    def _order(self, verb: Verb, scope: str | None, **fields: Any) -> list[Answer]:
        fields.setdefault("who", actor().who)
        fields["origin"] = actor().origin
        if self.reach.may_be_many or "/" in (scope or ""):
            to = self._targets(scope, f"nothing to {verb.value}")
            if verb is Verb.SCALE:
                to = routing.scaled(routing.split(scope)[1], to)
            replies = self.reach.ask("ORDER", to, verb=verb.value, **fields)
            return routing.merged([(target, _answers(reply)) for target, reply in replies])
        try:
            reply = self.calls.call("ORDER", verb=verb.value, scope=scope, **fields)
        except NoNode as error:
            if verb in (Verb.PAUSE, Verb.RESUME):
                raise
            raise self._nobody(f"nothing to {verb.value}") from error
        return msgspec.convert(reply["answers"], list[Answer])

    def _targets(self, scope: str | None, what: str, *, question: bool = False) -> list[Target]:
        """Returns the nodes that a scope concerns. Raises NobodyServes, which says `what` cannot be done."""
        try:
            return self.reach.targets(scope, question=question)
        except NoNode as error:
            raise self._nobody(what) from error

    def stack(self, worker: str) -> WorkerStacks:
        if self.reach.may_be_many or "/" in worker:
            (target,) = self._targets(worker, "no stacks", question=True)[:1]
            ((_, reply),) = self.reach.ask("STACKS", [target], who=actor().who)
            if isinstance(reply, ChargehandError):
                raise reply
            stacks = msgspec.convert(reply["stacks"], WorkerStacks)
            return msgspec.structs.replace(stacks, component=target.shown(stacks.component))
        try:
            return self.calls.stacks(worker, actor().who)
        except NoNode as error:
            raise self._nobody("no stacks") from error

    def _nobody(self, what: str) -> NobodyServes:
        """Returns the error that no node runs, and how to start one. Raises NobodyServes if one runs."""
        self._node_must_be_absent()
        plan = self.next_node()
        remedy = "start one with `chargehand work APP`" if plan is None else plan.in_words(clock.now_ms())
        return NobodyServes(f"{what}: no node serves {self.location}; {remedy}")

    def _node_must_be_absent(self) -> None:
        """Raises NobodyServes if a node runs: what it does not answer must not be done without it."""
        found = self.silent_node()
        if found is not None:
            raise NobodyServes(
                f"the node that serves {self.location} (pid {found.get('pid', 'unknown')}) does not answer: "
                "it is stopped, starting, or waits for its store; it drops the request when it continues; see its log"
            )

    # enqueueing

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Opens a transaction on the store for the block, and tells the node about new work afterwards."""
        self._not_inside()
        with self.stores.use() as store:
            token = _inside.set(True)
            try:
                with store.transaction() as tx:
                    yield tx
            finally:
                _inside.reset(token)
        self.calls.hint(None)

    def _not_inside(self) -> None:
        if _inside.get():
            raise ChargehandError(
                "this call would wait for the transaction that it is made in: pass the transaction as within=tx"
            )

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._not_inside()
        if not jobs:
            return []
        asked = False
        if (
            not any(map(needs_own_transaction, jobs))
            and len(jobs) <= THROUGH_THE_NODE
            and sum(len(job.payload) for job in jobs) <= BYTES_THROUGH_THE_NODE
        ):
            try:
                done = self.calls.enqueue(jobs)
                self._log_jobs(jobs, done)
                return done
            except (NoAnswer, NodeLeft, StoreBusy):  # if only the answer was lost, the ids make this a repetition
                asked = True
            except NoNode:
                asked = False
        with self.stores.use() as store, store.transaction() as tx:
            done = tx.jobs.enqueue(jobs)
        if asked:  # what the node has made of this request exists under the id of this request
            done = [Enqueued(one.id, one.created or one.id == job.id) for one, job in zip(done, jobs, strict=True)]
        self._hint(jobs)
        self._log_jobs(jobs, done)
        return done

    def _hint(self, jobs: Sequence[NewJob]) -> None:
        """Tells the node in which queues there is new work."""
        for queue in {job.queue for job in jobs}:
            self.calls.hint(queue)

    def enqueue_within(self, within: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueues jobs in a transaction of the caller: of this store, or of a connection to its database."""
        if isinstance(within, Transaction):
            self._check_home(within)
            return within.jobs.enqueue(jobs)
        with self.stores.use() as store:
            return store.within(within).enqueue(jobs)

    def _check_home(self, within: Transaction) -> None:
        """Raises ChargehandError if a transaction belongs to another store, in which nobody would look for the job."""
        if within.home != str(self.location):
            raise ChargehandError(
                f"the transaction is of another store, {within.home}: a job of {self.location} is enqueued in a "
                "transaction of its own store"
            )

    # flows

    def begin_flow(self, flow: NewFlow, jobs: Sequence[NewJob], within: Any = None) -> list[Enqueued]:
        """Makes a flow with its first jobs in one transaction, which may be the caller's. A job may name jobs that
        precede it in `after`."""
        if isinstance(within, Transaction):
            self._check_home(within)
            within.flows.begin(flow)
            return in_order(within.jobs.enqueue, jobs)
        if within is not None:
            with self.stores.use() as store:
                adding = store.within(within)
                adding.begin(flow)
                return in_order(adding.enqueue, jobs)
        self._not_inside()
        with self.stores.use() as store, store.transaction() as tx:
            tx.flows.begin(flow)
            done = in_order(tx.jobs.enqueue, jobs)
        if jobs:
            self._hint(jobs)
        else:
            self.calls.hint(None)  # it has ended at once, and its last job waits
        self._log_jobs(jobs, done)
        return done

    def _log_jobs(self, jobs: Sequence[NewJob], done: Sequence[Enqueued]) -> None:
        """Writes jobs that a person created to the operator log; they exist in any case."""
        deeds = enqueue_deeds(jobs, done)
        if deeds:
            try:
                self.keys.log(deeds)
            except ChargehandError as error:
                log.warning("new jobs could not be written to the operator log", why=error)

    # jobs

    def cancel(self, *ids: str) -> list[Answer]:
        found: dict[str, bool] = {}
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            try:
                found |= dict(self.calls.cancel(some, actor().who, actor().origin))
            except NoNode:
                with self.stores.use(create=False) as store, store.transaction() as tx:
                    done = {job.id: job.at_once for job in tx.jobs.cancel(some)}
                    log_deeds(tx, "cancel", [f"job:{job_id}" for job_id in done])
                found |= done
        meant = self._meant([job_id for job_id in ids if job_id not in found])
        answers = dict(zip(meant, self.cancel(*meant.values()), strict=True)) if meant else {}
        return [answers.get(job_id) or cancel_answer(job_id, found.get(job_id)) for job_id in ids]

    def retry(self, *ids: str) -> list[Answer]:
        queued: set[str] = set()
        for start in range(0, len(ids), AT_ONCE):
            with self.stores.use(create=False) as store, store.transaction() as tx:
                done = tx.jobs.retry(ids[start : start + AT_ONCE])
                log_deeds(tx, "retry", [f"job:{job_id}" for job_id in done])
            queued |= set(done)
        self.calls.hint(None)
        meant = self._meant([job_id for job_id in ids if job_id not in queued])
        answers = dict(zip(meant, self.retry(*meant.values()), strict=True)) if meant else {}
        return [answers.get(job_id) or retry_answer(job_id, queued=job_id in queued) for job_id in ids]

    def _meant(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns the job that each alias, or end of an id, among these means."""
        if not ids:
            return {}
        with self.stores.use(create=False) as store:
            found = {job_id: found_by_end(store, job_id) for job_id in ids}
        return {job_id: job.id for job_id, job in found.items() if job is not None and job.id != job_id}

    def meant(self, ids: Sequence[str]) -> list[str]:
        """Returns the ids of the jobs that these ids, aliases and ends of ids mean; others unchanged."""
        found = self._meant(ids)
        return [found.get(job_id, job_id) for job_id in ids]

    def retry_failed(self, queue: str, most: int = AT_MOST) -> tuple[int, bool]:
        """Queues failed jobs of a queue again, newest first. Returns how many, and whether there may be more."""
        which = JobFilter(queue=queue, state=State.FAILED, limit=min(AT_ONCE, most))
        queued = seen = 0
        while seen < most:
            with self.stores.use(create=False) as store:
                page = store.jobs.find(which)
            queued += self._retry_each([job.id for job in page])
            seen += len(page)
            if len(page) < which.limit:
                return queued, False
            which = msgspec.structs.replace(which, below=page[-1].seq)
        return queued, True

    def _retry_each(self, ids: Sequence[str]) -> int:
        """Retries all jobs but those whose unique key is taken. Returns how many were queued again."""
        try:
            return sum(answer.code == AnswerCode.QUEUED for answer in self.retry(*ids))
        except Conflict:
            half = len(ids) // 2
            return self._retry_each(ids[:half]) + self._retry_each(ids[half:]) if half else 0

    def clear_failed(self, queue: str, most: int = AT_MOST) -> tuple[int, bool]:
        """Deletes failed jobs of a queue. Returns how many, and whether there may be more."""
        return self._clear(JobFilter(queue=queue, state=State.FAILED), most, "clear failed")

    def delete(self, *ids: str) -> list[Answer]:
        gone: set[str] = set()
        with self.stores.use(create=False) as store:
            found = store.jobs.sizes(JobFilter(ids=ids, limit=len(ids)))
            for batch in _batches(found):
                with store.transaction() as tx:
                    deleted = tx.jobs.delete(batch)
                    log_deeds(tx, "delete", [f"job:{job_id}" for job_id in deleted])
                gone |= set(deleted)
            rest = {job_id: found_by_end(store, job_id) for job_id in ids if job_id not in gone}
        if gone:
            self.calls.hint(None, deleted=True)
        meant = {job_id: job.id for job_id, job in rest.items() if job is not None and job.id != job_id}
        answers = dict(zip(meant, self.delete(*meant.values()), strict=True)) if meant else {}
        return [
            answers.get(job_id) or delete_answer(job_id, rest.get(job_id), deleted=job_id in gone) for job_id in ids
        ]

    def clear(self, which: JobFilter, most: int = AT_MOST) -> tuple[int, bool]:
        """Deletes finished jobs that match, newest first. Returns how many, and whether there may be more."""
        if which.state is not None and which.state not in FINISHED:
            raise ConfigurationError(f"jobs that are {which.state.value} cannot be deleted: cancel them first")
        return self._clear(which, most, "clear")

    def _clear(self, which: JobFilter, most: int, verb: str) -> tuple[int, bool]:
        self._check_search(which)
        gone = 0
        for state in sorted(FINISHED) if which.state is None else [which.state]:
            page = msgspec.structs.replace(which, state=state)
            while gone < most:
                page = msgspec.structs.replace(page, limit=min(AT_ONCE, most - gone))
                with self.stores.use(create=False) as store:
                    found = store.jobs.sizes(page)
                    for batch in _batches(found):
                        with store.transaction() as tx:
                            deleted = tx.jobs.delete(batch)
                            if deleted:
                                log_deeds(tx, verb, [_cleared(which)], f"{len(deleted)} {state.value} jobs")
                        gone += len(deleted)
                if len(found) < page.limit:
                    break
                page = msgspec.structs.replace(page, below=found[-1].seq)
        if gone:
            self.calls.hint(None, deleted=True)
        return gone, gone >= most

    def change(
        self, verb: BulkVerb, which: JobFilter, after: BulkPlace | None = None, most: int | None = None
    ) -> BulkDone:
        """Retries, cancels or deletes jobs that match, newest first, in transactions of at most 500 jobs, until `most`
        (10,000) were seen or some seconds are over; `after` is `next` of the part before."""
        self._check_search(which)
        most = AT_MOST if most is None else most
        filters = selected(verb, which)
        until = clock.monotonic() + BULK_SECONDS
        place = BulkPlace(0, 0) if after is None else after
        seen = count = 0
        while place.state < len(filters) and seen < most and clock.monotonic() < until:
            page = msgspec.structs.replace(filters[place.state], limit=min(AT_ONCE, most - seen))
            with self.stores.use(create=False) as store:
                found = store.jobs.search_sizes(page, SearchPlace(0, place.below) if place.below else None)
            seen += len(found.jobs)
            count += self._change(verb, found.jobs, which)
            place = BulkPlace(place.state + 1, 0) if found.next is None else BulkPlace(place.state, found.next.seq)
        following = place if place.state < len(filters) else None
        return BulkDone(count=count, refused=seen - count, next=following)

    def _change(self, verb: BulkVerb, jobs: Sequence[JobSize], which: JobFilter) -> int:
        """Changes these jobs. Returns how many were changed."""
        ids = [job.id for job in jobs]
        if not ids:
            return 0
        if verb is BulkVerb.CANCEL:
            return sum(answer.code != AnswerCode.NOT_CANCELLED for answer in self.cancel(*ids))
        done = 0
        if verb is BulkVerb.RETRY:
            done = self._retry_matching(ids, which)
            self.calls.hint(None)
            return done
        with self.stores.use(create=False) as store:
            for batch in _batches(jobs):
                with store.transaction() as tx:
                    deleted = len(tx.jobs.delete(batch))
                    _log_matching(tx, verb, deleted, which)
                done += deleted
        if done:
            self.calls.hint(None, deleted=True)
        return done

    def _retry_matching(self, ids: Sequence[str], which: JobFilter) -> int:
        """Retries all jobs but those whose unique key is taken. Returns how many were queued again."""
        try:
            with self.stores.use(create=False) as store, store.transaction() as tx:
                done = len(tx.jobs.retry(ids))
                _log_matching(tx, BulkVerb.RETRY, done, which)
            return done
        except Conflict:
            half = len(ids) // 2
            return sum(self._retry_matching(part, which) for part in (ids[:half], ids[half:])) if half else 0

    def release(self, job_id: str, claim: str) -> bool:
        with self.stores.use(create=False) as store, store.transaction() as tx:
            done = tx.jobs.release(job_id, claim, f"released by {actor().who}")
            if done:
                log_deeds(tx, "release", [f"job:{job_id}"], f"claim {claim}")
        self.calls.hint(None)
        return done

    # the store

    def migrate(self) -> Migrated:
        """Migrates the store to the schema of this version."""
        return migrate(self.location)

    def probe(self) -> None:
        """Writes to the store. Raises StoreError if it is not writable or its schema is unknown."""
        with self.stores.use() as store:
            store.probe()

    # recurring jobs

    def run_recurring(self, name: str) -> str:
        job = schedule.job_of(self._recurring(name))
        with self.stores.use(create=False) as store, store.transaction() as tx:
            made = tx.jobs.run_recurring(name, job)
            if made is None:
                raise RecurringNotFound(NO_RECURRING.format(name=name))
            log_deeds(tx, "run", [f"recurring:{name}"], f"job {made}")
        self.calls.hint(job.queue)
        return made

    def pause_recurring(self, name: str, reason: str | None = None) -> None:
        self._recurring(name)
        with self.stores.use(create=False) as store, store.transaction() as tx:
            if not tx.jobs.pause_recurring(name, actor().who, reason):
                raise RecurringNotFound(NO_RECURRING.format(name=name))
            log_deeds(tx, "pause", [f"recurring:{name}"], reason)

    def resume_recurring(self, name: str) -> bool:
        skipped = schedule.passed(self._recurring(name), clock.now_ms())
        with self.stores.use(create=False) as store, store.transaction() as tx:
            resumed = tx.jobs.resume_recurring(name, skipped)
            if resumed:
                log_deeds(tx, "resume", [f"recurring:{name}"])
        return resumed

    def _recurring(self, name: str) -> RecurringPlan:
        """Returns a recurring job. Raises RecurringNotFound."""
        with self.stores.use(create=False) as store:
            plans = store.jobs.recurring()
        found = next((plan for plan in plans if plan.name == name), None)
        if found is None:
            raise RecurringNotFound(NO_RECURRING.format(name=name))
        return found

    # keys

    def make_key(self, name: str, scopes: Sequence[Scope], *, seconds: float | None = None) -> tuple[str, ApiKey]:
        return self.keys.create(name, scopes, seconds=seconds)

    def revoke_key(self, name: str) -> None:
        self.keys.revoke(name)

    def api_keys(self) -> list[ApiKey]:
        return self.keys.all()

    def token(self) -> str:
        found = self.keys.token()
        if found is None:
            why = "a key exists" if self.keys.all() else f"no server has made one for {self.location}"
            raise ConfigurationError(
                f"there is no token: {why}; `chargehand keys create NAME --scope read` creates a key"
            )
        return found

    def dashboard(self) -> str:
        found = place.find(self.location)
        if found is None:
            raise NobodyServes(f"no server runs for {self.location}: start one with `chargehand serve APP`")
        token = self.keys.token()
        return found if token is None else f"{found}#token={token}"


def _answers(reply: Reply) -> list[Answer] | ChargehandError:
    return reply if isinstance(reply, ChargehandError) else msgspec.convert(reply["answers"], list[Answer])


def in_order(enqueue: Callable[[Sequence[NewJob]], list[Enqueued]], jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Enqueues jobs that may name each other in `after`. A job that names one whose key is taken waits for the job that
    has the key."""
    done: list[Enqueued] = []
    waiting: list[NewJob] = []
    keyed: set[str] = set()
    held: dict[str, str] = {}
    for job in jobs:
        if not keyed.isdisjoint(job.after):  # whether these exist is known when they are enqueued
            done += enqueue(waiting)
            held |= {new.id: one.id for new, one in zip(jobs, done, strict=False) if new.id != one.id}
            waiting, keyed = [], set()
        if not held.keys().isdisjoint(job.after):
            named = tuple(dict.fromkeys(held.get(each, each) for each in job.after))
            job = msgspec.structs.replace(job, after=named)
        waiting.append(job)
        if job.key is not None:
            keyed.add(job.id)
    return done + (enqueue(waiting) if waiting else [])


def needs_own_transaction(job: NewJob) -> bool:
    """Returns whether the caller writes the job itself: its options can be refused, or it may replace another job, and
    a node commits the jobs of several callers together."""
    return bool(
        job.after or job.flow is not None or job.sequence is not None or job.unique_for_ms is not None or job.replace
    )


def cancel_answer(job_id: str, at_once: bool | None) -> Answer:
    """Returns the answer to a cancel request: done at once, on its way, or (None) not possible."""
    if at_once is None:
        return Answer(job_id, "does not exist, or has ended already", AnswerCode.NOT_CANCELLED)
    if at_once:
        return Answer(job_id, "is cancelled", AnswerCode.CANCELLED)
    text = "is running and was asked to stop; its worker is replaced if it does not"
    return Answer(job_id, text, AnswerCode.CANCELLING)


def retry_answer(job_id: str, *, queued: bool) -> Answer:
    """Returns the answer to a retry request."""
    if queued:
        return Answer(job_id, "is queued again", AnswerCode.QUEUED)
    return Answer(job_id, "does not exist, or is neither failed nor cancelled", AnswerCode.NOT_RETRIED)


def delete_answer(job_id: str, job: JobRecord | None, *, deleted: bool) -> Answer:
    """Returns the answer to a request to delete a job; `job` is the job if it was not deleted, None: there is none."""
    if deleted:
        return Answer(job_id, "is deleted", AnswerCode.DELETED)
    if job is None:
        return Answer(job_id, "does not exist", AnswerCode.NOT_DELETED)
    remedy = "repeat the request" if job.state in FINISHED else "cancel it first"  # it may have ended just now
    return Answer(job_id, f"is {job.state.value} and was not deleted: {remedy}", AnswerCode.NOT_DELETED)


def _batches(jobs: Sequence[JobSize]) -> Iterator[list[str]]:
    """Yields the ids of the jobs that one transaction deletes: few enough not to hold the write lock for long."""
    ids: list[str] = []
    size = 0
    for job in jobs:
        if ids and (len(ids) == AT_ONCE or size + job.size > BYTES_AT_ONCE):
            yield ids
            ids, size = [], 0
        ids.append(job.id)
        size += job.size
    if ids:
        yield ids


def _log_matching(tx: Transaction, verb: BulkVerb, count: int, which: JobFilter) -> None:
    """Writes one entry for the jobs of one transaction into the operator log."""
    if count:
        log_deeds(tx, verb.value, [_cleared(which)], f"{count} jobs: {text_of(which) or 'all'}"[:LONGEST_DETAIL])


def _cleared(which: JobFilter) -> str:
    """Returns the target of an entry in the operator log: the queue of the deleted jobs, or all jobs."""
    return "jobs" if which.queue is None else f"queue:{which.queue}"


def _stored(scope: str | None) -> str:
    """Returns the scope in the form in which pauses are stored."""
    if scope is None:
        return "*"
    crew, colon, index = scope.removeprefix("worker:").partition(":")
    return f"worker:{crew}:{index}" if colon else scope


def _check_known(scope: str | None, crews: Sequence[str]) -> None:
    crew = (scope or "").removeprefix("worker:").partition(":")[0]
    if crew and crews and crew not in crews:
        raise UnknownCrew(f"there is no crew or worker {scope!r}; there are: {', '.join(crews)}")
