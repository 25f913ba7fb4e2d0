"""The handler of the dashboard's application. Workers import this module; it imports no web framework."""

import sys
from typing import Any

from chargehand import GiveUp, Handler, Job, clock


class Steps(Handler[dict[str, Any], Any]):
    """Goes so many steps, each so long, and tells how far it is."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        steps = int(job.payload.get("steps", 10))
        for step in range(steps):
            job.progress(step, steps, stage=job.payload.get("stage", "decode"), detail=job.payload.get("detail"))
            clock.sleep(float(job.payload.get("seconds", 0.05)))
        if "say" in job.payload:
            sys.stdout.write(f"{job.payload['say']}\n")
        if "hopeless" in job.payload:
            raise GiveUp(job.payload["hopeless"])
        if "error" in job.payload:
            raise RuntimeError(job.payload["error"])
        return {"steps": steps}
