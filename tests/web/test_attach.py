"""What `hand.attach(app)` does to an application: nothing of the user's is shadowed, lost or left running."""

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles

from chargehand import (
    Chargehand,
    ChargehandError,
    ConfigurationError,
    JobCancelled,
    JobFailed,
    ResultTimeout,
    StoreError,
)
from chargehand.log import Event
from chargehand.testing import eventually
from chargehand.web import hosting
from chargehand.web.site import Site

Make = Callable[..., Chargehand]
FAULTY = "chargehand.testing.faults:Faulty"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Chargehands in a folder of their own, without workers unless these are wanted."""
    made: list[Chargehand] = []

    def chargehand(embed: str = "false", **settings: Any) -> Chargehand:
        monkeypatch.setenv("EMBED_WORKERS", embed)
        made.append(Chargehand(folder=tmp_path, **settings))
        made[-1].crew("faulty", FAULTY, workers=1)
        return made[-1]

    yield chargehand
    for hand in made:
        hand.close()


@pytest.fixture
def hand(make: Make) -> Chargehand:
    return make()


@pytest.mark.parametrize(
    ("missing", "home", "extra", "use"),
    [
        ("fastapi", "chargehand.web.attach", "web", lambda hand: hand.attach(FastAPI())),
        ("fastapi", "chargehand.web.attach", "web", lambda hand: hand.requires("read")),
        ("starlette.responses", "chargehand.web.sse", "web", lambda hand: hand.crew("c", FAULTY).ref("x").sse()),
        ("httpx", "chargehand.client", "cli", lambda _: importlib.import_module("chargehand.client")),
        ("cronsim", "cronsim", "cron", lambda hand: hand.recurring("r", hand.crew("c", FAULTY), cron="* * * * *")),
    ],
    ids=["attach", "requires", "sse", "client", "cron"],
)
def test_a_missing_extra_is_named(
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch, missing: str, home: str, extra: str, use: Callable[[Any], None]
) -> None:
    monkeypatch.delitem(sys.modules, home, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigurationError, match=rf"{missing}.* needs an extra: pip install 'chargehand\[{extra}\]'"):
        use(hand)


def get(app: FastAPI, path: str, root_path: str = "") -> tuple[int, str]:
    async def asked() -> tuple[int, str]:
        transport = httpx.ASGITransport(app, root_path=root_path)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await client.get(path)
            return response.status_code, response.text

    return asyncio.run(asked())


def serve(app: FastAPI, meanwhile: Callable[[Any], Any] = lambda state: None) -> None:
    """Start the application, do something in another thread, stop it."""

    async def served() -> None:
        async with app.router.lifespan_context(app) as state:
            await asyncio.to_thread(meanwhile, state)

    asyncio.run(served())


def test_routes_are_under_the_prefix_and_nowhere_else(hand: Chargehand) -> None:  # spec: HT-5
    app = FastAPI()
    hand.attach(app)
    assert get(app, "/chargehand/healthz")[0] == 200
    assert get(app, "/healthz")[0] == 404
    assert get(app, "/nowhere")[0] == 404
    assert list(app.openapi()["paths"]) == []  # the application's own document is its own
    assert get(app, "/chargehand/openapi.json")[0] == 401


def test_probes_at_the_root_by_choice(hand: Chargehand) -> None:  # spec: HT-5
    app = FastAPI()
    hand.attach(app, "/ops/jobs", probes=True)
    assert get(app, "/healthz") == get(app, "/ops/jobs/healthz")
    assert get(app, "/healthz")[0] == 200
    assert get(app, "/healthz", root_path="/proxied")[0] == 200
    assert get(app, "/chargehand/healthz")[0] == 404


def test_the_users_own_routes_go_first(hand: Chargehand, tmp_path: Path) -> None:  # spec: HT-5
    (tmp_path / "page.html").write_text("page")
    app = FastAPI()

    @app.get("/chargehand/before")
    def before() -> str:  # pyright: ignore[reportUnusedFunction]
        return "theirs"

    hand.attach(app, probes=True)

    @app.get("/chargehand/healthz", response_class=PlainTextResponse)
    def after() -> str:  # pyright: ignore[reportUnusedFunction]
        return "theirs, too"

    @app.get("/readyz", response_class=PlainTextResponse)
    def ready() -> str:  # pyright: ignore[reportUnusedFunction]
        return "theirs, at the root"

    router = APIRouter()
    router.add_api_route("/{name}", lambda name: name)
    app.include_router(router, prefix="/chargehand/included")
    app.mount("/", StaticFiles(directory=tmp_path))
    assert get(app, "/chargehand/before") == (200, '"theirs"')
    assert get(app, "/chargehand/healthz") == (200, "theirs, too")
    assert get(app, "/readyz") == (200, "theirs, at the root")
    assert get(app, "/chargehand/included/x") == (200, '"x"')
    assert get(app, "/page.html") == (200, "page")


@pytest.mark.parametrize(
    ("handled", "answer"), [(False, (503, "the job queue is not available")), (True, (418, "mine"))]
)
def test_a_store_that_is_away_in_the_users_own_route_is_unavailable(
    hand: Chargehand, handled: bool, answer: tuple[int, str]
) -> None:
    app = FastAPI()
    if handled:
        app.add_exception_handler(ChargehandError, lambda request, error: PlainTextResponse("mine", 418))
    hand.attach(app)

    @app.get("/songs")
    async def submit() -> Any:
        raise StoreError("cannot connect to postgresql://db/music", "server-gone")

    code, text = get(app, "/songs")
    assert (code, answer[1] in text, "db/music" in text) == (answer[0], True, False)


@pytest.mark.parametrize(("handled", "answer"), [(False, (404, "there is no such job")), (True, (418, "mine"))])
def test_an_unknown_job_in_the_users_own_route_is_not_found(
    hand: Chargehand, handled: bool, answer: tuple[int, str]
) -> None:
    app = FastAPI()
    if handled:
        app.add_exception_handler(ChargehandError, lambda request, error: PlainTextResponse("mine", 418))
    hand.attach(app)

    @app.get("/songs/{id}")
    async def result(id: str) -> Any:
        return await hand.crews["faulty"].ref(id).result(timeout=1)

    status, text = get(app, "/songs/nope")
    assert status == answer[0]
    assert answer[1] in text
    assert str(hand.path) not in text


def test_an_unknown_flow_in_the_users_own_route_is_not_found(hand: Chargehand) -> None:
    app = FastAPI()
    hand.attach(app)

    @app.get("/films/{id}")
    def state(id: str) -> Any:
        return hand.find_flow(id).status()

    status, text = get(app, "/films/nope")
    assert (status, "there is no such flow" in text) == (404, True)


LATE = ResultTimeout("job 1 did not end", "1", "queued", "all workers of tag are given up: no model at /srv/m")


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (JobFailed("1", "raised", "ValueError: secret"), 409, ("the job failed", "1", "raised")),
        (JobCancelled("job 1 was cancelled", "1"), 409, ("the job was cancelled", "1", "cancelled")),
        (ResultTimeout("late", "1", "running"), 504, ("the job did not end in time", "1", None)),
        (LATE, 504, ("the job did not end in time, and no worker takes it", "1", None)),
    ],
)
@pytest.mark.parametrize("theirs", [None, "before", "after"])
def test_a_result_that_a_route_waited_for_in_vain_is_no_error_of_the_server(
    hand: Chargehand, error: Exception, status: int, body: tuple[Any, ...], theirs: str | None
) -> None:
    app = FastAPI()

    def add() -> None:
        for kind in (ChargehandError, TimeoutError):
            app.add_exception_handler(kind, lambda request, error: PlainTextResponse("mine", 418))

    if theirs == "before":
        add()
    hand.attach(app)
    if theirs == "after":
        add()

    @app.get("/songs")
    async def result() -> Any:
        raise error

    code, text = get(app, "/songs")
    if theirs:
        assert (code, text) == (418, "mine")
    else:
        found = json.loads(text)
        assert (code, (found["detail"], found["job"], found.get("reason"))) == (status, body)
        assert "secret" not in text
        assert "/srv/m" not in text


def test_a_catch_all_does_not_hide_ours(hand: Chargehand) -> None:
    app = FastAPI()
    for path in ("/{path:path}", "/{tenant}/healthz"):
        app.add_api_route(path, lambda: "caught")
    hand.attach(app, probes=True)
    assert get(app, "/chargehand/healthz")[1] == get(app, "/healthz")[1] != '"caught"'
    assert get(app, "/else/healthz", root_path="/x")[1] == '"caught"'
    assert get(app, "/x/chargehand/healthz", root_path="/x")[1] != '"caught"'


@pytest.mark.parametrize("prefix", ["", "/", "chargehand", "/chargehand/", "/a//b", "/{tenant}", "/a b"])
def test_a_prefix_that_cannot_be_one(hand: Chargehand, prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a path such as '/chargehand'"):
        hand.attach(FastAPI(), prefix)


# the lifespan


def test_the_users_lifespan_runs_inside(make: Make) -> None:  # spec: CF-3
    hand = make("true")
    seen: list[Any] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, int]]:
        seen.append(hand.host().ended.is_set())
        yield {"number": 7}
        seen.append(hand.host().ended.is_set())

    app = FastAPI(lifespan=lifespan)
    hand.attach(app)
    for _ in range(2):  # and again: tests start an application many times
        serve(app, lambda state: seen.append((state, eventually(hand.status) is not None)))
        assert hand.status() is None
    assert seen == [False, ({"number": 7}, True), False] * 2


def test_an_error_in_the_users_start_stops_the_node(make: Make) -> None:
    hand = make("true")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        assert await asyncio.to_thread(hand.host().ready.wait, 60)
        raise RuntimeError("no database")
        yield

    app = FastAPI(lifespan=lifespan)
    hand.attach(app)
    with pytest.raises(RuntimeError, match="no database"):
        serve(app)
    assert hand.status() is None


@pytest.mark.parametrize("embed", ["true", "false"])
def test_an_application_without_its_lifespan_is_logged_once(  # spec: CF-3
    make: Make, embed: str, caplog: pytest.LogCaptureFixture
) -> None:
    inner, outer = FastAPI(), FastAPI()
    make(embed).attach(inner)
    outer.mount("/inner", inner)
    for _ in range(2):
        serve(outer)  # Starlette runs the lifespan of the outer application alone
        assert get(outer, "/inner/nowhere")[0] == 404
        assert get(outer, "/inner/chargehand/healthz")[0] == 200
    prefixes = [each.__dict__.get("facts", {}).get("prefix") for each in caplog.records if each.levelname == "WARNING"]
    assert prefixes == (["/chargehand"] if embed == "true" else [])


def test_an_application_with_its_lifespan_is_not_warned_about(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    make("true").attach(app)
    serve(app, lambda _: None)
    assert get(app, "/chargehand/healthz")[0] == 200
    assert [each.message for each in caplog.records if "prefix" in each.__dict__.get("facts", {})] == []


def test_handlers_of_events_run_too(hand: Chargehand) -> None:
    seen: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        app = FastAPI(on_startup=[lambda: seen.append("up")], on_shutdown=[lambda: seen.append("down")])
    hand.attach(app)
    serve(app, lambda _: seen.append("served"))
    assert seen == ["up", "served", "down"]


def test_wrong_settings_stop_the_start(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: CF-1
    monkeypatch.setenv("CHARGEHAND_CREW_NOBODY_WORKERS", "3")
    app = FastAPI()
    make().attach(app)
    with pytest.raises(ConfigurationError, match="the crew NOBODY does not exist"):
        serve(app)


# a store that is away


def test_a_process_without_a_node_logs_once_that_the_store_is_away(
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def waiting() -> list[str]:
        asked.append(1)
        if len(asked) == 6:
            site.closing.set()
        if len(asked) in (2, 3, 4):
            raise StoreError("no server answers")
        return []

    monkeypatch.setattr(hand.internal, "waiting_for_nobody", waiting)
    monkeypatch.setattr(hosting, "CHECK_INTERVAL", 0.001)
    site = Site(hand, "")
    with caplog.at_level("INFO", "chargehand"):
        asyncio.run(hosting._report_unserved(site))  # pyright: ignore[reportPrivateUsage]
    told = [record.getMessage() for record in caplog.records if "the store can" in record.getMessage()]
    assert [text[:24] for text in told] == ["the store cannot be read", "the store can be read ag"]


# signals


def test_signals_are_heeded_beside_the_servers_own(hand: Chargehand) -> None:
    """Whoever handled a signal before still does; streams end at once; afterwards all is as it was."""
    heard: list[int] = []

    def theirs(number: int, _: FrameType | None) -> None:
        heard.append(number)

    async def served() -> None:
        site = Site(hand, "")
        async with hosting.hosted(site):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(site.closing.wait(), 20)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # by the application itself, later: that stays

    before = {number: signal.signal(number, theirs) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(served())
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is theirs
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# what an API says


def test_an_api_without_workers_says_that_work_waits(  # spec: SV-12
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hosting, "CHECK_INTERVAL", 0.02)
    app = FastAPI()
    hand.attach(app)

    def said() -> list[Any]:
        return [r.__dict__["facts"]["queues"] for r in caplog.records if r.levelno == logging.ERROR]

    hand.find_crew("faulty").enqueue({})
    serve(app, lambda _: eventually(said))
    assert said() == ["faulty"]
    assert hand.status() is None


def test_facts_reach_the_users_own_log(hand: Chargehand, caplog: pytest.LogCaptureFixture) -> None:  # spec: CF-3
    caplog.set_level(logging.INFO)
    app = FastAPI()
    hand.attach(app)
    serve(app)
    assert f"store path={hand.path}" in caplog.messages


def facts_of(event: Event, caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [record.__dict__.get("facts", {}) for record in caplog.records]
    return [facts for facts in found if facts.get("event") == event]


def test_the_start_reports_files_and_workers(  # spec: CF-2 CF-4
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("EMBED_WORKERS", "no")
    (tmp_path / ".env").write_text("WORKER_PROCESSES=3\n")
    hand = Chargehand(folder=tmp_path)
    hand.crew("faulty", FAULTY, default=True)
    hand.crew("other", FAULTY)
    app = FastAPI()
    hand.attach(app)
    serve(app)
    (facts,) = facts_of(Event.SETTINGS, caplog)
    assert facts["files"] == (str(tmp_path / ".env"),)
    assert (facts["embed_workers"], facts["workers"]) == (False, ["faulty: 3", "other: 1"])
    (facts,) = facts_of(Event.NO_WORKERS_HERE, caplog)
    assert facts["remedy"] == "chargehand work APP"
    caplog.clear()
    hand.log_start(embed_workers=True)
    (facts,) = facts_of(Event.SETTINGS, caplog)
    assert facts["embed_workers"] is True
    assert facts_of(Event.NO_WORKERS_HERE, caplog) == []
    hand.close()


def test_the_admin_key_stays_in_the_api(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: SE-4
    monkeypatch.setenv("CHARGEHAND_ADMIN_KEY", "correct-horse-battery")
    hand = make()
    with hand.running() as host:
        assert host.ready.wait(60)
        assert b"CHARGEHAND_ADMIN_KEY" not in Path(f"/proc/{host.node_pid}/environ").read_bytes()
