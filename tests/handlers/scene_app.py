"""The application of the scenes: seven crews, of which some are broken on purpose; SCENE_CREWS makes it large."""

import os

from fastapi import FastAPI

from chargehand import Chargehand, RestartPolicy

WORK = "scene_handlers:Work"

hand = Chargehand(
    os.environ.get("CHARGEHAND_URL"), restart=RestartPolicy(first_pause=0.05, longest_pause=2.0, rapid_limit=3)
)
if "SCENE_CREWS" in os.environ:
    for number in range(int(os.environ["SCENE_CREWS"])):
        hand.crew(f"crew-{number:02}", WORK, workers=int(os.environ.get("SCENE_WORKERS", "2")), max_attempts=1)
else:
    hand.crew("thumbs", WORK, workers=4, max_attempts=1, limit=20, rate="1200/min")
    hand.crew("render", WORK, workers=2, max_attempts=1)
    paced = os.environ.get("SCENE") == "paced"
    hand.crew("mail", WORK, workers=1, max_attempts=1, rate="6/min" if paced else None)
    if paced:
        hand.crew("calls", "scene_handlers:Call", workers=2, concurrency=40, limit=60, max_attempts=1)
    hand.crew("transcode", WORK, workers=2)
    if os.environ.get("SCENE") == "import":
        hand.crew("broken", "scene_handlers:Absent", workers=1)
    if os.environ.get("SCENE") is None:
        hand.crew("embed", "scene_handlers:Embed", workers=2)
        hand.crew("native", "scene_handlers:Native", workers=2)

if os.environ.get("SCENE") == "schedules":
    thumbs, render = hand.crews["thumbs"], hand.crews["render"]
    hand.recurring("heartbeat", thumbs, {"steps": 3, "seconds": 0.02}, every=1)
    hand.recurring("sometimes fails", thumbs, {"steps": 2, "sometimes": "no such host: mirror.example"}, every=1)
    hand.recurring("nightly scan", render, {"steps": 40}, cron="0 3 * * *", zone="Europe/Berlin")
    hand.recurring("monthly invoices of all customers in every region", hand.crews["mail"], cron="30 6 1 * mon-fri")

app = FastAPI()
hand.attach(app)
