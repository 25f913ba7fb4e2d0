"""Why nothing is happening, and what was said last."""

from typing import Annotated

import msgspec
from fastapi import Query, Response

from chargehand.model.doctor.diagnosis import Diagnosis
from chargehand.web import examples
from chargehand.web.answers import Diagnosed, LogLine, LogLines
from chargehand.web.deps import READ, Here, Text, router
from chargehand.web.documents import answers, respond

MOST_LINES = 2000
routes = router("system")


@routes.get("/api/v1/doctor", dependencies=READ, responses=answers(Diagnosed, examples.DIAGNOSED))
async def doctor(site: Here) -> Response:
    """What is the matter: one sentence, then each cause with what mends it, gravest and likeliest first."""
    found: Diagnosis = await site.diagnosis.get()
    return respond(Diagnosed(well=found.well, **msgspec.structs.asdict(found)))


@routes.get("/api/v1/logs", dependencies=READ, responses=answers(LogLines, examples.LOG_LINES))
async def logs(
    site: Here,
    scope: Text = None,
    job: Text = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LINES, description="How many lines, the newest.")] = 100,
) -> Response:
    """The node's last log lines, oldest first: of a crew, a worker, a job, or all. Empty if no node answers."""

    def read() -> LogLines:
        if site.hand.status() is None:
            return LogLines(())
        found = site.hand.logs(scope or None, job=job or None, count=limit)
        return LogLines(tuple(msgspec.convert(line, LogLine) for line in found))

    return respond(await site.aside(read))
