"""`chargehand run`: one job in the foreground, in this very process, where a debugger works."""

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from chargehand import clock, codec, errors, handler
from chargehand.cli import show
from chargehand.cli.check import App
from chargehand.cli.find import application
from chargehand.cli.jobs import standard_input
from chargehand.crew import Crew
from chargehand.errors import EXIT_ERROR, EXIT_SET_UP, ConfigurationError, PayloadError
from chargehand.model.job import NewJob
from chargehand.settings.plan import CrewPlan
from chargehand.worker import perform, thread_cap
from chargehand.worker.foreground import Foreground, LocalContext

REST = 0.1
"""Seconds between two lines of progress."""


class Teller:
    """Says on standard error what the job says; of progress, which may come often, now and then a line."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._kept: str | None = None

    def __call__(self, text: str) -> None:
        now = clock.monotonic()
        if text.startswith("progress: "):
            if now - self._last < REST:
                self._kept = text
                return
            self._last = now
        self._say(text)

    def flush(self) -> None:
        """The newest progress, if it was not told yet."""
        if self._kept is not None:
            self._say(self._kept)

    def _say(self, text: str) -> None:
        self._kept = None
        sys.stderr.write(f"{show.safe(text)}\n")
        sys.stderr.flush()


def run(
    app: App,
    crew: Annotated[str, typer.Argument(help="The crew whose handler is to perform it.")],
    payload: Annotated[
        str | None,
        typer.Argument(help="JSON; - reads it from standard input, which a debugger then cannot. Otherwise null."),
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="For crews that discover: the item's key. Without a payload, discover is asked.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Keep what job.settle writes, and enqueue what job.enqueue names.")
    ] = False,
) -> None:
    """Perform one job here and now, without a node: nothing is queued, breakpoint() works.

    The result goes to standard output as JSON, progress to standard error. What the handler writes in job.settle is
    taken back unless --commit is given; what it writes elsewhere is written.

    Exit status 1 if it raises, 5 if its set-up does.
    """
    hand = application(app)
    known = hand.find_crew(crew)
    plan = known.plan
    if plan.discovers and item is None and payload is None:
        raise ConfigurationError(f"crew {crew!r} discovers its items: name one with --item KEY, or give a payload")
    job = None if payload is None else _job(known, standard_input() if payload == "-" else payload)
    os.environ.update(plan.environment_of(0))
    handler.inside_worker = True
    thread_cap.cap(plan.threads)
    tell = Teller()
    here = _set_up(plan)
    try:
        if job is None:
            job = _job(known, "null") if item is None else _discovered(known, here, item)
        crews = {name: each.plan for name, each in hand.crews.items()}
        desk = LocalContext(hand, crew=plan, crews=crews, commit=commit, report=tell)
        text = _perform(here, job, item, desk, tell)
        show.json(codec.from_json(text, None, "the result"))
        sys.stdout.flush()
    finally:
        here.tear_down()
        hand.close()
    try:
        codec.from_json(text, known.gives, "the result")
    except PayloadError as error:
        raise PayloadError(f"{error}: the job would be done, but whoever waits for it gets this error") from error


def _job(crew: Crew[Any, Any], text: str, label: str | None = None) -> NewJob:
    """The job as it would be enqueued."""
    value = codec.from_json(text, crew.takes, f"the payload for crew {crew.name!r}")
    return crew.new_job(value) if label is None else crew.new_job(value, label=label)


def _discovered(crew: Crew[Any, Any], here: Foreground, key: str) -> NewJob:
    if not perform.has_own(type(here.handler), "discover"):
        raise ConfigurationError(f"handler {crew.plan.handler!r} has no discover(after, limit): give a payload, too")
    found = here.find(key)
    if found is None:
        raise ConfigurationError(
            f"discover does not name {key!r}: it says that it needs no work; to perform it all the same, give a payload"
        )
    return _job(crew, codec.to_json(found.get("payload"), f"the payload of item {key!r}"), found.get("label"))


def _set_up(plan: CrewPlan) -> Foreground:
    here: Foreground | None = None
    try:
        here = Foreground(perform.load(plan.handler, plan.batch)())
        here.handler.threads = plan.threads
        here.set_up()
    except errors.ChargehandError:
        raise
    except Exception:
        traceback.print_exc()
        sys.stderr.write(f"chargehand: the handler could not be {'imported' if here is None else 'set up'}\n")
        raise typer.Exit(EXIT_SET_UP) from None
    return here


def _perform(here: Foreground, job: NewJob, item: str | None, desk: LocalContext, tell: Teller) -> str:
    taken = here.payload_of(job.payload, f"the payload of job {job.id}")
    try:
        return here.perform(taken, desk, id=job.id, queue=job.queue, label=job.label, item=item)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit(), too, is the job's own failure
        tell.flush()
        traceback.print_exc()
        sys.stderr.write(f"chargehand: {show.safe(_what_follows(error, job))}\n")
        fatal = isinstance(error, errors.ConfigurationError | errors.UnrecoverableError)
        raise typer.Exit(error.exit_code if fatal else EXIT_ERROR) from None
    finally:
        tell.flush()


def _what_follows(error: BaseException, job: NewJob) -> str:
    match error:
        case errors.Retry():
            return f"a worker would try it again after {error.after:g} s, {job.max_attempts} times at most"
        case errors.GiveUp() | errors.PayloadError():
            return "a worker would fail the job for good"
        case errors.ConfigurationError() | errors.UnrecoverableError():
            return "a worker would end, and be given up; the job would wait"
        case _:
            return f"a worker would try it {job.max_attempts} times in all, then fail the job"
