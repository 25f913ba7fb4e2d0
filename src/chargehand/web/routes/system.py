"""Routes of the diagnosis and the log."""

from typing import Annotated

import msgspec
from fastapi import Query, Response

from chargehand.model.doctor.diagnosis import Diagnosis
from chargehand.web import examples
from chargehand.web.answers import Diagnosed, LogLine, LogLines
from chargehand.web.deps import READ, Here, Text, router
from chargehand.web.documents import answers, respond

MOST_LINES = 2000
EXAMINED_EVERY = 1.0
"""Seconds from one examination to the next, at least. Each caller gets one that began after its request: the page asks
because something has changed."""
routes = router("system")


@routes.get("/api/v1/doctor", dependencies=READ, responses=answers(Diagnosed, examples.DIAGNOSED))
async def doctor(site: Here) -> Response:
    """Returns the diagnosis: a headline, and the causes with their remedies, most severe and most likely first."""
    found: Diagnosis = await site.diagnosis.get_newer(EXAMINED_EVERY)
    return respond(Diagnosed(well=found.well, **msgspec.structs.asdict(found)))


@routes.get("/api/v1/logs", dependencies=READ, responses=answers(LogLines, examples.LOG_LINES, 404))
async def logs(
    site: Here,
    scope: Text = None,
    job: Text = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LINES, description="The number of lines.")] = 100,
) -> Response:
    """Returns the last log lines of the nodes, a crew, a worker or a job, oldest first; none if no node answers."""

    def read() -> LogLines:
        if site.hand.status() is None and not site.hand.internal.reach.elsewhere():
            return LogLines(())
        found = site.hand.logs(scope or None, job=job or None, count=limit)
        return LogLines(tuple(msgspec.convert(line, LogLine) for line in found))

    return respond(await site.in_thread(read))
