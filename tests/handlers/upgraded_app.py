"""An application that runs unchanged with the last release and this one: public API only, settings in files."""

from dataclasses import dataclass

from chargehand import Chargehand


@dataclass
class Text:
    text: str
    gate: str | None = None


@dataclass
class Said:
    text: str
    package: str


hand = Chargehand()
say = hand.crew("say", "upgraded_handlers:Say", takes=Text, gives=Said)
keep = hand.crew("keep", "upgraded_handlers:Keep", transactional=True)
fail = hand.crew("fail", "upgraded_handlers:Fail", max_attempts=1)
hand.recurring("hourly", say, Text("hourly"), every=3600)
