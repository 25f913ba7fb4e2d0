"""The filter language over HTTP and on the command line: lists, counts, failures by cause, and operations on many."""

import json
from typing import Any

import pytest
from test_web_jobs import end
from typer.testing import CliRunner
from webworld import Web, problem

from chargehand import errors
from chargehand.cli.main import app
from chargehand.codec import MARK
from chargehand.host import operations
from chargehand.model.job import Done, GaveUp, Raised
from chargehand.model.records import JobFilter
from chargehand.web.answers import BulkChanged

SEGFAULT = """worker:plain:{} ended by signal 11, SIGSEGV while it performed the job; it stood here:
Fatal Python error: Segmentation fault

Current thread 0x0000{} (most recent call first):
  File "/app/decode.py", line 41 in decode
  File "/app/tagger.py", line 7 in perform
"""
TRACEBACK = """Traceback (most recent call last):
  File "/app/tagger.py", line 41, in perform
    decode(path)
ValueError: truncated at byte {}
"""


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARGEHAND_URL", "")  # what --store sets is taken back


def ids(page: Any) -> list[str]:
    return [each["id"] for each in page["jobs"]]


def fail_some(web: Web) -> dict[str, list[str]]:
    """Fails jobs with two causes, and one is done."""
    truncated = [end(web, GaveUp(TRACEBACK.format(n * 17))) for n in range(3)]
    crashed = [end(web, GaveUp(SEGFAULT.format(n, 7 + n))) for n in range(2)]
    return {"truncated": truncated[::-1], "crashed": crashed[::-1], "done": [end(web, Done())]}


def test_jobs_are_listed_counted_and_paged_by_a_filter(web: Web) -> None:  # spec: HT-3 DB-3
    made = fail_some(web)
    failed = [*made["crashed"], *made["truncated"]]
    page = web.get("/api/v1/jobs", params={"filter": "state:failed queue:plain", "limit": 3})
    rest = web.get("/api/v1/jobs", params={"filter": "state:failed queue:plain", "limit": 3, "after": page["next"]})
    assert (ids(page) + ids(rest), rest["next"], page["searched_ms"]) == (failed, None, None)
    assert ids(web.get("/api/v1/jobs", params={"filter": "error:SIGSEGV", "state": "failed"})) == made["crashed"]
    oldest = web.get("/api/v1/jobs", params={"filter": "state:failed", "sort": "oldest", "limit": 2})
    assert ids(oldest) == failed[:-3:-1]
    longest = web.get("/api/v1/jobs", params={"sort": "longest", "limit": 4})
    more = web.get("/api/v1/jobs", params={"sort": "longest", "limit": 4, "after": longest["next"]})
    assert sorted(ids(longest) + ids(more)) == sorted([*failed, *made["done"]])
    counts = web.get("/api/v1/jobs/counts", params={"filter": "error:*"})
    assert counts == {"queued": 0, "running": 0, "done": 0, "failed": 5, "cancelled": 0, "searched_ms": None}
    assert ids(web.get(f"/api/v1/jobs?filter=caf{MARK}xe9")) == []


def test_a_wrong_filter_is_refused_in_words(still: Web) -> None:  # spec: HT-3
    for path in ("jobs", "jobs/counts", "jobs/failures"):
        found = problem(still.ask("GET", f"/api/v1/{path}?filter=stat:failed"), 422, "invalid-request")
        assert "no field 'stat'; did you mean state:?" in found["detail"]
        assert [fault["pointer"] for fault in found["errors"]] == ["filter"]
    twice = problem(still.ask("GET", "/api/v1/jobs?filter=queue:a&queue=b"), 422, "invalid-request")
    assert "gives queue twice: b and a" in twice["detail"]
    problem(still.ask("GET", "/api/v1/jobs?sort=best"), 422, "invalid-request")
    problem(still.ask("GET", "/api/v1/jobs?sort=longest&after=WzQxXQ"), 422, "invalid-request")
    for body in ({}, {"filter": " "}, {"ids": []}, {"fliter": "x"}):
        problem(still.ask("POST", "/api/v1/jobs/retry", json=body), 422, "invalid-request")
    found = problem(still.ask("POST", "/api/v1/jobs/retry", json={"filter": "state:done"}), 422, "invalid-request")
    assert found["detail"] == "cannot retry jobs that are done; allowed are failed and cancelled jobs"


def test_failures_are_grouped_by_cause_and_a_group_is_retried(web: Web) -> None:  # spec: DB-3
    made = fail_some(web)
    found = web.get("/api/v1/jobs/failures", params={"filter": "queue:plain"})
    assert (found["count"], found["searched_ms"]) == (5, None)
    by_cause = {group["count"]: group for group in found["groups"]}
    assert by_cause[3]["cause"] == "ValueError: truncated at byte 34"  # of the newest
    assert (by_cause[2]["where"], by_cause[2]["queues"]) == ("decode in decode.py", ["plain"])
    assert (by_cause[2]["newest"], by_cause[3]["newest"]) == (made["crashed"][0], made["truncated"][0])
    for count, cause in ((3, "truncated"), (2, "crashed")):
        assert ids(web.get("/api/v1/jobs", params={"filter": by_cause[count]["filter"]})) == made[cause]
    asked = {"filter": by_cause[3]["filter"]}
    assert web.post("/api/v1/jobs/retry", {**asked, "dry_run": True})["count"] == 3
    assert ids(web.get("/api/v1/jobs?filter=state:queued")) == []
    done = web.post("/api/v1/jobs/retry", asked)
    assert done == {"count": 3, "refused": 0, "next": None, "searched_ms": None}
    assert web.post("/api/v1/jobs/retry", asked)["count"] == 0  # the same again changes nothing
    assert ids(web.get("/api/v1/jobs?filter=state:queued")) == made["truncated"]
    (entry,) = [each for each in web.hand.operations() if each.verb == "retry"]
    assert (entry.target, entry.detail) == ("queue:plain", f"3 jobs: {by_cause[3]['filter']}")


def test_many_jobs_are_changed_in_parts(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: HT-3
    monkeypatch.setattr(operations, "AT_ONCE", 2)
    monkeypatch.setattr(operations, "AT_MOST", 2)
    for outcome in (GaveUp("no"), GaveUp("no"), GaveUp("no"), Done()):
        end(web, outcome)
    client = web.client()
    parts = [client.change_jobs("delete", "queue:plain older:0s")]
    while parts[-1].next is not None:
        parts.append(client.change_jobs("delete", "queue:plain older:0s", after=parts[-1].next))
    assert sum(part.count for part in parts) == 4
    assert len(parts) > 2
    assert web.hand.jobs(JobFilter()) == []
    log = [str(each.detail) for each in web.hand.operations() if each.verb == "delete"]
    assert sorted(log) == [
        "1 jobs: queue:plain older:0s",
        "1 jobs: queue:plain older:0s",
        "2 jobs: queue:plain older:0s",
    ]


def test_jobs_whose_key_is_taken_stay_and_the_rest_is_retried(web: Web) -> None:
    keyed = web.post("/api/v1/jobs", {"queue": "plain", "key": "k"}, 201)["id"]
    web.hand.cancel(keyed)
    web.post("/api/v1/jobs", {"queue": "plain", "key": "k"}, 201)
    other = web.post("/api/v1/jobs", {"queue": "plain"}, 201)["id"]
    web.hand.cancel(other)
    found = web.client().change_jobs("retry", "state:cancelled")
    assert found == BulkChanged(count=1, refused=1)
    assert web.hand.job(other).state.value == "queued"


def test_named_jobs_are_changed_whatever_their_state(web: Web) -> None:
    failed, done = end(web, GaveUp("no")), end(web, Done())
    waits = web.post("/api/v1/jobs", {"queue": "plain"}, 201)["id"]
    cancelled = web.post("/api/v1/jobs/cancel", {"ids": [waits[-8:], failed, done]})
    assert (cancelled["count"], cancelled["next"]) == (1, None)
    assert web.post("/api/v1/jobs/retry", {"ids": [waits, failed], "dry_run": True})["count"] == 2
    assert web.post("/api/v1/jobs/retry", {"ids": [waits, failed]})["count"] == 2
    assert web.post("/api/v1/jobs/delete", {"ids": [waits, done]})["count"] == 1
    assert [each.id for each in web.hand.jobs(JobFilter())] == [waits, failed]
    key = web.key("read")
    problem(web.ask("POST", "/api/v1/jobs/delete", json={"all": True}, key=key), 403, "scope")


def test_a_job_is_found_by_the_end_of_its_id(web: Web) -> None:  # spec: HT-3 CL-6
    job_id = end(web, Raised("boom"))
    assert web.get(f"/api/v1/jobs/{job_id[-8:]}")["id"] == job_id
    assert len(web.get(f"/api/v1/jobs/{job_id[-8:]}")["attempt_history"]) == 1
    problem(web.ask("GET", f"/api/v1/jobs/{job_id[-7:]}"), 404, "job-not-found")
    assert web.post(f"/api/v1/jobs/{job_id[-8:]}/cancel")["component"] == job_id
    assert web.post(f"/api/v1/jobs/{job_id[-9:]}/retry")["component"] == job_id
    with web.hand.transaction() as tx:
        tx.execute("UPDATE chargehand_job SET id = 'aaaa11112222' WHERE id = ?", (job_id,))
    web.hand.internal.enqueue([web.plain.new_job({})])
    with web.hand.transaction() as tx:
        tx.execute("UPDATE chargehand_job SET id = 'bbbb11112222' WHERE id <> 'aaaa11112222'")
    found = problem(web.ask("GET", "/api/v1/jobs/11112222"), 409, "ambiguous-id")
    assert "end with '11112222': bbbb11112222, aaaa11112222; give more" in found["detail"]
    with pytest.raises(errors.AmbiguousId):
        web.hand.cancel("11112222")
    assert web.hand.job("aaaa11112222").id == "aaaa11112222"


def run(web: Web, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["jobs", *words, "--store", str(web.hand.path)])
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done.stdout


def test_the_command_line_takes_the_same_words(web: Web) -> None:  # spec: CL-5 CL-6
    made = fail_some(web)
    listed = json.loads(run(web, "list", "state:failed error:truncated", "--json"))
    assert [each["id"] for each in listed] == made["truncated"]
    assert json.loads(run(web, "list", "state:failed", "error:truncated", "--sort", "oldest", "--json")) == listed[::-1]
    grouped = run(web, "list", "--groups")
    assert "ValueError: truncated at byte 34" in grouped
    assert "decode in decode.py" in grouped
    groups = json.loads(run(web, "list", "queue:plain", "--groups", "--json"))["groups"]
    assert [group["count"] for group in groups] == [3, 2]
    foreseen = run(web, "retry", groups[0]["filter"], "--dry-run")
    assert "3 jobs in total; nothing was changed" in foreseen
    assert "3 queued again" in run(web, "retry", groups[0]["filter"])
    assert "no queued job matches" in run(web, "cancel", "queue:none")
    assert "3 cancelled" in run(web, "cancel", "queue:plain")
    assert "2 deleted" in run(web, "delete", groups[1]["filter"])
    assert made["done"][0] in run(web, "show", made["done"][0][-8:])
    refused = CliRunner().invoke(app, ["jobs", "list", "stat:failed", "--store", str(web.hand.path)])
    assert isinstance(refused.exception, errors.ConfigurationError)
    refused = CliRunner().invoke(app, ["jobs", "delete", "--store", str(web.hand.path)])
    assert "no jobs are selected" in str(refused.exception)


def test_many_are_changed_where_the_store_is(web: Web) -> None:  # spec: CL-5
    web.hand.internal.enqueue([web.plain.new_job({}) for _ in range(30)])
    assert "30 cancelled" in run(web, "cancel", "queue:plain")
    assert "30 queued again" in run(web, "retry", "state:cancelled queue:plain")


def test_hidden_fields_are_shown_to_no_reader_and_cannot_be_searched(web: Web) -> None:  # spec: HK-4
    secret: Any = web.hand.crew("secret", "nowhere:Secret", takes=dict, hide=["Token"])  # no node has registered it
    job = secret.enqueue({"token": "abc", "n": 1}, meta={"token": "abc"}).id
    told = [
        web.ask("GET", path).text
        for path in (f"/api/v1/jobs/{job}", "/api/v1/jobs", "/api/v1/jobs?filter=queue:secret", "/api/v1/jobs?sort=age")
    ]
    assert [("abc" in text) for text in told] == [False] * 4
    assert web.get(f"/api/v1/jobs/{job}")["payload"] == {"token": "(hidden)", "n": 1}
    assert bytes(secret.ref(job).job().payload) == b'{"token":"abc","n":1}'
    assert ids(web.get("/api/v1/jobs", params={"filter": "payload.n:1"})) == [job]
    for method, path in (("GET", "jobs"), ("GET", "jobs/counts"), ("GET", "jobs/failures")):
        refused = web.ask(method, f"/api/v1/{path}", params={"filter": "queue:secret payload.token:~a"})
        assert "hides the field 'token'" in problem(refused, 422, "invalid-request")["detail"]
    for verb in ("retry", "cancel", "delete"):
        for dry_run in (True, False):
            refused = web.ask("POST", f"/api/v1/jobs/{verb}", json={"filter": "payload.Token:abc", "dry_run": dry_run})
            assert refused.status_code == 422, refused.text
    elsewhere = web.get("/api/v1/jobs", params={"filter": "queue:plain payload.token:abc"})
    assert elsewhere["jobs"] == []
