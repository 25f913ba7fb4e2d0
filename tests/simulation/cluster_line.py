"""The simulated line between a node and the server: requests and answers are late, lost, or held up until it is mended.

A store call is a generator of round trips. Between two of them other nodes have theirs.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import msgspec
from cluster_store import Transaction

from chargehand.errors import StoreError

if TYPE_CHECKING:
    from cluster import World

CONNECT_TIMEOUT = 3.0
LEFT_BEHIND = 3.0
"""Seconds after which the server ends the session of a client that is gone, once it can be told."""


class Trip(msgspec.Struct, frozen=True):
    """One transaction in one round trip."""

    act: Callable[[Transaction], Any]
    writes: bool = True


class Open(msgspec.Struct, frozen=True):
    """Returns the session; connects if there is none."""


class Terminate(msgspec.Struct, frozen=True):
    """Ends a session, and waits until it can commit nothing any more."""

    session: int


class Wait(msgspec.Struct, frozen=True):
    """Lets time pass."""

    seconds: float


Call = Generator[Trip | Open | Terminate | Wait, Any, Any]
Done = Callable[[Any, StoreError | None], None]


class Line:
    """The line of one node, and the connection of its store thread."""

    def __init__(self, world: "World", name: str, alive: Callable[[], bool]) -> None:
        self._world, self._name, self._alive = world, name, alive
        self.session: int | None = None
        self.last_session: int | None = None
        self.number = 0
        """How many connections were opened."""
        self._held_up: list[tuple[int, Callable[[], None]]] = []
        """What waits until the line is mended: the session, and what happens then."""
        self._left: list[int] = []

    @property
    def cut(self) -> bool:
        return self._name in self._world.cut

    @property
    def deaf(self) -> bool:
        """Whether answers are lost."""
        return self._name in self._world.cut or self._name in self._world.deaf

    def run(self, call: Call, done: Done) -> None:
        """Executes a store call."""

        def step(value: Any = None, error: StoreError | None = None) -> None:
            if not self._alive():
                return
            try:
                wanted = call.send(value) if error is None else call.throw(error)
            except StopIteration as stop:
                done(stop.value, None)
            except StoreError as failed:
                done(None, failed)
            else:
                self._send(wanted, step)

        step()

    def _send(self, wanted: Any, step: Callable[..., None]) -> None:
        if isinstance(wanted, Wait):
            self._world.after(wanted.seconds, step)
        elif self.session is None:
            self._connect(wanted, step)
        elif isinstance(wanted, Open):
            step(self.session)
        else:
            self._transmit(wanted, step, self.session)

    def _connect(self, wanted: Any, step: Callable[..., None]) -> None:
        world = self._world

        def arrive() -> None:
            if not self._alive():
                return
            if self.deaf:
                world.after(CONNECT_TIMEOUT, lambda: step(None, StoreError("no answer")))
            elif not world.server.up:
                step(None, StoreError("connection refused"))
            else:
                self.session = self.last_session = world.server.connect()
                self.number += 1
                self._send(wanted, step)

        world.after(world.latency(), arrive)

    def _transmit(self, wanted: Trip | Terminate, step: Callable[..., None], session: int) -> None:
        world, server = self._world, self._world.server
        waits = [True]

        def hold_up(then: Callable[[], None]) -> None:
            self._held_up.append((session, then))
            if waits[0]:
                world.after(world.chance.uniform(*world.noticed), give_up)

        def give_up() -> None:
            if waits[0] and self._alive() and any(held == session for held, _ in self._held_up):
                finish(None, StoreError("the connection is broken"), broken=True)

        def finish(answer: Any, error: StoreError | None, *, broken: bool = False) -> None:
            if not waits[0] or not self._alive():
                return
            waits[0] = False
            if broken:
                self._drop(session)
            step(answer, error)

        def request() -> None:
            if self.cut:
                hold_up(request)
                return
            if session not in server.sessions:
                world.after(world.latency(), lambda: answer(None, StoreError("the session has ended"), broken=True))
                return
            try:
                answered = self._execute(wanted)
            except StoreError as refused:
                error = refused
                world.after(world.latency(), lambda: answer(None, error))
            else:
                world.after(world.latency(), lambda: answer(answered, None))

        def answer(answered: Any, error: StoreError | None, *, broken: bool = False) -> None:
            if self.deaf:
                world.tally["answer held up"] += 1
                hold_up(lambda: answer(answered, error, broken=broken))
            elif session not in server.sessions and error is None and world.chance.random() < 0.5:
                finish(None, StoreError("the server has gone away"), broken=True)  # its answer is lost
            else:
                finish(answered, error, broken=broken or session not in server.sessions)

        world.after(world.latency(), request)

    def _execute(self, wanted: Trip | Terminate) -> Any:
        server = self._world.server
        if isinstance(wanted, Terminate):
            server.sessions.discard(wanted.session)
            return None
        return server.write(wanted.act) if wanted.writes else server.read(wanted.act)

    def _drop(self, session: int) -> None:
        """The client closes its connection; the server learns of it if it can."""
        if self.session == session:
            self.session = None
        self._left.append(session)
        if not self.cut:
            self._end_left()

    def _end_left(self) -> None:
        left, self._left = self._left, []
        self._world.after(LEFT_BEHIND, lambda: self._world.server.sessions.difference_update(left))

    def mended(self) -> None:
        """What was held up comes through, in no order, unless its session has ended."""
        held, self._held_up = self._held_up, []
        for session, then in held:
            if session == self.session:
                self._world.after(self._world.chance.uniform(0, 0.5), then)
            elif self._world.chance.random() < 0.5:
                self._world.tally["request of a broken connection arrives"] += 1
                self._world.after(self._world.chance.uniform(0, 2), then)
        self._end_left()

    def died(self) -> None:
        """The process of the node ends, and its connection with it."""
        if self.session is not None:
            session, self.session = self.session, None
            if self.cut:
                self._left.append(session)
            else:
                self._world.after(0.01, lambda: self._world.server.sessions.discard(session))
