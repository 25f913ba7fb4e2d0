"""Puts Chargehand into a FastAPI application: its routes under a prefix, its node around the application's lifespan."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from chargehand.web.api import create
from chargehand.web.site import Site

if TYPE_CHECKING:
    from chargehand.app import Chargehand


def attach(hand: "Chargehand", app: FastAPI, prefix: str) -> None:
    """Mount the routes and wrap the lifespan."""
    site = Site(hand, prefix)
    app.mount(prefix, create(site))
    theirs = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: FastAPI) -> AsyncGenerator[Any]:
        hand.host()
        try:
            async with theirs(served) as state:
                yield state
        finally:
            site.closing.set()
            await asyncio.to_thread(hand.unhost)

    app.router.lifespan_context = lifespan
