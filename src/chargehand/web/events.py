"""`GET /api/events`: whoever looks gets the full state of its topics, and then every change."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import Response

from chargehand.errors import TopicError
from chargehand.model.topic import parse
from chargehand.web import sse
from chargehand.web.common import READ, router
from chargehand.web.problems import Problem

if TYPE_CHECKING:
    from chargehand.web.site import Site

routes = router("events")
_DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The stream."},
}


def include(api: FastAPI, site: "Site") -> None:
    """Serve the events of this site."""
    sse.serve(site)
    api.include_router(routes)


@routes.get("/api/events", dependencies=READ, response_class=Response, responses=_DOCUMENTED)
async def events(
    request: Request,
    topics: Annotated[
        list[str] | None, Query(description="Topics, separated by commas; none: everything but the jobs.")
    ] = None,
    last_event_id: Annotated[str | None, Query(description="As the header, for those who cannot set one.")] = None,
    last_event_id_header: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Live state as server-sent events: the full state of the topics first (or what is newer than the last id), then
    every change. Topics and events are described in docs/events.md."""
    site: Site = request.app.state.site
    wanted = [topic for text in topics or () for topic in text.split(",") if topic]
    try:
        patterns = parse(wanted)
    except TopicError as error:
        raise Problem(400, "unknown-topic", str(error)) from error
    return sse.EventStream(site.hand, patterns, last_event_id_header or last_event_id)
