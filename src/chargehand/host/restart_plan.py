"""What a host whose node has exited says in the lock file, for people: when it starts the next one."""

import msgspec

from chargehand.errors import StoreError
from chargehand.host import nodelock
from chargehand.processes import proc
from chargehand.stores.beside import Beside
from chargehand.system import private


class RestartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a host whose node has exited writes into the lock file while it waits to start another."""

    host: int
    """The pid of the host."""
    start: int
    """The start time of the host's process, as the kernel counts it."""
    deaths: int
    """How many nodes have exited unasked within `window` seconds."""
    window: float
    last: str
    """How the last one exited."""
    at_ms: int
    """When the next one is started, in milliseconds since 1970."""

    def in_words(self, now_ms: int) -> str:
        """Returns how the last node exited, and when the host starts the next one."""
        often = f"; {self.deaths} exits within {self.window:g} s" if self.deaths > 1 else ""
        left = max(0.0, (self.at_ms - now_ms) / 1000)
        return (
            f"the last one exited ({self.last}{often}), and its host (pid {self.host}) starts another in {left:.0f} s"
        )


def announce(store: Beside, plan: RestartPlan | None) -> None:
    """Writes into the free lock file that a host will start a node, or that it no longer will."""
    nodelock.announce(store, b"" if plan is None else msgspec.json.encode(plan))


def announced(store: Beside) -> RestartPlan | None:
    """Returns the plan of a living host that will start a node; None if there is none."""
    try:
        plan = msgspec.json.decode(private.read_file(store.node)[0], type=RestartPlan)
    except (OSError, StoreError, msgspec.MsgspecError):
        return None
    return plan if proc.alive(plan.host, plan.start) else None
