"""Measures the dashboard in a browser: `python -m bench.page [--events N] [WORD ...]`.

A separate script, because it needs playwright and chromium. The server is real; for measurements with many workers the
node is simulated. The browser is headless and renders on the CPU.
"""

import argparse
import json
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench.crowd import fill
from bench.hosting import CrewSpec, Spec, hand_of
from bench.row import Row, p50
from bench.scene import PATIENCE, folder, stage
from bench.watching import WORKERS, Pretender, served
from chargehand import clock
from chargehand.live.bodies import WorkerBody
from chargehand.model.status import Progress, RestartBudget
from chargehand.node.loop import Channel
from chargehand.protocol.control import Call
from chargehand.protocol.frame import BadFrame, Frame
from chargehand.testing import eventually

LATEST = Path(__file__).parent / "page.json"
CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if os.path.exists(path)), None)
TIMES = 7
HOUR = 180_000
"""Number of events in an hour at fifty per second."""
HOUR_TAKES = 1200.0
"""Maximum wait in seconds."""
RATE, SECONDS = 200, 20.0
MANY = 1_000_000
PAGES = 20
KNOWN = "[data-worker]"
"""Selector of a worker: the tiles have all of them, the list folds those that are well."""
WATCH = """
(() => {
  const seen = (window.seen = { live: null, heard: 0, tasks: [], frame: 0 });
  const listen = EventSource.prototype.addEventListener;
  EventSource.prototype.addEventListener = function (kind, hear, ...rest) {
    return listen.call(this, kind, (event) => { if (event.data) seen.heard++; hear(event); }, ...rest);
  };
  new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "longtask", buffered: true });
  let before = performance.now();
  const frame = (now) => {
    seen.frame = Math.max(seen.frame, now - before);
    before = now;
    seen.live ??= document.querySelector(".workers .rows > li, [data-worker]") ? performance.now() : null;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})();
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
WEIGHT = """
[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .filter((each) => !each.name.includes('/api/')).reduce((sum, each) => sum + each.encodedBodySize, 0)
"""


class Busy(Pretender):
    """Simulates a thousand workers that start jobs and report progress at a given event rate."""

    still = False
    """Stops all events, so that none is in transit."""

    def _called(self, channel: Channel, frame: Frame | BadFrame) -> None:
        assert isinstance(frame, Frame)
        if frame.kind == "SUBSCRIBE":
            self._outlets.subscribe(channel, msgspec.json.decode(frame.body, type=Call))
        else:
            channel.close()  # all others see no node

    def _change(self, number: int, done: int) -> None:
        if self.still:
            return
        step = done // WORKERS
        topic, job = f"worker:crowd:{number}:status", f"{number:016x}{step // 5:016x}"
        body = WorkerBody(
            component=f"worker:crowd:{number}", node="here", crew="crowd", index=number, status="healthy",
            pid=1000 + number, current_job=job, job_since_ms=clock.now_ms(),
            progress=Progress(done=step % 5, total=5, stage="net"), memory=(300 + step % 7) << 20, jobs=step // 5,
            started_ms=clock.now_ms() - 60_000, budget=RestartBudget(5, 20),
        )  # fmt: skip
        self.broker.publish(topic, topic, "worker", body, clock.now_ms())


@contextmanager
def looked_at(browser: Browser, port: int, token: str, where: str = "") -> Generator[Page]:
    """Opens the dashboard in a browser with an empty cache that is signed in."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.request.post(f"http://localhost:{port}/api/web/session", data={"key": token})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(WATCH)
    page.goto(f"http://localhost:{port}/dashboard{where}")
    try:
        yield page
    finally:
        context.close()


def until(page: Page, so: str, patience: float = PATIENCE) -> None:
    """Waits for a condition on the page; its policy forbids evaluating text."""
    eventually(lambda: page.evaluate(so), patience, what=so)


def opening(browser: Browser) -> Iterable[Row]:
    """Measures from the request to the first paint and to live data with the browser's clock and an empty cache."""
    paint: list[float] = []
    live: list[float] = []
    weight = 0.0
    with stage(CrewSpec("nothing", "Nothing", 4)) as on, served(on.spec) as (_, port, token):
        for _ in range(TIMES):
            with looked_at(browser, port, token) as page:
                until(page, "window.seen.live !== null")
                paint.append(eventually(lambda page=page: page.evaluate(PAINT)) or 0.0)
                live.append(page.evaluate("window.seen.live"))
                weight = page.evaluate(WEIGHT)
    yield Row("first paint on loopback, p50", p50(paint), "ms", None, 300)
    yield Row("time to live data on loopback, p50", p50(live), "ms", None, 500)
    yield Row("page weight, gzipped", weight / 1000, "kB", None, 150)


@contextmanager
def crowded(browser: Browser, rate: float) -> Generator[tuple[Busy, Page]]:
    """Shows a thousand workers in the browser."""
    with folder() as path:
        spec = Spec(store=str(path / "bench.db"), crews=(CrewSpec("crowd", "Nothing", 1),))
        node = Busy(Path(spec.store), rate)
        node.start()
        try:
            with served(spec) as (_, port, token), looked_at(browser, port, token, "#/?view=tiles") as page:
                until(page, f"document.querySelectorAll('{KNOWN}').length === {WORKERS}")
                yield node, page
        finally:
            node.stop()


def heap(node: Busy, page: Page, cdp: CDPSession) -> float:
    """Returns the MiB held by scripts after garbage collection, with no event in transit."""
    node.still = True
    heard, before = page.evaluate("window.seen.heard"), -1
    while heard != before:
        page.wait_for_timeout(1000)
        heard, before = page.evaluate("window.seen.heard"), heard
    found: list[float] = []
    for _ in range(5):  # one collection does not always free everything: use the minimum
        cdp.send("HeapProfiler.collectGarbage")
        found.append(cdp.send("Runtime.getHeapUsage")["usedSize"] / (1 << 20))
        page.wait_for_timeout(1000)
    node.still = False
    return min(found)


def an_hour(browser: Browser, events: int) -> Iterable[Row]:
    """Sends the events of an hour as fast as the page accepts them, and measures the memory of the page.

    The page keeps a bounded history for each of the thousand workers; when all are full, memory must not grow.
    """
    with crowded(browser, 5000) as (node, page):
        cdp = page.context.new_cdp_session(page)
        cdp.send("HeapProfiler.enable")
        held, began = [heap(node, page, cdp)], clock.monotonic()
        for hours in (1, 2):
            until(page, f"window.seen.heard >= {events * hours}", HOUR_TAKES)
            held.append(heap(node, page, cdp))
        took = clock.monotonic() - began
    note = f"{held[0]:.1f} MiB before, {held[1]:.1f} after {events:,} events, {held[2]:.1f} after as many again"
    print(f"  heap: {note}", flush=True)
    yield Row("heap more after an hour of 50 events/s", held[1] - held[0], "MiB", None, 10, note=note)
    yield Row("heap more after a second hour", held[2] - held[1], "MiB", None, 2, note=note)
    yield Row("events a second that the page takes", 2 * events / took, "1/s", None, RATE, more_is_better=True)


def jank(browser: Browser) -> Iterable[Row]:
    """Measures the longest task and frame, and the events received, while a thousand workers change 200 times a second.

    Tasks are also measured in CPU time, because wall time says little on a shared machine.
    """
    with crowded(browser, RATE) as (_, page):
        page.wait_for_timeout(3000)
        browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
        before = page.evaluate("Object.assign(window.seen, { tasks: [], frame: 0 }).heard")
        began = clock.monotonic()
        page.wait_for_timeout(SECONDS * 1000)
        took = clock.monotonic() - began
        seen: dict[str, Any] = page.evaluate("window.seen")
        worked = tasks(json.loads(browser.stop_tracing())["traceEvents"])
    note = f"{len(seen['tasks'])} tasks over 50 ms in {took:.0f} s, the longest frame {seen['frame']:.0f} ms, "
    note += f"on a machine with a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"  jank: {note}", flush=True)
    heard = (seen["heard"] - before) / took
    yield Row("events heard of 200/s of 1,000 workers", heard, "1/s", None, RATE * 0.95, more_is_better=True)
    yield Row("longest task meanwhile, processor's time", max(worked), "ms", None, 50, note=note)
    yield Row("longest task meanwhile", max(seen["tasks"], default=0.0), "ms", None, 100, note=note)
    yield Row("the page's share of a core meanwhile", sum(worked) / took / 10, "%", None, 50, note=note)


def tasks(events: list[dict[str, Any]]) -> list[float]:
    """Returns the CPU time in ms of each task of the page's main thread."""
    named = [event for event in events if event["name"] == "thread_name"]
    mains = {(each["pid"], each["tid"]) for each in named if each["args"]["name"] == "CrRendererMain"}
    return [
        each["tdur"] / 1000
        for each in events
        if each["name"] == "ThreadControllerImpl::RunTask" and (each["pid"], each["tid"]) in mains and "tdur" in each
    ]


def paging(browser: Browser) -> Iterable[Row]:
    """Measures from the click to the display of the next fifty of a million jobs."""
    took: list[float] = []
    with folder() as path:
        spec = Spec(store=str(path / "bench.db"), crews=(CrewSpec("later", "Nothing", 1),))
        hand = hand_of(spec)
        hand.open()
        fill(hand, "future", MANY)
        hand.close()
        with served(spec) as (_, port, token), looked_at(browser, port, token, "#/jobs") as page:
            until(page, "document.querySelectorAll('[data-job]').length === 50")
            for _ in range(PAGES):
                took.append(page.evaluate(NEXT))
            tasks: list[float] = page.evaluate("window.seen.tasks")
    note = f"the longest task of {len(tasks)} over 50 ms took {max(tasks, default=0):.0f} ms"
    yield Row("next page of a million jobs, p50", p50(took), "ms", None, 100, note=note)
    yield Row("next page of a million jobs, longest", max(took), "ms", None, 250, note=note)


NEXT = """
() => new Promise((done) => {
  const first = document.querySelector("[data-job]").dataset.job, began = performance.now();
  [...document.querySelectorAll("nav.paging button")].at(-1).click();
  const look = () => {
    if (document.querySelector("[data-job]").dataset.job !== first) done(performance.now() - began);
    else requestAnimationFrame(look);
  };
  look();
})
"""


def main() -> int:
    """Runs the measurements."""
    parser = argparse.ArgumentParser(prog="bench.page", description=__doc__)
    parser.add_argument("--events", type=int, default=HOUR, help="number of events of the hour")
    parser.add_argument("words", nargs="*", help="only these: opening, jank, hour, paging")
    options = parser.parse_args()
    for name in ("CHARGEHAND_URL", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    rows: list[Row] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        parts = {
            "opening": lambda: opening(browser),
            "jank": lambda: jank(browser),
            "paging": lambda: paging(browser),
            "hour": lambda: an_hour(browser, options.events),
        }
        for name, measure in parts.items():
            if not options.words or name in options.words:
                for row in measure():
                    goal = f"{'≥' if row.more_is_better else '≤'} {row.goal:g}"
                    verdict = "yes" if row.meets else f"NO: {row.note}"
                    print(f"{row.name:42} {row.value:10,.1f} {row.unit:4} {goal:>8}  {verdict}", flush=True)
                    rows.append(row)
        browser.close()
    if options.events == HOUR:
        keep(rows)
    return 0


def keep(rows: Iterable[Row]) -> None:
    """Stores the results, keeping those that were not measured this time."""
    known = {row["name"]: row for row in (json.loads(LATEST.read_text()) if LATEST.exists() else [])}
    known |= {row.name: row.as_json() for row in rows}
    LATEST.write_text(json.dumps(list(known.values()), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
