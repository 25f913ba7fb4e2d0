"""Who is let in: the token before there is a key, keys, sign-ins; never other sites' pages. And what is logged."""

import asyncio
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from test_keys_cli import said as cli_said
from test_keys_cli import served
from webworld import AWAY, Web, problem

from chargehand import Chargehand, ConfigurationError, clock
from chargehand.errors import NobodyServes, StoreError
from chargehand.model.access import MOST_SESSIONS, Scope
from chargehand.testing import eventually
from chargehand.web import announce, sse
from chargehand.web.keyring import ADMIN, MAX_AGE, Caller
from chargehand.web.serving import check_listening
from chargehand.web.site import Site

LOOK, CHANGE = "/api/v1/info", "/api/web/worker/pause"


def changed(web: Web) -> bool:
    return bool(web.hand.pauses())


# nobody has made a key


def test_before_there_is_a_key_the_token_opens_everything_and_nothing_else_does(web: Web) -> None:  # spec: SE-1
    for given in (None, "ct_wrong", f"{web.token}x"):
        detail = problem(web.ask("GET", LOOK, key=given), 401, "key-unknown" if given else "key-needed")["detail"]
        assert "chargehand dashboard --token" in detail
        assert str(web.token) not in detail
    assert not changed(web)
    web.post(CHANGE, key=web.token, client=AWAY, base="http://anything.example")
    assert changed(web)


def test_the_token_is_in_a_file_for_the_user_alone_and_stays_the_same(web: Web) -> None:  # spec: SE-1 SE-7
    file = web.hand.internal.keys.token_file
    assert file == Path(f"{web.hand.path}-token")
    assert (file.read_text(), file.stat().st_mode & 0o777) == (f"{web.token}\n", 0o600)
    assert re.fullmatch("ct_[A-Za-z0-9_-]{43}", web.token or "")
    assert web.hand.with_token("http://x/") == f"http://x/#token={web.token}"


@pytest.mark.parametrize("content", ["", "nonsense", "ct_short\n", "\0" * 47])
def test_a_file_that_holds_no_token_opens_nothing_and_is_made_anew(web: Web, content: str) -> None:  # spec: SE-1
    web.hand.internal.keys.token_file.write_text(content)
    web.site.keyring.forget()
    for given in (web.token, content.strip(), ""):
        assert web.ask("GET", LOOK, headers={"Authorization": f"Bearer {given}"}).status_code == 401
    made = web.hand.internal.keys.make_token()
    web.site.keyring.forget()
    assert made != web.token
    web.get(LOOK, key=made)


def test_a_file_that_others_may_have_written_is_no_token(web: Web, folder: Path) -> None:  # spec: SE-1 SE-7
    file, planted = web.hand.internal.keys.token_file, folder / "planted"
    planted.write_text(file.read_text())

    def refused(why: str) -> None:
        web.site.keyring.forget()
        problem(web.ask("GET", LOOK, key=web.token), 401, "key-unknown")
        with pytest.raises(StoreError, match=why):
            web.hand.internal.keys.make_token()
        file.unlink()

    file.chmod(0o644)
    web.site.keyring.forget()
    problem(web.ask("GET", LOOK, key=web.token), 401, "key-unknown")
    assert not file.exists()  # what others could read is no secret
    file.symlink_to(planted)
    refused("is a symbolic link")
    os.link(planted, file)
    refused("is a hard link")
    os.mkfifo(file, 0o600)
    refused("is a pipe")
    assert web.hand.internal.keys.make_token() not in (None, web.token)


@pytest.mark.parametrize("admin", [False, True])
def test_the_first_key_ends_the_token_and_its_sign_ins(  # spec: SE-1
    web: Web, folder: Path, admin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, page = str(web.token), Page(web, str(web.token))
    assert page.ask("GET", LOOK).status_code == 200
    if admin:
        monkeypatch.setenv(ADMIN, "a-long-enough-admin-key")
        now = Web(folder)
        now.site.address = "http://127.0.0.1:1"
        now.run(announce.announce(now.site))
    else:
        web.key("read")
        now = web
    problem(now.ask("GET", LOOK, key=token), 401, "key-unknown")
    problem(now.ask("POST", "/api/web/session", json={"key": token}, key=None), 401, "key-unknown")
    problem(now.ask("GET", LOOK, headers={"Cookie": page.cookie}), 401, "signed-out")
    assert not now.hand.internal.keys.token_file.exists()
    if admin:
        now.close()
        monkeypatch.delenv(ADMIN)
        web.hand.internal.keys.make_token()
        web.site.keyring.forget()
        problem(web.ask("GET", LOOK, headers={"Cookie": page.cookie}), 401, "signed-out")
    else:
        web.hand.revoke_key("key-0")
        now.site.keyring.forget()
        assert web.hand.internal.keys.make_token() is None
        problem(web.ask("GET", LOOK, key=token), 401, "key-unknown")  # a revoked key does not open it again


def test_a_server_makes_the_token_before_its_first_request_if_the_store_answers(folder: Path) -> None:  # spec: SE-1
    hand = Chargehand(folder / "chargehand.db")
    site = Site(hand, "", address="http://127.0.0.1:1")
    asyncio.run(announce.announce(site))
    assert hand.internal.token() == hand.internal.keys.token_file.read_text().strip()
    assert hand.internal.dashboard() == f"http://127.0.0.1:1/dashboard#token={hand.internal.token()}"
    announce.end(site)
    with pytest.raises(NobodyServes, match="chargehand serve"):
        hand.internal.dashboard()
    hand.close()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_address_with_the_token_is_printed_on_a_terminal_and_nowhere_else(  # spec: SE-1 SE-4
    web: Web, terminal: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    ours, theirs = os.openpty()
    with open(theirs, "w") as shown, served(web) as url:  # as in an application, which does not know its address
        monkeypatch.setattr(sys, "stdout", shown if terminal else io.StringIO())
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        web.run(announce.announce(web.site))
        web.run(announce.announce(web.site))  # a second process of the same server: it is told once
        monkeypatch.undo()
        os.set_blocking(ours, False)
        printed = os.read(ours, 4096).decode() if terminal else ""
    os.close(ours)
    assert printed == (f"dashboard: {url}/dashboard#token={web.token}\r\n" if terminal else "")
    assert str(web.token) not in caplog.text
    files = [record.__dict__.get("facts", {}).get("file") for record in caplog.records]
    assert files.count(web.hand.internal.keys.token_file) == (0 if terminal else 1)
    announce.end(web.site)


def test_a_socket_that_answers_something_else_is_asked_once(  # spec: SE-1
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setattr(announce, "LOOK_ON", 0.3)
    monkeypatch.setattr(announce, "LOOK_FOR", 3.0)
    monkeypatch.setattr(announce, "_terminal", lambda: None)
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0):
            await announce.announce(web.site)

    web.run(run())
    assert len(asked) == 1
    assert web.hand.internal.keys.token_file in [each.__dict__.get("facts", {}).get("file") for each in caplog.records]


def test_the_command_prints_the_address_or_the_token(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: CL-6 SE-1
    def said(*words: str) -> str:
        monkeypatch.setenv("CHARGEHAND_URL", "")  # what --store sets is taken back
        return cli_said("dashboard", "--store", str(web.hand.path), *words)

    web.site.address = "http://127.0.0.1:1"
    web.run(announce.announce(web.site))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(web.hand.path.parent))
    assert said("--token") == f"{web.token}\n"
    assert said("--no-open") == f"http://127.0.0.1:1/dashboard#token={web.token}\n"
    assert opened == []
    said()
    page = web.hand.path.parent / "chargehand-dashboard.html"
    assert opened == [f"file://{page}"]  # every user of the machine sees the arguments of a browser
    assert (f"#token={web.token}" in page.read_text(), page.stat().st_mode & 0o777) == (True, 0o600)
    web.key("read")
    assert said() == "http://127.0.0.1:1/dashboard\n"
    assert opened[1:] == ["http://127.0.0.1:1/dashboard"]
    announce.end(web.site)


# keys


@pytest.mark.parametrize(
    "given", ["Bearer nonsense", "Bearer ", "Basic YTpi", "ch_x", "Bearer ch_\xff", "Bearer " + "x" * 5000]
)
def test_what_is_no_key_opens_nothing_not_even_here(web: Web, given: str) -> None:  # spec: SE-2
    for made in (False, True):
        if made:
            web.key("read")
        answer = web.ask("GET", LOOK, headers={"Authorization": given.encode("latin-1")})  # type: ignore[dict-item]
        assert answer.status_code == 401, answer.text
        assert "nonsense" not in answer.text


def test_a_revoked_key_opens_nothing_within_a_second_or_so(web: Web) -> None:  # spec: SE-2
    key = web.key("read", name="ops")
    web.get(LOOK, key=key)
    web.hand.revoke_key("ops")  # in the store alone, as from another process
    answer = eventually(lambda: (a := web.ask("GET", LOOK, key=key)).status_code == 401 and a, 10 * MAX_AGE)
    assert "revoked" in problem(answer, 401, "key-unknown")["detail"]  # type: ignore[arg-type]


def test_keys_and_sign_ins_of_other_processes_open_at_once(web: Web, folder: Path) -> None:  # spec: SE-2
    other = Web(folder)
    other.ask("GET", LOOK, key="ch_unknown")  # what the store has is in the cache now
    key, _ = web.hand.make_key("ops", [Scope.READ])
    assert other.ask("GET", LOOK, key=key).status_code == 200
    other.ask("GET", LOOK, key=key)
    page = Page(web, key)
    assert other.ask("GET", LOOK, key=None, headers={"Cookie": page.cookie}).status_code == 200
    other.close()


def test_a_stream_ends_when_its_key_is_revoked(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: SE-2 EV-5
    monkeypatch.setattr(sse, "PING_EVERY", 0.05)
    monkeypatch.setattr(sse, "RECHECK_EVERY", 0.1)
    key = web.key("read", name="ops")

    async def listen() -> httpx.Response:
        stream = asyncio.ensure_future(web.asks("GET", "/api/events", key=key))
        done, _ = await asyncio.wait([stream], timeout=5 * sse.RECHECK_EVERY)
        assert not done  # the stream continues while the key is valid
        web.hand.revoke_key("ops")
        return await stream

    assert web.run(listen()).text.startswith("retry: ")
    problem(web.ask("GET", "/api/events", key=key), 401, "key-unknown")


def test_a_revoked_key_reads_no_event(web: Web) -> None:  # spec: SE-2
    key = web.key("read", name="ops")

    async def listen() -> str:
        stream = asyncio.ensure_future(web.asks("GET", "/api/events?topics=queue:jobs", key=key))
        while web.hand.internal.feed().broker.wanted() is None:
            await asyncio.sleep(0.01)
        web.hand.revoke_key("ops")
        while (await web.asks("GET", LOOK, key=key)).status_code != 401:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(sse.PING_EVERY / 2):  # news ends it, long before the next comment
            while not stream.done():
                web.plain.enqueue({}, label="secret")
                await asyncio.sleep(0.05)
        return (await stream).text

    assert "secret" not in web.run(listen())


def test_an_expired_key_opens_nothing(web: Web) -> None:  # spec: SE-2
    key = web.key("read", name="ops", seconds=0.001)
    eventually(lambda: (web.hand.api_keys()[0].expires_ms or 0) < clock.now_ms())
    assert "expired" in problem(web.ask("GET", LOOK, key=key), 401, "key-unknown")["detail"]


def test_only_the_digest_of_a_key_is_kept(web: Web) -> None:  # spec: SE-2 SE-4
    key = web.key("read")
    assert key.startswith("ch_")
    assert len(key) >= 43
    assert key[3:].encode() not in b"".join(
        file.read_bytes() for file in web.hand.path.parent.iterdir() if file.is_file()
    )


def test_when_a_key_was_used_is_written_down(web: Web) -> None:  # spec: SE-2
    key = web.key("read")
    web.get(LOOK, key=key)
    web.get(LOOK, key=key)

    def used() -> bool:
        web.get("/healthz")  # lets the note be written
        return web.hand.api_keys()[0].used_ms is not None

    eventually(used)


def test_the_key_from_the_environment_may_do_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # spec: SE-1
    secret = "a-long-enough-admin-key"
    monkeypatch.setenv(ADMIN, secret)
    web = Web(folder)
    try:
        problem(web.ask("GET", LOOK), 401, "key-needed")
        web.get(LOOK, key=secret, client=AWAY)
        web.post(CHANGE, key=secret, client=AWAY)
        assert [(each.who, each.origin) for each in web.hand.operations()] == [(ADMIN, f"http {AWAY}")]
        check_listening(web.hand, "0.0.0.0")
        cookie = web.ask("POST", "/api/web/session", json={"key": secret}).cookies[web.site.cookie]
        web.get(LOOK, headers={"Cookie": f"{web.site.cookie}={cookie}"})
    finally:
        web.close()


def test_a_key_that_could_be_guessed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: SE-1
    monkeypatch.setenv(ADMIN, "secret")
    with pytest.raises(ConfigurationError, match=ADMIN):
        Web(folder)


def test_nobody_listens_openly_without_a_key(web: Web) -> None:  # spec: SE-1
    for host in ("127.0.0.1", "::1", "[::1]", "localhost"):
        check_listening(web.hand, host)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        with pytest.raises(ConfigurationError, match="chargehand keys create"):
            check_listening(web.hand, host)
    web.key("read")
    check_listening(web.hand, "0.0.0.0")


# signing in


class Page:
    """A page in a browser, signed in."""

    def __init__(self, web: Web, key: str) -> None:
        self.web = web
        answer = web.ask("POST", "/api/web/session", json={"key": key}, headers={"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 200, answer.text
        self.set_cookie = answer.headers["set-cookie"]
        self.cookie = f"{web.site.cookie}={answer.cookies[web.site.cookie]}"
        self.csrf: str = answer.json()["csrf"]
        self.told = answer.json()

    def ask(self, method: str, path: str, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.web.ask(method, path, headers={"Cookie": self.cookie, **sent})


def test_a_page_signs_in_with_a_key_and_changes_with_its_token(web: Web) -> None:  # spec: SE-2
    page = Page(web, web.key("read", "control", name="ops"))
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in page.set_cookie
    assert "Secure" not in page.set_cookie  # it is not https
    assert (page.told["name"], page.told["scopes"]) == ("ops", ["read", "control"])
    assert page.ask("GET", LOOK).status_code == 200
    assert page.ask("GET", "/api/web/session").json() == page.told
    assert page.ask("POST", CHANGE, X_CSRF_Token=page.csrf, Origin="http://localhost:8356").status_code == 200
    assert next(each.who for each in web.hand.operations()) == "ops"
    problem(page.ask("POST", "/api/v1/jobs", X_CSRF_Token=page.csrf), 403, "scope")


def test_a_cookie_alone_changes_nothing(web: Web) -> None:  # spec: SE-2
    key = web.key("read", "control")
    page, other = Page(web, key), Page(web, key)
    for token in ({}, {"X_CSRF_Token": "wrong"}, {"X_CSRF_Token": other.csrf}):
        problem(page.ask("POST", CHANGE, **token), 403, "csrf")
    for site in ({"Sec_Fetch_Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "same-site"}):
        problem(page.ask("POST", CHANGE, X_CSRF_Token=page.csrf, **site), 403, "cross-site")
        problem(page.ask("GET", LOOK, **site), 403, "cross-site")
    assert not changed(web)
    assert page.ask("GET", LOOK, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status_code == 200


def test_signing_out_ends_the_sign_in_everywhere(web: Web) -> None:  # spec: SE-2
    key = web.key("read")
    page, other = Page(web, key), Page(web, key)
    problem(page.ask("DELETE", "/api/web/session"), 403, "csrf")
    answer = page.ask("DELETE", "/api/web/session", X_CSRF_Token=page.csrf)
    assert answer.status_code == 200
    assert f'{web.site.cookie}=""' in answer.headers["set-cookie"]
    problem(page.ask("GET", LOOK), 401, "signed-out")
    assert other.ask("GET", LOOK).status_code == 200
    web.hand.revoke_key("key-0")
    web.site.keyring.forget()
    problem(other.ask("GET", LOOK), 401, "signed-out")


def test_nobody_signs_in_with_a_wrong_key_or_from_another_site(web: Web) -> None:  # spec: SE-2
    key = web.key("read")
    problem(web.ask("POST", "/api/web/session", json={"key": "ch_wrong"}), 401, "key-unknown")
    answer = web.ask("POST", "/api/web/session", json={"key": key}, headers={"Origin": "https://evil.example"})
    problem(answer, 403, "cross-site")
    assert "set-cookie" not in answer.headers
    assert web.run(web.site.keyring.by_cookie("cs_made-up")) == "the session has ended"


def test_over_https_the_cookie_is_sent_over_https_only(web: Web) -> None:  # spec: SE-2
    key = web.key("read")
    answer = web.ask("POST", "/api/web/session", json={"key": key}, base="https://chargehand.example")
    assert "Secure" in answer.headers["set-cookie"]


def test_sign_ins_with_the_key_from_the_environment_end_when_it_changes(  # spec: SE-1
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def world(secret: str | None) -> Web:
        monkeypatch.setenv(ADMIN, secret) if secret else monkeypatch.delenv(ADMIN)
        return Web(folder)

    first = world("the-first-admin-key")
    page = Page(first, "the-first-admin-key")
    assert page.ask("GET", LOOK).status_code == 200
    for secret in ("the-second-admin-key", None):
        now = world(secret)
        problem(now.ask("GET", LOOK, headers={"Cookie": page.cookie}), 401, "signed-out")
        now.close()
    first.close()


def test_no_key_can_end_the_sign_ins_of_another(web: Web) -> None:  # spec: SE-2
    page, key = Page(web, web.key("control", "read")), web.key("read")
    for _ in range(MOST_SESSIONS + 1):
        Page(web, key)
    assert page.ask("GET", LOOK).status_code == 200
    assert len(web.hand.internal.keys.access().sessions) == MOST_SESSIONS + 1


# what is written down


def signs(web: Web, key: str = "ch_wrong", **how: Any) -> httpx.Response:
    return web.ask("POST", "/api/web/session", json={"key": key}, key=None, **how)


def entries(web: Web) -> list[tuple[str, str, str, str | None]]:
    return [(each.who, each.verb, each.target, each.origin) for each in reversed(web.hand.operations())]


def test_sign_ins_and_their_ends_are_in_the_operator_log(web: Web) -> None:  # spec: SE-8
    key = web.key("read", name="ops")
    page = Page(web, key)
    signs(web, client=AWAY)
    page.ask("DELETE", "/api/web/session", X_CSRF_Token=page.csrf)
    assert entries(web)[1:] == [
        ("ops", "sign in", "key:ops", "http 127.0.0.1"),
        ("unknown", "sign in refused", "*", f"http {AWAY}"),
        ("ops", "sign out", "key:ops", "http 127.0.0.1"),
    ]


def test_bad_sign_ins_are_slowed_down_and_logged_once(web: Web, caplog: pytest.LogCaptureFixture) -> None:  # spec: SE-8
    key = web.key("read", name="ops")
    answers = [signs(web, client=AWAY) for _ in range(40)]
    assert [each.status_code for each in answers] == [401] * 10 + [429] * 30
    assert "try again in" in problem(answers[-1], 429, "slow-down")["detail"]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    verbs = [entry[1] for entry in entries(web)]
    assert (verbs.count("sign in refused"), verbs.count("sign-ins slowed down")) == (10, 1)
    told = [record.message for record in caplog.records if record.name.startswith("chargehand")]
    assert len(told) == 1, told
    assert "too many bad sign-ins" in told[0]
    assert signs(web).status_code == 401  # of another origin
    assert signs(web, key, client=AWAY).status_code == 200  # a random key cannot be guessed: its holder may


def test_a_key_that_a_person_chose_cannot_be_guessed_faster(  # spec: SE-8
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADMIN, "a-long-enough-admin-key")
    web = Web(folder)
    for _ in range(10):
        signs(web)
    problem(signs(web, "a-long-enough-admin-key"), 429, "slow-down")
    web.get(LOOK, key="a-long-enough-admin-key")
    web.close()


def test_wrong_keys_are_logged_once_a_minute_and_harm_nobody_else(  # spec: SE-8
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADMIN, "a-long-enough-admin-key")
    seconds = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: seconds[0])
    web = Web(folder)
    good, revoked = web.key("read", name="good"), web.key("read", name="old")
    web.hand.revoke_key("old")
    for wrong in ("ch_wrong", revoked) * 20:
        assert web.ask("GET", LOOK, key=wrong, client=AWAY).status_code == 401
    web.ask("GET", "/workers/ready", key="ch_wrong")  # public, and answers without reasons
    refused = [("unknown", "key refused", "*", f"http {origin}") for origin in (AWAY, "127.0.0.1")]
    assert entries(web)[-2:] == refused
    # A key from the same address is accepted, and so is a sign-in with the key that a person chose.
    assert web.ask("GET", LOOK, key=good, client=AWAY).status_code == 200
    assert signs(web, "a-long-enough-admin-key", client=AWAY).status_code == 200
    seconds[0] += 60
    web.ask("GET", LOOK, key="ch_wrong", client=AWAY)
    assert entries(web)[-1] == refused[0]
    for number in range(150):
        web.ask("GET", LOOK, key="ch_wrong", client=f"10.0.0.{number}")
    assert entries(web)[-1][3] == "http 10.0.0.98"  # 100 a minute, with the one above
    web.close()


def test_a_wrong_key_is_refused_if_the_operator_log_cannot_be_written(  # spec: SE-8
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log(deeds: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(web.hand.internal.keys, "log", log)
    problem(web.ask("GET", LOOK, key="ch_wrong"), 401, "key-unknown")
    problem(signs(web), 401, "key-unknown")


def test_jobs_that_programs_make_are_not_in_the_operator_log(web: Web) -> None:  # spec: SE-8
    web.post("/api/v1/jobs", {"crew": "plain"}, 201, key=web.key("enqueue", name="robot"))
    assert [verb for _, verb, *_ in entries(web)] == ["create key"]


def test_jobs_that_somebody_makes_over_http_are_in_the_operator_log(web: Web) -> None:  # spec: SE-8
    one = web.post("/api/v1/jobs", {"crew": "plain"}, 201, client=AWAY)["id"]
    kept = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 201, headers={"Idempotency-Key": "a"})["id"]
    web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 200)  # makes none
    web.post("/api/v1/jobs/bulk", {"jobs": [{"crew": "plain"}, {"crew": "plain"}]}, 201)
    web.plain.enqueue(None)  # by the application itself
    assert entries(web) == [
        ("token", "enqueue", f"job:{one}", f"http {AWAY}"),
        ("token", "enqueue", f"job:{kept}", "http 127.0.0.1"),
        ("token", "enqueue", "queue:plain", "http 127.0.0.1"),
    ]


@pytest.mark.parametrize(
    ("trusted", "served", "peer", "header", "origin"),
    [
        ("", False, AWAY, None, AWAY),
        ("", False, AWAY, "1.2.3.4", AWAY),
        ("", False, "1.2.3.4", "1.2.3.4", "unknown"),  # uvicorn took it from the header
        ("", True, "1.2.3.4", "1.2.3.4", "1.2.3.4"),  # chargehand serve takes nothing from it
        ("", False, "\x1b[31mred", None, "unknown"),
        ("127.0.0.1", False, "127.0.0.1", "9.9.9.9, 1.2.3.4", "1.2.3.4"),
        ("127.0.0.1", False, "127.0.0.1", "\x1b[31mred", "127.0.0.1"),
        ("10.0.0.0/8", False, AWAY, "1.2.3.4", AWAY),
    ],
)
def test_the_origin_is_true_or_unknown(  # spec: SE-8
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    trusted: str,
    served: bool,
    peer: str,
    header: str | None,
    origin: str,
) -> None:
    monkeypatch.setenv("CHARGEHAND_TRUSTED_PROXIES", trusted)
    web = Web(folder)
    web.site.address = "http://127.0.0.1:1" if served else None
    web.post(CHANGE, client=peer, headers={} if header is None else {"X-Forwarded-For": header})
    assert [each.origin for each in web.hand.operations()] == [f"http {origin}"]
    web.close()


# attached to an application


class Trusted(BaseHTTPMiddleware):
    """What an application of somebody else's keeps in the state of a request."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        request.state.caller = Caller(name="theirs", kind="admin")
        request.state.request_id = "theirs"
        answer = await call_next(request)
        answer.headers["their-id"] = request.state.request_id
        return answer


def test_the_state_of_the_application_is_neither_believed_nor_overwritten(web: Web) -> None:  # spec: SE-1
    theirs = FastAPI()
    theirs.add_middleware(Trusted)
    theirs.mount("/chargehand", web.api)
    web.api = theirs
    answer = web.ask("POST", f"/chargehand{CHANGE}", key=None)
    problem(answer, 401, "key-needed")
    assert answer.headers["their-id"] == "theirs"
    assert not changed(web)


def test_routes_of_the_application_are_behind_the_same_door_if_it_wants(folder: Path) -> None:  # spec: SE-1 TA-11
    hand, app = Chargehand(folder / "chargehand.db"), FastAPI()

    @app.post("/songs", dependencies=[Depends(hand.requires("control"))])
    def songs() -> str:
        return "written"

    hand.crew("plain", "nowhere:Plain")
    web = Web(folder, hand)
    web.api = app
    with pytest.raises(ConfigurationError, match="attach"):
        web.ask("POST", "/songs")
    hand.attach(app)
    assert web.ask("POST", "/songs", key=None).status_code == 401
    assert web.ask("POST", "/songs").json() == "written"
    signed = web.ask("POST", "/chargehand/api/web/session", json={"key": web.token}, key=None)
    assert "Path=/;" in signed.headers["set-cookie"]
    cookie = {"Cookie": f"{web.site.cookie}={signed.cookies[web.site.cookie]}"}
    assert web.ask("POST", "/songs", headers=cookie).status_code == 403  # without the CSRF token
    answer = web.ask("POST", "/songs", headers={**cookie, "X-CSRF-Token": signed.json()["csrf"]})
    assert answer.json() == "written"
    hand.make_key("reader", [Scope.READ])
    web.close()


def test_a_proxy_that_changes_the_host_is_named(web: Web) -> None:  # spec: SE-2
    rewritten = {"Origin": "https://jobs.example"}
    detail = problem(signs(web, str(web.token), headers=rewritten), 403, "cross-site")["detail"]
    assert "proxy_set_header Host" in detail
    assert "Origin is 'https://jobs.example', Host is 'localhost:8356'" in detail
    answer = signs(web, str(web.token), headers={**rewritten, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200  # the browser knows better
    assert "Secure" in answer.headers["set-cookie"]  # and that it speaks HTTPS with the proxy
