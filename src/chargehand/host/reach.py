"""Requests to the nodes of a store: to the node of this machine through its socket, to others through the store.

A store for one node has only the former.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chargehand import clock
from chargehand.errors import ChargehandError, NobodyServes, StoreError, UnknownCrew
from chargehand.host import nodelock
from chargehand.host.calls import CALL_TIMEOUT, Calls, NoNode, error_of
from chargehand.host.pool import StorePool
from chargehand.ids import new_id
from chargehand.model.records import LivingNode, NodeReply, NodeRequest
from chargehand.model.routing import Target, split, targets
from chargehand.protocol.frame import encode
from chargehand.stores.location import Location
from chargehand.stores.refusal import refusals

LOOK_EVERY = 0.05
"""Seconds between two looks for an answer in the store. A node is notified of requests."""

Reply = dict[str, Any] | ChargehandError


class Reach:
    """Finds the nodes that a request concerns, sends it, and collects the replies."""

    def __init__(self, location: Location, stores: StorePool, calls: Calls) -> None:
        self._location, self._stores, self._calls = location, stores, calls

    @property
    def may_be_many(self) -> bool:
        """Whether the store is one for many nodes."""
        return self._location.server is not None

    def here(self) -> dict[str, Any]:
        """Returns what the node of this machine wrote into its lock file; empty if there is none."""
        with refusals(self._location.node):
            return nodelock.holder(nodelock.nearest(self._location)) or {}

    def living(self) -> list[LivingNode]:
        """Returns the nodes that live. That of this machine is one of them also while it starts."""
        found: list[LivingNode] = []
        if self.may_be_many:
            with self._stores.use() as store:
                found = store.fleet.living()
        own = self._own()
        if own is not None and own.name not in {node.name for node in found}:
            found.append(own)
        return found

    def _own(self) -> LivingNode | None:
        """Returns the node of this machine, as its lock file describes it."""
        found = self.here()
        return LivingNode(name=found["node"], life="", crews=tuple(found.get("crews", ()))) if "node" in found else None

    def elsewhere(self) -> bool:
        """Returns whether nodes live that are not reached through the socket of this machine; False if unknown."""
        try:
            return self.may_be_many and any(node.name != self.here().get("node") for node in self.living())
        except StoreError:
            return False

    def targets(self, scope: str | None, *, question: bool = False) -> list[Target]:
        """Returns the nodes that a scope concerns. Raises what `routing.targets` does, NoNode if no node
        runs, and UnknownCrew if the scope names a node that never existed.

        The node of this machine is reached by its name also while the store is not. If that is so, a `question`
        concerns it alone; an order must not leave out other nodes.
        """
        own = self._own()
        if own is not None and split(scope)[0] == own.name:
            return targets(scope, [own])
        try:
            nodes = self.living()
        except StoreError:
            if own is None or not question:
                raise
            nodes = [own]
        if not nodes:
            raise NoNode(f"no node serves {self._location}")
        self.check_node(scope, nodes)
        return targets(scope, nodes)

    def check_node(self, scope: str | None, nodes: Sequence[LivingNode]) -> None:
        """Raises UnknownCrew if the scope names a node that neither lives nor has left anything in the store."""
        name, _ = split(scope)
        if name is None or any(node.name == name for node in nodes):
            return
        if self.may_be_many:
            with self._stores.use(create=False) as store:
                if store.fleet.crews(name):
                    return
        known = ", ".join(node.name for node in nodes) or "none"
        raise UnknownCrew(f"there is no node {name!r}, and there was none; there are: {known}")

    def ask(
        self, kind: str, to: Sequence[Target], by_node: Mapping[str, dict[str, Any]] | None = None, **fields: Any
    ) -> list[tuple[Target, Reply]]:
        """Sends a request to these nodes, each with its own scope, and returns what each replied, or why it did not.

        `by_node` has the fields that differ, by the names of the nodes.
        """
        own = self.here().get("node")
        requests = {
            target.node.name: _request(kind, target.node, **_fields(target, fields, by_node))
            for target in to
            if target.node.name != own
        }
        if requests:
            self.leave(list(requests.values()))
        replies: dict[str, Reply] = {}
        try:
            for target in to:
                if target.node.name == own:
                    replies[target.node.name] = self._ask_own(kind, target, _fields(target, fields, by_node))
        finally:
            if requests:
                replies |= self._collect(requests)
        return [(target, replies[target.node.name]) for target in to]

    def wake(self, nodes: Sequence[LivingNode], crew: str) -> None:
        """Lets these nodes look for items of the crew soon. Nobody waits for an answer."""
        if nodes:
            self.leave([_request("WAKE", node, id=crew) for node in nodes])

    def leave(self, requests: Sequence[NodeRequest]) -> None:
        """Writes requests to the store."""
        with self._stores.use(create=False) as store, store.transaction() as tx:
            tx.fleet.ask(requests)

    def _ask_own(self, kind: str, target: Target, fields: dict[str, Any]) -> Reply:
        try:
            return self._calls.call(kind, **fields)
        except NoNode as error:
            return NobodyServes(f"node {target.node.name} does not answer on this machine: {error}")
        except ChargehandError as error:
            return error

    def _collect(self, requests: dict[str, NodeRequest]) -> dict[str, Reply]:
        """Returns the replies to these requests, by the names of the nodes, and deletes the requests."""
        until = clock.monotonic() + CALL_TIMEOUT
        ids = {request.id: name for name, request in requests.items()}
        with self._stores.use(create=False) as store:
            try:
                open_ids = list(ids)
                while open_ids and clock.monotonic() < until:
                    clock.sleep(LOOK_EVERY)
                    found = store.fleet.replies(open_ids)
                    open_ids = [reply.id for reply in found if reply.answer is None and reply.lives]
            finally:
                with store.transaction() as tx:
                    known = {reply.id: reply for reply in tx.fleet.withdraw(list(ids))}
        return {name: _reply(name, known.get(request_id)) for request_id, name in ids.items()}


def _fields(target: Target, fields: dict[str, Any], by_node: Mapping[str, dict[str, Any]] | None) -> dict[str, Any]:
    """Returns the fields of the request to one node."""
    return {"scope": target.scope, **fields, **(by_node or {}).get(target.node.name, {})}


def _request(kind: str, node: LivingNode, **fields: Any) -> NodeRequest:
    body = encode(kind, {"call": 0, **fields}).rstrip(b"\n").partition(b"|")[2].decode()
    return NodeRequest(id=new_id(), life=node.life, kind=kind, body=body)


def _reply(node: str, found: NodeReply | None) -> Reply:
    """Returns the reply of a node, or the error that the caller raises."""
    if found is not None and found.answer is not None:
        reply: dict[str, Any] = msgspec.json.decode(found.answer)
        return error_of(reply) if "error" in reply else reply
    if found is not None and found.lives:
        return NobodyServes(
            f"node {node} did not answer within {CALL_TIMEOUT:g} s: it is stopped, or cannot reach the store; "
            "the request was withdrawn"
        )
    return NobodyServes(f"node {node} is gone: it ended, or others have taken it for dead, before it answered")
