"""`chargehand wake`: makes a discovering crew look for work at once."""

from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.errors import ConfigurationError, UnknownCrew
from chargehand.live.components import GONE


def wake(
    crew: Annotated[str, typer.Argument(help="A crew that is declared discovers=True.")],
    app: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Make a discovering crew look for work at once, instead of at its next interval."""
    service = find.service(app, store)
    declared = {} if app is None else find.application(app).crews
    names = sorted({row.name for row in service.known_crews()} | set(declared))
    if crew not in names:
        known = ", ".join(names) or "none yet; a node registers them when it starts"
        raise UnknownCrew(f"there is no crew {crew!r}; there are: {known}")
    if crew in declared and not declared[crew].plan.discovers:
        raise ConfigurationError(f"crew {crew!r} is not declared discovers=True: it cannot look for work")
    node = service.status() is not None or any(each.status != GONE for each in service.nodes())
    find.application(app).wake(crew) if app is not None else service.wake(crew)
    if json:
        show.json({"crew": crew, "told": node})
    else:
        text = "looks for work now" if node else "no node runs; the next one looks for work when it starts"
        show.line(f"{show.safe(crew)}: {text}")
