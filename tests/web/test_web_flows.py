"""Flows over HTTP: made in one request, listed, shown, cancelled, retried, deleted; and jobs that wait for others."""

from typing import Any

import pytest
from test_web_jobs import ME, take
from webworld import Web, problem

from chargehand.errors import Conflict, FlowEnded, FlowNotFound
from chargehand.model.batch import Want
from chargehand.model.job import Done, GaveUp, NewJob, Outcome, settle

# spec: FL-1 FL-2 FL-4 HT-3


def chain(web: Web, **more: Any) -> dict[str, Any]:
    """A flow of three jobs: `join` waits for both others."""
    jobs = [
        {"crew": "plain", "payload": 1, "label": "first", "ref": "first"},
        {"crew": "plain", "payload": 2, "label": "second"},
        {"crew": "tag", "payload": {"path": "a"}, "label": "join", "after": ["first", 1]},
    ]
    return web.post("/api/v1/flows", {"name": "summer.mp4", "jobs": jobs, **more}, 201)


def finish(web: Web, outcome: Outcome, queue: str = "plain") -> str:
    """Ends the next job of this queue so."""
    claim = take(web, queue)
    settlement = settle(claim, outcome)
    assert settlement is not None
    with web.hand.transaction() as tx:
        tx.jobs.settle([settlement], ME)
    return claim.id


def test_a_flow_is_made_in_one_request_and_shown_by_stage(web: Web) -> None:
    answer = web.ask(
        "POST",
        "/api/v1/flows",
        json={"name": "a flow", "jobs": [{"crew": "plain"}, {"crew": "tag", "payload": {"path": "a"}, "after": [0]}]},
    )
    made = answer.json()
    assert (answer.status_code, made["name"]) == (201, "a flow")
    assert answer.headers["location"] == f"/api/v1/flows/{made['id']}"
    assert [(each["queue"], each["created"]) for each in made["jobs"]] == [("plain", True), ("tagging", True)]
    flow = web.get(answer.headers["location"])
    assert (flow["state"], flow["counts"]["queued"], flow["counts"]["following"], flow["ended_ms"]) == (
        "running", 2, 1, None,
    )  # fmt: skip
    assert [(stage["queue"], stage["counts"]["queued"], stage["begun_ms"]) for stage in flow["stages"]] == [
        ("plain", 1, None),
        ("tagging", 1, None),
    ]
    assert web.get(f"/api/v1/flows/{made['id'][-8:]}") == flow
    first, second = (each["id"] for each in made["jobs"])
    assert [job["id"] for job in web.get(f"/api/v1/flows/{made['id'][-8:]}/jobs")["jobs"]] == [second, first]
    job = web.get(f"/api/v1/jobs/{second}")
    assert (job["flow"], job["waits_for"], job["related"]) == (
        flow["id"], 1, {"predecessors": 1, "followers": 0, "children": 0},
    )  # fmt: skip
    assert [(each["id"], each["state"]) for each in job["predecessors"]] == [(first, "queued")]
    assert [each["id"] for each in web.get(f"/api/v1/jobs/{first}")["followers"]] == [second]


def test_a_flow_goes_on_and_ends(web: Web) -> None:
    made = chain(web, on_end={"crew": "plain", "label": "the end"})
    finish(web, Done())
    finish(web, Done())
    finish(web, Done(), "tagging")
    flow = web.get(f"/api/v1/flows/{made['id']}")
    assert (flow["state"], flow["counts"]["done"], flow["ends"]) == ("done", 3, 1)
    assert flow["ended_ms"] >= flow["created_ms"]
    assert [stage["queue"] for stage in flow["stages"]] == ["plain", "tagging"], "in the order of their begin"
    assert all(stage["ended_ms"] >= stage["begun_ms"] for stage in flow["stages"])
    end = web.get(f"/api/v1/jobs/{flow['on_end']}")
    assert (end["label"], end["flow"], end["payload"]["state"], end["payload"]["counts"]["done"]) == (
        "the end", None, "done", 3,
    )  # fmt: skip


def test_flows_are_listed_in_pages_by_state_and_text(web: Web) -> None:
    ids = [chain(web)["id"] for _ in range(3)]
    web.post(f"/api/v1/flows/{ids[1]}/cancel")
    page = web.get("/api/v1/flows", params={"limit": 2})
    assert [flow["id"] for flow in page["flows"]] == [ids[2], ids[1]]
    rest = web.get("/api/v1/flows", params={"limit": 2, "after": page["next"]})
    assert ([flow["id"] for flow in rest["flows"]], rest["next"]) == ([ids[0]], None)
    assert [flow["id"] for flow in web.get("/api/v1/flows", params={"state": "cancelled"})["flows"]] == [ids[1]]
    assert len(web.get("/api/v1/flows", params={"text": "SUMMER"})["flows"]) == 3
    assert web.get("/api/v1/flows", params={"text": "winter"})["flows"] == []
    problem(web.ask("GET", "/api/v1/flows", params={"state": "queued"}), 422, "invalid-request")
    problem(web.ask("GET", "/api/v1/flows", params={"after": "x"}), 422, "invalid-request")


def test_the_jobs_of_a_flow_are_listed(web: Web) -> None:
    made = chain(web)
    web.post("/api/v1/jobs", {"crew": "plain"}, 201)
    ids = [each["id"] for each in made["jobs"]]
    path = f"/api/v1/flows/{made['id']}/jobs"
    page = web.get(path, params={"limit": 2})
    assert [job["id"] for job in page["jobs"]] == [ids[2], ids[1]]
    assert [job["id"] for job in web.get(path, params={"after": page["next"]})["jobs"]] == [ids[0]]
    assert [job["id"] for job in web.get(path, params={"queue": "tagging"})["jobs"]] == [ids[2]]
    assert web.get(path, params={"state": "done"})["jobs"] == []
    assert len(web.get("/api/v1/jobs", params={"flow": made["id"]})["jobs"]) == 3


def test_a_flow_is_cancelled_and_retried_as_one_and_that_is_logged(web: Web) -> None:  # spec: SE-5
    made = chain(web)
    take(web)  # runs
    answer = web.post(f"/api/v1/flows/{made['id']}/cancel")
    assert (answer["component"], answer["code"]) == (made["id"], "cancelling")
    assert answer["text"].startswith("2 jobs are cancelled, 1 job runs and was asked to stop")
    assert web.get(f"/api/v1/flows/{made['id']}")["state"] == "running"
    assert [(entry.verb, entry.target) for entry in web.hand.operations() if entry.target.startswith("flow:")] == [
        ("cancel", f"flow:{made['id']}")
    ]


def test_what_failed_is_queued_again(web: Web) -> None:  # spec: SE-5
    made = chain(web)
    failed = finish(web, GaveUp("broken"))
    flow = web.get(f"/api/v1/flows/{made['id']}")
    assert (flow["counts"]["failed"], flow["state"]) == (2, "running"), "its follower failed with it"
    last = web.get(f"/api/v1/jobs/{made['jobs'][2]['id']}")
    assert (last["state"], last["reason"]) == ("failed", "predecessor")
    assert failed in last["error"]
    finish(web, Done())
    assert web.get(f"/api/v1/flows/{made['id']}")["state"] == "failed"
    answer = web.post(f"/api/v1/flows/{made['id']}/retry")
    assert (answer["text"], answer["code"]) == ("2 jobs are queued again", "queued")
    assert web.get(f"/api/v1/flows/{made['id']}")["state"] == "running"
    assert ("retry", f"flow:{made['id']}") in [(entry.verb, entry.target) for entry in web.hand.operations()]


def test_a_flow_is_deleted_when_it_has_ended(web: Web) -> None:  # spec: SE-5
    made = chain(web)
    path = f"/api/v1/flows/{made['id']}"
    problem(web.ask("DELETE", path), 409, "conflict")
    web.post(f"{path}/cancel")
    assert web.ask("DELETE", path).json()["code"] == "deleted"
    problem(web.ask("GET", path), 404, "flow-not-found")
    problem(web.ask("GET", f"/api/v1/jobs/{made['jobs'][0]['id']}"), 404, "job-not-found")
    assert ("delete", f"flow:{made['id']}") in [(entry.verb, entry.target) for entry in web.hand.operations()]


def test_what_cannot_be_is_a_problem_with_a_code(web: Web) -> None:
    for method, path in (
        ("GET", "/api/v1/flows/x"),
        ("GET", "/api/v1/flows/x/jobs"),
        ("POST", "/api/v1/flows/x/cancel"),
        ("POST", "/api/v1/flows/x/retry"),
        ("DELETE", "/api/v1/flows/x"),
    ):
        problem(web.ask(method, path), 404, "flow-not-found")
    made = chain(web)
    problem(web.ask("POST", f"/api/v1/flows/{made['id']}/retry"), 409, "conflict")
    web.post(f"/api/v1/flows/{made['id']}/cancel")
    assert web.post(f"/api/v1/flows/{made['id']}/cancel")["code"] == "not_cancelled", "it is cancelled already"
    job = {"crew": "plain", "flow": made["id"]}
    problem(web.ask("POST", "/api/v1/jobs", json=job), 409, "flow-ended")
    problem(web.ask("POST", "/api/v1/jobs/bulk", json={"jobs": [job, job]}), 409, "flow-ended")
    problem(web.ask("POST", "/api/v1/jobs", json={"crew": "plain", "flow": "x"}), 404, "flow-not-found")
    problem(web.ask("POST", "/api/v1/jobs", json={"crew": "plain", "after": ["x"]}), 404, "job-not-found")
    ended = chain(web)
    for queue in ("plain", "plain", "tagging"):
        finish(web, Done(), queue)
    problem(web.ask("POST", f"/api/v1/flows/{ended['id']}/cancel"), 409, "conflict")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"jobs": []}, "body/jobs"),
        ({"name": "a"}, "body/jobs"),
        ({"name": "", "jobs": [{"crew": "plain"}]}, "body/name"),
        ({"jobs": [{"crew": "plain"}]}, "body/name"),
        ({"name": "a", "order": "x", "jobs": [{"crew": "plain"}]}, "body/order"),
        ({"name": "a", "jobs": [{"crew": "plain", "after": [0]}]}, "body/jobs/0/after/0"),
        ({"name": "a", "jobs": [{"crew": "plain"}, {"crew": "plain", "after": [0, 1]}]}, "body/jobs/1/after/1"),
        ({"name": "a", "jobs": [{"crew": "plain"}, {"crew": "plain", "after": [-1]}]}, "body/jobs/1/after/0"),
        ({"name": "a", "jobs": [{"crew": "plain"}, {"crew": "plain", "after": [0, True]}]}, "body/jobs/1/after/1"),
        ({"name": "a", "jobs": [{"crew": "plain", "after": ["x" * 300]}]}, "body/jobs/0/after/0"),
        ({"name": "a", "jobs": [{"crew": "plain", "ref": "x"}, {"crew": "plain", "ref": "x"}]}, "body/jobs/1/ref"),
        ({"name": "a", "jobs": [{"crew": "plain", "ref": "x", "after": ["x"]}]}, "body/jobs/0/after/0"),
        (
            {"name": "a", "jobs": [{"crew": "plain", "after": ["x"]}, {"crew": "plain", "ref": "x"}]},
            "body/jobs/0/after/0",
        ),
        ({"name": "a", "jobs": [{"crew": "plain", "flow": "x"}]}, "body/jobs/0/flow"),
        ({"name": "a", "jobs": [{"crew": "plain"}], "on_end": {"crew": "plain", "key": "k"}}, "body/on_end/key"),
        ({"name": "a", "jobs": [{"crew": "plain"}], "on_end": {}}, "body/on_end"),
        ({"name": "a", "jobs": [{"crew": "plain"}], "on_end": 1}, "body/on_end"),
        ({"name": "a", "jobs": [{"crew": "plain"}], "on_end": True}, "body/on_end"),
        ({"name": "a", "jobs": [{"crew": "plain"}], "on_end": "plain"}, "body/on_end"),
        ({"name": "a", "jobs": [{"crew": "plain"}], "on_end": ["plain"]}, "body/on_end"),
    ],
)
def test_a_flow_that_is_wrong_is_refused_with_the_place(web: Web, body: dict[str, Any], pointer: str) -> None:
    found = problem(web.ask("POST", "/api/v1/flows", json=body), 422, "invalid-request")
    assert [each["pointer"] for each in found["errors"]] == [pointer]
    assert web.get("/api/v1/flows")["flows"] == []


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"unique_for_ms": 5}, "unique_for_ms"),
        ({"replace": True}, "replace"),
        ({"expires_ms": 5, "delay_ms": 5}, "expires_ms"),
        ({"meta": {"a": "x" * 20_000}}, "meta"),
    ],
)
def test_an_option_that_is_wrong_is_named(web: Web, options: dict[str, Any], wrong: str) -> None:
    job = {"crew": "plain", **options}
    requests = [
        ("jobs", job, f"body/{wrong}"),
        ("jobs/bulk", {"jobs": [{"crew": "plain"}, job]}, f"body/jobs/1/{wrong}"),
        ("flows", {"name": "a", "jobs": [{"crew": "plain"}, job]}, f"body/jobs/1/{wrong}"),
    ]
    for path, body, pointer in requests:
        found = problem(web.ask("POST", f"/api/v1/{path}", json=body), 422, "payload")
        assert [each["pointer"] for each in found["errors"]] == [pointer]
    assert (web.get("/api/v1/flows")["flows"], web.get("/api/v1/jobs")["jobs"]) == ([], [])


@pytest.mark.parametrize(
    ("body", "kind", "pointer"),
    [
        ({"jobs": [{"crew": "plain"}, {"crew": "nobody"}]}, "unknown-crew", "body/jobs/1/crew"),
        ({"jobs": [{"crew": "plain"}], "on_end": {"queue": "none"}}, "unknown-crew", "body/on_end/queue"),
        ({"jobs": [{"crew": "plain"}], "on_end": {"crew": "tag"}}, "payload", "body/on_end"),
    ],
)
def test_a_crew_that_a_flow_cannot_use_is_refused_with_the_place(
    web: Web, body: dict[str, Any], kind: str, pointer: str
) -> None:
    found = problem(web.ask("POST", "/api/v1/flows", json={"name": "a", **body}), 422, kind)
    assert found["errors"][0]["pointer"] == pointer
    if kind == "payload":
        assert "on_end names crew 'tag', which does not take chargehand.FlowEnd: " in found["detail"]
    assert (web.get("/api/v1/flows")["flows"], web.get("/api/v1/jobs")["jobs"]) == ([], [])


def test_all_of_a_flow_or_nothing(web: Web) -> None:
    jobs = [{"crew": "plain"}, {"crew": "plain", "after": ["nobody"]}]
    problem(web.ask("POST", "/api/v1/flows", json={"name": "a", "jobs": jobs}), 404, "job-not-found")
    wrong = [{"crew": "plain"}, {"crew": "tag", "payload": 3}]
    problem(web.ask("POST", "/api/v1/flows", json={"name": "a", "jobs": wrong}), 422, "payload")
    problem(web.ask("POST", "/api/v1/flows", json={"name": "a", "jobs": [{"crew": "nobody"}]}), 422, "unknown-crew")
    assert (web.get("/api/v1/flows")["flows"], web.get("/api/v1/jobs")["jobs"]) == ([], [])


def test_a_repeated_request_makes_one_flow(web: Web) -> None:
    body = {"name": "a", "jobs": [{"crew": "plain"}]}
    first, second = (web.ask("POST", "/api/v1/flows", json=body, headers={"Idempotency-Key": "once"}) for _ in range(2))
    assert (first.json(), second.headers["idempotency-replayed"]) == (second.json(), "true")
    assert second.headers["location"] == first.headers["location"]
    assert len(web.get("/api/v1/flows")["flows"]) == 1


def test_a_follower_of_a_job_whose_key_is_taken_waits_for_the_one_that_has_it(web: Web) -> None:  # spec: WK-2
    there = web.post("/api/v1/jobs", {"crew": "plain", "key": "k"}, 201)
    jobs = [{"crew": "plain", "key": "k", "ref": "a"}, {"crew": "tag", "payload": {"path": "a"}, "after": ["a"]}]
    made = web.post("/api/v1/flows", {"name": "a", "jobs": jobs}, 201)
    assert [(each["id"] == there["id"], each["created"]) for each in made["jobs"]] == [(True, False), (False, True)]
    waits = web.get(f"/api/v1/jobs/{made['jobs'][1]['id']}")["predecessors"]
    assert [each["id"] for each in waits] == [there["id"]]


def test_ten_thousand_predecessors_are_accepted_and_one_more_is_not(web: Web) -> None:  # spec: FL-1 SE-3
    jobs = [{"crew": "plain"}] * 100
    ids = [each["id"] for each in web.post("/api/v1/jobs/bulk", {"jobs": jobs}, 201)["jobs"]]
    many = ids * 100
    made = web.post("/api/v1/jobs", {"crew": "plain", "after": many}, 201)
    found = web.get(f"/api/v1/jobs/{made['id']}")
    assert (found["waits_for"], found["related"]["predecessors"], len(found["predecessors"])) == (100, 100, 100)
    problem(web.ask("POST", "/api/v1/jobs", json={"crew": "plain", "after": [*many, "x"]}), 422, "invalid-request")


def test_a_waiting_payload_is_replaced(web: Web) -> None:  # spec: FL-6
    first = web.post("/api/v1/jobs", {"crew": "plain", "payload": 1, "key": "k", "replace": True}, 201)
    second = web.post("/api/v1/jobs", {"crew": "plain", "payload": 2, "key": "k", "replace": True}, 200)
    assert second == {"id": first["id"], "queue": "plain", "created": False, "replaced": True}
    assert web.get(f"/api/v1/jobs/{first['id']}")["payload"] == 2


def test_children_are_shown_with_their_parent(web: Web) -> None:  # spec: FL-3
    parent = web.post("/api/v1/jobs", {"crew": "plain"}, 201)["id"]
    claim = take(web)
    children = tuple(NewJob(id=f"child{n}", queue="plain", child=True) for n in range(3))
    settlement = settle(claim, Done(follow=children))
    assert settlement is not None
    with web.hand.transaction() as tx:
        tx.jobs.settle([settlement], ME)
    found = web.get(f"/api/v1/jobs/{parent}")
    assert [each["id"] for each in found["children"]] == ["child0", "child1", "child2"]
    assert found["related"]["children"] == 3
    assert web.get("/api/v1/jobs/child0")["parent"] == parent


def test_the_client_does_all_of_it(web: Web) -> None:
    client = web.client()
    made = client.create_flow("a flow", [{"crew": "plain", "ref": "a"}, {"crew": "plain", "after": ["a"]}], once="one")
    assert client.create_flow(
        "a flow", [{"crew": "plain", "ref": "a"}, {"crew": "plain", "after": ["a"]}], once="one"
    ) == made  # fmt: skip
    assert [flow.id for flow in client.flows(state="running").flows] == [made.id]
    assert client.flow(made.id).stages[0].counts.queued == 2
    assert [job.id for job in client.flow_jobs(made.id).jobs] == [made.jobs[1].id, made.jobs[0].id]
    assert client.job(made.jobs[1].id).predecessors[0].id == made.jobs[0].id
    with pytest.raises(Conflict):
        client.retry_flow(made.id)
    with pytest.raises(Conflict):
        client.delete_flow(made.id)
    assert client.cancel_flow(made.id).code == "cancelled"
    with pytest.raises(FlowEnded):
        client.enqueue("plain", flow=made.id)
    assert client.retry_flow(made.id).code == "queued"
    client.cancel_flow(made.id)
    assert client.delete_flow(made.id).code == "deleted"
    with pytest.raises(FlowNotFound):
        client.flow(made.id)


def test_the_document_describes_the_options(still: Web) -> None:  # spec: HT-1
    schemas = still.api.openapi()["components"]["schemas"]
    assert {"after", "if_failed", "flow", "share", "sequence", "unique_for_ms", "replace", "expires_ms"} <= set(
        schemas["JobIn"]["properties"]
    )
    assert schemas["JobIn"]["properties"]["if_failed"]["enum"] == ["fail", "run"]
    assert {"ref", "after"} <= set(schemas["FlowJobIn"]["properties"])
    assert "flow" not in schemas["FlowJobIn"]["properties"]
    assert set(schemas["FlowIn"]["properties"]) == {"name", "order", "on_end", "jobs"}
    assert "payload" not in schemas["EndIn"]["properties"]


def test_a_flow_that_waits_holds_no_worker(web: Web) -> None:  # spec: FL-1
    chain(web)
    with web.hand.transaction() as tx:
        (grant,) = tx.jobs.claim([Want("tag", "tagging", 5)], ME)
    assert grant.claims == ()
    (tagging,) = [queue for queue in web.get("/api/v1/queues")["queues"] if queue["queue"] == "tagging"]
    assert (tagging["queued"], tagging["following"], tagging["oldest_wait_ms"]) == (1, 1, None)
