"""Wraps an ASGI application that has no routes to add to: Chargehand's paths, and a node for its lifespan."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Wrapped:
    """Serves these routes, and everything else with the application; `hosted` lasts as long as its lifespan."""

    def __init__(
        self,
        app: ASGIApp,
        routes: list[BaseRoute],
        hosted: Callable[[], AbstractAsyncContextManager[None]],
        on_request: Callable[[], None],
    ) -> None:
        self.app, self._routes, self._hosted, self._on_request = app, routes, hosted, on_request

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the application, which code that configures it goes on using."""
        return getattr(self.__dict__["app"], name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        self._on_request()
        for route in self._routes if scope["type"] == "http" else ():
            match, child = route.matches(scope)
            if match is not Match.NONE:
                await route.handle({**scope, **child}, receive, send)
                return
        await self.app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the lifespan: the node starts before the application, and stops after it."""
        phase = "startup"
        await receive()
        try:
            async with self._hosted(), _Inner(self.app, scope) as inner:
                await inner.reach("startup")
                await send({"type": "lifespan.startup.complete"})
                await receive()
                phase = "shutdown"
                await inner.reach("shutdown")
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})


class _Inner:
    """The lifespan of the application, which may not have one."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._running = asyncio.ensure_future(app(scope, self._to_app.get, self._from_app.put))

    async def __aenter__(self) -> "_Inner":
        return self

    async def __aexit__(self, *error: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def reach(self, phase: str) -> None:
        """Lets the application start or stop. Raises RuntimeError if it says that it failed.

        An application that ends or raises without an answer has no lifespan, as the protocol allows.
        """
        await self._to_app.put({"type": f"lifespan.{phase}"})
        answer = asyncio.ensure_future(self._from_app.get())
        await asyncio.wait((answer, self._running), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
        elif answer.result()["type"] == f"lifespan.{phase}.failed":
            raise RuntimeError(answer.result().get("message") or f"the application failed at its {phase}")
