"""The light part: what there is to do. The API, the command line and tests import this, and no handler."""

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


hand = Chargehand()  # its store is the file chargehand.db beside this module, or what CHARGEHAND_URL names
measure = hand.crew("measure", "examples.demo.handlers:Measure", takes=Song, gives=Loudness, workers=2)
picture = hand.crew("picture", "examples.demo.handlers:Picture", takes=dict[str, Any], gives=str, workers=1)
