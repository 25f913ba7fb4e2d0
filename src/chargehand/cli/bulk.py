"""`chargehand jobs retry`, `cancel`, `delete` and `clear`: jobs by ids, or by filters, page by page."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
import typer

from chargehand.cli import ask, find, hints, orders, show
from chargehand.errors import EXIT_ERROR, ConfigurationError, Conflict, JobNotFound
from chargehand.host.operations import AT_ONCE
from chargehand.host.service import Service
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.job import JobRecord, State
from chargehand.model.records import JobFilter

FEW = 20
"""Up to this many jobs are listed one by one, and changed by a filter without a question."""

Ids = Annotated[list[str] | None, typer.Argument(help="Job ids. Without ids, filters select the jobs.", metavar="ID")]
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

    verb: str
    states: tuple[State, ...]
    """The states of jobs that it applies to."""
    selected: tuple[State, ...]
    """The states of jobs that a filter without a state selects."""
    done: dict[str, str]
    """The codes of answers that mean success, and the text for their number."""
    ended: AnswerCode
    """The code of an answer about a job that is in none of these states any more."""
    undone: str
    """The text for the number of those jobs."""
    would: dict[State, str]
    act: Callable[[Service, list[str]], list[Answer]]


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
    verb="retry",
    states=(State.FAILED, State.CANCELLED),
    selected=(State.FAILED,),
    done={AnswerCode.QUEUED: "queued again"},
    ended=AnswerCode.NOT_RETRIED,
    undone="no longer failed or cancelled",
    would={State.FAILED: "would be queued again", State.CANCELLED: "would be queued again"},
    act=_retry,
)
CANCEL = BulkAction(
    verb="cancel",
    states=(State.QUEUED, State.RUNNING),
    selected=(State.QUEUED,),
    done={AnswerCode.CANCELLED: "cancelled", AnswerCode.CANCELLING: "running and asked to stop"},
    ended=AnswerCode.NOT_CANCELLED,
    undone="ended already",
    would={State.QUEUED: "would be cancelled", State.RUNNING: "would be asked to stop"},
    act=lambda service, ids: service.cancel(*ids),
)


_FINISHED = (State.DONE, State.FAILED, State.CANCELLED)
DELETE = BulkAction(
    verb="delete",
    states=_FINISHED,
    selected=_FINISHED,
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
    ids: Annotated[list[str], typer.Argument(help="Job ids.", metavar="ID")],
    dry_run: DryRun = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Delete finished jobs by their ids, with their attempts. A job that is queued or running must be cancelled first.

    Exit status 1 if a job was not deleted.
    """
    wanted = _wanted(DELETE, ids, None, None, None, None, None, False, dry_run, True, json)
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
    _confirm(DELETE, next(_matching(service, wanted), list[JobRecord]()), wanted)
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
    if not ids and not filters:
        named = "--queue, --state, --reason, --tag, --text"
        named = f"{named}, --older-than" if action is DELETE else f"ids, or {named}"
        raise ConfigurationError(
            f"no jobs are selected: give {named}; --all selects all {_in_words(action.selected)} jobs"
        )
    if ids and filters:
        raise ConfigurationError("give ids or filters, not both")
    if state is not None and state not in action.states:
        allowed = _in_words(action.states)
        raise ConfigurationError(f"cannot {action.verb} jobs that are {state.value}; allowed are {allowed} jobs")
    if state is None and len(action.selected) == 1:
        (state,) = action.selected
    which = JobFilter(
        queue=queue, state=state, reason=reason, tag=tag, text=text, older_ms=older_ms, limit=AT_ONCE
    )  # fmt: skip
    return Wanted(ids=tuple(dict.fromkeys(ids or ())), which=which, dry_run=dry_run, yes=yes, json=json)


def _in_words(states: Sequence[State]) -> str:
    *most, last = (state.value for state in states)
    return f"{', '.join(most)} and {last}" if most else last


def _carry_out(action: BulkAction, service: Service, wanted: Wanted, app: str | None) -> None:
    report = BulkReport(action, wanted)
    if wanted.dry_run:
        for page in _named(service, wanted) if wanted.ids else _matching(service, wanted):
            report.add_foreseen(page)
        report.show_foreseen()
    elif wanted.ids:
        for start in range(0, len(wanted.ids), AT_ONCE):
            report.add(action.act(service, list(wanted.ids[start : start + AT_ONCE])))
    else:
        for number, page in enumerate(_matching(service, wanted)):
            if not number:
                _confirm(action, page, wanted)
            report.add(action.act(service, [job.id for job in page]))
            ask.progress(f"{report.count} jobs so far" if len(page) == AT_ONCE else "")
    if not report.count:
        hints.about_queue(service, app, wanted.which.queue)
    if not wanted.dry_run:
        report.show()


def _matching(service: Service, wanted: Wanted) -> Iterator[list[JobRecord]]:
    """Yields pages, newest first: a job that fails again in the meantime is not selected twice."""
    for state in _FINISHED if wanted.which.state is None else [wanted.which.state]:
        which = msgspec.structs.replace(wanted.which, state=state)
        page = service.jobs(which)
        while page:
            last = page[-1].seq
            yield page
            page = service.jobs(msgspec.structs.replace(which, below=last)) if len(page) == which.limit else []


def _named(service: Service, wanted: Wanted) -> Iterator[list[JobRecord]]:
    for job_id in wanted.ids:
        try:
            yield [service.job(job_id)]
        except JobNotFound as error:
            raise JobNotFound(f"{error}; nothing was changed") from None


def _confirm(action: BulkAction, page: list[JobRecord], wanted: Wanted) -> None:
    if wanted.yes or len(page) <= FEW or not ask.interactive():
        return
    states = _in_words(action.selected if wanted.which.state is None else [wanted.which.state])
    several = len(page) == wanted.which.limit or wanted.which.state is None
    ask.confirm(f"{action.verb} {len(page)}{' or more' if several else ''} {states} jobs?")


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
                show.line(f"no {self._wanted.which.state} job matches: there is nothing to {self._action.verb}")
        if self._failures:
            raise typer.Exit(EXIT_ERROR)

    def _summary(self) -> str:
        return ", ".join(f"{number} {kind}" for kind, number in self._kinds.most_common())

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
