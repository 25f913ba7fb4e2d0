"""`chargehand check`: every handler imported in a process of its own, and compared with its crew."""

import sys
from typing import Annotated, Any

import typer

from chargehand.app import Chargehand
from chargehand.cli import ask, find, show
from chargehand.crew import Crew
from chargehand.errors import EXIT_CONFIGURATION, ConfigurationError
from chargehand.host.check import examine
from chargehand.worker.check import described

App = Annotated[str, typer.Argument(help="The application, as module:object.", metavar="APP")]


def check(
    app: App,
    crew: Annotated[list[str] | None, typer.Option(help="Only this crew; can be given again.")] = None,
    set_up: Annotated[bool, typer.Option("--set-up", help="Call set_up and tear_down, too: load the models.")] = False,
    limit: Annotated[float, typer.Option(help="Seconds that one crew may take.", min=1)] = 300,
    json: find.Json = False,
) -> None:
    """Import every crew's handler as its workers would, and compare its types with the crew's.

    Exit status 2 if something is wrong.
    """
    hand = find.application(app)
    crews = [hand.find_crew(name) for name in crew] if crew else list(hand.crews.values())
    if not crews:
        raise ConfigurationError(f"{app!r} has no crew: declare one with hand.crew(name, 'module:Class')")
    found = [_look(hand, each, set_up, limit) for each in crews]
    if json:
        show.json(found)
    else:
        _table(found, set_up)
    if any(each["wrong"] for each in found):
        raise typer.Exit(EXIT_CONFIGURATION)


def _look(hand: Chargehand, crew: Crew[Any, Any], set_up: bool, limit: float) -> dict[str, Any]:
    plan = crew.plan
    ask.so_far(f"{show.safe(plan.name)}: importing {show.safe(plan.handler)} …")
    about = {
        "handler": plan.handler, "discovers": plan.discovers, "threads": plan.threads, "python_path": list(sys.path),
        "set_up": set_up, "batch": crew.plan.batch, "takes": described(crew.takes), "gives": described(crew.gives),
    }  # fmt: skip
    found = examine(about, plan.environment_of(0), limit)
    ask.so_far("")
    nothing = {"seconds": None, "memory": None, "set_up_seconds": None}
    return {"crew": plan.name, "handler": plan.handler, "ok": not found["wrong"], **nothing, **found}


def _table(found: list[dict[str, Any]], set_up: bool) -> None:
    columns = ["CREW", "HANDLER", "OK", "IMPORT", "MEMORY", *(["SET-UP"] if set_up else []), "WHAT IS WRONG"]
    rows: list[list[Any]] = []
    for each in found:
        took, loaded, memory = each["seconds"], each["set_up_seconds"], each["memory"]
        row = [each["crew"], each["handler"], "yes" if each["ok"] else "no", None if took is None else f"{took:.2f} s"]
        row.append(None if memory is None else f"{memory / 2**20:.0f} MiB")
        if set_up:
            row.append(None if loaded is None else f"{loaded:.2f} s")
        rows.append([*row, "; ".join(each["wrong"]) or None])
    show.table(columns, rows)
