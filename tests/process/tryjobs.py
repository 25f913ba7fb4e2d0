"""An application for `chargehand run` and `check`; its store is named by CHARGEHAND_URL. It imports no handler."""

from dataclasses import dataclass

from chargehand import Chargehand


@dataclass
class Song:
    path: str
    seconds: float = 0


@dataclass
class Labels:
    scores: dict[str, float]


hand = Chargehand("unused")
tag = hand.crew("tag", "tryhands:Tagger", takes=Song, gives=Labels, environment={"MODEL": "m{index}"}, threads=3)
late = hand.crew("late", "tryhands:Late", takes=Song, gives=float)
settles = hand.crew("settles", "tryhands:Settler", transactional=True)
refused = hand.crew("refused", "tryhands:Settler")
does = hand.crew("does", "tryhands:Doer", max_attempts=4)
rows = hand.crew("rows", "tryhands:Rows", discovers=True)
lies = hand.crew("lies", "tryhands:Liar", takes=object, gives=Labels)
unready = hand.crew("unready", "tryhands:Unready")

wrong = Chargehand("unused")
wrong.crew("fine", "tryhands:Tagger", takes=Song, gives=Labels)
wrong.crew("loose", "tryhands:Doer", takes=dict)
wrong.crew("types", "tryhands:Late", takes=Labels, gives=int)
wrong.crew("twin", "tryhands:Twin", takes=Song)
wrong.crew("blind", "tryhands:Doer", discovers=True)
wrong.crew("missing", "no_such_module:Handler")
wrong.crew("idle", "tryhands:Idle")
wrong.crew("raises", "tryhands_bad:Handler", environment={"HOW": "raise"})
wrong.crew("dies", "tryhands_bad:Handler", environment={"HOW": "die"})

slow = Chargehand("unused")
slow.crew("slow", "tryhands_bad:Handler", environment={"HOW": "hang"})
slow.crew("hosts", "tryhands_bad:Handler", environment={"HOW": "host"})

ready = Chargehand("unused")
ready.crew("late", "tryhands:Late", takes=Song, gives=float)
ready.crew("unready", "tryhands:Unready")
