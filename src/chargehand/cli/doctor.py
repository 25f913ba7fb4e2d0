"""`chargehand doctor`: why nothing is happening, in words, each cause with what mends it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from chargehand.cli import find, show
from chargehand.doctor import bundle, examine
from chargehand.errors import EXIT_ERROR, ConfigurationError
from chargehand.model.doctor.diagnosis import Diagnosis


def doctor(
    store: find.Store = None,
    pack: Annotated[
        Path | None,
        typer.Option("--bundle", help="Write what a bug report needs into this file (.tar.gz).", metavar="FILE"),
    ] = None,
    json: find.Json = False,
) -> None:
    """Say why nothing is happening, most likely cause first, each with what mends it.

    It finds the store and its node by itself (CHARGEHAND_URL, chargehand.db in this folder, nodes of yours that run
    here), imports no application, and answers though node or store hang. With --url, the server there looks.

    Exit status 0 if nothing is wrong, 1 if something is.
    """
    found = _far(pack) if store is None and find.elsewhere is not None else examine.find_and_examine(store)
    if json:
        show.json(examine.told(found))
    else:
        _tell(found)
    if pack is not None:
        bundle.write(pack, found)
        sys.stderr.write(f"{pack} is written; payloads and secrets are left out, but read it before you send it\n")
    if not found.well:
        raise typer.Exit(EXIT_ERROR)


def _far(pack: Path | None) -> Diagnosis:
    """What a server elsewhere finds."""
    if pack is not None:
        raise ConfigurationError(
            "a bundle is made where the store is: run it on the machine of the node, without --url"
        )
    return find.remote().doctor()


def _tell(found: Diagnosis) -> None:
    show.line(show.safe(found.headline))
    if found.store:
        show.line(f"store {show.safe(found.store)}")
    for finding in found.findings:
        show.line(f"{finding.severity.value + ':':9}{show.safe(finding.text)} → {show.safe(finding.remedy)}")
    for other in found.others:
        if other.pid is not None:
            show.line(f"also     pid {other.pid} serves {show.safe(other.path)}")
