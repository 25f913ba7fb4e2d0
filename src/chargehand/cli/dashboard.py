"""`chargehand dashboard`: opens the dashboard, or prints its address or the token."""

import html
import os
import webbrowser
from typing import Annotated

import typer

from chargehand.cli import find, show

_PAGE = (
    '<!doctype html><meta charset="utf-8"><title>Chargehand</title><meta http-equiv="refresh" content="0;url={url}">\n'
)
App = Annotated[
    str | None,
    typer.Argument(
        envvar="CHARGEHAND_APP", help="The application, as module:object.", metavar="[APP]", show_default=False
    ),
]


def dashboard(
    app: App = None,
    store: find.Store = None,
    token: Annotated[
        bool, typer.Option("--token", help="Print the token for `Authorization: Bearer TOKEN`, and nothing else.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address; start no browser.")] = False,
) -> None:
    """Print the address of the dashboard, and open it in a browser if there is a desktop.

    While no API key exists, the address contains a token that allows everything: pass it on to nobody. When the first
    key is created, the token ends.
    """
    service = find.service(app, store)
    if token:
        show.line(service.token())
        return
    url = service.dashboard()
    show.line(url)
    if not no_open and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        _open(url)


def _open(url: str) -> None:
    """Opens a browser. The token is not among its arguments, which every user of the machine may read: a page is."""
    if "#token=" not in url:
        webbrowser.open(url)
        return
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isdir(folder):
        return  # no folder of this user's alone: the address is printed
    path = os.path.join(folder, "chargehand-dashboard.html")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as page:
        page.write(_PAGE.format(url=html.escape(url)))
    webbrowser.open(f"file://{path}")
