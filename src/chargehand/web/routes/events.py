"""`GET /api/events`: streams the full state of the requested topics, and then every change."""

from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response

from chargehand.model.topic import LONGEST, parse
from chargehand.web import sse
from chargehand.web.answers import EVENTS
from chargehand.web.auth import still_allowed
from chargehand.web.deps import READ, Here, router
from chargehand.web.documents import also
from chargehand.web.site import Site

routes = router("events")
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "An endless stream of events. The schema is that of the data of one event.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": {"oneOf": also(*EVENTS)},
                },
                "example": 'id: 0199c0ffee-17\nevent: health_update\ndata: {"topic":"system:health",'
                '"type":"health_update","timestamp_ms":1790000000000,"health":{"status":"healthy","errors":[]}}\n\n',
            }
        },
    }
}
Topics = Annotated[
    list[Annotated[str, Query(max_length=100 * LONGEST)]] | None,
    Query(description="Topics, separated by commas. Default: all topics except jobs and flows.", max_length=100),
]
Last = Annotated[str | None, Query(max_length=200, description="An alternative to the header Last-Event-ID.")]
LastHeader = Annotated[str | None, Header(alias="Last-Event-ID", max_length=200)]


def include(api: FastAPI, site: Site) -> None:
    """Adds the route, and makes streams end when the site closes."""
    sse.serve(site)
    api.include_router(routes)


@routes.get("/api/events", dependencies=READ, response_class=Response, responses=_STREAM)
async def events(
    request: Request, site: Here, topics: Topics = None, last_event_id: Last = None, header: LastHeader = None
) -> Response:
    """Streams server-sent events: first the full state of the topics (or the changes since the last id), then every
    change. A comment is sent every 15 s without events. A stream whose key is revoked sends nothing after a second,
    and ends within 15 s. Topics and events are described in docs/events.md."""
    wanted = [topic for text in topics or () for topic in text.split(",") if topic]
    return sse.EventStream(
        site.hand.internal, parse(wanted), header or last_event_id, allowed=lambda: still_allowed(request, "read")
    )
