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
tag = hand.crew(
    "tag", "runnable_handlers:Tagger", takes=Song, gives=Labels, environment={"MODEL": "m{index}"}, threads=3
)
late = hand.crew("late", "runnable_handlers:Late", takes=Song, gives=float)
settles = hand.crew("settles", "runnable_handlers:Settler", transactional=True)
refused = hand.crew("refused", "runnable_handlers:Settler")
does = hand.crew("does", "runnable_handlers:Doer", max_attempts=4)
rows = hand.crew("rows", "runnable_handlers:Rows", discovers=True)
lies = hand.crew("lies", "runnable_handlers:Liar", takes=object, gives=Labels)
unready = hand.crew("unready", "runnable_handlers:Unready")
unlicensed = hand.crew("unlicensed", "runnable_handlers:Unlicensed")

wrong = Chargehand("unused")
wrong.crew("fine", "runnable_handlers:Tagger", takes=Song, gives=Labels)
wrong.crew("loose", "runnable_handlers:Doer", takes=dict)
wrong.crew("types", "runnable_handlers:Late", takes=Labels, gives=int)
wrong.crew("twin", "runnable_handlers:Twin", takes=Song)
wrong.crew("blind", "runnable_handlers:Doer", discovers=True)
wrong.crew("missing", "no_such_module:Handler")
wrong.crew("idle", "runnable_handlers:Idle")
wrong.crew("raises", "broken_import:Handler", environment={"HOW": "raise"})
wrong.crew("dies", "broken_import:Handler", environment={"HOW": "die"})

slow = Chargehand("unused")
slow.crew("slow", "broken_import:Handler", environment={"HOW": "hang"})
slow.crew("hosts", "broken_import:Handler", environment={"HOW": "host"})

ready = Chargehand("unused")
ready.crew("late", "runnable_handlers:Late", takes=Song, gives=float)
ready.crew("unready", "runnable_handlers:Unready")
