"""Readiness of a store on a PostgreSQL server: false with its cause, and true again without a restart."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from webworld import Web

import pgserver
from chargehand import Chargehand
from chargehand.model.doctor.causes import CAUSES
from chargehand.testing import eventually

pytestmark = pytest.mark.full

if (packages := pgserver.missing()) is not None:
    pytest.skip(f"readiness on PostgreSQL is NOT tested: pip install {packages}", allow_module_level=True)

FULL_DISK = """
CREATE FUNCTION {0}.full() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {0}.chargehand_probe FOR EACH ROW EXECUTE FUNCTION {0}.full()
"""


@pytest.fixture
def role() -> Iterator[tuple[str, str]]:
    with pgserver.weak_role(password="s3cret") as (name, url):
        yield name, url.replace(f"{name}@", f"{name}:s3cret@", 1)


@pytest.fixture
def web(folder: Path, role: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    made = Web(folder, Chargehand(role[1]))
    yield made
    made.close()


def cause(web: Web) -> str | None:
    """Returns why the store is not ready; None if it is."""
    web.site.probe.forget()
    answer = web.ask("GET", "/readyz")
    found = answer.json()
    if answer.status_code == 200:
        assert found == {"status": "ok"}
        return None
    assert (answer.status_code, found["status"]) == (503, "not ready")
    assert found["reason"].endswith(CAUSES[found["code"]][0])
    assert "weak_" not in answer.text, "it is public"
    return str(found["code"])


def end_sessions(name: str) -> list[int]:
    """Ends all sessions of a role. Returns the server processes that they had."""
    rows = pgserver.admin(f"SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{name}'")
    return [pid for pid, _ in rows]


# spec: HT-5 ST-2
@pytest.mark.parametrize(
    ("broken", "mended", "code"),
    [
        ("ALTER ROLE {0} NOLOGIN", "ALTER ROLE {0} LOGIN", "bad-login"),
        ("ALTER ROLE {0} PASSWORD 'new'", "ALTER ROLE {0} PASSWORD 's3cret'", "bad-login"),
        ("ALTER ROLE {0} CONNECTION LIMIT 0", "ALTER ROLE {0} CONNECTION LIMIT -1", "no-connections"),
        (
            "ALTER ROLE {0} SET default_transaction_read_only = on",
            "ALTER ROLE {0} RESET default_transaction_read_only",
            "server-read-only",
        ),
        (
            "ALTER TABLE {0}.chargehand_probe OWNER TO postgres",
            "ALTER TABLE {0}.chargehand_probe OWNER TO {0}",
            "no-rights",
        ),
        (
            FULL_DISK,
            "DROP FUNCTION {0}.full CASCADE",
            "disk-full",
        ),
        (
            "INSERT INTO {0}.chargehand_schema VALUES (99, '', 0, 99)",
            "DELETE FROM {0}.chargehand_schema WHERE version = 99",
            "schema-new",
        ),
    ],
)
def test_a_store_that_cannot_be_written_is_not_ready_until_it_can(
    web: Web, role: tuple[str, str], broken: str, mended: str, code: str
) -> None:
    name, _ = role
    assert cause(web) is None
    pgserver.admin(broken.format(name))
    end_sessions(name)
    assert cause(web) == code
    pgserver.admin(mended.format(name))
    assert cause(web) is None, "nobody restarts anything"


# spec: HT-5 ST-2
def test_a_server_that_stops_answering_is_not_ready_until_it_goes_on(web: Web, role: tuple[str, str]) -> None:
    assert cause(web) is None
    rows = pgserver.admin(f"SELECT pid FROM pg_stat_activity WHERE usename = '{role[0]}'")
    pids = [pid for (pid,) in rows]
    assert pids
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert cause(web) == "store-hung"
        assert cause(web) == "store-hung", "at once: the first question still waits"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: cause(web) is None)


# spec: SE-1
def test_the_token_of_a_machine_counts_on_all_until_there_is_a_key(
    web: Web, role: tuple[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = "/api/v1/info"
    token = str(web.token)
    web.get(look)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "elsewhere"))
    other = Web(folder, Chargehand(role[1]))
    try:
        assert other.token not in (None, token)
        other.get(look, key=token)
        other.get(look)
        web.site.keyring.forget()
        web.get(look, key=other.token)
        signed = web.ask("POST", "/api/web/session", json={"key": other.token}, key=None)
        cookie = {"Cookie": signed.headers["set-cookie"].partition(";")[0]}
        other.site.keyring.forget()
        other.get(look, headers=cookie)
        as_cookie = {"Cookie": f"{web.site.cookie}={token}"}
        assert web.ask("GET", look, headers=as_cookie).status_code == 401, "a token is no session"
        assert token not in str(pgserver.admin(f"SELECT * FROM {role[0]}.chargehand_session")), "only its digest"
        other.key("read")
        web.site.keyring.forget()
        assert [web.ask("GET", look, key=each).status_code for each in (token, other.token)] == [401, 401]
        assert web.ask("GET", look, headers=cookie).status_code == 401
        assert pgserver.admin(f"SELECT count(*) FROM {role[0]}.chargehand_session") == [(0,)]
    finally:
        other.close()


# spec: SE-3
def test_metrics_do_not_name_the_password(web: Web) -> None:
    text = web.ask("GET", "/metrics").text
    assert "chargehand_store_up 1.0" in text
    assert "s3cret" not in text
