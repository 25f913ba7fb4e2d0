"""`chargehand doctor`: why nothing is happening, in words, each cause with what mends it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from chargehand import bundle, facts
from chargehand.cli import find, show
from chargehand.errors import EXIT_ERROR
from chargehand.model.diagnosis import Diagnosis

Store = Annotated[
    str | None, typer.Option("--store", "--url", "-s", help="The store, as a path or address.", metavar="PATH")
]


def doctor(
    store: Store = None,
    pack: Annotated[
        Path | None,
        typer.Option("--bundle", help="Write what a bug report needs into this file (.tar.gz).", metavar="FILE"),
    ] = None,
    json: find.Json = False,
) -> None:
    """Say why nothing is happening, most likely cause first, each with what mends it.

    It finds the store and its node by itself (CHARGEHAND_URL, chargehand.db in this folder, nodes of yours that run
    here), imports no application, and answers though node or store hang.

    Exit status 0 if nothing is wrong, 1 if something is.
    """
    found = facts.find_and_examine(store)
    if json:
        show.json(facts.told(found))
    else:
        _tell(found)
    if pack is not None:
        bundle.write(pack, found)
        sys.stderr.write(f"{pack} is written; payloads and secrets are left out, but read it before you send it\n")
    if not found.well:
        raise typer.Exit(EXIT_ERROR)


def _tell(found: Diagnosis) -> None:
    show.line(show.safe(found.headline))
    if found.store:
        show.line(f"store {show.safe(found.store)}")
    for finding in found.findings:
        show.line(f"{finding.severity.value + ':':9}{show.safe(finding.text)} → {show.safe(finding.remedy)}")
    for other in found.others:
        if other.pid is not None:
            show.line(f"also     pid {other.pid} serves {show.safe(other.path)}")
