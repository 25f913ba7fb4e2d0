"""`chargehand keys`: create, list and revoke the API keys of the HTTP interface."""

from typing import Annotated

import typer

from chargehand import clock
from chargehand.cli import find, show
from chargehand.cli.orders import seconds
from chargehand.model.access import ApiKey, Scope

app = typer.Typer(help="Create, list and revoke API keys for the HTTP interface.", no_args_is_help=True)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="A name for the key: who or what uses it.")],
    scope: Annotated[
        list[Scope], typer.Option("--scope", help="What the key allows: read, enqueue, control. May be repeated.")
    ],
    expires: Annotated[
        str | None, typer.Option(help="The lifetime of the key: 12h, 30d; by default it does not expire.")
    ] = None,
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Create a key and print it. It cannot be shown again: the store keeps only its digest."""
    lifetime = None if expires is None else seconds(expires, "--expires")
    secret, key = find.service(application, store).make_key(name, scope, seconds=lifetime)
    if json:
        show.json({"key": secret, "id": key.id, "name": name, "scopes": key.scopes, "expires_ms": key.expires_ms})
    else:
        show.line(secret)


@app.command("list")
def list_keys(application: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """List the keys: what each allows, when it was last used, when it expires."""
    found = find.service(application, store).api_keys()
    now = clock.now_ms()
    if json:
        facts = ("id", "name", "scopes", "created_ms", "expires_ms", "used_ms", "revoked_ms")
        show.json([{**{fact: getattr(key, fact) for fact in facts}, "state": _state(key, now)} for key in found])
        return
    columns = ("NAME", "SCOPES", "STATE", "CREATED", "LAST USED", "EXPIRES", "ID")
    rows = [
        (
            key.name, " ".join(key.scopes), _state(key, now), show.ago(key.created_ms), show.ago(key.used_ms),
            show.ago(key.expires_ms), key.id,
        )
        for key in found
    ]  # fmt: skip
    show.table(columns, rows) if rows else show.line(
        "no keys: HTTP requires the token; `chargehand dashboard` prints the address with it"
    )


def _state(key: ApiKey, now: int) -> str:
    if key.revoked_ms is not None:
        return "revoked"
    return "in use" if key.why_not(now) is None else "expired"


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name or id.")],
    application: find.App = None,
    store: find.Store = None,
    json: find.Json = False,
) -> None:
    """Revoke a key and end its sessions. It is refused within a second."""
    find.service(application, store).revoke_key(name)
    show.json({"name": name, "text": "is revoked"}) if json else show.line(f"{show.safe(name)}: is revoked")
