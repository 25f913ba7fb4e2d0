"""Measures the cost of an idle node with two bare workers, and of the server that it is connected to."""

from collections.abc import Iterable, Sequence

from bench.hosting import CrewSpec
from bench.postgres.server import machine
from bench.processes import cpu, pss
from bench.row import Row, measures
from bench.scene import stage
from chargehand import clock
from chargehand.model.figures import WINDOW
from chargehand.model.past import STEP

SETTLE = WINDOW + STEP + 2
"""Until then, the node reads its store for the charts, because something has changed."""
SECONDS = 25.0


def _used(pids: Sequence[int]) -> float:
    return sum(sum(cpu(pid)) for pid in pids)


@measures("connections of a node", "idle CPU", "idle CPU of the server", "idle memory", "idle memory of the server")
def idle() -> Iterable[Row]:
    """Includes the node with its store thread, and its workers, but not the host and this process."""
    server = machine()
    store = server.new_store()
    with stage(CrewSpec("nothing", "Nothing", 2), store=store) as on:
        node, workers = on.pids()
        clock.sleep(SETTLE)
        sessions = server.sessions([node, *workers])
        began, ours, theirs = clock.monotonic(), _used([node, *workers]), _used(sessions)
        clock.sleep(SECONDS)
        took = clock.monotonic() - began
        ours, theirs = (100 * (_used([node, *workers]) - ours) / took, 100 * (_used(sessions) - theirs) / took)
        memory, alone, backends = pss([node, *workers]), pss([node]), pss(sessions)
        kept = set(server.sessions([node, *workers])) == set(sessions)
    server.drop(store)
    if not kept:
        raise RuntimeError("the connections of the node have changed")
    yield Row("connections of a node", len(sessions), "connections", None, 3.0)
    yield Row("idle CPU", ours, "% of a core", 0.0, 0.1, note="polls and beats: one round trip each")
    yield Row("idle CPU of the server", theirs, "% of a core", 0.0, None)
    note = f"{alone:.0f} MiB of it the node: its imports, psycopg among them"
    yield Row("idle memory", memory, "MiB", None, 45.0, note=note)
    yield Row("idle memory of the server", backends, "MiB", None, None)
