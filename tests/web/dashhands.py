"""An application for the dashboard's tests and pictures: crews that work, wait, fail and die as they are told."""

import os
from typing import Any

from fastapi import FastAPI

from chargehand import Chargehand, GiveUp, Handler, Job, Page, RestartPolicy, clock, handler

FAULTY = "chargehand.testing.faults:Faulty"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


class Steps(Handler[dict[str, Any], Any]):
    """Goes so many steps, each so long, and tells how far it is."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        steps = int(job.payload.get("steps", 10))
        for step in range(steps):
            job.progress(step, steps, stage=job.payload.get("stage", "decode"), detail=job.payload.get("detail"))
            clock.sleep(float(job.payload.get("seconds", 0.05)))
        if "hopeless" in job.payload:
            raise GiveUp(job.payload["hopeless"])
        if "error" in job.payload:
            raise RuntimeError(job.payload["error"])
        return {"steps": steps}


hand = Chargehand(
    os.environ.get("CHARGEHAND_URL"), restart=RestartPolicy(first_pause=0.01, longest_pause=0.5, rapid_limit=2)
)
steps = hand.crew("steps", "dashhands:Steps", workers=int(os.environ.get("DASH_WORKERS", "2")), max_attempts=1)
faults = hand.crew("faults", FAULTY, workers=1, max_attempts=1)
hand.pages.append(Page("Songs", "/songs"))

if not handler.inside_worker:
    app = FastAPI()
    hand.attach(app)
