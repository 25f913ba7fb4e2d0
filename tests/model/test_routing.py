"""Tests for the nodes that a scope concerns, and for pauses of nodes."""

import msgspec
import pytest

from chargehand.errors import ChargehandError, ConfigurationError, NobodyServes, UnknownCrew
from chargehand.model import routing
from chargehand.model.fleet.orders import Answer
from chargehand.model.records import HealthRow, LivingNode, Pause

A = LivingNode(name="a", life="1", crews=("tag", "cpu"), workers=("worker:tag:0", "worker:cpu:0"))
B = LivingNode(name="b", life="2", crews=("tag", "gpu"), workers=("worker:tag:0", "worker:tag:1", "worker:gpu:0"))
BOTH = [A, B]


def found(scope: str | None, *nodes: LivingNode) -> list[tuple[str, str | None]]:
    return [(target.node.name, target.scope) for target in routing.targets(scope, nodes or BOTH)]


def row(
    node: str, component: str, status: str = "healthy", *, pid: int | None = 1, job: str | None = None
) -> HealthRow:
    return HealthRow(
        component=component, node=node, status=status, flags=(), reason=None, pid=pid, pid_start=1, incarnation=None,
        current_job=job, last_heartbeat_ms=None, restart_count=0, last_restart_ms=None, exit_code=None, signal=None,
        created_at_ms=0, metadata=msgspec.Raw(b"{}"), age_ms=0,
    )  # fmt: skip


ROWS = [row("a", "app"), *(row(node.name, worker) for node in BOTH for worker in node.workers)]


# spec: MN-3
@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (None, [("a", None), ("b", None)]),
        ("*", [("a", None), ("b", None)]),
        ("tag", [("a", "tag"), ("b", "tag")]),
        ("gpu", [("b", "gpu")]),
        ("gpu:0", [("b", "gpu:0")]),
        ("worker:gpu:0", [("b", "worker:gpu:0")]),
        ("tag:1", [("b", "tag:1")]),
        ("gpu:7", [("b", "gpu:7")]),  # the only node of the crew says that there is no such worker
        ("a/*", [("a", None)]),
        ("a/", [("a", None)]),
        ("b/tag", [("b", "tag")]),
        ("b/tag:0", [("b", "tag:0")]),
        ("b/nothing", [("b", "nothing")]),  # the node itself refuses it
    ],
)
def test_an_order_concerns_the_named_node_or_all_that_have_the_crew(
    scope: str | None, expected: list[tuple[str, str | None]]
) -> None:
    assert found(scope) == expected


# spec: MN-1, MN-3
def test_what_no_node_or_more_than_one_has_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"several nodes have a worker 'tag:0': name one of a/tag:0, b/tag:0"):
        found("tag:0")
    with pytest.raises(UnknownCrew, match=r"no crew or worker 'tog'.*there are: cpu, gpu, tag"):
        found("tog")
    with pytest.raises(UnknownCrew):
        found("tag:7")
    with pytest.raises(NobodyServes, match="there is no node 'c' that runs; there are: a, b"):
        found("c/tag")


def test_the_names_of_nodes_may_contain_a_slash() -> None:
    odd = LivingNode(name="rack/1", life="3", crews=("tag",))
    assert found("rack/1/tag", odd) == [("rack/1", "tag")]


# spec: MN-1
def test_answers_name_the_node_if_there_are_several_or_one_was_named() -> None:
    (alone,) = routing.targets(None, [A])
    (named,) = routing.targets("a/tag", [A])
    assert alone.shown("worker:tag:0") == "worker:tag:0"
    assert (named.shown("worker:tag:0"), named.shown("app")) == ("a/tag:0", "a/app")
    assert [target.shown("worker:tag:0") for target in routing.targets("tag", BOTH)] == ["a/tag:0", "b/tag:0"]


# spec: MN-3
def test_the_answers_of_all_nodes_are_one_list_and_a_silent_node_is_part_of_it() -> None:
    a, b = routing.targets("tag", BOTH)
    stops = Answer("worker:tag:0", "stops", "stops")
    silent = NobodyServes("node b is gone")
    assert [(each.component, each.code) for each in routing.merged([(a, [stops]), (b, [stops])])] == [
        ("a/tag:0", "stops"), ("b/tag:0", "stops"),
    ]  # fmt: skip
    merged = routing.merged([(a, [stops]), (b, silent)])
    assert [(each.component, each.code, each.text) for each in merged[1:]] == [("b", "no_answer", "node b is gone")]
    failed: list[tuple[routing.Target, list[Answer] | ChargehandError]] = [(b, silent)]
    with pytest.raises(NobodyServes, match="node b is gone"):
        routing.merged(failed)


# spec: MN-3, PD-1
@pytest.mark.parametrize(
    ("scope", "stored"),
    [
        (None, "*"), ("*", "*"), ("tag", "tag"), ("gpu:0", "b/worker:gpu:0"), ("a/*", "a/*"), ("b/tag", "b/tag"),
        ("b/tag:0", "b/worker:tag:0"),
    ],
)  # fmt: skip
def test_a_pause_of_a_worker_or_a_node_names_the_node(scope: str | None, stored: str) -> None:
    assert routing.stored(scope, routing.targets(scope, BOTH)) == stored


def test_a_pause_that_no_node_hears_is_stored_as_it_is() -> None:
    assert [routing.stored(scope, []) for scope in (None, "tag", "tag:0")] == ["*", "tag", "worker:tag:0"]


# spec: MN-3, PD-1
def test_a_node_knows_the_pauses_of_all_nodes_and_its_own() -> None:
    pauses = ["*", "tag", "worker:tag:0", "a/*", "a/tag", "b/worker:tag:0", "a/x/tag"]
    assert [routing.local(scope, "a") for scope in pauses] == ["*", "tag", "worker:tag:0", "*", "tag", None, None]
    assert routing.local("a/x/tag", "a/x") == "tag"


def texts(answers: list[Answer]) -> list[tuple[str, str, str]]:
    return [(answer.component, answer.code, answer.text) for answer in answers]


# spec: MN-3, PD-1
def test_a_pause_answers_for_the_workers_of_every_node_that_it_concerns() -> None:
    rows = [*ROWS[:3], row("b", "worker:tag:0", job="j1"), row("b", "worker:tag:1", "stopped", pid=None)]
    assert texts(routing.paused("tag", rows, routing.targets("tag", BOTH), "")) == [
        ("a/tag:0", "paused", "takes nothing more"),
        ("b/tag:0", "paused", "finishes j1, then takes nothing more"),
        ("b/tag:1", "paused", "is stopped, and will take nothing"),
    ]
    assert texts(routing.paused("a/*", rows, routing.targets("a/*", BOTH), "; again"))[0] == (
        "a/tag:0", "paused", "takes nothing more; again",
    )  # fmt: skip
    (nobody,) = routing.paused("tag", rows, [], "")
    assert nobody.text == "is paused; no node runs, and the next one takes no jobs either"
    (empty,) = routing.paused("cpu", [], routing.targets("cpu", BOTH), "")
    assert empty.text == "is paused; it has no workers"


# spec: MN-3, PD-1
def test_a_resume_answers_what_is_still_paused_by_another_pause() -> None:
    left = [Pause(scope=scope, who="me", reason=None, since_ms=0) for scope in ("b/tag", "a/worker:cpu:0", "*")]
    rows = [*ROWS, row("b", "worker:tag:2", "failed", pid=None), row("b", "worker:tag:3", "stopping")]
    tag = routing.targets("tag", BOTH)
    assert [answer.code for answer in routing.resumed("tag", rows, tag, [], was_paused=True)] == [
        "resumed", "resumed", "resumed", "given_up", "stops",
    ]  # fmt: skip
    answers = routing.resumed("tag", rows, tag, left[:2], was_paused=True)
    assert [(answer.component, answer.code) for answer in answers[:2]] == [
        ("a/tag:0", "resumed"),
        ("b/tag:0", "paused"),
    ]
    assert "`chargehand resume b/tag`" in answers[1].text
    assert "`chargehand resume`" in routing.resumed("tag", rows, tag, left, was_paused=True)[0].text
    assert [each.code for each in routing.resumed("x", [], [], [], was_paused=False)] == ["not_paused"]
    assert [each.code for each in routing.resumed("x", [], [], [], was_paused=True)] == ["resumed"]
    assert routing.also_resumed("b/worker:tag:0") == ["b/worker:tag:0", "worker:tag:0"]
    assert routing.also_resumed("b/tag") == ["b/tag"]


# spec: MN-3
def test_scale_leaves_out_nodes_whose_settings_give_the_crew_no_workers() -> None:
    """A crew may not be able to run there: only an order that names the node changes that."""
    spare = LivingNode(name="c", life="3", crews=("tag", "gpu"), without=("gpu", "tag"))
    bare = LivingNode(name="d", life="4", crews=("gpu",), without=("gpu",))

    def scaled(scope: str, *nodes: LivingNode) -> list[str]:
        return [each.node.name for each in routing.scaled(routing.split(scope)[1], routing.targets(scope, nodes))]

    assert scaled("tag", A, B, spare) == ["a", "b"]
    assert scaled("gpu", A, B, spare, bare) == ["b"]
    assert scaled("c/gpu", A, B, spare) == ["c"], "it is named"
    assert scaled("gpu", A, spare) == ["c"], "no other node has the crew"
    with pytest.raises(ConfigurationError, match=r"\(c, d\) give crew 'gpu' no workers: .* as in c/gpu"):
        scaled("gpu", spare, bare)
