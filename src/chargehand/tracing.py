"""The traces that jobs belong to: taken where a job is enqueued, and continued by a span around each attempt.

OpenTelemetry is used if the process has imported it; this module never imports it first. Workers load this module, so
it imports nothing heavy.
"""

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

_given: ContextVar[str | None] = ContextVar("chargehand traceparent", default=None)
"""The trace of the request that is served now, or of the job that is performed now."""
_NOTHING = nullcontext()


def current() -> str | None:
    """Returns the trace of what happens now, as the header `traceparent`: that of the current span of OpenTelemetry, or
    else that of the request or the job; None if there is none."""
    api = _api()
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"
    return _given.get()


@contextmanager
def belonging_to(traceparent: str | None) -> Generator[None]:
    """Makes this trace the current one for the length of the block, unless the block has spans of its own."""
    before = _given.get()
    _given.set(traceparent)
    try:
        yield
    finally:
        _given.set(before)  # no reset: a coroutine that is closed ends in another context


def span_of(job: Any) -> AbstractContextManager[None]:
    """Returns the context in which a worker performs a job, with its trace; cheap for a job without one."""
    return _NOTHING if job.traceparent is None and _api() is None else _span_of(job)


@contextmanager
def _span_of(job: Any) -> Generator[None]:
    """Opens a span around an attempt at a job, if OpenTelemetry is used: in the trace of the job for the first attempt,
    in a trace of its own with a link to that one for every further attempt."""
    api = _api()
    with belonging_to(job.traceparent):
        if api is None:
            yield
            return
        parent, links = None, []
        if job.traceparent is not None:
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            parent = TraceContextTextMapPropagator().extract({"traceparent": job.traceparent})
            if job.attempt > 1 or job.crashes:
                links = [api.Link(api.get_current_span(parent).get_span_context())]
                parent = None
        about = {
            "messaging.system": "chargehand", "messaging.operation.type": "process",
            "messaging.destination.name": job.queue, "messaging.message.id": job.id,
            "chargehand.attempt": job.attempt + job.crashes,
        }  # fmt: skip
        tracer = api.get_tracer("chargehand")
        with tracer.start_as_current_span(
            f"process {job.queue}", parent, api.SpanKind.CONSUMER, attributes=about, links=links
        ):
            yield


def _api() -> Any:
    """Returns the module `opentelemetry.trace`; None if nobody has imported it, or not completely."""
    found = sys.modules.get("opentelemetry.trace")
    return found if hasattr(found, "get_tracer") else None
