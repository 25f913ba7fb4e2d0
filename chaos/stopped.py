"""`python -m chaos.stopped [SECONDS]`: stops the node with SIGSTOP, continues it, and checks that no worker was killed.

Uses the default limits. Two workers are idle, two run short jobs, two run one long job each. Afterwards all six must be
the same processes without a counted restart, and every job done once.
"""

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from chargehand import Chargehand, Handler, Job, clock
from chargehand.testing import eventually

SECONDS = 60.0
JOBS = 40


class Sleeper(Handler[float, int]):
    """Sleeps for the duration in its payload."""

    def perform(self, job: Job[float]) -> int:
        clock.sleep(job.payload)
        return os.getpid()


def _state(hand: Chargehand) -> dict[str, tuple[str, int | None, int]]:
    status: dict[str, Any] = hand.status() or {"workers": []}
    return {w["component"]: (w["status"], w["pid"], w["restart_count"]) for w in status["workers"]}


def _healthy(hand: Chargehand) -> bool:
    state = _state(hand)
    return len(state) == 6 and all(status == "healthy" for status, _, _ in state.values())


def main(seconds: float) -> int:
    """Returns 0 if no worker was killed and no job was lost."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        hand = Chargehand(Path(folder) / "chargehand.db")
        hand.crew("idle", "chaos.stopped:Sleeper", workers=2)
        short = hand.crew("short", "chaos.stopped:Sleeper", workers=2)
        long = hand.crew("long", "chaos.stopped:Sleeper", workers=2)
        with hand.running() as host:
            eventually(lambda: _healthy(hand), 60)
            refs = [*long.enqueue_many([seconds + 10] * 2), *short.enqueue_many([0.5] * JOBS)]
            eventually(lambda: sum(count.running for count in hand.counts()) == 4, 30)
            before, node = _state(hand), host.node_pid
            assert node is not None
            print(
                f"node {node} is stopped for {seconds:g} s; six workers: two idle, two in short jobs, two in a long one"
            )
            os.kill(node, signal.SIGSTOP)
            try:
                clock.sleep(seconds)
            finally:
                os.kill(node, signal.SIGCONT)
            for ref in refs:
                ref.wait(seconds + 120)
            after, same_node = _state(hand), host.node_pid == node
            attempts = [len(ref.attempts()) for ref in refs]
        crashes = len(hand.crashes())
        hand.close()
    moved = {name: (was, after.get(name)) for name, was in before.items() if after.get(name) != was}
    print(f"same node: {same_node}; crash reports: {crashes}; changed workers: {moved or 'none'}")
    print(f"jobs done: {len(attempts)} of {len(refs)}; attempts beyond the first: {sum(attempts) - len(refs)}")
    return 0 if same_node and not crashes and not moved and set(attempts) == {1} else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
