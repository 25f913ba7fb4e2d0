"""What there is to do. Light: the API, the command line and the tests import this."""

from pydantic import BaseModel

from chargehand import Chargehand


class Text(BaseModel):
    """What a job is given."""

    text: str


class Words(BaseModel):
    """What comes out of it."""

    counts: dict[str, int]


hand = Chargehand()  # its store is chargehand.db beside this file, or what CHARGEHAND_URL names
count = hand.crew("count", "handlers:Counter", takes=Text, gives=Words, timeout=300)
