"""An application that uvicorn serves, with a route that streams the events of a job."""

import os

from fastapi import FastAPI
from scripted_app import chargehand
from starlette.responses import Response

if "CHARGEHAND_URL" in os.environ:
    hand = chargehand("unused")
    step = hand.crew("step", "progress_handlers:Stepper", workers=2, max_attempts=1)
    app = FastAPI()
    hand.attach(app)

    @app.get("/follow/{job_id}")
    async def follow(job_id: str) -> Response:
        return step.ref(job_id).sse()
