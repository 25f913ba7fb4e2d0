"""`chargehand wake`: has a discovering crew look for work at once."""

from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.errors import ConfigurationError, UnknownCrew


def wake(
    crew: Annotated[str, typer.Argument(help="A crew that is declared discovers=True.")],
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Have a discovering crew look at once for what needs work, instead of in a while."""
    hand = find.chargehand(app, store)
    names = sorted({row.name for row in hand.known_crews()} | set(hand.crews))
    if crew not in names:
        known = ", ".join(names) or "none yet; a node writes them when it starts"
        raise UnknownCrew(f"there is no crew {crew!r}; there are: {known}")
    if crew in hand.crews and not hand.crews[crew].plan.discovers:
        raise ConfigurationError(f"crew {crew!r} is not declared discovers=True: it has nothing to look for")
    node = hand.status() is not None
    hand.wake(crew)
    text = "looks now" if node else "no node runs; one that starts looks first"
    if json:
        show.json({"crew": crew, "told": node})
    else:
        show.line(f"{show.safe(crew)}: {text}")
