"""One trace from the request of an API to the spans of a handler, with OpenTelemetry's own exporter in memory."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from world import World

from chargehand import Chargehand

TRACER = TracerProvider().get_tracer("api")


@pytest.mark.parametrize(
    ("handler", "concurrency"), [("Traced", 1), ("TracedAsync", 1), ("TracedAsync", 3)], ids=["sync", "async", "many"]
)
def test_spans_of_api_and_handler_are_in_one_trace(
    hand: Chargehand, world: World, handler: str, concurrency: int
) -> None:  # spec: HK-2
    crew: Any = hand.crew(
        "traced", f"traced_handlers:{handler}", takes=dict, workers=1, concurrency=concurrency, backoff=0.0
    )
    app = FastAPI()
    seen: dict[str, str] = {}
    inner = world.folder / "inner"

    @app.post("/songs")
    async def post(fails: int) -> Any:
        with TRACER.start_as_current_span("POST /songs", kind=SpanKind.SERVER) as span:
            context = span.get_span_context()
            seen.update(trace=f"{context.trace_id:032x}", span=f"{context.span_id:016x}")
            ref = await crew.enqueue_async({"fails": fails, "then": str(inner)})
        return {"result": await ref.result(60)}

    async def ask(fails: int) -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            return (await client.post("/songs", params={"fails": fails}, timeout=60)).json()["result"]

    with hand.running():
        once = asyncio.run(ask(0))
        first = dict(seen)
        crew.ref(once["inner"]).wait(60)
        spans = json.loads(inner.read_text())
        asyncio.run(ask(1))
        second = dict(seen)
        last = world.folder / "last"
        crew.enqueue({"file": str(last)}).wait(60)
        later = [each for each in json.loads(last.read_text()) if each not in spans]
        record = hand.job(once["inner"])
    assert once["traceparent"].startswith(f"00-{first['trace']}-{first['span']}-")
    decode, process = spans
    assert (process["name"], process["kind"], decode["name"]) == ("process traced", "CONSUMER", "decode")
    assert (process["trace"], process["parent"], process["links"]) == (first["trace"], first["span"], [])
    assert (decode["trace"], decode["parent"]) == (first["trace"], process["id"])
    assert (process["attributes"]["messaging.destination.name"], process["attributes"]["chargehand.attempt"]) == (
        "traced", 1,
    )  # fmt: skip
    assert record.traceparent is not None
    assert record.traceparent.startswith(f"00-{first['trace']}-{decode['id']}-")  # enqueued inside of the span
    child, linked = [
        each
        for each in later
        if each["name"] == "process traced" and each["attributes"]["messaging.message.id"] != once["inner"]
    ][:2]
    assert (child["trace"], child["parent"], child["links"], child["status"]) == (
        second["trace"], second["span"], [], "ERROR",
    )  # fmt: skip
    assert (linked["parent"], linked["links"], linked["status"]) == (None, [second["trace"]], "UNSET")
    assert linked["trace"] != second["trace"]


def test_opentelemetry_is_not_imported_by_chargehand() -> None:  # spec: HK-2
    script = (
        "import sys, chargehand, chargehand.app, chargehand.crew\n"
        "import chargehand.worker.main, chargehand.node.node\n"
        "from chargehand.settings.plan import CrewPlan, new_job\n"
        "assert new_job(CrewPlan(name='a', queue='a', handler='m:H'), '1').traceparent is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
