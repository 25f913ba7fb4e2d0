"""Measures the latency from a durable enqueue in another process to the start in an idle worker."""

from collections.abc import Iterable

from msgspec.structs import replace

from bench.bare import sums, wake_ups
from bench.caller import ask
from bench.hosting import CrewSpec
from bench.postgres import bare
from bench.postgres.server import machine
from bench.row import Row, measures, p50, p99
from bench.scene import stage

COUNT = 400
ELSEWHERE = 200


@measures(
    "enqueue to start, p50",
    "enqueue to start, p99",
    "enqueue elsewhere to start, p50",
    "enqueue elsewhere to start, p99",
)
def enqueue_to_start() -> Iterable[Row]:
    """Through the node of the machine, and from a process that finds no node and writes to the server itself.

    The limit is one durable commit and three wake-ups of another process, all from idle.
    """
    server = machine()
    store = server.new_store()
    with stage(CrewSpec("stamp", "Stamp", 2), store=store) as on:
        (near,) = ask(1, "latency", on.spec, COUNT)
        (far,) = ask(1, "latency", replace(on.spec, state=str(on.folder / "elsewhere")), ELSEWHERE)
        commits = bare.commits(server, COUNT, paced=True)
    server.drop(store)
    limits = sums(commits, *(wake_ups(COUNT) for _ in range(3)))
    note = f"a commit from idle took {1000 * p50(commits):.2f} ms (p99 {1000 * p99(commits):.1f} ms) of it"
    for name, took, goal in (("enqueue", near, 3.0), ("enqueue elsewhere", far, 10.0)):
        yield Row(f"{name} to start, p50", 1000 * p50(took), "ms", 1000 * p50(limits), goal, note=note)
        yield Row(f"{name} to start, p99", 1000 * p99(took), "ms", 1000 * p99(limits), None, note=note)
