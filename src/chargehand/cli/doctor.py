"""`chargehand doctor`: the reasons why jobs are not processed, each with its remedy."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.doctor import bundle, examine
from chargehand.errors import EXIT_ERROR, ConfigurationError
from chargehand.model.doctor.diagnosis import Diagnosis


def doctor(
    app: find.App = None,
    store: find.Store = None,
    pack: Annotated[
        Path | None,
        typer.Option("--bundle", help="Write the data for a bug report into this file (.tar.gz).", metavar="FILE"),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also name the other stores here and the other nodes of this user.")
    ] = False,
    json: find.Json = False,
) -> None:
    """Say why jobs are not processed, most likely cause first, each with its remedy.

    The store and its node are found automatically: CHARGEHAND_URL, chargehand.db beside the module of the application
    or in this folder, or running nodes of this user (of several the one in the worst state; the others are named). No
    application is imported, and a node or store that hangs does not block the command. With --url, the server examines
    its own store.

    Exit status 0 if nothing is wrong, 1 if something is.
    """
    remote = find.server_meant(app, store)
    found = examine.find_and_examine(store, app=app) if remote is None else _remote(remote, pack)
    if json:
        show.json(examine.told(found))
    else:
        _show(found, others=every or (remote is None and not examine.is_named(store, app)))
    if pack is not None:
        bundle.write(pack, found, store)
        sys.stderr.write(
            f"{show.safe(pack)} is written without payloads, errors and secrets; read it before you send it\n"
        )
    if not found.well:
        raise typer.Exit(EXIT_ERROR)


def _remote(url: str, pack: Path | None) -> Diagnosis:
    """Returns the findings of the server at this URL."""
    if pack is not None:
        raise ConfigurationError(
            "--bundle works only where the store is: run the command on the machine of the node, without --url"
        )
    return find.remote(url).doctor()


def _show(found: Diagnosis, *, others: bool) -> None:
    show.paragraph("", found.headline, indent=0)
    if found.store:
        show.line(f"store {show.safe(found.store)}")
    for finding in found.findings:
        label = "paused" if finding.cause == "paused" else finding.severity.value  # a pause is wanted by somebody
        show.paragraph(f"{label}:", f"{show.safe(finding.text)} → {show.safe(finding.remedy)}", indent=9)
    for other in found.others if others else ():
        if other.pid is not None:
            show.line(f"also     pid {other.pid} serves {show.safe(other.path)}")
