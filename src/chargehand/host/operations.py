"""What a person can do with a running system, and ask of it: orders to the node, health and crash reports in the store.

The base of `Chargehand`; it works from any process on the machine, without the application's handlers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from chargehand.errors import ChargehandError, ConfigurationError, Conflict, CrashNotFound, NobodyServes, UnknownCrew
from chargehand.host import nodelock
from chargehand.host.actor import People, actor, log_deeds
from chargehand.host.calls import Calls, NodeLeft, NoNode
from chargehand.live import bodies
from chargehand.live.bodies import StoreLook, StoreView
from chargehand.model.fleet.orders import LONGEST_PAUSE_MS, Answer, Verb
from chargehand.model.health import APP, FRESH_MS, Findings, Member, is_healthy, judge, shown_status, unserved
from chargehand.model.job import State
from chargehand.model.records import (
    ClaimRow,
    CrashFilter,
    CrashRecord,
    HealthRow,
    JobFilter,
    Pause,
    RecurringPlan,
    Snapshot,
)
from chargehand.processes import proc
from chargehand.settings.plan import milliseconds

AT_ONCE = 500
"""Jobs cancelled or retried in one transaction."""
NOT_RETRIED = "is not there, or neither failed nor cancelled"
AT_MOST = 10_000
"""Jobs that one call retries or clears by their queue."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A component's health as it may be shown: no `healthy` without a fresh beat, no pid that is not its own."""

    component: str
    node: str
    crew: str | None
    status: str
    flags: tuple[str, ...]
    reason: str | None
    text: str | None
    pid: int | None
    incarnation: str | None
    current_job: str | None
    last_heartbeat_ms: int | None
    restart_count: int
    last_restart_ms: int | None
    exit_code: int | None
    signal: int | None
    created_at_ms: int
    metadata: dict[str, Any]
    is_healthy: bool


class Operating(People, ABC):
    """Orders and questions. `Chargehand` has all of this."""

    @property
    @abstractmethod
    def calls(self) -> Calls:
        """Calls to the node."""

    # orders

    def start(self, scope: str | None = None) -> list[Answer]:
        """Start stopped workers: all, a crew's, or one (`worker:crew:0`). Answers with what will happen to each."""
        return self._order(Verb.START, scope)

    def stop(self, scope: str | None = None) -> list[Answer]:
        """Stop workers within the grace; they stay stopped until somebody starts them, or the node restarts."""
        return self._order(Verb.STOP, scope)

    def drain(self, scope: str | None = None) -> list[Answer]:
        """Let workers finish what they have, however long that takes, and stop them."""
        return self._order(Verb.DRAIN, scope)

    def restart(self, scope: str | None = None) -> list[Answer]:
        """Replace workers within the grace, given-up ones too; nothing is charged."""
        return self._order(Verb.RESTART, scope)

    def reset(self, scope: str | None = None) -> list[Answer]:
        """Clear workers' crash histories, and start those that were given up, wait or are stopped."""
        return self._order(Verb.RESET, scope)

    def scale(self, crew: str, count: int) -> list[Answer]:
        """Change how many workers a crew has; kept until the configured count changes."""
        return self._order(Verb.SCALE, crew, count=count)

    def pause(
        self,
        scope: str | None = None,
        *,
        reason: str | None = None,
        seconds: float | None = None,
        who: str | None = None,
    ) -> list[Answer]:
        """Take nothing new: all, a crew or one worker. The flag lives in the store, with or without a node."""
        for_ms = None if seconds is None else milliseconds("the length of the pause", seconds)
        if for_ms is not None and not 0 < for_ms <= LONGEST_PAUSE_MS:
            raise ConfigurationError(f"a pause of {seconds:g} s; allowed is more than 0 and up to a year")
        try:
            return self._order(Verb.PAUSE, scope, reason=reason, for_ms=for_ms, who=who or actor().who)
        except NoNode:
            self._node_must_be_absent()
            with self._store(create=False) as store:
                _check_known(scope, [crew.name for crew in store.fleet.crews()])
                with store.transaction() as tx:
                    tx.fleet.pause(_kept(scope), who or actor().who, reason, for_ms)
                    log_deeds(tx, "pause", [_kept(scope)], reason, who)
        return [Answer(scope or "*", "is paused; no node runs now, and one that starts will heed it")]

    def resume(self, scope: str | None = None) -> list[Answer]:
        """Clear a pause. Workers that were given up stay so; the answers name them."""
        try:
            return self._order(Verb.RESUME, scope)
        except NoNode:
            self._node_must_be_absent()
            with self._store(create=False) as store, store.transaction() as tx:
                found = tx.fleet.resume(_kept(scope))
                log_deeds(tx, "resume", [_kept(scope)])
        return [Answer(scope or "*", "is no longer paused; no node runs now" if found else "was not paused")]

    def cancel(self, *ids: str) -> list[Answer]:
        """Cancel jobs: waiting ones at once; a running one is told, and its worker replaced if that does not help."""
        found: dict[str, bool] = {}
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            try:
                found |= dict(self.calls.cancel(some, actor().who, actor().origin))
            except NoNode:
                with self._store(create=False) as store, store.transaction() as tx:
                    done = {job.id: job.at_once for job in tx.jobs.cancel(some)}
                    log_deeds(tx, "cancel", [f"job:{job_id}" for job_id in done])
                found |= done
        return [Answer(job_id, cancelling(found.get(job_id))) for job_id in ids]

    def retry(self, *ids: str) -> list[Answer]:
        """Queue failed or cancelled jobs again, their counters cleared; Conflict if a unique key is taken meanwhile."""
        queued: set[str] = set()
        for start in range(0, len(ids), AT_ONCE):
            with self._store(create=False) as store, store.transaction() as tx:
                done = tx.jobs.retry(ids[start : start + AT_ONCE])
                log_deeds(tx, "retry", [f"job:{job_id}" for job_id in done])
            queued |= set(done)
        self.calls.hint(None)
        return [Answer(job_id, "is queued again" if job_id in queued else NOT_RETRIED) for job_id in ids]

    def release(self, job_id: str, fence: int) -> bool:
        """Take a claim back by hand, if it is still that one: for a worker that nobody can reach."""
        with self._store(create=False) as store, store.transaction() as tx:
            done = tx.jobs.release(job_id, fence, f"released by {actor().who}")
            if done:
                log_deeds(tx, "release", [f"job:{job_id}"], f"claim {fence}")
        self.calls.hint(None)
        return done

    def retry_failed(self, queue: str, most: int = AT_MOST) -> tuple[int, bool]:
        """Queue the failed jobs of a queue again, newest first: how many, and whether there may be more.

        One whose unique key is taken meanwhile stays failed.
        """
        which = JobFilter(queue=queue, state=State.FAILED, limit=min(AT_ONCE, most))
        queued = seen = 0
        while seen < most:
            with self._store(create=False) as store:
                page = store.jobs.find(which)
            queued += self._retry_each([job.id for job in page])
            seen += len(page)
            if len(page) < which.limit:
                return queued, False
            which = msgspec.structs.replace(which, below=page[-1].seq)
        return queued, True

    def _retry_each(self, ids: Sequence[str]) -> int:
        """All that can be: one that cannot keeps nobody else from it."""
        try:
            return sum(answer.text != NOT_RETRIED for answer in self.retry(*ids))
        except Conflict:
            half = len(ids) // 2
            return self._retry_each(ids[:half]) + self._retry_each(ids[half:]) if half else 0

    def clear_failed(self, queue: str, most: int = AT_MOST) -> tuple[int, bool]:
        """Delete the failed jobs of a queue, oldest first: how many, and whether there may be more."""
        gone = 0
        while gone < most:
            limit = min(AT_ONCE, most - gone)
            with self._store(create=False) as store, store.transaction() as tx:
                cleared = tx.jobs.clear(queue, limit)
                if cleared:
                    log_deeds(tx, "clear failed", [f"queue:{queue}"], f"{len(cleared)} jobs")
            gone += len(cleared)
            if len(cleared) < limit:
                return gone, False
        return gone, True

    def wake(self, crew: str) -> None:
        """Say that a discovering crew would find something, so that it looks at once. UnknownCrew if there is none of
        that name, ConfigurationError if it does not discover."""
        with suppress(NoNode):  # nobody is there to look; whoever starts does so anyway
            self.calls.call("WAKE", id=crew)

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        """Who holds what since when."""
        with self._store() as store:
            return store.jobs.claims(limit)

    def waiting(self) -> list[tuple[str, int]]:
        """The queues that have due work, and for how many ms the next of it has been due."""
        with self._store() as store:
            return store.jobs.waiting()

    def probe(self) -> None:
        """See that the store can be written and has the right schema; StoreError otherwise."""
        with self._store() as store:
            store.probe()

    def recurrences(self) -> list[RecurringPlan]:
        """The recurring jobs, by name: when each is due next, and its last job."""
        with self._store() as store:
            return store.jobs.recurring()

    def _order(self, verb: Verb, scope: str | None, **fields: Any) -> list[Answer]:
        fields.setdefault("who", actor().who)
        fields["origin"] = actor().origin
        try:
            reply = self.calls.call("ORDER", verb=verb.value, scope=scope, **fields)
        except NoNode as error:
            if verb in (Verb.PAUSE, Verb.RESUME):
                raise
            self._node_must_be_absent()
            raise NobodyServes(
                f"nothing to {verb.value}: no node serves {self.location}; start one with `chargehand work APP`"
            ) from error
        return msgspec.convert(reply["answers"], list[Answer])

    def _node_must_be_absent(self) -> None:
        """A node that is there but does not answer must not be passed by."""
        found = nodelock.holder(self.location)
        if found is not None:
            raise NobodyServes(
                f"the node that serves {self.location} (pid {found.get('pid', 'unknown')}) does not answer: "
                "it is stopped, starting, or its store is stuck; what was asked may still be done when it goes on; "
                "look at its log"
            )

    # questions

    def pauses(self) -> list[Pause]:
        """What is paused, by whom, why and until when."""
        with self._store() as store:
            return store.fleet.pauses()

    def health(self, status: str | None = None) -> list[Component]:
        """Every component as the store has it: the node (`app`) and its workers; of one status, if that is given."""
        with self._store() as store:
            found = [_component(row) for row in store.fleet.health()]
        return [component for component in found if status is None or component.status == status]

    def component(self, name: str) -> Component | None:
        """One component's health; of several nodes that the store knows, the one that lives."""
        found = [component for component in self.health() if component.component == name]
        return next((component for component in found if component.pid is not None), next(iter(found), None))

    def is_healthy(self, name: str, max_age: float = FRESH_MS / 1000) -> bool:
        """Whether the component is known to be well, by a beat that is no older than so many seconds."""
        with self._store() as store:
            rows = [row for row in store.fleet.health() if row.component == name]
        return any(is_healthy(row.status, row.flags, row.age_ms, int(max_age * 1000)) and _pid(row) for row in rows)

    def verdict(self) -> Findings:
        """The whole system: healthy, degraded or error, with the reasons in words. Read from the store alone."""
        with self._store() as store:
            rows = [(row, _component(row)) for row in store.fleet.health()]
            waiting, crews, pauses = store.jobs.waiting(), store.fleet.crews(), store.fleet.pauses()
        node = any(row.component == APP and is_healthy(row.status, (), row.age_ms) and _pid(row) for row, _ in rows)
        workers = [msgspec.to_builtins(shown) for row, shown in rows if row.component != APP]
        failing = next((row.reason for row, _ in rows if row.component == APP), None)
        queues = {crew.name: crew.queue for crew in crews}
        members = [_member(shown) for row, shown in rows if row.component != APP]
        nobody = unserved(waiting, queues, members, [pause.scope for pause in pauses]) if node else {}
        return judge(workers, nobody, node=node, store_failing=failing)

    def waiting_for_nobody(self) -> list[str]:
        """The queues that have due work while no node runs at all."""
        if nodelock.holder(self.location) is not None or not self.location.exists():
            return []
        with self._store() as store:
            return sorted(queue for queue, _ in store.jobs.waiting())

    def why_waiting(self, queue: str) -> str | None:
        """Why nobody does what waits in this queue, as far as the store knows; None if somebody will."""
        with self._store() as store:
            rows, crews, pauses = store.fleet.health(), store.fleet.crews(), store.fleet.pauses()
        queues = {crew.name: crew.queue for crew in crews}
        paused = [pause.scope for pause in pauses]
        if "*" in paused or (queue in queues.values() and all(n in paused for n, q in queues.items() if q == queue)):
            return "it is paused: chargehand resume"
        if not any(row.component == APP and _pid(row) for row in rows):
            return "no node runs: chargehand work APP"
        members = [_member(_component(row)) for row in rows if row.component != APP]
        return unserved([(queue, 0)], queues, members).get(queue)

    def look(self, look: StoreLook) -> StoreView:
        """What the store has of queues and jobs, as it is shown."""
        with self._store() as store:
            return bodies.take(store, look)

    def history(self, since_ms: int = 0, limit: int = 1000) -> list[Snapshot]:
        """The snapshots from then on, if the history is switched on."""
        with self._store() as store:
            return store.fleet.snapshots(since_ms, limit)

    def crashes(self, which: CrashFilter | None = None) -> list[CrashRecord]:
        """Crash reports, newest first."""
        with self._store() as store:
            return store.fleet.crashes(which or CrashFilter())

    def crash(self, crash_id: str) -> CrashRecord:
        """One crash report."""
        with self._store() as store:
            found = store.fleet.crash(crash_id)
        if found is None:
            raise CrashNotFound(
                f"there is no crash report {crash_id!r} in {self.location}; `chargehand crashes` lists them"
            )
        return found

    def queue_history(self) -> list[dict[str, Any]]:
        """How each queue fared over the last two hours, as far as the node saw it; nothing if no node answers."""
        try:
            return self.calls.past()
        except NoNode:
            return []

    def worker_history(self, component: str) -> dict[str, Any] | None:
        """A worker's last states and jobs, and its memory over an hour; None if no node answers that knows of it."""
        try:
            return self.calls.diary(component)
        except NoNode:
            return None

    def logs(
        self, scope: str | None = None, *, job: str | None = None, count: int = 100, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The node's last log lines, of a crew, a worker or a job; and those to come, if that is wanted."""
        try:
            yield from self.calls.logs(scope, job, count, follow)
        except NodeLeft as error:
            raise ChargehandError(
                f"the node at {self.location} went away while it was listened to; "
                "`chargehand status` shows if another came"
            ) from error
        except NoNode as error:
            raise ChargehandError(
                f"no logs: no node answers at {self.location}; what dead workers said last is in `chargehand crashes`"
            ) from error


def cancelling(at_once: bool | None) -> str:
    """What a cancel is answered: it was at once, or not, or nothing was there."""
    if at_once is None:
        return "is not there, or has ended already"
    return "is cancelled" if at_once else "is running, and told to stop; its worker is replaced if it does not"


def _kept(scope: str | None) -> str:
    """A scope as it is kept; without a node nobody can say which crews there are."""
    if scope is None:
        return "*"
    crew, colon, index = scope.removeprefix("worker:").partition(":")
    return f"worker:{crew}:{index}" if colon else scope


def _check_known(scope: str | None, crews: Sequence[str]) -> None:
    crew = (scope or "").removeprefix("worker:").partition(":")[0]
    if crew and crews and crew not in crews:
        raise UnknownCrew(f"there is no crew or worker {scope!r}; there are: {', '.join(crews)}")


def _pid(row: HealthRow) -> int | None:
    """The pid, if that very process lives."""
    if row.pid is None or row.pid_start is None or not proc.alive(row.pid, row.pid_start):
        return None
    return row.pid


def _component(row: HealthRow) -> Component:
    pid = _pid(row)
    metadata: dict[str, Any] = msgspec.json.decode(row.metadata, type=dict[str, Any])
    status = shown_status(row.status, row.flags, row.age_ms if pid is not None else None)
    own: dict[str, Any] = {name: getattr(row, name) for name in Component.__struct_fields__ if hasattr(row, name)}
    own |= {"status": status, "pid": pid, "metadata": metadata}
    own |= {"crew": metadata.get("crew"), "text": metadata.get("text")}
    own["is_healthy"] = pid is not None and is_healthy(row.status, row.flags, row.age_ms)
    return Component(**own)


def _member(shown: Component) -> Member:
    return Member(str(shown.crew), shown.status, shown.text, bool(shown.metadata.get("will_work")))


def told(answers: Sequence[Answer]) -> list[str]:
    """Answers as lines for people."""
    return [f"{answer.component}: {answer.text}" for answer in answers]
