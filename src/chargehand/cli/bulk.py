"""`chargehand jobs retry` and `jobs cancel`: by ids, or by filters, page by page."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from chargehand.app import Chargehand
from chargehand.cli import ask, find, show
from chargehand.errors import EXIT_ERROR, ConfigurationError, Conflict, JobNotFound
from chargehand.host.operations import AT_ONCE, NOT_RETRIED
from chargehand.model.fleet.orders import Answer
from chargehand.model.job import JobRecord, State
from chargehand.model.records import JobFilter

FEW = 20
"""So many are answered one by one, and done by a filter without a question."""

Ids = Annotated[list[str] | None, typer.Argument(help="Jobs by their ids; or none, and filters.", metavar="ID")]
Queue = Annotated[str | None, typer.Option(help="Those of this queue.")]
Reason = Annotated[str | None, typer.Option(help="Those with this reason: raised, timed out, poison, gave up, …")]
Text = Annotated[str | None, typer.Option(help="Those with this text in id, label, key, item or error.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be done; change nothing.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help=f"Do not ask; a terminal is asked about more than {FEW}."),
]


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to jobs, and the words for it."""

    verb: str
    states: tuple[State, ...]
    """Those that it can be done to; the first is meant unless another is named."""
    done: dict[str, str]
    """What an answer says, and how that is counted when there are many."""
    undone: str
    would: dict[State, str]
    act: Callable[[Chargehand, list[str]], list[Answer]]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the person said."""

    ids: tuple[str, ...]
    which: JobFilter
    dry_run: bool
    yes: bool
    json: bool


def _retry(hand: Chargehand, ids: list[str]) -> list[Answer]:
    """All that can be, of as many as fit into a transaction; one whose key is taken keeps nobody else from it."""
    try:
        return hand.retry(*ids)
    except Conflict as error:
        if len(ids) == 1:
            return [Answer(ids[0], str(error).removeprefix(f"job {ids[0]} "))]
        half = len(ids) // 2
        return _retry(hand, ids[:half]) + _retry(hand, ids[half:])


RETRY = BulkAction(
    verb="retry",
    states=(State.FAILED, State.CANCELLED),
    done={"is queued again": "queued again"},
    undone="were not failed any more",
    would={State.FAILED: "would be queued again", State.CANCELLED: "would be queued again"},
    act=_retry,
)
CANCEL = BulkAction(
    verb="cancel",
    states=(State.QUEUED, State.RUNNING),
    done={
        "is cancelled": "cancelled",
        "is running, and told to stop; its worker is replaced if it does not": "running, and told to stop",
    },
    undone="had ended already",
    would={State.QUEUED: "would be cancelled", State.RUNNING: "would be told to stop"},
    act=lambda hand, ids: hand.cancel(*ids),
)
GONE = {NOT_RETRIED, "is not there, or has ended already"}
"""What is said of jobs that somebody else was quicker with; anything else that was not done is a failure."""


def retry(
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[State | None, typer.Option(help="failed (unless told otherwise) or cancelled.")] = None,
    reason: Reason = None,
    text: Text = None,
    every: Annotated[bool, typer.Option("--all", help="Every failed one.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Queue failed or cancelled jobs again, their counters cleared: by ids, or all that filters match.

    Exit status 1 if one that was named could not be, or a unique key is taken meanwhile.
    """
    wanted = _wanted(RETRY, ids, queue, state, reason, text, every, dry_run, yes, json)
    _carry_out(RETRY, find.chargehand(application, store), wanted)


def cancel(
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[State | None, typer.Option(help="queued (unless told otherwise) or running.")] = None,
    reason: Reason = None,
    text: Text = None,
    every: Annotated[bool, typer.Option("--all", help="Every waiting one.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Cancel jobs: by ids, or all that filters match. Waiting ones at once; a running one is told to stop, and its
    worker is replaced if it does not.

    Exit status 1 if one that was named could not be.
    """
    wanted = _wanted(CANCEL, ids, queue, state, reason, text, every, dry_run, yes, json)
    _carry_out(CANCEL, find.chargehand(application, store), wanted)


def _wanted(
    deed: BulkAction,
    ids: list[str] | None,
    queue: str | None,
    state: State | None,
    reason: str | None,
    text: str | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> Wanted:
    filters = every or not all(value is None for value in (queue, state, reason, text))
    if not ids and not filters:
        raise ConfigurationError(
            f"which jobs? Give ids, or --queue, --state, --reason, --text; --all means every {deed.states[0].value} one"
        )
    if ids and filters:
        raise ConfigurationError("give ids or filters, not both")
    if state is not None and state not in deed.states:
        allowed = " and ".join(each.value for each in deed.states)
        raise ConfigurationError(f"cannot {deed.verb} jobs that are {state.value}; it can be done to {allowed} ones")
    which = JobFilter(queue=queue, state=state or deed.states[0], reason=reason, text=text, limit=AT_ONCE)
    return Wanted(ids=tuple(dict.fromkeys(ids or ())), which=which, dry_run=dry_run, yes=yes, json=json)


def _carry_out(deed: BulkAction, hand: Chargehand, wanted: Wanted) -> None:
    tally = BulkCount(deed, wanted)
    if wanted.dry_run:
        for page in _named(hand, wanted) if wanted.ids else _matching(hand, wanted.which):
            tally.foreseen(page)
        tally.foretell()
    elif wanted.ids:
        for start in range(0, len(wanted.ids), AT_ONCE):
            tally.answered(deed.act(hand, list(wanted.ids[start : start + AT_ONCE])))
    else:
        for number, page in enumerate(_matching(hand, wanted.which)):
            if not number:
                _ask(deed, page, wanted)
            tally.answered(deed.act(hand, [job.id for job in page]))
            ask.so_far(f"{tally.count} jobs so far" if len(page) == AT_ONCE else "")
    if not wanted.dry_run:
        tally.tell()


def _matching(hand: Chargehand, which: JobFilter) -> Iterator[list[JobRecord]]:
    """Page by page, newest first: one that fails again meanwhile is not met twice."""
    page = hand.jobs(which)
    while page:
        last = page[-1].id
        yield page
        page = hand.jobs(msgspec.structs.replace(which, before=last)) if len(page) == which.limit else []


def _named(hand: Chargehand, wanted: Wanted) -> Iterator[list[JobRecord]]:
    for job_id in wanted.ids:
        try:
            yield [hand.job(job_id)]
        except JobNotFound as error:
            raise JobNotFound(f"{error}; nothing was changed") from None


def _ask(deed: BulkAction, page: list[JobRecord], wanted: Wanted) -> None:
    if wanted.yes or len(page) <= FEW or not ask.somebody():
        return
    number = f"{len(page)} or more" if len(page) == wanted.which.limit else str(len(page))
    ask.agreed(f"{deed.verb} {number} {wanted.which.state} jobs?")


class BulkCount:
    """What came of it: told one by one if they are few, as numbers if they are many."""

    def __init__(self, deed: BulkAction, wanted: Wanted) -> None:
        self._deed, self._wanted = deed, wanted
        self.count = 0
        self._kinds: Counter[str] = Counter()
        self._answers: list[Answer] = []
        self._failures: list[Answer] = []
        self._foreseen: list[dict[str, Any]] = []

    def answered(self, answers: list[Answer]) -> None:
        for answer in answers:
            self.count += 1
            done = self._deed.done.get(answer.text)
            self._kinds[done or (self._deed.undone if answer.text in GONE else "could not be")] += 1
            if done is None and (self._wanted.ids or answer.text not in GONE):
                self._failures.append(answer)
            if self._wanted.json or self._wanted.ids or self.count <= FEW:
                self._answers.append(answer)

    def tell(self) -> None:
        """The answers; and an exit status."""
        if self._wanted.json:
            jobs = [{"id": answer.component, "text": answer.text} for answer in self._answers]
            show.json({"count": self.count, "not_done": len(self._failures), "summary": self._summary(), "jobs": jobs})
        else:
            few = len(self._answers) == self.count
            for answer in self._answers if few else self._failures[:FEW]:
                show.line(f"{show.safe(answer.component)}: {show.safe(answer.text)}")
            if not few or self.count > 1:
                show.line(self._summary())
            elif not self.count:
                show.line(f"no {self._wanted.which.state} job matches: there is nothing to {self._deed.verb}")
        if self._failures:
            raise typer.Exit(EXIT_ERROR)

    def _summary(self) -> str:
        return ", ".join(f"{number} {kind}" for kind, number in self._kinds.most_common())

    def foreseen(self, page: list[JobRecord]) -> None:
        """These would be acted on."""
        for job in page:
            would = self._deed.would.get(job.state)
            self.count += would is not None
            text = would or f"is {job.state.value}: would be left alone"
            if self._wanted.json:
                facts = {name: getattr(job, name) for name in ("id", "queue", "state", "label", "reason")}
                self._foreseen.append({**facts, "text": text})
            else:
                about = "  ".join(
                    show.safe(part) for part in (job.queue, job.state.value, job.reason, job.label) if part
                )
                show.line(f"{show.safe(job.id)}  {about}: {text}")

    def foretell(self) -> None:
        if self._wanted.json:
            show.json({"dry_run": True, "count": self.count, "jobs": self._foreseen})
        else:
            show.line(f"{self.count} in all; nothing was changed")
