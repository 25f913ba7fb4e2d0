"""`chargehand run`: runs one job in the foreground, in this process, so that a debugger can be used."""

import os
import sys
from typing import Annotated, Any

import msgspec
import typer

from chargehand import clock, codec, errors, handler
from chargehand.cli import find, show
from chargehand.cli.jobs import standard_input
from chargehand.crew import Crew
from chargehand.errors import EXIT_ERROR, EXIT_SET_UP, ConfigurationError, PayloadError
from chargehand.model.job import NewJob
from chargehand.settings.plan import CrewPlan
from chargehand.worker import perform, thread_cap
from chargehand.worker.foreground import Foreground, LocalContext

REST = 0.1
"""Seconds between two lines of progress, at least."""


class Printer:
    """Prints the messages of the job on standard error; of frequent progress reports only some."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._kept: str | None = None

    def message(self, text: str) -> None:
        """Prints a message."""
        self._print(text)

    def progress(self, text: str) -> None:
        """Prints a progress report, or holds it back if the previous one was printed less than REST seconds ago."""
        now = clock.monotonic()
        if now - self._last < REST:
            self._kept = text
            return
        self._last = now
        self._print(text)

    def flush(self) -> None:
        """Prints the latest progress if it was held back."""
        if self._kept is not None:
            self._print(self._kept)

    def _print(self, text: str) -> None:
        self._kept = None
        sys.stderr.write(f"{show.safe(text)}\n")
        sys.stderr.flush()


def run(
    app: find.RequiredApp,
    crew: Annotated[str, typer.Argument(help="The crew whose handler runs the job.")],
    payload: Annotated[
        str | None,
        typer.Argument(
            help="The payload as JSON; - reads it from standard input, which a debugger cannot use then. Default: null."
        ),
    ] = None,
    item: Annotated[
        str | None,
        typer.Option(
            help="For crews that discover: the key of the item. Without a payload, discover is called for it."
        ),
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Commit what job.settle writes, and enqueue the jobs of job.enqueue.")
    ] = False,
) -> None:
    """Run one job in this process, without a node: nothing is queued, and breakpoint() works.

    The result is printed on standard output as JSON, progress on standard error. What the handler writes in job.settle
    is rolled back unless --commit is given; what it writes elsewhere stays.

    Exit status 1 if perform raises, 5 if set_up raises.
    """
    hand = find.application(app)
    known = hand.find_crew(crew)
    plan = known.plan
    if plan.discovers and item is None and payload is None:
        raise ConfigurationError(f"crew {crew!r} discovers its items: give --item KEY or a payload")
    job = None if payload is None else _job(known, standard_input() if payload == "-" else payload)
    os.environ.update(plan.environment_of(0))
    handler.inside_worker = True
    thread_cap.cap(plan.threads)
    printer = Printer()
    here = _set_up(plan)
    handler.ready = True
    try:
        if job is None:
            job = _job(known, "null") if item is None else _discovered(known, here, item)
        crews = {name: each.plan for name, each in hand.crews.items()}
        context = LocalContext(
            hand, crew=plan, crews=crews, commit=commit, report=printer.message, report_progress=printer.progress
        )
        try:
            text = _perform(here, plan, job, item, context, printer)
        finally:
            context.close()
        show.json(msgspec.Raw(text.encode()))
        sys.stdout.flush()
    finally:
        here.tear_down()
        hand.close()
    try:
        codec.from_json(text, known.gives, "the result")
    except PayloadError as error:
        raise PayloadError(
            f"{error}: the job would be done, but a caller that waits for it would get this error"
        ) from error


def _job(crew: Crew[Any, Any], text: str, label: str | None = None) -> NewJob:
    """Returns the job as it would be enqueued."""
    value = codec.parse_json(text, crew.takes, f"the payload for crew {crew.name!r}")
    return crew.new_job(value) if label is None else crew.new_job(value, label=label)


def _discovered(crew: Crew[Any, Any], here: Foreground, key: str) -> NewJob:
    if not perform.has_own(type(here.handler), "discover"):
        raise ConfigurationError(f"handler {crew.plan.handler!r} has no discover(after, limit): give a payload")
    found = here.find(key)
    if found is None:
        raise ConfigurationError(
            f"discover does not return {key!r}: the item needs no work; to run it anyway, give a payload"
        )
    item, payload = found
    return _job(crew, payload, item.label)


def _set_up(plan: CrewPlan) -> Foreground:
    here: Foreground | None = None
    try:
        here = Foreground(perform.make(plan.handler, perform.load(plan.handler, plan.batch, plan.concurrency)))
        here.handler.threads = plan.threads
        here.set_up()
    except errors.ChargehandError:
        raise
    except (Exception, SystemExit):
        sys.stderr.write(show.trace())
        sys.stderr.write(f"chargehand: the handler could not be {'imported' if here is None else 'set up'}\n")
        raise typer.Exit(EXIT_SET_UP) from None
    return here


def _perform(
    here: Foreground, plan: CrewPlan, job: NewJob, item: str | None, context: LocalContext, printer: Printer
) -> str:
    taken = here.payload_of(job.payload, f"the payload of job {job.id}")
    try:
        return here.perform(
            taken, context, id=job.id, queue=job.queue, label=job.label and codec.restore(job.label), item=item
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() is a failure of the job, too
        printer.flush()
        sys.stderr.write(show.trace())
        sys.stderr.write(f"chargehand: {show.safe(_what_follows(error, job, plan))}\n")
        fatal = isinstance(error, errors.ConfigurationError | errors.UnrecoverableError)
        raise typer.Exit(error.exit_code if fatal else EXIT_ERROR) from None
    finally:
        printer.flush()


def _what_follows(error: BaseException, job: NewJob, plan: CrewPlan) -> str:
    match error:
        case errors.Retry():
            return f"a worker would retry the job after {error.after:g} s, {job.max_attempts} attempts at most"
        case errors.GiveUp() | errors.PayloadError():
            return "in a worker the job would fail without a retry"
        case errors.ConfigurationError() | errors.UnrecoverableError():
            return "a worker would exit and be given up; the job would stay queued"
        case _ if perform.is_hopeless(error, {"retry_on": plan.retry_on, "give_up_on": plan.give_up_on}):
            return "in a worker the job would fail without a retry, by retry_on or give_up_on of the crew"
        case _:
            return f"a worker would run the job {job.max_attempts} times, then the job would fail"
