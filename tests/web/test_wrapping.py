"""`hand.attach(app)` with ASGI applications that are not FastAPI's: Starlette's, and those that are only callable."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from chargehand import Chargehand

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("EMBED_WORKERS", "false")
    made = Chargehand(folder=tmp_path)
    made.crew("bare", "minimal_handlers:Bare", workers=1)
    yield made
    made.close()


async def answer(send: Any, text: str) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


class Plain:
    """An application as frameworks without Starlette have it: it keeps what its lifespan was told."""

    def __init__(self, fails: str = "") -> None:
        self.told: list[str] = []
        self.fails = fails

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                self.told.append((await receive())["type"])
                if phase == self.fails:
                    await send({"type": f"lifespan.{phase}.failed", "message": "no disk"})
                    return
                await send({"type": f"lifespan.{phase}.complete"})
        else:
            await answer(send, f"{scope['root_path']}|{scope['path']}")


async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    await answer(send, "own")


def served(
    app: Asgi, *paths: str, meanwhile: Callable[[], Any] = lambda: None
) -> tuple[list[str], list[httpx.Response]]:
    """What a server is told by the lifespan, and the responses to requests meanwhile."""

    async def serve() -> tuple[list[str], list[httpx.Response]]:
        told: list[str] = []
        inbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()

        async def send(message: Any) -> None:
            told.append(message["type"])

        await inbox.put({"type": "lifespan.startup"})
        life = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, inbox.get, send))
        while not told:
            await asyncio.sleep(0)
        found: list[httpx.Response] = []
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            if told[0] == "lifespan.startup.complete":
                found = [await client.get(path) for path in paths]
                await asyncio.to_thread(meanwhile)
        await inbox.put({"type": "lifespan.shutdown"})
        await asyncio.gather(life, return_exceptions=True)
        return told, found

    return asyncio.run(serve())


COMPLETE = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize("kind", ["with a lifespan", "without a lifespan"])
def test_an_application_that_is_only_callable_is_wrapped(hand: Chargehand, kind: str) -> None:  # spec: CF-3 HT-5
    inner: Any = Plain() if kind == "with a lifespan" else without_lifespan
    app = hand.attach(inner, "/ops/jobs", probes=True)
    assert app is not inner
    told, found = served(
        app, "/songs/1", "/ops/jobs/healthz", "/healthz", "/ops/jobs/api/v1/jobs", "/ops/jobs", "/ops/jobsx"
    )
    assert told == COMPLETE
    assert [each.status_code for each in found] == [200, 200, 200, 401, 307, 200]
    assert found[4].headers["location"] == "/ops/jobs/dashboard"
    if inner is not without_lifespan:
        assert [found[0].text, found[5].text] == ["|/songs/1", "|/ops/jobsx"]
        assert app.told == inner.told == ["lifespan.startup", "lifespan.shutdown"]  # its own attributes stay in reach


def test_the_node_runs_during_the_lifespan_of_any_application(
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EMBED_WORKERS", "true")
    embedding = Chargehand(folder=tmp_path)
    crew = embedding.crew("bare", "minimal_handlers:Bare", workers=1)
    results: list[int] = []
    app = embedding.attach(without_lifespan)
    assert served(app, meanwhile=lambda: results.append(crew.enqueue({}).wait(30)))[0] == COMPLETE
    assert results
    assert embedding.status() is None
    embedding.close()


@pytest.mark.parametrize("phase", ["startup", "shutdown"])
def test_a_failure_of_the_application_is_the_servers_to_know(hand: Chargehand, phase: str) -> None:
    told, _ = served(hand.attach(Plain(fails=phase)))
    assert told == [*COMPLETE[: phase == "shutdown"], f"lifespan.{phase}.failed"]


def test_wrong_settings_stop_the_start_before_the_application(hand: Chargehand) -> None:  # spec: CF-1
    hand.crew("other", "minimal_handlers:Bare", default=True)
    hand.crew("third", "minimal_handlers:Bare", default=True)
    inner = Plain()
    assert served(hand.attach(inner))[0] == ["lifespan.startup.failed"]
    assert inner.told == []


def test_starlette_keeps_its_routes_and_its_lifespan(hand: Chargehand) -> None:  # spec: HT-5
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        events.append("begins")
        yield
        events.append("ends")

    async def job(request: Request) -> JSONResponse:
        return JSONResponse(hand.job("nope").id)

    async def own(request: Request) -> JSONResponse:
        return JSONResponse("own")

    app = Starlette(routes=[Route("/job", job), Route("/chargehand/own", own)], lifespan=lifespan)
    assert hand.attach(app) is app
    told, found = served(app, "/job", "/chargehand/own", "/chargehand/healthz", "/nothing")
    assert (told, events) == (COMPLETE, ["begins", "ends"])
    assert [each.status_code for each in found] == [404, 200, 200, 404]
    assert found[0].json() == {"detail": "there is no such job"}
