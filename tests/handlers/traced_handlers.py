"""Handlers with spans of their own, kept by the exporter in memory of OpenTelemetry's SDK, and written to a file."""

import json
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chargehand import Handler, Job

EXPORTER = InMemorySpanExporter()


def trace_into_memory() -> None:
    """Configures OpenTelemetry for this process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


def spans() -> list[dict[str, Any]]:
    """Returns the spans that have ended."""
    return [
        {
            "name": span.name, "trace": f"{span.context.trace_id:032x}", "id": f"{span.context.span_id:016x}",
            "parent": span.parent and f"{span.parent.span_id:016x}", "kind": span.kind.name,
            "links": [f"{link.context.trace_id:032x}" for link in span.links], "status": span.status.status_code.name,
            "attributes": dict(span.attributes or {}),
        }
        for span in EXPORTER.get_finished_spans() if span.context is not None
    ]  # fmt: skip


class _Traced(Handler[dict[str, Any], Any]):
    def set_up(self) -> None:
        trace_into_memory()

    def work(self, job: Job[dict[str, Any]]) -> dict[str, Any]:
        if "file" in job.payload:  # the spans of the jobs before
            Path(job.payload["file"]).write_text(json.dumps(spans()))
            return {}
        with trace.get_tracer("songs").start_as_current_span("decode"):
            if job.attempt <= job.payload.get("fails", 0):
                raise ValueError("not this time")
            inner = job.enqueue("traced", {"file": job.payload["then"]}) if "then" in job.payload else None
            return {"traceparent": job.traceparent, "inner": inner}


class Traced(_Traced):
    """Performs jobs in the worker's thread."""

    def perform(self, job: Job[dict[str, Any]]) -> dict[str, Any]:
        return self.work(job)


class TracedAsync(_Traced):
    """Performs jobs as coroutines."""

    async def perform(self, job: Job[dict[str, Any]]) -> dict[str, Any]:
        return self.work(job)
