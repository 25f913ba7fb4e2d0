"""Turns of which a node does not know whether the store has committed them. Pure: it runs no statement.

The claims of such a turn reached no worker: they are given back. Its outcomes are sent again, and those that the store
had accepted are not lost.
"""

from collections.abc import Collection, Sequence

import msgspec

from chargehand.model.failover import Server
from chargehand.model.job import ClaimName, Settlement


class Unsure(msgspec.Struct, frozen=True):
    """A turn that may have committed, or has, and whose result the node did not get."""

    claim: int
    """The number of its claims."""
    session: int | None
    """The server process that executed it; it must be gone before its claims are given back."""
    server: Server | None
    """The server of that process; None if it does not identify itself."""
    outcomes: frozenset[tuple[int, int]]
    """What it settled: the seq of each job, and the number of its claim."""

    def may_run_on(self, server: Server | None, session: int | None) -> bool:
        """Returns whether its session may still be there, on this server, to which the node has another session.

        The number of a process means nothing to another server.
        """
        return self.session is not None and self.server == server and self.session != session


class Doubts:
    """The turns of one node without an answer."""

    def __init__(self) -> None:
        self._turns: list[Unsure] = []
        self._outcomes: set[tuple[int, int]] = set()
        """Outcomes of such turns that are sent again."""

    def add(self, claim: int, session: int | None, server: Server | None, settlements: Sequence[Settlement]) -> None:
        """Records a turn without an answer."""
        outcomes = frozenset((each.seq, each.claim) for each in settlements)
        self._turns.append(Unsure(claim, session, server, outcomes))

    def first(self) -> Unsure | None:
        """Returns the turn whose claims are to be given back first; None if there is none."""
        return self._turns[0] if self._turns else None

    def made_sure(self) -> None:
        """Records that the claims of the first turn were given back."""
        self._outcomes |= self._turns.pop(0).outcomes

    def asked(self, settlements: Sequence[Settlement], lost: Collection[ClaimName]) -> list[Settlement]:
        """Returns those of the refused settlements that a turn without an answer may have settled; once."""
        doubtful, self._outcomes = self._outcomes, set()
        return [each for each in settlements if each.claim_name in lost and (each.seq, each.claim) in doubtful]
