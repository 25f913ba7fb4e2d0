"""Jobs over HTTP: made, listed, shown, retried, cancelled; queues, claims and the operator log beside them."""

from typing import Any

import pytest
from webworld import Web, problem

from chargehand import codec
from chargehand.codec import MARK
from chargehand.model.batch import Want
from chargehand.model.job import Crashed, Done, GaveUp, Outcome, Stopped, settle
from chargehand.model.records import CrashReport, CrewRow, Holder, JobFilter
from chargehand.web.answers import Changed

ME = Holder("node", "life")


def take(web: Web, queue: str = "plain") -> Any:
    with web.hand.transaction() as tx:
        (grant,) = tx.jobs.claim([Want(queue, queue, 1)], ME)
    return grant.claims[0]


def end(web: Web, outcome: Outcome, queue: str = "plain") -> str:
    """One job, made, taken and ended so."""
    made = web.post("/api/v1/jobs", {"queue": queue}, 201)
    claim = take(web, queue)
    assert claim.id == made["id"]
    settlement = settle(claim, outcome)
    assert settlement is not None
    with web.hand.transaction() as tx:
        tx.jobs.settle([settlement], ME)
    return claim.id


def test_a_job_is_made_and_found_with_all_that_it_was_given(web: Web) -> None:  # spec: HT-3 WK-1 WK-2
    given = {
        "label": "a song", "key": "k", "priority": 5, "delay_ms": 60_000, "max_attempts": 7, "timeout_ms": 1500,
        "limit_key": "album",
    }  # fmt: skip
    answer = web.ask("POST", "/api/v1/jobs", json={"crew": "tag", "payload": {"path": "a.flac"}, **given})
    assert answer.status_code == 201
    made = answer.json()
    assert (made["queue"], made["created"]) == ("tagging", True)
    assert answer.headers["location"] == f"/api/v1/jobs/{made['id']}"
    job = web.get(answer.headers["location"])
    assert job["payload"] == {"path": "a.flac", "seconds": 1}  # as the crew's type says
    assert {name: job[name] for name in given if name != "delay_ms"} == {
        name: value for name, value in given.items() if name != "delay_ms"
    }
    assert job["run_at_ms"] - job["created_ms"] == 60_000
    assert (job["state"], job["attempt_history"], job["crash_reports"]) == ("queued", [], [])
    assert job["claim"] is None
    assert "fence" not in job  # a word of the code


def test_meta_and_the_trace_of_the_request_stay_with_the_job(web: Web) -> None:  # spec: HK-2
    trace, other = (
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-" + "5" * 32 + "-" + "6" * 16 + "-00",
    )

    def made(headers: dict[str, str], **given: Any) -> Any:
        answer = web.ask("POST", "/api/v1/jobs", json={"queue": "plain", **given}, headers=headers)
        assert answer.status_code == 201, answer.text
        return web.get(f"/api/v1/jobs/{answer.json()['id']}")

    meta = {"customer": f"caf{MARK}xe9", "n": 2**60, "list": [{"a": None}]}
    job = made({"traceparent": trace}, meta=meta)
    assert (job["meta"], job["traceparent"]) == (meta, trace)
    assert web.hand.job(job["id"]).meta == {**meta, "customer": "caf\udce9"}
    assert made({"traceparent": trace}, traceparent=other)["traceparent"] == other
    assert made({"traceparent": trace}, traceparent=None)["traceparent"] is None
    assert (made({"traceparent": "nonsense"})["traceparent"], made({})["meta"]) == (None, None)
    (flow,) = web.post("/api/v1/flows", {"name": "f", "jobs": [{"queue": "plain", "meta": {"a": 1}}]}, 201)["jobs"]
    assert web.get(f"/api/v1/jobs/{flow['id']}")["meta"] == {"a": 1}
    for wrong in ({"meta": []}, {"meta": "x"}, {"meta": {"x": "y" * 5000}}, {"traceparent": "1"}):
        refused = web.ask("POST", "/api/v1/jobs", json={"queue": "plain", **wrong})
        assert refused.status_code == 422
        assert next(iter(wrong)) in refused.text


def test_a_job_may_be_about_a_file_whose_name_is_not_utf8(web: Web) -> None:  # spec: HT-3 WK-1
    name, kept, shown = "caf\udce9\udcff.flac", f"caf{MARK}xe9{MARK}xff.flac", r"caf\xe9\xff.flac"
    given = {"label": kept, "key": kept, "limit_key": kept, "tags": [kept, "b"]}
    first = web.post("/api/v1/jobs", {"crew": "tag", "payload": {"path": kept}, **given}, 201)["id"]
    job = web.hand.job(first)
    assert (job.label, job.key, job.limit_key, job.tags) == (name, name, name, (name, "b"))
    claim = take(web, "tagging")
    assert codec.from_json(claim.payload, None, "it")["path"] == name
    shown_job = web.get(f"/api/v1/jobs/{first}")
    assert shown_job["payload"]["path"] == kept, "what was read can be sent again"
    assert {field: shown_job[field] for field in given} == given
    for query in ({"text": kept}, {"text": shown}, {"tag": kept}):
        assert [found["id"] for found in web.get("/api/v1/jobs", params=query)["jobs"]] == [first]
    for found in (web.hand.jobs(JobFilter(tag=name)), web.hand.jobs(JobFilter(text=name))):
        assert [(each.id, each.key) for each in found] == [(first, name)]
    assert web.get("/api/v1/claims")["claims"][0]["label"] == kept
    assert web.hand.claims()[0].label == name


def test_the_client_escapes_what_it_sends(web: Web) -> None:  # spec: HT-3
    name = "caf\udce9\0.flac"
    client = web.client()
    one = client.enqueue("plain", {name: [name]}, label="caf\udce9", tags=["caf\udce9"])
    (other,) = client.enqueue_many([{"crew": "plain", "payload": name, "key": "caf\udce9"}])
    assert [codec.from_json(take(web).payload, None, "it") for _ in range(2)] == [{name: [name]}, name]
    assert (web.hand.job(one.id).label, web.hand.job(other.id).key) == ("caf\udce9", "caf\udce9")
    assert [job.id for job in client.jobs(tag="caf\udce9").jobs] == [one.id]
    assert [job.id for job in client.jobs(text="caf\udce9").jobs] == [other.id, one.id]


def test_nul_may_be_in_a_payload_escaped_or_not(web: Web) -> None:  # spec: HT-3
    for text in ("a\0b", f"a{MARK}x00b"):
        made = web.post("/api/v1/jobs", {"crew": "plain", "payload": [text]}, 201)
        assert web.get(f"/api/v1/jobs/{made['id']}")["payload"] == [f"a{MARK}x00b"]


def test_a_key_that_is_taken_is_answered_with_the_job_that_has_it(web: Web) -> None:  # spec: WK-2
    first = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 201)
    second = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 200)
    assert second == {"id": first["id"], "queue": "plain", "created": False, "replaced": False}


def test_no_timeout_is_not_the_crews_timeout(web: Web) -> None:  # spec: WK-7
    ids = [web.post("/api/v1/jobs", {"crew": "plain", **more}, 201)["id"] for more in ({}, {"timeout_ms": None})]
    assert [web.hand.job(job_id).timeout_ms for job_id in ids] == [3_600_000, None]


def test_a_crew_that_only_the_store_knows_can_be_given_work(web: Web) -> None:  # spec: HT-3
    row = CrewRow(name="far", queue="away", handler="m:H", workers=1, max_attempts=9, timeout_ms=5, priority=2)
    with web.hand.transaction() as tx:
        tx.fleet.register(ME, [row], {})
    made = web.post("/api/v1/jobs", {"queue": "away", "payload": [1]}, 201)
    job = web.hand.job(made["id"])
    assert (job.queue, job.max_attempts, job.timeout_ms, job.priority) == ("away", 9, 5, 2)


def test_many_are_made_together_or_not_at_all(web: Web) -> None:  # spec: HT-3 WK-2
    body = {"jobs": [{"crew": "plain", "payload": number} for number in range(2000)]}
    made = web.post("/api/v1/jobs/bulk", body, 201)["jobs"]
    assert len({each["id"] for each in made}) == 2000
    assert [bytes(web.hand.job(made[at]["id"]).payload) for at in (0, 1999)] == [b"0", b"1999"]
    body["jobs"].append({"crew": "tag", "payload": "wrong"})
    web.post("/api/v1/jobs/bulk", body, 422)
    assert web.hand.counts()[0].queued == 2000


def test_a_repeated_request_makes_nothing_and_is_answered_alike(web: Web) -> None:  # spec: HT-3
    once = {"Idempotency-Key": "order-1"}
    body = {"crew": "plain", "payload": 1}
    answers = [web.ask("POST", "/api/v1/jobs", json=body, headers=once) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true", "true"]
    other = web.ask("POST", "/api/v1/jobs", json={"crew": "plain", "payload": 2}, headers=once)
    problem(other, 422, "idempotency-key-reused")
    many = web.ask("POST", "/api/v1/jobs/bulk", json={"jobs": [body]}, headers=once)
    problem(many, 422, "idempotency-key-reused")
    for bad in ("", "a b", "x" * 201, "é".encode()):
        answer = web.ask("POST", "/api/v1/jobs", json=body, headers={"Idempotency-Key": bad})  # type: ignore[dict-item]
        assert answer.status_code == 422, bad
    assert len(web.hand.jobs(JobFilter())) == 1


def test_two_callers_may_use_the_same_idempotency_key(web: Web) -> None:
    keys = [web.key("enqueue") for _ in range(2)]
    once = {"Idempotency-Key": "1"}
    ids = {web.post("/api/v1/jobs", {"crew": "plain"}, 201, key=key, headers=once)["id"] for key in keys}
    assert len(ids) == 2


def test_a_refused_request_is_not_remembered(web: Web) -> None:
    once = {"Idempotency-Key": "1"}
    web.post("/api/v1/jobs", {"crew": "nobody"}, 422, headers=once)
    web.post("/api/v1/jobs", {"crew": "plain"}, 201, headers=once)


def test_pages_follow_each_other_without_gap_or_repetition_though_jobs_come_and_go(web: Web) -> None:  # spec: HT-3
    ids = [ref.id for ref in web.plain.enqueue_many(range(7))]
    seen: list[str] = []
    after = None
    while True:
        page = web.get("/api/v1/jobs", params={"limit": 3, **({"after": after} if after else {})})
        seen += [job["id"] for job in page["jobs"]]
        after = page["next"]
        if after is None:
            break
        web.plain.enqueue("new")  # what comes meanwhile is not on later pages
        with web.hand.transaction() as tx:  # nor does it matter that the page's last one is gone
            tx.execute("DELETE FROM chargehand_job WHERE id = ?", (seen[-1],))
    assert seen == list(reversed(ids))


def test_jobs_are_filtered(web: Web) -> None:  # spec: HT-3
    failed, done = end(web, GaveUp("no use")), end(web, Done("1"))
    web.post("/api/v1/jobs", {"crew": "tag", "payload": {"path": "a"}, "label": "Needle"}, 201)

    def ids(**query: str) -> list[str]:
        return [job["id"] for job in web.get("/api/v1/jobs", params=query)["jobs"]]

    assert ids(state="failed") == ids(reason="gave up") == ids(text="NO USE") == [failed]
    assert ids(state="done") == [done]
    assert ids(queue="plain") == [done, failed]
    assert len(ids(text="needle")) == len(ids(queue="tagging")) == 1
    assert ids(queue="nowhere") == []


def test_a_job_tells_its_attempts_and_how_its_workers_died(web: Web) -> None:  # spec: HT-3 WK-5
    job_id = end(web, Crashed("killed by SIGSEGV"))
    report = CrashReport(
        id="c1", component="worker:plain:0", crew="plain", incarnation="i", pid=7, reason="crash", text="died",
        exit_code=None, signal=11, job=job_id, memory=None, uptime_ms=5, charged=False, follows="again",
        stacks="here", lines=("last line",),
    )  # fmt: skip
    with web.hand.transaction() as tx:
        tx.fleet.report([report], ME)
    job = web.get(f"/api/v1/jobs/{job_id}")
    assert [attempt["outcome"] for attempt in job["attempt_history"]] == ["crashed"]
    assert [(each["id"], each["lines"]) for each in job["crash_reports"]] == [("c1", ["last line"])]
    assert [each["id"] for each in web.get("/api/v1/crashes", params={"job": job_id})["crashes"]] == ["c1"]
    assert web.get("/api/v1/crashes", params={"crew": "other"})["crashes"] == []
    assert web.get("/api/v1/crashes/c1")["stacks"] == "here"


def test_retry_and_cancel_by_their_states(web: Web) -> None:  # spec: HT-3 WK-8
    job_id = end(web, GaveUp("no use"))
    assert web.post(f"/api/v1/jobs/{job_id}/retry") == {
        "component": job_id,
        "text": "is queued again",
        "code": "queued",
    }
    problem(web.ask("POST", f"/api/v1/jobs/{job_id}/retry"), 409, "conflict")
    assert web.post(f"/api/v1/jobs/{job_id}/cancel")["text"] == "is cancelled"
    assert web.post(f"/api/v1/jobs/{job_id}/cancel")["text"] == "is already cancelled"
    done = end(web, Done("1"))
    assert "done" in problem(web.ask("POST", f"/api/v1/jobs/{done}/cancel"), 409, "conflict")["detail"]
    problem(web.ask("POST", f"/api/v1/jobs/{done}/retry"), 409, "conflict")


def test_a_retry_whose_key_is_taken_names_the_holder(web: Web) -> None:  # spec: WK-2
    first = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 201)["id"]
    web.post(f"/api/v1/jobs/{first}/cancel")
    second = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 201)["id"]
    assert second in problem(web.ask("POST", f"/api/v1/jobs/{first}/retry"), 409, "conflict")["detail"]


def test_failed_jobs_of_a_queue_are_retried_or_cleared(web: Web) -> None:  # spec: HT-3
    for _ in range(3):
        end(web, GaveUp("no use"))
    first = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 201)["id"]
    web.post(f"/api/v1/jobs/{first}/cancel")
    assert web.post("/api/v1/queues/plain/retry-failed") == {"count": 3, "more": False}
    assert web.post("/api/v1/queues/plain/clear-failed") == {"count": 0, "more": False}
    queues = {each["queue"]: each for each in web.get("/api/v1/queues")["queues"]}
    assert (queues["plain"]["queued"], queues["plain"]["failed"], queues["plain"]["cancelled"]) == (3, 0, 1)
    assert web.hand.clear_failed("plain", 2) == (0, False)


def test_clearing_goes_on_where_it_stopped(web: Web) -> None:
    for _ in range(3):
        end(web, GaveUp("no use"))
    assert web.hand.retry_failed("plain", 2) == (2, True)
    assert web.hand.clear_failed("plain", 1) == (1, True)
    assert web.hand.clear_failed("plain", 1) == (0, False)


def test_queues_say_who_serves_them_and_how_long_their_work_waits(web: Web) -> None:  # spec: HT-3 SV-12
    row = CrewRow(name="plain", queue="plain", handler="m:H", workers=1, max_attempts=3, timeout_ms=5)
    with web.hand.transaction() as tx:
        tx.fleet.register(ME, [row], {})
    web.post("/api/v1/jobs", {"crew": "plain"}, 201)
    (queue,) = web.get("/api/v1/queues")["queues"]
    assert (queue["crews"], queue["queued"], queue["paused"]) == (["plain"], 1, False)
    assert queue["oldest_wait_ms"] >= 0
    assert queue["unserved"] == "no node runs"
    web.post("/api/web/worker/pause", {"scope": "plain", "reason": "new model", "for_s": 60})
    assert web.get("/api/v1/queues")["queues"][0]["paused"]
    (pause,) = web.get("/api/v1/pauses")["pauses"]
    assert (pause["scope"], pause["reason"], pause["who"]) == ("plain", "new model", "token")
    problem(web.ask("POST", "/api/web/worker/pause", json={"scope": "nobody"}), 404, "unknown-crew")


def test_a_claim_is_taken_back_by_hand_only_if_it_is_still_that_one(web: Web) -> None:  # spec: HT-3 WK-4
    ids = [web.post("/api/v1/jobs", {"crew": "plain"}, 201)["id"] for _ in range(3)]
    path = f"/api/v1/claims/{ids[0]}/release"
    problem(web.ask("POST", path, json={"claim": "1"}), 409, "conflict")
    problem(web.ask("POST", path, json={"claim": 1}), 422, "invalid-request")  # a number that programs would round
    numbers = {claim.id: str(claim.number) for claim in (take(web) for _ in ids)}
    first = web.get("/api/v1/claims", params={"limit": 2})
    rest = web.get("/api/v1/claims", params={"limit": 2, "after": first["next"]})
    assert {claim["id"]: claim["claim"] for claim in first["claims"] + rest["claims"]} == numbers
    assert rest["next"] is None
    number = numbers[ids[0]]
    problem(web.ask("POST", path, json={"claim": numbers[ids[1]]}), 409, "conflict")
    assert web.post(path, {"claim": number})["text"] == "is queued again"
    problem(web.ask("POST", path, json={"claim": number}), 409, "conflict")
    assert web.hand.job(ids[0]).interruptions == 1


def test_whatever_people_do_is_in_the_operator_log_and_nothing_else(web: Web) -> None:  # spec: SE-5
    key = web.key("read", "enqueue", "control", name="ann")
    failed, waiting = end_with(web, key), web.post("/api/v1/jobs", {"crew": "plain"}, 201, key=key)["id"]
    web.post(f"/api/v1/jobs/{failed}/retry", key=key)
    web.post(f"/api/v1/jobs/{waiting}/cancel", key=key)
    claim = take(web)
    web.post(f"/api/v1/claims/{claim.id}/release", {"claim": str(claim.number)}, key=key)
    web.post("/api/web/worker/pause", {"reason": "tea"}, key=key)
    web.post("/api/web/worker/resume", key=key)
    end_with(web, key)
    web.post("/api/v1/queues/plain/clear-failed", key=key)
    problem(web.ask("POST", "/api/web/worker/stop", key=key), 503, "no-node")  # nothing was done
    problem(web.ask("POST", f"/api/v1/jobs/{waiting}/nothing", key=key), 404, "no-such-path")
    found = web.get("/api/v1/operations", key=key)["operations"]
    assert [(each["verb"], each["target"], each["detail"]) for each in reversed(found)] == [
        ("create key", "key:ann", "read, enqueue, control"),
        ("retry", f"job:{failed}", None),
        ("cancel", f"job:{waiting}", None),
        ("release", f"job:{claim.id}", f"claim {claim.number}"),
        ("pause", "*", "tea"),
        ("resume", "*", None),
        ("clear failed", "queue:plain", "1 failed jobs"),
    ]
    assert {(each["who"], each["origin"]) for each in found[:-1]} == {("ann", "http 127.0.0.1")}
    first = web.get("/api/v1/operations", key=key, params={"limit": 5})
    rest = web.get("/api/v1/operations", key=key, params={"limit": 6, "after": first["next"]})
    assert first["operations"] + rest["operations"] == found
    assert len(web.get("/api/v1/operations", key=key, params={"verb": "pause"})["operations"]) == 1


def end_with(web: Web, key: str) -> str:
    made = web.post("/api/v1/jobs", {"crew": "plain", "priority": 9}, 201, key=key)
    settlement = settle(take(web), GaveUp("no use"))
    assert settlement is not None
    with web.hand.transaction() as tx:
        assert tx.jobs.settle([settlement], ME) == []
    return made["id"]


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "\x1b[31mred", "a" * 200])
def test_text_from_elsewhere_comes_back_as_data(web: Web, text: str) -> None:  # spec: SE-4
    made = web.post("/api/v1/jobs", {"crew": "plain", "payload": text}, 201)
    answer = web.ask("GET", f"/api/v1/jobs/{made['id']}")
    assert answer.json()["payload"] == text
    assert answer.headers["content-type"] == "application/json"


def test_finished_jobs_are_deleted(web: Web) -> None:  # spec: HT-3 CL-6
    done, failed = end(web, Done()), end(web, GaveUp("why"))
    key = web.key("read", "control", name="ops")
    assert web.ask("DELETE", f"/api/v1/jobs/{done}", key=key).json() == {
        "component": done, "text": "is deleted", "code": "deleted",
    }  # fmt: skip
    problem(web.ask("DELETE", f"/api/v1/jobs/{done}", key=key), 404, "job-not-found")
    waits = web.client(web.key("enqueue")).enqueue("plain").id
    refused = problem(web.ask("DELETE", f"/api/v1/jobs/{waits}", key=key), 409, "conflict")
    assert refused["detail"] == f"job {waits} is queued and was not deleted: cancel it first"
    take(web)
    refused = problem(web.ask("DELETE", f"/api/v1/jobs/{waits}", key=key), 409, "conflict")
    assert refused["detail"] == f"job {waits} is running and was not deleted: cancel it first"
    problem(web.ask("DELETE", f"/api/v1/jobs/{failed}", key=web.key("read", "enqueue")), 403, "scope")
    (entry,) = [each for each in web.hand.operations() if each.verb == "delete"]
    assert (entry.who, entry.target) == ("ops", f"job:{done}")
    assert {job.id for job in web.hand.jobs(JobFilter())} == {failed, waits}


def test_finished_jobs_are_cleared_by_filters(web: Web) -> None:  # spec: HT-3 CL-6
    done, failed, stopped = end(web, Done()), end(web, GaveUp("why")), end(web, Stopped())
    client = web.client()
    problem(web.ask("DELETE", "/api/v1/jobs"), 422, "invalid-request")
    problem(web.ask("DELETE", "/api/v1/jobs?state=running"), 409, "conflict")
    problem(web.ask("DELETE", "/api/v1/jobs?older_than=7d"), 422, "invalid-request")
    assert client.clear(older_ms=3_600_000) == Changed(0, False)
    assert client.clear(queue="plain", state="done") == Changed(1, False)
    assert {job.id for job in client.all_jobs()} == {failed, stopped}
    assert client.jobs(older_ms=3_600_000).jobs == ()
    assert client.clear(every=True) == Changed(2, False)
    assert done not in {job.id for job in client.all_jobs()} == set()


def test_the_history_of_health_is_paged(web: Web) -> None:  # spec: HP-6 HT-3
    assert web.get("/api/v1/history") == {"snapshots": [], "next": None}
    insert = 'INSERT INTO chargehand_history (timestamp_ms, components) VALUES (?, \'[{"component": "app"}]\')'
    with web.hand.transaction() as tx:
        for at in range(1000, 1005):
            tx.execute(insert, (at,))
    first = web.get("/api/v1/history", params={"since_ms": 1001, "limit": 2})
    assert first["snapshots"] == [{"timestamp_ms": at, "components": [{"component": "app"}]} for at in (1001, 1002)]
    client = web.client()
    second = client.history(1001, limit=2, after=first["next"])
    assert ([each.timestamp_ms for each in second.snapshots], second.next) == ([1003, 1004], None)
    problem(web.ask("GET", "/api/v1/history?after=nothing"), 422, "invalid-request")
