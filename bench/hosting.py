"""A host in a separate process: starts a node as any application does, until it is asked to stop."""

import os
import sys
from typing import Any

import msgspec

from chargehand import Chargehand, JobPolicy, RestartPolicy, clock

SPEC = "BENCH_SPEC"
"""The environment variable that contains the configuration of an application as JSON."""


class CrewSpec(msgspec.Struct, frozen=True):
    """One crew of a measured node."""

    name: str
    handler: str
    workers: int
    concurrency: int = 1


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration shared by host and callers. `pause`: the fixed restart delay of crashed workers."""

    store: str
    crews: tuple[CrewSpec, ...]
    pause: float | None = None
    most_in_hand: int | None = None
    """How many short jobs a worker is handed at a time; None: the default."""
    node: str | None = None
    """The name of the node; None: that of the machine."""
    state: str | None = None
    """The folder by which a node and its callers find each other if the store is on a server. Processes with different
    folders find each other as little as on different machines."""


def hand_of(spec: Spec) -> Chargehand:
    """Returns the application object, equal in the host and in every caller; other settings have their defaults."""
    restart = None
    if spec.pause is not None:
        restart = RestartPolicy(
            first_pause=spec.pause,
            longest_pause=spec.pause,
            rapid_limit=1_000_000,
            lifetime_limit=1_000_000,
            breaker_window=0,
        )
    options: dict[str, Any] = {} if restart is None else {"restart": restart}
    if spec.most_in_hand is not None:
        options["jobs"] = JobPolicy(most_in_hand=spec.most_in_hand)
    if spec.state is not None:
        os.environ["XDG_STATE_HOME"] = spec.state
    hand = Chargehand(spec.store, node=spec.node, **options)
    for crew in spec.crews:
        hand.crew(crew.name, f"bench.handlers:{crew.handler}", workers=crew.workers, concurrency=crew.concurrency)
    return hand


def main() -> None:
    """Hosts a node and reports when it is ready; on input or end of input, stops it and reports the duration."""
    hand = hand_of(msgspec.json.decode(sys.argv[1], type=Spec))
    with hand.running() as host:
        if not host.ready.wait(30):
            sys.exit(f"the node is not ready: {host.failed}")
        print("ready", flush=True)
        sys.stdin.readline()
        began = clock.monotonic()
        host.stop()
        print(clock.monotonic() - began, flush=True)


if __name__ == "__main__":
    main()
