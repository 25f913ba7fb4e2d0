"""A small world for the web tests: an application served in memory, on a store of its own, asked by real requests."""

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import BaseModel

from chargehand import Chargehand
from chargehand.client import Client
from chargehand.model.access import Scope
from chargehand.web.api import create
from chargehand.web.site import Site

HOME, AWAY = "127.0.0.1", "203.0.113.7"
TOKEN = "the token, while no key exists"
"""What a request is sent with unless a test says otherwise; with None it is nobody's."""


class Song(BaseModel):
    path: str
    seconds: int = 1


class Web:
    """One Chargehand, its routes, and whoever calls them."""

    def __init__(self, folder: Path, hand: Chargehand | None = None) -> None:
        self.hand = hand or Chargehand(folder / "chargehand.db")
        if hand is None:
            self.tag = self.hand.crew("tag", "nowhere:Tagger", takes=Song, queue="tagging")
            self.plain = self.hand.crew("plain", "nowhere:Plain")
        self._runner = asyncio.Runner()
        self.site = Site(self.hand, "")
        self.api: FastAPI = create(self.site)
        self.token = self.hand.with_token("").removeprefix("#token=") or None
        """The token; None once a key exists."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.close()
        self.hand.close()

    def key(self, *scopes: str, name: str | None = None, seconds: float | None = None) -> str:
        """A new key; the server knows of it at once."""
        made = name or f"key-{len(self.hand.api_keys())}"
        secret, _ = self.hand.make_key(made, [Scope(scope) for scope in scopes], seconds=seconds)
        self.site.keyring.forget()
        self.token = None
        return secret

    async def asks(
        self,
        method: str,
        path: str,
        *,
        key: str | None = TOKEN,
        client: str | None = HOME,
        base: str = "http://localhost:8356",
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        given = self.token if key == TOKEN and "Cookie" not in (headers or {}) else None if key == TOKEN else key
        sent = {**({"Authorization": f"Bearer {given}"} if given is not None else {}), **(headers or {})}
        transport = httpx.ASGITransport(self.api, client=(client, 1234) if client else None)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=base) as http:
            answer = await http.request(method, path, headers=sent, **options)
        check_described(self.api, answer)
        return answer

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request."""
        return self.run(self.asks(method, path, **options))

    def get(self, path: str, **options: Any) -> Any:
        """What a question is answered that goes well."""
        answer = self.ask("GET", path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        """What an order is answered that goes well."""
        answer = self.ask("POST", path, **({} if body is None else {"json": body}), **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    def client(self, key: str | None = None) -> Client:
        """The typed client, with this key or the token."""
        return Client("http://localhost:8356", key or self.token, transport=_Bridge(self))


class _Bridge(httpx.BaseTransport):
    """Has the client's requests answered by the application in memory."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def send() -> httpx.Response:
            body = request.read()
            transport = httpx.ASGITransport(self._web.api, client=(HOME, 1234))
            async with httpx.AsyncClient(transport=transport) as http:
                return await http.request(request.method, request.url, headers=request.headers, content=body)

        found = self._web.run(send())
        check_described(self._web.api, found)
        return httpx.Response(found.status_code, headers=found.headers, content=found.content)


_described: list[tuple[re.Pattern[str], dict[str, Any]]] = []
"""The routes of the OpenAPI document, which is the same for all applications; paths without parameters first."""


def check_described(api: FastAPI, answer: httpx.Response) -> None:
    """Fails if the OpenAPI document has the route of this answer, but not its status."""
    if not _described:
        paths = sorted(api.openapi()["paths"].items(), key=lambda path: path[0].count("{"))
        _described.extend((re.compile(re.sub(r"{\w+}", "[^/]+", path)), routes) for path, routes in paths)
    path = answer.request.url.path.removeprefix("/chargehand")
    for known, routes in _described:
        if known.fullmatch(path) and answer.request.method.lower() in routes:
            assert str(answer.status_code) in routes[answer.request.method.lower()]["responses"], answer.text
            return


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document, which must be one, of this status and kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["type"] == f"urn:chargehand:problem:{kind}", found
    assert (found["status"], found["request_id"]) == (status, answer.headers["x-request-id"])
    assert found["title"]
    assert found["detail"]
    return found
