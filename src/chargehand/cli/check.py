"""`chargehand check`: imports every handler in a process of its own, and compares it with its crew."""

import sys
from typing import Annotated, Any

import typer

from chargehand.cli import ask, find, show
from chargehand.crew import Crew
from chargehand.errors import EXIT_CONFIGURATION, ConfigurationError
from chargehand.host.check import examine
from chargehand.worker.check import described


def check(
    app: find.RequiredApp,
    crew: Annotated[list[str] | None, typer.Option(help="Only this crew; may be repeated.")] = None,
    set_up: Annotated[bool, typer.Option("--set-up", help="Also call set_up and tear_down.")] = False,
    limit: Annotated[float, typer.Option(help="Seconds allowed for each crew.", min=1)] = 300,
    json: find.Json = False,
) -> None:
    """Import the handler of every crew as its workers would, and compare its types with those of the crew.

    Exit status 2 if something is wrong.
    """
    hand = find.application(app)
    hand.check_settings()
    crews = [hand.find_crew(name) for name in crew] if crew else list(hand.crews.values())
    if not crews:
        raise ConfigurationError(f"{app!r} has no crew: declare one with hand.crew(name, 'module:Class')")
    found = [_examined(each, set_up, limit) for each in crews]
    if json:
        show.json(found)
    else:
        _table(found, set_up)
    if any(each["wrong"] for each in found):
        raise typer.Exit(EXIT_CONFIGURATION)


def _examined(crew: Crew[Any, Any], set_up: bool, limit: float) -> dict[str, Any]:
    plan = crew.plan
    ask.progress(f"{show.safe(plan.name)}: importing {show.safe(plan.handler)} …")
    about = {
        "handler": plan.handler, "discovers": plan.discovers, "threads": plan.threads, "python_path": list(sys.path),
        "set_up": set_up, "batch": plan.batch, "concurrency": plan.concurrency, "takes": described(crew.takes),
        "gives": described(crew.gives),
    }  # fmt: skip
    found = examine(about, plan.environment_of(0), limit)
    ask.progress("")
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
