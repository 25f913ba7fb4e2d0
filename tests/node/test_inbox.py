"""Tests for the requests that reach a node through the store: each is carried out once, and answered."""

from types import SimpleNamespace
from typing import Any

import msgspec

from chargehand.errors import UnknownCrew
from chargehand.model import chores
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.model.ledger import Ledger
from chargehand.model.records import NodeRequest
from chargehand.node import inbox
from chargehand.node.inbox import Inbox
from chargehand.node.replies import Token, reply, waits
from chargehand.node.requests import Requests
from chargehand.protocol.control import Call


class Desk:
    """An inbox, what was carried out, and what is to be written."""

    def __init__(self) -> None:
        self.ledger = Ledger([("q", "q")], lambda: 0.0, 0.0)
        self.inbox = Inbox(self.ledger, self.carry_out)
        self.done: list[tuple[str, str | None]] = []

    def carry_out(self, token: Token, kind: str, call: Call) -> None:
        assert waits(token)
        self.done.append((kind, call.scope))
        if call.scope == "nobody":
            raise UnknownCrew("there is no crew 'nobody'")
        reply(token, text=call.scope)

    def receive(self, *requests: NodeRequest) -> dict[str, str | None]:
        """Returns the answers that are written next."""
        self.inbox.receive(requests)
        batch = self.ledger.next_batch(1.0)
        self.ledger.in_flight = None
        return {chore.id: chore.answer for chore in batch.chores if isinstance(chore, chores.AnswerRequest)}


def request(name: str, scope: str, kind: str = "ORDER", body: str | None = None) -> NodeRequest:
    text = msgspec.json.encode({"call": 0, "scope": scope}).decode()
    return NodeRequest(id=name, life="life", kind=kind, body=text if body is None else body)


# spec: MN-3
def test_a_request_is_carried_out_once_however_often_the_store_returns_it() -> None:
    desk = Desk()
    one, two = request("1", "a"), request("2", "b")
    assert desk.receive(one) == {"1": '{"call":0,"text":"a"}'}
    assert desk.receive(one, two) == {"2": '{"call":0,"text":"b"}'}
    assert desk.receive(one, two) == {}
    assert desk.receive() == {}
    assert desk.done == [("ORDER", "a"), ("ORDER", "b")]


# spec: MN-3
def test_a_refusal_is_an_answer() -> None:
    desk = Desk()
    (answer,) = desk.receive(request("1", "nobody")).values()
    assert msgspec.json.decode(answer or "") == {
        "call": 0, "error": "there is no crew 'nobody'", "kind": "UnknownCrew",
    }  # fmt: skip
    (answer,) = desk.receive(request("2", "a", body="{")).values()
    assert msgspec.json.decode(answer or "")["kind"] == "ChargehandError"
    assert desk.done == [("ORDER", "nobody")]


# spec: MN-3
def test_nobody_waits_for_the_answer_to_a_wake() -> None:
    assert Desk().receive(request("1", "a", kind="WAKE")) == {"1": None}


# spec: MN-1
def test_an_answer_that_is_too_long_is_refused() -> None:
    desk = Desk()
    assert len(desk.receive(request("1", "a" * (inbox.ANSWER_LIMIT - 100)))["1"] or "") > inbox.ANSWER_LIMIT - 100
    answer = msgspec.json.decode(desk.receive(request("2", "a" * inbox.ANSWER_LIMIT))["2"] or "")
    assert "bytes" in answer["error"]


# spec: SE-5, MN-3
def test_the_operator_log_names_the_node_of_an_order_if_there_may_be_several() -> None:
    fleet = Fleet({"q": Terms(workers=1)}, RestartPolicy(), LivenessPolicy(), StartPolicy(), lambda: 0.0)
    for shared, target in ((False, "q"), (True, "studio/q")):
        anything: Any = SimpleNamespace(node="studio", crews=())
        requests = Requests(anything, fleet, Desk().ledger, anything, anything, anything, anything, shared=shared)
        assert requests._deed(Verb.STOP, Call(call=1, scope="q", who="me")).target == target
