"""The crews and job types. Imported by the API, the command line and tests; must not import the handlers."""

from dataclasses import dataclass
from typing import Any

from chargehand import Chargehand


@dataclass
class Song:
    title: str
    seconds: float


@dataclass
class Loudness:
    title: str
    db: float


hand = Chargehand()  # the store is chargehand.db next to this module, or the value of CHARGEHAND_URL
measure = hand.crew("measure", "examples.demo.handlers:Measure", takes=Song, gives=Loudness, workers=2)
picture = hand.crew("picture", "examples.demo.handlers:Picture", takes=dict[str, Any], gives=str, workers=1)
