"""The crews, and the types of their jobs. Keep this module light: the API, the command line and the tests import it."""

from pydantic import BaseModel

from chargehand import Chargehand


class Text(BaseModel):
    """The payload of a job."""

    text: str


class Words(BaseModel):
    """The result of a job."""

    counts: dict[str, int]


hand = Chargehand()  # the store is chargehand.db beside this file, unless CHARGEHAND_URL is set
count = hand.crew("count", "handlers:Counter", takes=Text, gives=Words, timeout=300)
