"""The application of the dashboard's tests and screenshots: one crew reports progress, one fails on request."""

import os

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from chargehand import Chargehand, Page, RestartPolicy

FAULTY = "chargehand.testing.faults:Faulty"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

SONGS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Songs</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/chargehand/dashboard/chargehand.css">
<script type="module" src="/songs.js"></script></head>
<body><header class="bar-top"></header><main><h1>Songs</h1><div class="card" id="songs"></div></main></body></html>
"""
SCRIPT = """
import { progress, state } from "/chargehand/dashboard/frame.js";
document.getElementById("songs").append(state("busy"), progress(0.5, "Songs heard"));
"""


hand = Chargehand(
    os.environ.get("CHARGEHAND_URL"), restart=RestartPolicy(first_pause=0.01, longest_pause=0.5, rapid_limit=2)
)
steps = hand.crew("steps", "dashboard_handlers:Steps", workers=int(os.environ.get("DASH_WORKERS", "2")), max_attempts=1)
faults = hand.crew("faults", FAULTY, workers=1, max_attempts=1)
if "DASH_SCENES" in os.environ:
    hand.crew("scenes", "dashboard_handlers:Steps", workers=int(os.environ["DASH_SCENES"]), max_attempts=1)
hand.recurring("nightly scan", steps, {"steps": 1, "seconds": 0}, cron="0 3 * * *")
hand.pages.append(Page("Songs", "/songs"))

app = FastAPI()
hand.attach(app)


@app.get("/songs")
def songs() -> Response:
    """A page of the application's own, in the same look."""
    policy = {"Content-Security-Policy": "default-src 'self'; require-trusted-types-for 'script'"}
    return HTMLResponse(SONGS, headers=policy)


@app.get("/songs.js")
def script() -> Response:
    return Response(SCRIPT, media_type="text/javascript")
