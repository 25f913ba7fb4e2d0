"""An application with events for the tests: a crew that says how far it is, served by uvicorn."""

import os

from crewapp import chargehand
from fastapi import FastAPI
from starlette.responses import Response

if "CHARGEHAND_URL" in os.environ:
    hand = chargehand("unused")
    step = hand.crew("step", "crewhands_steps:Stepper", workers=2, max_attempts=1)
    app = FastAPI()
    hand.attach(app)

    @app.get("/follow/{job_id}")
    async def follow(job_id: str) -> Response:
        return step.ref(job_id).sse()
