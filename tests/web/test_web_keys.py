"""API keys and recurring jobs over HTTP: who may make, see, run and pause them."""

import pytest
from webworld import Song, Web, problem

from chargehand import RecurringNotFound
from chargehand.model.records import Holder
from chargehand.settings.schedule import RecurringJob, Schedule, plans

KEYS = "/api/v1/keys"


def test_a_key_is_shown_once_and_revoked(web: Web) -> None:  # spec: SE-1 SE-2 DB-5
    made = web.post(KEYS, {"name": "ann", "scopes": ["read", "control"]})
    assert (made["name"], made["scopes"], made["state"]) == ("ann", ["read", "control"], "in use")
    listed = web.get(KEYS, key=made["key"])["keys"]
    assert [(each["name"], each["scopes"], "key" in each, "digest" in each) for each in listed] == [
        ("ann", ["read", "control"], False, False)
    ]
    other = web.post(KEYS, {"name": "eve", "scopes": ["read"], "expires_s": 60}, key=made["key"])
    assert 0 < other["expires_ms"] - other["created_ms"] <= 60_000
    assert web.get("/api/v1/crews", key=other["key"])
    assert web.ask("DELETE", f"{KEYS}/{other['id']}", key=made["key"]).json()["text"] == "is revoked"
    problem(web.ask("GET", "/api/v1/crews", key=other["key"]), 401, "key-unknown")
    assert web.ask("DELETE", f"{KEYS}/{other['id']}", key=made["key"]).json()["text"] == "was revoked before"
    problem(web.ask("DELETE", f"{KEYS}/nobody", key=made["key"]), 404, "no-such-key")
    logged = [(each.verb, each.target, each.who) for each in web.hand.operations()]
    assert ("revoke key", f"key:{other['id']}", "ann") in logged
    assert ("create key", "key:eve", "ann") in logged


def test_a_key_gives_no_more_than_it_has(web: Web) -> None:  # spec: SE-2
    clerk = web.key("read", "control", seconds=3600)
    problem(web.ask("POST", KEYS, key=clerk, json={"name": "x", "scopes": ["enqueue"]}), 403, "scope")
    made = web.post(KEYS, {"name": "x", "scopes": ["read"], "expires_s": 86_400}, key=clerk)
    assert made["expires_ms"] - made["created_ms"] <= 3_600_000, "it does not outlive the key that made it"
    for path, body in ((KEYS, None), (KEYS, {"name": "y", "scopes": ["read"]})):
        refused = web.ask("GET" if body is None else "POST", path, key=made["key"], json=body)
        problem(refused, 403, "scope")
    problem(web.ask("POST", KEYS, key=clerk, json={"name": "x", "scopes": ["read"]}), 409, "conflict")
    problem(web.ask("POST", KEYS, key=clerk, json={"name": "z", "scopes": []}), 422, "invalid-request")


def test_a_browser_needs_the_csrf_token_to_make_a_key(web: Web) -> None:  # spec: SE-2
    key = web.key("read", "control")
    signed = web.ask("POST", "/api/web/session", key=None, json={"key": key})
    cookie = {"Cookie": signed.headers["set-cookie"].partition(";")[0]}
    body = {"name": "x", "scopes": ["read"]}
    problem(web.ask("POST", KEYS, key=None, headers=cookie, json=body), 403, "csrf")
    assert web.ask("POST", KEYS, key=None, headers={**cookie, "X-CSRF-Token": signed.json()["csrf"]}, json=body).json()[
        "key"
    ]


@pytest.fixture
def nightly(web: Web) -> Web:
    job = web.tag.new_job(Song(path="a.flac"), label="nightly")
    entry = RecurringJob(name="nightly/a b", schedule=Schedule(every_ms=60_000), job=job)
    with web.hand.internal.stores.use() as store, store.transaction() as tx:
        tx.jobs.recur(plans([entry], 1_000), Holder("n", "l"))
    return web


def test_a_recurring_job_over_http(nightly: Web) -> None:  # spec: WK-11 HT-2
    client = nightly.client(nightly.key("read", "control", name="ann"))
    (found,) = client.recurring()
    assert (found.in_words, found.queue, found.paused_ms, found.runs) == ("every 60 s", "tagging", None, ())
    client.pause_recurring("nightly/a b", "new disk")
    (paused,) = client.recurring()
    assert (paused.paused_by, paused.pause_reason) == ("ann", "new disk")
    made = client.run_recurring("nightly/a b").component
    assert client.job(made).label == "nightly"
    assert [run.id for run in client.recurring()[0].runs] == [made]
    assert client.resume_recurring("nightly/a b").text == "is no longer paused"
    (resumed,) = client.recurring()
    assert resumed.next_run_ms > paused.next_run_ms, "the time that has passed meanwhile stays skipped"
    with pytest.raises(RecurringNotFound):
        client.run_recurring("weekly")
    assert [each.verb for each in nightly.hand.operations()][:3] == ["resume", "run", "pause"]
