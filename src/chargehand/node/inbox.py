"""The requests that callers on other machines have left in the store for this node, and the answers to them.

They are the requests of the control socket, and whoever handles those handles these. The store keeps a request until
its caller deletes it, so each is remembered, and carried out once.
"""

from collections.abc import Callable, Sequence

import msgspec

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.model import chores
from chargehand.model.ledger import Ledger
from chargehand.model.records import NodeRequest
from chargehand.node.replies import Token, refuse, refuse_with
from chargehand.protocol.control import WAKE, Call

ANSWER_LIMIT = 2 << 20
"""Bytes of an answer; a longer one is refused."""

_calls = msgspec.json.Decoder(Call)


class StoredCaller:
    """A caller that waits for an answer in the store."""

    def __init__(self, request: NodeRequest, ledger: Ledger) -> None:
        self._request, self._ledger = request, ledger

    def send(self, frame: bytes) -> None:
        """Writes the body of a reply to the store, with the next batch."""
        _, _, body = frame.rstrip(b"\n").partition(b"|")
        if len(body) > ANSWER_LIMIT:
            why = f"the answer has {len(body)} bytes; a node on another machine sends up to {ANSWER_LIMIT}"
            refuse((self, 0), why)
            return
        text = None if self._request.kind == WAKE else body.decode()
        self._ledger.chore(chores.AnswerRequest(self._request.id, text), clock.monotonic(), urgent=True)

    def send_now(self, frame: bytes) -> bool:
        """Returns False: only the main thread may write to the store's next batch."""
        return False

    def connected(self) -> bool:
        """Returns True: a request whose caller waits no longer is deleted, or too old to be read."""
        return True


class Inbox:
    """Carries out requests from the store, each once."""

    def __init__(self, ledger: Ledger, carry_out: Callable[[Token, str, Call], None]) -> None:
        """`carry_out` handles a request by its kind. It may raise ChargehandError, which is the answer."""
        self._ledger, self._carry_out = ledger, carry_out
        self._known: set[str] = set()
        """The requests that were carried out, while the store returns them."""

    def receive(self, requests: Sequence[NodeRequest]) -> None:
        """Carries out the requests that are new."""
        known, self._known = self._known, {request.id for request in requests}
        for request in requests:
            if request.id not in known:
                self._do(request)

    def _do(self, request: NodeRequest) -> None:
        token = StoredCaller(request, self._ledger), 0
        try:
            self._carry_out(token, request.kind, _calls.decode(request.body))
        except ChargehandError as error:
            refuse_with(token, error)
        except (ValueError, RecursionError) as error:
            log.warning("a bad request in the store", kind=request.kind, why=error)
            refuse(token, f"a bad request: {error}")
