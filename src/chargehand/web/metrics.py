"""Metrics in the text format of Prometheus, or as OpenMetrics. Label values are bounded: nodes, crews, queues, GPUs."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from chargehand import __version__
from chargehand.errors import ChargehandError
from chargehand.live.bodies import NodeBody
from chargehand.live.components import GONE
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.flows import FlowTotals
from chargehand.model.records import Counts, CrashFilter
from chargehand.model.status import HistogramStatus, NodeStatus, NodeWorker, TallyStatus
from chargehand.web.threads import ThreadPool

if TYPE_CHECKING:
    from chargehand.app import Chargehand

STATES = ("queued", "future", "following", "limited", "running", "done", "failed", "cancelled")
FLAGS = ("unresponsive", "stalled")
MOST_QUEUES = 200
"""The maximum number of queues with their own labels; the remaining ones are summed as `(others)`."""
_openmetrics: Callable[[CollectorRegistry], bytes] = openmetrics.generate_latest  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # it has no types
_WEIGHT = re.compile(r"[01](\.\d{0,3})?")
LIMIT = 5.0
"""Seconds after which metrics are returned without the data of the store."""


class MetricFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The current facts. `counts` is None if the store did not answer."""

    status: NodeStatus | None
    counts: Sequence[Counts] | None
    waiting: Mapping[str, int]
    since_crash: Mapping[str, float]
    """Seconds since the last crash, for each crew that has crashed."""
    dropped: int = 0
    """The number of events that this process has dropped."""
    shared: bool = False
    """Whether several nodes may use the store: then the figures of a node have its name as a label."""
    nodes: Sequence[NodeBody] = ()
    """All nodes that share the store."""
    flows: FlowTotals | None = None
    unserved: Mapping[str, str] = {}
    """The queues that no node serves, by what the store has; used if no node answers here."""


async def gather(hand: "Chargehand", in_thread: ThreadPool, dropped: int) -> MetricFacts:
    """Returns the facts. The node and the store are read concurrently; what does not arrive in time is left out."""

    shared = hand.location.server is not None

    def ask_store() -> dict[str, Any]:
        crews = [crew.name for crew in hand.known_crews()]
        newest = {crew: hand.crashes(CrashFilter(crew=crew, limit=1)) for crew in crews}
        since = {crew: found[0].age_ms / 1000 for crew, found in newest.items() if found}
        nodes = hand.internal.nodes() if shared else []
        unserved = (hand.internal.unserved() or {}) if shared else {}
        return {
            "counts": hand.counts(), "waiting": dict(hand.internal.waiting()), "since_crash": since, "nodes": nodes,
            "unserved": unserved, "flows": hand.internal.flow_totals(),
        }  # fmt: skip

    status, stored = await asyncio.gather(
        in_thread(hand.internal.node_status, LIMIT), in_thread(ask_store, LIMIT), return_exceptions=True
    )
    for answer in (status, stored):
        if isinstance(answer, BaseException) and not isinstance(answer, ChargehandError):
            raise answer
    missing: dict[str, Any] = {"counts": None, "waiting": {}, "since_crash": {}}
    seen = None if isinstance(status, BaseException) else status
    known = missing if isinstance(stored, BaseException) else stored
    return MetricFacts(status=seen, dropped=dropped, shared=shared, **known)


def exposition(facts: MetricFacts, accept: str = "") -> tuple[bytes, str]:
    """Returns the facts in the format that the header Accept asks for, and its media type: OpenMetrics, or text."""

    class MetricView(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from _of_parts(facts)
            if facts.status is not None:
                node = facts.status.node if facts.shared else None
                yield from _labelled(_of_workers(facts.status), node)
                yield from _labelled(_of_tally(facts.status.tally), node)
            if facts.nodes:
                yield from _of_nodes(facts.nodes)
            yield from _of_queues(facts)
            if facts.flows is not None:
                yield from _of_flows(facts.flows)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricView())
    if _prefers_openmetrics(accept):
        return _openmetrics(registry), openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_LATEST


def _prefers_openmetrics(accept: str) -> bool:
    """Returns whether a header Accept names OpenMetrics, and not the text format with a higher weight."""
    weights: dict[str, float] = {}
    for each in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        given = next((text.removeprefix("q=") for text in parameters if text.startswith("q=")), "1")
        weight = float(given) if _WEIGHT.fullmatch(given) else 0.0
        weights[kind] = max(weights.get(kind, 0.0), weight)
    wanted = weights.get("application/openmetrics-text", 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


def _gauge(name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    found = GaugeMetricFamily(f"chargehand_{name}", text, labels=labels)
    for label, value in values.items():
        found.add_metric(label, value)
    return found


def _counter(name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    found = CounterMetricFamily(f"chargehand_{name}", text, labels=labels)
    for label, value in values.items():
        found.add_metric(label, value)
    return found


def _labelled(metrics: Iterator[Metric], node: str | None) -> Iterator[Metric]:
    """Yields the metrics of a node, with its name as a label if others may use the store."""
    for metric in metrics:
        if node is not None:
            metric.samples = [each._replace(labels={"node": node, **each.labels}) for each in metric.samples]
        yield metric


def _of_nodes(nodes: Sequence[NodeBody]) -> Iterator[Metric]:
    """Yields what the store has of all nodes: every API process returns the same."""
    about = {(n.name, n.machine or "", n.version or ""): 1.0 for n in nodes}
    yield _gauge("node_info", "The nodes that share the store.", ("node", "machine", "version"), about)
    gone = {(n.name,): float(n.status == GONE) for n in nodes}
    yield _gauge("node_gone", "1 if the node has disappeared without having been stopped.", ("node",), gone)
    beats = {(n.name,): n.beat_age_ms / 1000 for n in nodes if n.beat_age_ms is not None}
    yield _gauge("node_last_beat_seconds", "Seconds since the node last wrote its health.", ("node",), beats)
    workers = {
        (n.name, crew.crew, state): float(getattr(crew, state))
        for n in nodes
        for crew in n.crews
        for state in ("configured", "live", "busy")
    }
    yield _gauge("node_workers", "Workers of each node, from the store.", ("node", "crew", "state"), workers)


def _of_parts(facts: MetricFacts) -> Iterator[Metric]:
    yield InfoMetricFamily("chargehand", "The version of Chargehand.", value={"version": __version__})
    yield _gauge("node_up", "Whether a node answers.", (), {(): float(facts.status is not None)})
    yield _gauge("store_up", "Whether the store answers.", (), {(): float(facts.counts is not None)})
    of_node = facts.status.tally.events_dropped if facts.status is not None else 0
    dropped = {(): float(facts.dropped + of_node)}
    yield _counter("events_dropped", "Events dropped because clients were too slow; should be 0.", (), dropped)
    since = {(crew,): seconds for crew, seconds in facts.since_crash.items()}
    yield _gauge("seconds_since_last_crash", "Seconds since the last crash of a worker of the crew.", ("crew",), since)


def _of_workers(status: NodeStatus) -> Iterator[Metric]:
    workers = status.workers
    crews = sorted({worker.crew for worker in workers})
    by_status = Counter((worker.crew, worker.status) for worker in workers)
    every = {(crew, each.value): float(by_status[crew, each.value]) for crew in crews for each in Status}
    yield _gauge("workers", "Workers by status.", ("crew", "status"), every)
    flagged = Counter((worker.crew, flag) for worker in workers for flag in worker.flags)
    flags = {(crew, flag): float(flagged[crew, flag]) for crew in crews for flag in FLAGS}
    yield _gauge("workers_flagged", "Workers that are alive, but unresponsive or stalled.", ("crew", "flag"), flags)
    busy = {(c,): float(sum(w.crew == c and w.current_job is not None for w in workers)) for c in crews}
    yield _gauge("workers_busy", "Workers that are running a job.", ("crew",), busy)
    of_workers = {c: sum(w.restarts_total for w in workers if w.crew == c) for c in crews}  # of an older node
    restarts = {(crew,): float(count) for crew, count in (status.tally.restarts or of_workers).items()}
    yield _counter("restarts", "Restarts of workers after a crash.", ("crew",), restarts)
    crashes = {(crew, reason): float(count) for crew, reason, count in status.tally.crashes}
    yield _counter("crashes", "Worker crashes since the node started.", ("crew", "reason"), crashes)
    yield from _of_gpus(workers)


def _of_gpus(workers: Sequence[NodeWorker]) -> Iterator[Metric]:
    """Yields the GPUs that are assigned to workers; figures that are not known are left out."""
    every = [(worker, gpu) for worker in workers for gpu in worker.gpus]
    for name, text, field, scale in (
        ("memory_bytes", "Memory of a GPU.", "memory", 1),
        ("memory_used_bytes", "Memory of a GPU in use by all processes.", "memory_used", 1),
        ("utilization_ratio", "Share of the time in which a GPU was busy, for whatever process.", "utilization", 100),
    ):
        known = {(gpu.uuid,): getattr(gpu, field) for _, gpu in every}
        values = {label: value / scale for label, value in known.items() if value is not None}
        if every:
            yield _gauge(f"gpu_{name}", text, ("gpu",), values)
    if every:
        text = "Memory of a GPU in use by a worker and its child processes."
        own = {(w.crew, w.component, gpu.uuid): gpu.worker_memory for w, gpu in every}
        used = {label: float(value) for label, value in own.items() if value is not None}
        yield _gauge("worker_gpu_memory_bytes", text, ("crew", "worker", "gpu"), used)


def _of_tally(tally: TallyStatus) -> Iterator[Metric]:
    for name, text, by_queue in (
        ("wait", "Seconds from the due time of a job to its claim.", tally.wait),
        ("run", "Seconds that an attempt took, whatever its outcome.", tally.run),
    ):
        found = HistogramMetricFamily(f"chargehand_job_{name}_seconds", text, labels=("queue",))
        for queue, histogram in by_queue.items():
            found.add_metric((queue,), *_buckets(histogram))
        yield found
    for name, text, histogram in (
        ("claim", "Seconds that the store took to claim jobs.", tally.claim),
        ("settle", "Seconds from the end of an attempt until it was durable; of a batch, the first.", tally.settle),
    ):
        alone = HistogramMetricFamily(f"chargehand_{name}_seconds", text)
        alone.add_metric((), *_buckets(histogram))
        yield alone
    ended = {(queue, outcome): float(count) for queue, outcome, count in tally.ended}
    yield _counter("attempts", "Attempts that have ended since the node started.", ("queue", "outcome"), ended)


def _buckets(histogram: HistogramStatus) -> tuple[list[tuple[str, float]], float]:
    """Returns cumulative buckets, as Prometheus expects them, and the sum."""
    below, found = 0, list[tuple[str, float]]()
    for bound, count in zip([*histogram.bounds, "+Inf"], histogram.counts, strict=True):
        below += count
        found.append((str(bound), float(below)))
    return found, float(histogram.total)


def _of_flows(flows: FlowTotals) -> Iterator[Metric]:
    by_state = {(state,): float(getattr(flows, state)) for state in FlowTotals.__struct_fields__}
    yield _gauge("flows", "Flows by state; those that are running have not ended.", ("state",), by_state)


def _of_queues(facts: MetricFacts) -> Iterator[Metric]:
    if facts.counts is None:
        return
    jobs: Counter[tuple[str, str]] = Counter()
    for number, counts in enumerate(facts.counts):
        name = counts.queue if number < MOST_QUEUES else "(others)"
        for state in STATES:
            # Queued jobs that wait for their time, for other jobs or for a slot are counted separately.
            later = counts.future + counts.following + counts.limited if state == "queued" else 0
            jobs[name, state] += getattr(counts, state) - later
    depth = {label: float(count) for label, count in jobs.items()}
    yield _gauge("queue_jobs", "Jobs by state; each job is in one of them.", ("queue", "state"), depth)
    oldest = {(queue,): ms / 1000 for queue, ms in list(facts.waiting.items())[:MOST_QUEUES]}
    yield _gauge("queue_oldest_wait_seconds", "Seconds for which the next job has been due.", ("queue",), oldest)
    rated = {(counts.queue,): float(counts.rate_next_ms is not None) for counts in facts.counts[:MOST_QUEUES]}
    yield _gauge("queue_rate_limited", "1 if jobs are waiting for a rate.", ("queue",), rated)
    why = facts.status.unserved if facts.status is not None else facts.unserved
    unserved = {(counts.queue,): float(counts.queue in why) for counts in facts.counts[:MOST_QUEUES]}
    yield _gauge("queue_unserved", "1 if jobs are waiting and no worker takes them.", ("queue",), unserved)
