"""Keys on the command line, and commands about a node elsewhere: over real HTTP."""

import asyncio
import json
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner
from webworld import Web

from chargehand import ChargehandError
from chargehand.cli.main import app
from chargehand.cli.remote import newer
from chargehand.client import Client, Refused, Unreachable
from chargehand.errors import Conflict, JobNotFound
from chargehand.model.batch import Want
from chargehand.model.job import Done, GaveUp, settle
from chargehand.model.records import CrewRow, Holder, JobFilter
from chargehand.testing import eventually
from chargehand.web.answers import LogLine


@contextmanager
def served(web: Web) -> Generator[str]:
    """The application behind a real server, on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(web.api, host="127.0.0.1", port=0, log_level="critical", lifespan="off"))
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        loops[0].call_soon_threadsafe(
            web.site.closing.set
        )  # it would wait for `top`, which hears until its process ends
        server.should_exit = True
        thread.join(20)


def said(*words: str, code: int = 0) -> str:
    """What a command prints."""
    told = CliRunner().invoke(app, words)
    if code and isinstance(told.exception, ChargehandError):
        return str(told.exception)
    assert told.exit_code == code, (told.output, told.exception)
    return told.stdout


def test_keys_are_made_listed_and_revoked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: SE-2 CL-2
    monkeypatch.setenv("CHARGEHAND_URL", "")  # what --store sets is taken back
    store = ["--store", str(folder / "chargehand.db")]
    Web(folder).hand.open()
    assert "HTTP requires the token" in said("keys", "list", *store)
    key = said("keys", "create", "ops", "--scope", "read", "--scope", "control", "--expires", "30d", *store).strip()
    assert key.startswith("ch_")
    made = json.loads(said("keys", "create", "robot", "--scope", "enqueue", "--json", *store))
    assert made["key"] != key
    listed = said("keys", "list", *store)
    assert "read control" in listed
    assert key not in listed
    assert made["key"] not in said("keys", "list", "--json", *store)
    said("keys", "revoke", "ops", *store)
    states = {each["name"]: each["state"] for each in json.loads(said("keys", "list", "--json", *store))}
    assert states == {"ops": "revoked", "robot": "in use"}
    assert "no key 'ops'" in said("keys", "revoke", "ops", *store, code=2)
    assert "already" in said("keys", "create", "robot", "--scope", "read", *store, code=1)
    said("keys", "create", "x", *store, code=2)
    said("keys", "create", "x", "--scope", "all", *store, code=2)
    words = ["keys", "create", "x", "--scope", "read", "--expires", "soon"]
    assert "--expires" in CliRunner().invoke(app, [*words, *store]).output


def test_commands_about_a_node_elsewhere(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: CL-2 SE-5
    row = CrewRow(name="plain", queue="plain", handler="m:H", workers=1, max_attempts=3, timeout_ms=5)
    with web.hand.transaction() as tx:
        tx.fleet.register(Holder("n", "l"), [row], {})
    monkeypatch.setenv("CHARGEHAND_KEY", web.key("read", "enqueue", "control", name="ann"))
    with served(web) as url:
        monkeypatch.setenv("CHARGEHAND_REMOTE_URL", url)
        job = said("jobs", "enqueue", "plain", '{"a": 1}', "--label", "far").strip()
        assert json.loads(said("jobs", "show", job, "--json"))["payload"] == {"a": 1}
        assert "far" in said("jobs", "show", job)
        assert [each["id"] for each in json.loads(said("jobs", "list", "--json"))] == [job]
        assert json.loads(said("jobs", "list", "--json", "--before", job)) == []
        assert "is cancelled" in said("jobs", "cancel", job)
        assert "has ended already" in said("jobs", "cancel", job, code=1)
        assert "is queued again" in said("jobs", "retry", job)
        assert "nothing more" in said("pause", "--reason", "tea") or web.hand.pauses()
        status = json.loads(said("status", "--json", code=1))
        assert (status["store"], status["node"], status["pauses"][0]["who"]) == (url, None, "ann")
        assert status["queues"][0]["queued"] == 1
        assert json.loads(said("claims", "--json")) == []
        assert json.loads(said("crashes", "--json")) == []
        assert json.loads(said("recurring", "--json")) == []
        assert "no node serves" in said("stop", code=1)
        assert said("logs") == ""
        assert said("wake", "plain").startswith("plain: no node runs; the next one looks")
        assert "there is no crew 'no'" in said("wake", "no", code=2)
        assert "over HTTP" in said("keys", "list", code=1)
        found = json.loads(said("doctor", "--json", code=1))
        assert (found["store"], found["well"]) == (str(web.hand.path), False)
        assert f"\nstore {web.hand.path}\n" in said("doctor", code=1)
        assert "on the machine" in said("doctor", "--bundle", "x.tar.gz", code=1)
        seen = json.loads(said("top", "--json", code=1))
        assert (seen["store"], seen["health"]["status"]) == (url, "error")
        assert [(queue["name"], queue["queued"]) for queue in seen["queues"]] == [(None, 1), ("plain", 1)]
        assert json.loads(said("jobs", "show", job, "--json"))["claim"] is None
        assert [each.verb for each in web.hand.operations()] == ["pause", "retry", "cancel", "create key"]
        monkeypatch.setenv("CHARGEHAND_KEY", "ch_wrong")
        assert "not known" in said("status", code=1)
        assert "not known" in said("top", code=1)
        assert f"no Chargehand at {url}/nowhere/" in said("--url", f"{url}/nowhere", "status", code=1)
    assert "such as http://host:8356" in said("--url", "host:8356", "status", code=2)
    assert "does not answer" in said("--url", url, "status", code=1)


def test_a_job_elsewhere_is_waited_for(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: CL-2
    row = CrewRow(name="plain", queue="plain", handler="m:H", workers=1, max_attempts=3, timeout_ms=5)
    with web.hand.transaction() as tx:
        tx.fleet.register(Holder("n", "l"), [row], {})
    monkeypatch.setenv("CHARGEHAND_KEY", str(web.token))
    with served(web) as url, ThreadPoolExecutor() as aside:
        monkeypatch.setenv("CHARGEHAND_REMOTE_URL", url)
        assert "no worker takes it" in waited(0)
        first = web.hand.jobs(JobFilter())[0].id
        web.hand.cancel(first)
        waiting = aside.submit(waited, 30)
        eventually(lambda: web.hand.counts()[0].queued == 1)
        _end(web, Done('{"a": [1]}'))
        assert json.loads(waiting.result())["result"] == {"a": [1]}


def waited(seconds: float) -> str:
    told = CliRunner().invoke(app, ["jobs", "enqueue", "plain", "--wait", str(seconds)])
    return told.stdout or str(told.exception)


def test_the_client_says_what_went_wrong(web: Web) -> None:
    with served(web) as url:
        client = Client(url, web.token)
        with client:
            assert client.alive()
            assert client.ready().status == "ok"
            assert client.who().kind == "token"
            with pytest.raises(JobNotFound, match="nothing"):
                client.job("nothing")
            with pytest.raises(JobNotFound):
                client.retry("a b?c#d")
            with pytest.raises(Refused) as refused:
                client.retry_failed("nowhere")
            assert (refused.value.status, refused.value.kind) == (404, "no-such-queue")
            assert refused.value.request_id
            made = client.enqueue("plain", key="k")
            with pytest.raises(Conflict):
                client.retry(made.id)
            _end(web, GaveUp("no use"))
            assert client.retry_failed("plain").count == 1
            assert client.clear_failed("plain").count == 0
            with pytest.raises(Conflict):
                client.release(made.id, "1")
        with pytest.raises(Refused, match=r"is .* a Chargehand"):
            Client(f"{url}/elsewhere/", transport=_Nonsense()).info()
    with pytest.raises(Unreachable), Client(url, timeout=5) as gone:
        gone.info()
    for wrong in ("nonsense", "http://[", "ftp://x"):
        with pytest.raises(ChargehandError):
            Client(wrong).info()


def _end(web: Web, outcome: Done | GaveUp) -> None:
    with web.hand.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("plain", "plain", 1)], Holder("n", "l"))
        settlement = settle(grant.claims[0], outcome)
        assert settlement is not None
        tx.jobs.settle([settlement], Holder("n", "l"))


class _Nonsense(httpx.BaseTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(418, content=b"<html>")


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("", "", 0),
        ("", "ab", 2),
        ("ab", "ab", 0),
        ("ab", "abc", 1),
        ("abc", "bcd", 1),
        ("aa", "aaa", 1),
        ("ab", "cd", 2),
    ],
)
def test_of_a_log_that_is_followed_each_line_is_told_once(before: str, now: str, new: int) -> None:  # spec: CL-2
    lines = [[LogLine(at_ms=1, level="info", text=text) for text in texts] for texts in (before, now)]
    assert newer(*lines) == new
