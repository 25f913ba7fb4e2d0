"""Measures the cost of an idle node with two bare workers."""

from collections.abc import Iterable

from bench import bare
from bench.hosting import CrewSpec
from bench.processes import cpu, pss
from bench.row import Row, measures
from bench.scene import stage
from chargehand import clock

SETTLE = 3.0
SECONDS = 25.0


@measures("idle CPU", "idle memory")
def idle() -> Iterable[Row]:
    """Includes the node with its store thread, and its workers, but not the host and this process."""
    with stage(CrewSpec("nothing", "Nothing", 2)) as on:
        node, workers = on.pids()
        clock.sleep(SETTLE)
        began, before = clock.monotonic(), [cpu(pid) for pid in (node, *workers)]
        clock.sleep(SECONDS)
        after, took = [cpu(pid) for pid in (node, *workers)], clock.monotonic() - began
        memory = pss([node, *workers])
        alone = pss([node])
        limit = bare.memory()
    used = [(sum(now) - sum(then)) / took * 100 for now, then in zip(after, before, strict=True)]
    shares = f"node {used[0]:.3f} %, workers {' and '.join(f'{each:.3f}' for each in used[1:])} %"
    yield Row("idle CPU", sum(used), "% of a core", 0.0, 0.1, note=f"wake-ups: {shares}")
    yield Row("idle memory", memory, "MiB", limit, 45.0, note=f"{alone:.0f} MiB of it the node: its imports")
