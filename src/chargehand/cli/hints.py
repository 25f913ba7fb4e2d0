"""Hints on standard error about names in filters that select nothing because nothing has them."""

import sys
from collections.abc import Iterable

from chargehand.cli import find, show
from chargehand.errors import FlowNotFound, JobNotFound
from chargehand.host.service import Service
from chargehand.model.spelling import nearest


def about_queue(service: Service, app: str | None, queue: str | None) -> None:
    """Writes a hint if no crew and no job has this queue."""
    if queue is not None:
        known = {each.queue for each in (*service.counts(), *service.known_crews())}
        declared = {crew.plan.queue for crew in find.application(app).crews.values()} if app is not None else set[str]()
        _unless_known(f"no crew and no job has the queue {queue!r}", queue, known | declared)


def about_crew(service: Service, app: str | None, crew: str | None) -> None:
    """Writes a hint if there is no such crew."""
    if crew is not None:
        known = {each.name for each in service.known_crews()}
        _unless_known(f"there is no crew {crew!r}", crew, known | set(find.application(app).crews if app else ()))


def about_job(service: Service, job: str | None) -> None:
    """Writes a hint if there is no such job."""
    if job is not None:
        try:
            service.job(job)
        except JobNotFound as error:
            _write(str(error))


def about_flow(service: Service, flow: str | None) -> None:
    """Writes a hint if there is no such flow."""
    if flow is not None:
        try:
            service.flow(flow)
        except FlowNotFound as error:
            _write(str(error))


def searched(since_ms: int | None) -> None:
    """Writes a hint if a search did not come to its end."""
    if since_ms is not None:
        far = f"the search was stopped after a second, at jobs that were created {show.ago(since_ms)}"
        _write(f"{far}; a filter with a queue, a state, a tag or since: finds all")


def _unless_known(text: str, name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name not in names:
        _write(f"{text}; there are: {', '.join(names) or 'none yet'}{nearest(name, names)}")


def _write(text: str) -> None:
    sys.stderr.write(f"hint: {show.safe(text)}\n")
