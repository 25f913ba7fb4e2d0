"""Methods of HTTP that no route declares: HEAD wherever there is GET, and all allowed methods in a refusal."""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


class Heads:
    """ASGI middleware that answers HEAD with the headers of GET; the server sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = ended = False

        async def reply(message: Message) -> None:
            """Sends the headers, and an empty body in place of the first part of the body."""
            nonlocal begun, ended
            if message["type"] == "http.response.start":
                begun = True
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body", "body": b""})

        async def heard() -> Message:
            """Reports that the client has left once it has been answered: a stream would never end otherwise."""
            return {"type": "http.disconnect"} if begun else await receive()

        await self._app({**scope, "method": "GET"}, heard, reply)
        if begun:
            await reply({"type": "http.response.body"})  # a stream that ended before its first part


def allowed(routes: Sequence[BaseRoute], scope: Scope) -> str:
    """Returns the methods of all routes at the path of a request, for the header Allow."""
    found = [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    return ", ".join([*found, "HEAD"] if "GET" in found else found)
