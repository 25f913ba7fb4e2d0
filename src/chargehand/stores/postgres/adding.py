"""Adds jobs to PostgreSQL, in a transaction of the store or of a caller. It neither begins nor ends one."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

import msgspec

from chargehand.errors import FlowEnded, FlowNotFound, JobNotFound
from chargehand.model.flows import NewFlow, why_no_flow, why_not_found
from chargehand.model.job import Enqueued, NewJob
from chargehand.stores.postgres import statements
from chargehand.stores.postgres.session import Statements
from chargehand.stores.rows import meta_text

_SQL = statements.load("enqueue")
_encoder = msgspec.json.Encoder()


def as_json(value: Any) -> str:
    """Returns the value as one JSON text, the form in which statements take many rows."""
    return _encoder.encode(value).decode()


def row_of(job: NewJob) -> dict[str, Any]:
    """Returns a job as the statement `enqueue` takes it."""
    row: dict[str, Any] = {
        "id": job.id, "queue": job.queue, "rank": -job.priority, "delay_ms": job.delay_ms,
        "max_attempts": job.max_attempts, "payload": job.payload,
    }  # fmt: skip
    for name in ("run_at_ms", "timeout_ms", "key", "limit_key", "label"):
        if (value := getattr(job, name)) is not None:
            row[name] = value
    if job.tags:
        row["tags"] = as_json(job.tags)
    return row


def is_linked(job: NewJob) -> bool:
    """Returns whether a job has options that the statement `enqueue` does not take."""
    return bool(
        job.child or job.after or job.flow is not None or job.share is not None or job.sequence is not None
        or job.expires_ms is not None or is_single(job) or job.meta is not None or job.traceparent is not None
    )  # fmt: skip


def is_single(job: NewJob) -> bool:
    """Returns whether a job is added alone, because what happens depends on the job that has its key."""
    return job.replace or job.unique_for_ms is not None


def linked_row_of(job: NewJob) -> dict[str, Any]:
    """Returns a job as the statements for jobs with further options take it."""
    row = row_of(job)
    for name in ("flow", "share", "sequence", "expires_ms", "traceparent"):
        if (value := getattr(job, name)) is not None:
            row[name] = value
    if job.meta is not None:
        row["meta"] = meta_text(job)
    if job.after:
        row |= {"follows": True, "strict": job.if_failed == "fail", "after": list(dict.fromkeys(job.after))}
    return row


class NewRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job without a key as the statement `add_spawned` takes it; there are many, so this is no dict."""

    id: str
    queue: str
    max_attempts: int
    payload: str
    rank: int = 0
    delay_ms: int = 0
    run_at_ms: int | None = None
    timeout_ms: int | None = None
    limit_key: str | None = None
    label: str | None = None
    tags: str | None = None
    share: str | None = None
    sequence: str | None = None
    expires_ms: int | None = None
    meta: str | None = None
    traceparent: str | None = None
    after: tuple[str, ...] = ()


def new_row_of(job: NewJob) -> NewRow:
    """Returns a job without a key as the statement `add_spawned` takes it."""
    return NewRow(
        job.id, job.queue, job.max_attempts, job.payload, -job.priority, job.delay_ms, job.run_at_ms, job.timeout_ms,
        job.limit_key, job.label, as_json(job.tags) if job.tags else None, job.share, job.sequence, job.expires_ms,
        meta_text(job), job.traceparent, job.after,
    )  # fmt: skip


def begin_values(flow: NewFlow, now: int | None) -> tuple[Any, ...]:
    """Returns the values of the statement that adds a flow."""
    on_end = None if flow.on_end is None else msgspec.json.encode(flow.on_end).decode()
    return now, flow.id, flow.name, flow.arrival, on_end


class Adding:
    """Adds jobs; the part of `chargehand.store.JobWriting` that callers can have in their own transactions."""

    def __init__(self, db: Statements, now: int | None, sql: Mapping[str, bytes] = _SQL) -> None:
        self._statements, self._at, self._sql = db, now, sql

    def enqueue(self, jobs: Sequence[NewJob], *, promised: bool = False) -> list[Enqueued]:
        if not jobs:
            return []
        if any(map(is_linked, jobs)):
            self._check(jobs)
            # A job of this call may be named by others of it, also if it is not created because its key is taken.
            named = {each for job in jobs for each in job.after}
            return [
                each for run in _runs(jobs)
                for each in self._enqueue_linked(run, promised or any(job.id in named for job in run))
            ]  # fmt: skip
        created = self.add([row_of(job) for job in jobs], promised=promised)
        return self.answers(jobs, {str(job_id) for (job_id,) in created()})

    def add(self, rows: Sequence[dict[str, Any]], *, promised: bool = False) -> Callable[[], list[tuple[Any, ...]]]:
        """Sends the statements that add jobs. The result returns the ids of those that were created."""
        text = as_json(rows)
        made = self._statements.send(self._sql["enqueue"], (self._at, text))
        self._add_names(rows, text, promised=promised)
        return made.fetchall

    def _add_names(self, rows: Sequence[dict[str, Any]], text: str, *, promised: bool) -> None:
        if any("key" in row for row in rows):
            self._statements.send(self._sql["tidy"], (text,))
            if promised:
                self._statements.send(self._sql["alias"], (self._at, text))
        if any("tags" in row for row in rows):
            self._statements.send(self._sql["tag"], (text,))

    # jobs that follow others, belong to flows, or have other options that the most frequent ones do not have

    def add_linked(
        self, rows: Sequence[dict[str, Any]], *, promised: bool = False
    ) -> Callable[[], list[tuple[Any, ...]]]:
        """Sends the statements that add jobs with further options. The result is that of `add`."""
        rows = _each_once(rows)
        text = as_json(rows)
        self._add_sequences(rows, text)
        made = self._statements.send(self._sql["add_linked"], (self._at, text))
        self._add_names(rows, text, promised=promised)
        self._relate(rows, text, [row for row in rows if "flow" in row])
        return made.fetchall

    def _add_sequences(self, rows: Sequence[dict[str, Any]], text: str) -> None:
        if any("sequence" in row for row in rows):
            self._statements.send(self._sql["add_sequences"], (text,))
            self._statements.send(self._sql["lock_sequences"], (text,))

    def _relate(self, rows: Sequence[dict[str, Any]], text: str, in_flows: Sequence[dict[str, Any]]) -> None:
        """Sends the statements that let jobs which were added wait for others, and that cancel those of `in_flows` if
        somebody cancels their flows."""
        send, sql = self._statements.send, self._sql
        follows, sequenced = any("follows" in row for row in rows), any("sequence" in row for row in rows)
        spawned = any("spawned_by" in row for row in rows)
        if follows:
            send(sql["add_edges"], (text,))
        if spawned and any("key" in row for row in rows):
            send(sql["spawn_taken"], (text,))
            send(sql["untangle_taken"], (text,))
        if sequenced:
            self._order(text)
        if spawned and (sequenced or follows):
            send(sql["refuse_circles"], (text,))
        if in_flows:
            flows = sorted({row["flow"] for row in in_flows})
            send(sql["cancel_added"], (self._at, as_json([row["id"] for row in in_flows]), as_json(flows)))

    def _order(self, text: str, *, cycles: bool = False) -> None:
        """Lets jobs wait for those before them in their sequences. `cycles`: one that is queued again does not wait for
        a job that waits for it."""
        self._statements.send(self._sql["follow_sequence"], (text,))
        if cycles:
            self._statements.send(self._sql["break_cycles"], (text,))
        self._statements.send(self._sql["wait"], (self._at, text))

    def _enqueue_linked(self, jobs: Sequence[NewJob], promised: bool) -> list[Enqueued]:
        if is_single(jobs[0]):
            return [self.enqueue_single(job, promised=promised) for job in jobs]
        created = self.add_linked([linked_row_of(job) for job in jobs], promised=promised)
        return self.answers(jobs, {str(job_id) for (job_id,) in created()})

    def _check(self, jobs: Sequence[NewJob]) -> None:
        """Raises JobNotFound, FlowNotFound or FlowEnded if one of the jobs names what it cannot follow or join.

        A job that exists already, or whose key is taken, is not checked: a request that is repeated is answered as at
        first.
        """
        missing = self._missing(jobs)
        flows = {job.flow for job in jobs if job.flow is not None}
        found: dict[str, bool] = {}
        if flows:
            found = dict(self._statements.rows(self._sql["join_flows"], (as_json(sorted(flows)),)))
        wrong = [
            job for job in jobs
            if (job.flow is not None and found.get(job.flow, True)) or not missing.isdisjoint(job.after)
        ]  # fmt: skip
        if not wrong:
            return
        for job in self._new(jobs, wrong):
            for name in job.after:
                if name in missing:
                    raise JobNotFound(why_not_found(name))
            flow = job.flow or ""
            if flow not in found:
                raise FlowNotFound(why_no_flow(flow, ended=False))
            raise FlowEnded(why_no_flow(flow, ended=True))

    def _new(self, jobs: Sequence[NewJob], among: Sequence[NewJob]) -> list[NewJob]:
        """Returns those of these jobs of which no job has the id or the key, nor an earlier one of this call."""
        asked = as_json([{"id": job.id, "queue": job.queue, "key": job.key} for job in among])
        rows = self._statements.rows(self._sql["taken"], (self._at, asked))
        exist = {(job.id, job.queue, job.key) for job, (holder,) in zip(among, rows, strict=True) if holder is not None}
        earlier: set[tuple[str | None, ...]] = set()
        new: list[NewJob] = []
        for job in jobs:
            names = {(job.id,), (job.queue, job.key)} if job.key is not None else {(job.id,)}
            if earlier.isdisjoint(names) and (job.id, job.queue, job.key) not in exist and job in among:
                new.append(job)
            earlier |= names
        return new

    def _missing(self, jobs: Sequence[NewJob]) -> set[str]:
        """Returns the predecessors that do not exist, and come no earlier in this call."""
        known: set[str] = set()
        asked: dict[str, None] = {}
        for job in jobs:
            asked |= dict.fromkeys(each for each in job.after if each not in known)
            known.add(job.id)
        if not asked:
            return set()
        return {str(each) for (each,) in self._statements.rows(self._sql["unknown"], (as_json(list(asked)),))}

    def enqueue_single(self, job: NewJob, *, promised: bool, by: Mapping[str, Any] = MappingProxyType({})) -> Enqueued:
        """Adds a job with `replace` or `unique_for`; `by` are further fields of its row."""
        answer = self._first_of_period(job) or self._replaced(job)
        if answer is None:
            plain = msgspec.structs.replace(job, replace=False, unique_for_ms=None)
            created = self.add_linked([{**linked_row_of(plain), **by}], promised=promised)
            (answer,) = self.answers([plain], {str(job_id) for (job_id,) in created()})
            if not answer.created and job.replace and answer.id != job.id:  # somebody has taken the key meanwhile
                return self.enqueue_single(job, promised=promised, by=by)
            if answer.created and not self._take_period(job):
                self._statements.send(self._sql["withdraw"], (job.id,))
                return self.enqueue_single(job, promised=promised, by=by)
        elif promised and answer.id != job.id:
            its = (job.id, answer.id, by.get("spawned_by"), by.get("parent"))
            self._statements.send(self._sql["alias_to"], its)
            if "spawned_by" in by:
                text = as_json([{"id": job.id, **by}])
                self._statements.send(self._sql["spawn_taken"], (text,))
                self._statements.send(self._sql["untangle_taken"], (text,))
        return answer

    def _first_of_period(self, job: NewJob) -> Enqueued | None:
        """Returns the answer if the key is taken for a time."""
        for (first,) in self._statements.rows(self._sql["once_by"], (self._at, job.queue, job.key)):
            return Enqueued(str(first), created=False)
        return None

    def _take_period(self, job: NewJob) -> bool:
        """Takes the key of a new job for a time, if it says so. Returns whether that was possible."""
        asked = (self._at, job.queue, job.key, job.unique_for_ms, job.id)
        return job.unique_for_ms is None or bool(self._statements.rows(self._sql["once"], asked))

    def _replaced(self, job: NewJob) -> Enqueued | None:
        """Replaces the job that has the key, if it is not claimed. Returns the answer; None if no job has the key."""
        if not job.replace:
            return None
        while found := self._statements.rows(self._sql["holder"], (job.queue, job.key)):
            ((holder, seq, free),) = found
            if not free:
                return Enqueued(str(holder), created=False)
            if self._statements.rows(self._sql["lock_holder"], (seq,)):
                self._replace(job, seq)
                return Enqueued(str(holder), created=False, replaced=True)
        return None

    def _replace(self, job: NewJob, seq: int) -> None:
        row = linked_row_of(job)
        self._statements.send(self._sql["replace"], (self._at, as_json(row), seq))
        if "tags" in row:
            self._statements.send(self._sql["tag_one"], (seq,))

    def answers(self, jobs: Sequence[NewJob], created: set[str]) -> list[Enqueued]:
        """Returns the answer for each job; for those that were not created, it finds the job that has the id or key."""
        if len(created) == len(jobs):
            return [Enqueued(job.id, True) for job in jobs]
        missing: list[int] = []
        answers: list[Enqueued | None] = []
        for at, job in enumerate(jobs):
            if job.id in created:
                created.discard(job.id)  # the same id may be in the list twice
                answers.append(Enqueued(job.id, True))
            else:
                answers.append(None)
                missing.append(at)
        asked = as_json([{"id": jobs[at].id, "queue": jobs[at].queue, "key": jobs[at].key} for at in missing])
        again: list[int] = []
        for at, (found,) in zip(missing, self._statements.rows(self._sql["taken"], (self._at, asked)), strict=True):
            if found is None:
                again.append(at)  # the holder of the key has ended meanwhile
            else:
                answers[at] = Enqueued(str(found), False)
        for at, answer in zip(again, self.enqueue([jobs[at] for at in again]), strict=True):
            answers[at] = answer
        return [answer for answer in answers if answer is not None]


def _each_once(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows without those whose id came before: they are the same job, which does not wait for itself."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:  # an id may come with several outcomes, of which one is accepted
        first.setdefault((row["id"], row.get("parent"), row.get("claim")), row)
    return list(first.values())


def _runs(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """Returns the jobs in their order: those that are added alone, and the others together."""
    return [list(run) for _, run in groupby(jobs, is_single)]
