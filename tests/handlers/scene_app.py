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
    hand.crew("mail", WORK, workers=1, max_attempts=1)
    hand.crew("transcode", WORK, workers=2)
    if os.environ.get("SCENE") != "well":
        hand.crew("embed", "scene_handlers:Embed", workers=2)
        hand.crew("native", "scene_handlers:Native", workers=2)

app = FastAPI()
hand.attach(app)
