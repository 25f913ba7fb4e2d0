"""The handler of the crew `upkeep`. Imported by its worker; imports no media library.

Its jobs are the ends of flows, a recurring one, and calls of the webhook. A film whose deletion is wished is deleted
when its flow has ended; of every other film the end is recorded. The calls have the least priority, so that a receiver
that does not answer delays no deletion.
"""

import json
import logging
import urllib.request
from typing import Any
from urllib.error import HTTPError, URLError

import msgspec

from adreel import crews, settings
from adreel.errors import NoSuchFilm
from adreel.service import Service
from chargehand import FlowNotFound, Handler, Job, JobFilter, Retry, State

PATIENCE = 10.0
"""Seconds for which the receiver of the webhook may be silent before it has answered."""
WHOLE = 15.0
"""Seconds that a call may take in all: a receiver whose answer never ends must not keep the worker from other jobs."""
FIRST_WAIT = 5.0
LAST = -1000
"""The priority of calls."""
QUEUE = "upkeep"
SWEEP_EVERY = 60
"""The number of tidy jobs between two searches for files that belong to no film."""
log = logging.getLogger("adreel")


class Upkeep(Handler[dict[str, Any], dict[str, Any]]):
    """Records ends, calls the webhook, completes deletions, and removes what has expired."""

    def set_up(self) -> None:
        """Opens the catalogue."""
        found = settings.read()
        self._service = Service.on(found, crews.build(found))
        self._tidied = 0

    def perform(self, job: Job[dict[str, Any]]) -> dict[str, Any]:
        """Performs one of the three kinds of jobs."""
        if job.payload.get("tidy"):
            return self._tidy()
        if "call" in job.payload:
            return self._call(job, str(job.payload["call"]), int(job.payload["end"]))
        return self._ended(job, str(job.payload["flow"]), int(job.payload.get("end", 1)))

    def _tidy(self) -> dict[str, Any]:
        done: dict[str, Any] = dict(self._service.tidy())
        if self._tidied % SWEEP_EVERY == 0:
            done["swept"] = len(self._service.sweep())
        self._tidied += 1
        # The jobs of this crew name films, which may be deleted by now.
        self._service.crews.hand.clear(JobFilter(queue=QUEUE, state=State.DONE, older_ms=60_000))
        return done

    def _ended(self, job: Job[dict[str, Any]], flow_id: str, end: int) -> dict[str, Any]:
        service = self._service
        row = service.films.of_flow(flow_id)
        if row is None:
            return {"film": None}
        if row.deleting_ms is not None:
            return {"deleted": service.finish_deletion(row)}
        try:
            flow = service.crews.hand.find_flow(flow_id)
            record = flow.status()
        except FlowNotFound:
            return {"film": None}
        if record.ends == end and record.ended_ms is not None:
            row = service.settle(row, flow, record)
            if service.settings.webhook is not None:
                call = {"call": row.id, "end": end}
                job.enqueue(service.crews.upkeep, call, priority=LAST, timeout=WHOLE, flow=None, tags=[row.id])
        return {"film": row.id, "state": row.state}

    def _call(self, job: Job[dict[str, Any]], film: str, end: int) -> dict[str, Any]:
        """Calls the webhook. Raises Retry, so that the call is repeated until it succeeds, or the attempts end."""
        url = self._service.settings.webhook
        if url is None:
            return {"film": film, "called": False}
        try:
            view = msgspec.to_builtins(self._service.get(film, result=False))
        except NoSuchFilm:
            return {"film": None}
        body = json.dumps({"event": "ended", "end": end, "job": view}).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "adreel", "Idempotency-Key": f"{film}-{end}"}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=PATIENCE):
                return {"film": film, "called": True}
        except HTTPError as error:
            why = f"the webhook answered {error.code}"
        except (URLError, OSError) as error:
            why = f"the webhook cannot be reached: {error}"
        log.warning("the webhook failed", extra={"why": why, "film": film})
        raise Retry(FIRST_WAIT * 2 ** min(job.attempt, 6), why)
