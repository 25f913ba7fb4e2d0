"""The checkpoints that jobs keep, on their way to the node: BURST of each job at once, then the newest every INTERVAL
seconds.

Only workers whose jobs keep checkpoints load this module.
"""

import threading
from collections.abc import Callable

from chargehand import clock
from chargehand.protocol.frame import encode_keep

INTERVAL = 0.02
"""Seconds for each checkpoint of a job that is sent to the node, on average."""
BURST = 100
"""How many of them may be sent in a row. The process may be killed at once, and then an older one must not be the
newest that is known; but a job that keeps thousands in a second must not keep the node busy."""

Claim = tuple[str, int]
"""The id of a job and the number of its claim."""


class Keeper:
    """Sends checkpoints. A job's first one is sent at once, its last one with its outcome."""

    def __init__(
        self, send: Callable[[bytes], None], send_now: Callable[[bytes], bool], later: Callable[[], None]
    ) -> None:
        """`send` may block, `send_now` does not and returns whether it has sent; `later` has `flush` called soon."""
        self._send, self._send_now, self._later = send, send_now, later
        self._lock = threading.Lock()
        """Held while a checkpoint is sent, so that an older one never follows a newer one."""
        self._waiting: dict[Claim, str] = {}
        self._used_until: dict[Claim, float] = {}
        """Up to when the checkpoints that were sent use up the time of each job, at INTERVAL for each."""

    def keep(self, claim: Claim, state: str) -> None:
        """Keeps a checkpoint: sends it, or has it sent when it is due."""
        now = clock.monotonic()
        with self._lock:
            if not self._is_due(claim, now):
                self._waiting[claim] = state
                self._later()
                return
            self._waiting.pop(claim, None)
            self._count(claim, now)
            self._send(encode_keep(*claim, state))

    def _is_due(self, claim: Claim, now: float) -> bool:
        return self._used_until.get(claim, now) <= now + (BURST - 1) * INTERVAL

    def _count(self, claim: Claim, now: float) -> None:
        self._used_until[claim] = max(now, self._used_until.get(claim, now)) + INTERVAL

    def flush(self) -> bool:
        """Sends the checkpoints that are due, without blocking. Returns whether some are left."""
        if not self._waiting:
            return False
        if not self._lock.acquire(blocking=False):
            return True
        try:
            now = clock.monotonic()
            for claim in [claim for claim in self._waiting if self._is_due(claim, now)]:
                if not self._send_now(encode_keep(*claim, self._waiting[claim])):
                    return True
                del self._waiting[claim]
                self._count(claim, now)
            return bool(self._waiting)
        finally:
            self._lock.release()

    def take(self, claim: Claim) -> bytes:
        """Returns the last checkpoint of a job that has ended, as a frame, if it was not sent; forgets the job."""
        with self._lock:
            self._used_until.pop(claim, None)
            state = self._waiting.pop(claim, None)
        return b"" if state is None else encode_keep(*claim, state)
