"""Measures the latency from a durable enqueue in another process to the start in an idle worker."""

from collections.abc import Iterable

from bench import bare
from bench.caller import ask
from bench.hosting import CrewSpec
from bench.row import Row, measures, p50, p99
from bench.scene import stage

COUNT = 400


@measures("enqueue to start, p50", "enqueue to start, p99")
def enqueue_to_start() -> Iterable[Row]:
    """The limit is one durable commit and three wake-ups of another process, all from idle."""
    with stage(CrewSpec("stamp", "Stamp", 2)) as on:
        (took,) = ask(1, "latency", on.spec, COUNT)
        commits = bare.commits(on.folder, COUNT, paced=True)
    limits = bare.sums(commits, *(bare.wake_ups(COUNT) for _ in range(3)))
    note = f"a commit from idle took {1000 * p50(commits):.2f} ms (p99 {1000 * p99(commits):.1f} ms) of it"
    yield Row("enqueue to start, p50", 1000 * p50(took), "ms", 1000 * p50(limits), 1.25, note=note)
    yield Row("enqueue to start, p99", 1000 * p99(took), "ms", 1000 * p99(limits), 10.0, note=note)
