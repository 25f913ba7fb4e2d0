"""Who is let in: callers on this machine before there is a key, keys, sign-ins; never other sites' pages."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from webworld import AWAY, Web, problem

from chargehand import ConfigurationError, clock
from chargehand.testing import eventually
from chargehand.web import sse
from chargehand.web.keyring import ADMIN, MAX_AGE
from chargehand.web.serving import check_listening

LOOK, CHANGE = "/api/v1/info", "/api/web/worker/pause"


def changed(web: Web) -> bool:
    return bool(web.hand.pauses())


# nobody has made a key


@pytest.mark.parametrize(
    "base", ["http://localhost", "http://127.0.0.1:8356", "http://[::1]:8356", "http://a.localhost"]
)
def test_before_there_is_a_key_callers_on_this_machine_may_do_everything(web: Web, base: str) -> None:  # spec: SE-1
    web.get(LOOK, base=base)
    web.post(CHANGE, base=base)
    assert changed(web)


@pytest.mark.parametrize(
    "how",
    [
        {"client": AWAY},
        {"client": None},
        {"client": "localhost"},
        {"base": "http://rebound.example:8356"},
        {"base": "http://localhost.example"},
        {"base": "http://203.0.113.7"},
        {"headers": {"X-Forwarded-For": "203.0.113.7"}},
        {"headers": {"X-Forwarded-Host": "localhost"}},
        {"headers": {"Forwarded": "for=203.0.113.7"}},
        {"headers": {"X-Real-IP": "203.0.113.7"}},
        {"headers": {"Via": "1.1 proxy"}},
    ],
)
def test_before_there_is_a_key_nobody_else_is_answered_but_told_how_to_make_one(
    still: Web, how: dict[str, Any]
) -> None:  # spec: SE-1
    for method, path in (("GET", LOOK), ("POST", CHANGE), ("GET", "/metrics"), ("GET", "/api/web/session")):
        found = problem(still.ask(method, path, **how), 403, "no-key-yet")
        assert "chargehand keys create" in found["detail"]
    assert not changed(still)
    assert still.ask("GET", "/healthz", **how).status_code == 200
    assert still.ask("GET", "/readyz", **how).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
    ],
)
def test_before_there_is_a_key_other_sites_pages_can_do_nothing(
    still: Web, headers: dict[str, str]
) -> None:  # spec: SE-1
    problem(still.ask("POST", CHANGE, headers=headers), 403, "cross-site")
    problem(still.ask("GET", LOOK, headers=headers), 403, "cross-site")
    assert not changed(still)


def test_our_own_page_can(web: Web) -> None:  # spec: SE-1
    own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8356"}
    web.post(CHANGE, headers=own)
    assert changed(web)


def test_the_first_key_closes_that(web: Web) -> None:  # spec: SE-1
    web.get(LOOK)
    key = web.key("read")
    problem(web.ask("GET", LOOK), 401, "key-needed")
    web.get(LOOK, key=key, client=AWAY, base="http://chargehand.example", headers={"X-Forwarded-For": "1.2.3.4"})
    web.hand.revoke_key("key-0")
    web.site.keyring.forget()
    problem(web.ask("GET", LOOK), 401, "key-needed")  # a revoked one does not open it again


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


def test_before_there_is_a_key_nobody_needs_to_sign_in(web: Web) -> None:  # spec: SE-1
    found = web.get("/api/web/session")
    assert (found["kind"], found["scopes"], found["csrf"]) == ("local", ["read", "enqueue", "control"], None)
