"""`chargehand jobs retry`, `cancel`, `delete` and `clear`: jobs by ids, or by filters, page by page."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from chargehand.cli import ask, find, hints, orders, show
from chargehand.errors import EXIT_ERROR, ConfigurationError, Conflict, JobNotFound
from chargehand.host.operations import AT_ONCE
from chargehand.host.service import Service
from chargehand.model.bulk import SELECTED, BulkPlace, BulkVerb, in_words, selected
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.job import JobRecord, State
from chargehand.model.job_query import merged, parse
from chargehand.model.records import JobFilter, SearchPlace, Sort

FEW = 20
"""Up to this many jobs are listed one by one, and changed by a filter without a question."""

Ids = Annotated[
    list[str] | None,
    typer.Argument(
        help="Job ids, or their last 8 characters; or a filter, such as 'state:failed error:\"CUDA\"'.",
        metavar="ID|FILTER",
    ),
]
Words = Annotated[list[str] | None, typer.Argument(help="A filter; its words may be several arguments.")]
Queue = Annotated[str | None, typer.Option(help="Only jobs of this queue.")]
Reason = Annotated[str | None, typer.Option(help="Only jobs with this reason: raised, timed out, poison, gave up, …")]
Tag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
Text = Annotated[str | None, typer.Option(help="Only jobs with this text in id, label, key, item or error.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the jobs that would be changed; change nothing.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help=f"Do not ask. Without it, a terminal is asked about more than {FEW} jobs."),
]


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to jobs, and the texts for it."""

    verb: BulkVerb
    done: dict[str, str]
    """The codes of answers that mean success, and the text for their number."""
    ended: AnswerCode
    """The code of an answer about a job that is in none of these states any more."""
    undone: str
    """The text for the number of those jobs."""
    would: dict[State, str]
    act: Callable[[Service, list[str]], list[Answer]]

    def changed(self, state: State | None) -> str:
        """Returns the text for the number of jobs of a state that a filter has changed."""
        asked = AnswerCode.CANCELLING if state is State.RUNNING else None
        return next(text for code, text in self.done.items() if asked in (None, code))


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command."""

    ids: tuple[str, ...]
    which: JobFilter
    dry_run: bool
    yes: bool
    json: bool


def _retry(service: Service, ids: list[str]) -> list[Answer]:
    """Retries all jobs but those whose unique key is taken."""
    try:
        return service.retry(*ids)
    except Conflict as error:
        if len(ids) == 1:
            return [Answer(ids[0], str(error).removeprefix(f"job {ids[0]} "), AnswerCode.CONFLICT)]
        half = len(ids) // 2
        return _retry(service, ids[:half]) + _retry(service, ids[half:])


RETRY = BulkAction(
    verb=BulkVerb.RETRY,
    done={AnswerCode.QUEUED: "queued again"},
    ended=AnswerCode.NOT_RETRIED,
    undone="no longer failed or cancelled",
    would={State.FAILED: "would be queued again", State.CANCELLED: "would be queued again"},
    act=_retry,
)
CANCEL = BulkAction(
    verb=BulkVerb.CANCEL,
    done={AnswerCode.CANCELLED: "cancelled", AnswerCode.CANCELLING: "running and asked to stop"},
    ended=AnswerCode.NOT_CANCELLED,
    undone="ended already",
    would={State.QUEUED: "would be cancelled", State.RUNNING: "would be asked to stop"},
    act=lambda service, ids: service.cancel(*ids),
)


_FINISHED = (State.DONE, State.FAILED, State.CANCELLED)
DELETE = BulkAction(
    verb=BulkVerb.DELETE,
    done={AnswerCode.DELETED: "deleted"},
    ended=AnswerCode.NOT_DELETED,
    undone="not deleted",
    would=dict.fromkeys(_FINISHED, "would be deleted"),
    act=lambda service, ids: service.delete(*ids),
)


def retry(
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[State | None, typer.Option(help="failed (default) or cancelled.")] = None,
    reason: Reason = None,
    tag: Tag = None,
    text: Text = None,
    every: Annotated[bool, typer.Option("--all", help="All failed jobs.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Queue failed or cancelled jobs again, with cleared counters: by ids, or all that the filters select.

    Exit status 1 if a job given by id was not queued, or if the unique key of a job is taken.
    """
    wanted = _wanted(RETRY, ids, queue, state, reason, tag, text, every, dry_run, yes, json)
    _carry_out(RETRY, find.service(application, store), wanted, application)


def cancel(
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[State | None, typer.Option(help="queued (default) or running.")] = None,
    reason: Reason = None,
    tag: Tag = None,
    text: Text = None,
    every: Annotated[bool, typer.Option("--all", help="All queued jobs.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Cancel jobs: by ids, or all that the filters select. Queued jobs are cancelled at once; a running job is asked to
    stop, and its worker is replaced if it does not.

    Exit status 1 if a job given by id was not cancelled.
    """
    wanted = _wanted(CANCEL, ids, queue, state, reason, tag, text, every, dry_run, yes, json)
    _carry_out(CANCEL, find.service(application, store), wanted, application)


def delete(
    ids: Ids = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Delete finished jobs, by their ids or all that match a filter, with their attempts. A job that is queued or
    running must be cancelled first.

    Exit status 1 if a job given by id was not deleted.
    """
    if not ids:
        raise ConfigurationError(
            "no jobs are selected: give ids, or a filter such as queue:mail; "
            "chargehand jobs clear --all deletes all finished jobs"
        )
    wanted = _wanted(DELETE, ids, None, None, None, None, None, False, dry_run, yes, json)
    _carry_out(DELETE, find.service(application, store), wanted, application)


def clear(
    queue: Queue = None,
    state: Annotated[State | None, typer.Option(help="done, failed or cancelled; without it, all three.")] = None,
    reason: Reason = None,
    tag: Tag = None,
    text: Text = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only jobs that finished at least so long ago: 90s, 10m, 1.5h, 2d.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All finished jobs.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Delete all finished jobs that the filters select, with their attempts.

    Jobs that are queued or running stay. An item whose failed job is deleted is found by `discover` again.
    """
    older_ms = None if older_than is None else round(orders.seconds(older_than, "--older-than") * 1000)
    wanted = _wanted(DELETE, None, queue, state, reason, tag, text, every, dry_run, yes, json, older_ms=older_ms)
    service = find.service(application, store)
    if dry_run:
        _carry_out(DELETE, service, wanted, application)
        return
    _confirm(DELETE, service, wanted)
    count, more = 0, True
    while more:
        deleted, more = service.clear(wanted.which)
        count += deleted
        ask.progress(f"{count} jobs so far" if more else "")
    if not count:
        hints.about_queue(service, application, queue)
    if json:
        show.json({"count": count})
    else:
        show.line(f"{count} {'job' if count == 1 else 'jobs'} deleted")


def _wanted(
    action: BulkAction,
    ids: list[str] | None,
    queue: str | None,
    state: State | None,
    reason: str | None,
    tag: str | None,
    text: str | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
    *,
    older_ms: int | None = None,
) -> Wanted:
    filters = every or not all(value is None for value in (queue, state, reason, tag, text, older_ms))
    named = list(ids or ())
    which = JobFilter(queue=queue, state=state, reason=reason, tag=tag, text=text, older_ms=older_ms)
    if any(":" in each for each in named):  # no id of a job contains one
        which, named, filters = merged(which, parse(" ".join(named))), [], True
    if not named and not filters:
        options = "--queue, --state, --reason, --tag, --text"
        options = f"{options}, --older-than" if action is DELETE else f"ids, a filter, or {options}"
        raise ConfigurationError(
            f"no jobs are selected: give {options}; --all selects all {in_words(SELECTED[action.verb])} jobs"
        )
    if named and filters:
        raise ConfigurationError("give ids or filters, not both")
    if not named:
        selected(action.verb, which)  # raises ConfigurationError
        if which.state is None and len(SELECTED[action.verb]) == 1:
            which = msgspec.structs.replace(which, state=SELECTED[action.verb][0])
    which = msgspec.structs.replace(which, limit=AT_ONCE)
    return Wanted(ids=tuple(dict.fromkeys(named)), which=which, dry_run=dry_run, yes=yes, json=json)


def _carry_out(action: BulkAction, service: Service, wanted: Wanted, app: str | None) -> None:
    report = BulkReport(action, wanted)
    if wanted.dry_run:
        for page in _named(service, wanted) if wanted.ids else _matching(action, service, wanted):
            report.add_foreseen(page)
        report.show_foreseen()
    elif wanted.ids:
        for start in range(0, len(wanted.ids), AT_ONCE):
            report.add(action.act(service, list(wanted.ids[start : start + AT_ONCE])))
    else:
        _change_matching(action, service, wanted, report)
    if not report.count:
        hints.about_queue(service, app, wanted.which.queue)
    if not wanted.dry_run:
        report.show()


def _change_matching(action: BulkAction, service: Service, wanted: Wanted, report: "BulkReport") -> None:
    """Changes the jobs that a filter selects: each by its id if they are few, many where the store is."""
    count, at_least = _confirm(action, service, wanted)
    if (count <= FEW and not at_least) or wanted.json:
        for page in _matching(action, service, wanted):
            report.add(action.act(service, [job.id for job in page]))
        return
    refused = 0
    place: BulkPlace | None = None
    while True:
        part = service.change(action.verb, wanted.which, place)
        report.add_changed(part.count)
        refused, place = refused + part.refused, part.next
        if place is None:
            break
        ask.progress(f"{report.count} jobs so far")
    ask.progress("")
    if refused:  # some are tried again by their ids: the answers say why
        left = service.search(msgspec.structs.replace(wanted.which, limit=FEW)).jobs
        report.add(action.act(service, [job.id for job in left]))
        report.add_refused(refused - len(left))


def _matching(action: BulkAction, service: Service, wanted: Wanted) -> Iterator[list[JobRecord]]:
    """Yields pages, newest first: a job that fails again in the meantime is not selected twice."""
    for which in selected(action.verb, wanted.which):
        after: SearchPlace | None = None
        while True:
            found = service.search(which, Sort.NEWEST, after)
            if found.jobs:
                yield list(found.jobs)
            after = found.next
            if after is None:
                break


def _named(service: Service, wanted: Wanted) -> Iterator[list[JobRecord]]:
    for job_id in wanted.ids:
        try:
            yield [service.job(job_id)]
        except JobNotFound as error:
            raise JobNotFound(f"{error}; nothing was changed") from None


def _confirm(action: BulkAction, service: Service, wanted: Wanted) -> tuple[int, bool]:
    """Asks a person about many jobs. Returns how many there are, and whether there may be more."""
    found = [service.tally(each) for each in selected(action.verb, wanted.which)]
    count = sum(int(getattr(each, state)) for each in found for state in State)
    more = any(each.searched_ms is not None for each in found)
    if not wanted.yes and (count > FEW or more) and ask.interactive():
        states = in_words(tuple(each.state for each in selected(action.verb, wanted.which) if each.state is not None))
        ask.confirm(f"{action.verb} {count}{' or more' if more else ''} {states} jobs?")
    return count, more


class BulkReport:
    """Collects the answers and prints them: one by one if they are few, otherwise their numbers."""

    def __init__(self, action: BulkAction, wanted: Wanted) -> None:
        self._action, self._wanted = action, wanted
        self.count = 0
        self._kinds: Counter[str] = Counter()
        self._answers: list[Answer] = []
        self._failures: list[Answer] = []
        self._foreseen: list[dict[str, Any]] = []

    def add(self, answers: list[Answer]) -> None:
        """Counts the answers to one page of jobs."""
        for answer in answers:
            self.count += 1
            done, ended = self._action.done.get(answer.code), answer.code == self._action.ended
            self._kinds[done or (self._action.undone if ended else "not possible")] += 1
            # A job that a filter selected and that has ended in the meantime is no failure.
            if done is None and (self._wanted.ids or not ended):
                self._failures.append(answer)
            if self._wanted.json or self._wanted.ids or self.count <= FEW:
                self._answers.append(answer)

    def add_changed(self, count: int) -> None:
        """Counts jobs that were changed where the store is."""
        self.count += count
        self._kinds[self._action.changed(self._wanted.which.state)] += count

    def add_refused(self, count: int) -> None:
        """Counts further jobs that stayed as they are."""
        if count > 0:
            self.count += count
            self._kinds[self._action.undone if self._action.verb is not BulkVerb.RETRY else "not possible"] += count

    def show(self) -> None:
        """Prints the answers. Exits with status 1 if one of them is a failure."""
        if self._wanted.json:
            jobs = [{"id": each.component, "text": each.text, "code": each.code} for each in self._answers]
            show.json({"count": self.count, "not_done": len(self._failures), "summary": self._summary(), "jobs": jobs})
        else:
            few = len(self._answers) == self.count
            for answer in self._answers if few else self._failures[:FEW]:
                show.line(f"{show.safe(answer.component)}: {show.safe(answer.text)}")
            if not few or self.count > 1:
                show.line(self._summary())
            elif not self.count:
                state = self._wanted.which.state
                show.line(f"no {f'{state} ' if state else ''}job matches: there is nothing to {self._action.verb}")
        if self._failures:
            raise typer.Exit(EXIT_ERROR)

    def _summary(self) -> str:
        return ", ".join(f"{number} {kind}" for kind, number in self._kinds.most_common() if number)

    def add_foreseen(self, page: list[JobRecord]) -> None:
        """Lists the jobs of one page with what would happen to them."""
        for job in page:
            would = self._action.would.get(job.state)
            self.count += would is not None
            text = would or f"is {job.state.value}: would stay unchanged"
            if self._wanted.json:
                facts = {name: getattr(job, name) for name in ("id", "queue", "state", "label", "reason")}
                self._foreseen.append({**facts, "text": text})
            else:
                about = "  ".join(
                    show.safe(part) for part in (job.queue, job.state.value, job.reason, job.label) if part
                )
                show.line(f"{show.safe(job.id)}  {about}: {text}")

    def show_foreseen(self) -> None:
        """Prints how many jobs would be changed."""
        if self._wanted.json:
            show.json({"dry_run": True, "count": self.count, "jobs": self._foreseen})
        else:
            show.line(f"{self.count} {'job' if self.count == 1 else 'jobs'} in total; nothing was changed")
