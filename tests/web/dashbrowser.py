"""What the dashboard's tests do in a browser."""

import json
from typing import Any

from dashworld import Served
from playwright.sync_api import Page, expect

from chargehand.testing import eventually

SLOW = 20_000
"""Milliseconds after which something is not coming any more."""


class Watched:
    """What a page complained about."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def watch(self, page: Page) -> Page:
        page.set_default_timeout(SLOW)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._hear(said.type, said.text))
        return page

    def _hear(self, kind: str, text: str) -> None:
        lost = "Failed to load resource" in text  # a wrong key, a server that is away
        if "Content Security Policy" in text or (kind == "error" and not lost):
            self.complaints.append(text)


def sign_in(page: Page, url: str, key: str) -> None:
    page.goto(f"{url}/dashboard")
    page.get_by_label("Key").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Pages").first).to_be_visible()


def close(page: Page) -> None:
    """Close the page's context after the last answer of its routes: one that is cut off raises in the next test."""
    page.unroute_all(behavior="wait")
    page.context.close()


def go(page: Page, where: str) -> None:
    page.evaluate("where => { location.hash = '#/' + where }", where)


def tile(page: Page, name: str) -> Any:
    return page.locator(f'[data-worker="worker:{name}"]')


def pid_of(served: Served, component: str) -> int:
    def find() -> int | None:
        view = served.hand.status() or {"workers": []}
        found = next((w for w in view["workers"] if w["component"] == component), None)
        return found["pid"] if found and found["status"] == "healthy" else None

    return int(eventually(find, 30) or 0)


def tab_to(page: Page, name: str, through: str | None = None) -> None:
    """Press Tab until that is focused; on the way, open what is in between."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''")
        if focused == through:
            page.keyboard.press("Enter")
        if focused == name:
            return
    raise AssertionError(f"Tab never comes to {name!r}")


def worker_event(number: int, status: str, node: str = "n", text: str | None = None, **others: Any) -> str:
    worker = {
        "component": f"worker:big:{number}", "node": node, "crew": "big", "index": number, "status": status,
        "flags": [], "reason": None, "text": text, "pid": 1, "current_job": None, "batch_jobs": [],
        "job_since_ms": None, "progress": None, "memory": 1 << 20, "jobs": 0, "restart_count": 0, "restart_at_ms": None,
        "started_ms": 1, "budget": None, "exit_code": None, "signal": None, "concurrency": 1, "in_hand": 0, **others,
    }  # fmt: skip
    event = {"topic": f"worker:big:{number}:status", "type": "worker_update", "timestamp_ms": 1, "worker": worker}
    return f"event: worker_update\ndata: {json.dumps(event)}\n\n"


def node_event(name: str, status: str, drain: str | None = None) -> str:
    crew = {"crew": "big", "queue": "big", "configured": 2, "live": 2, "busy": 1}
    node = {
        "name": name, "status": status, "reason": None, "machine": f"machine-{name}", "version": "1.0", "pid": 5,
        "started_ms": 1, "last_beat_ms": 2, "beat_age_ms": 1, "drain": drain, "crews": [crew],
    }  # fmt: skip
    event = {"topic": f"node:{name}:status", "type": "node_update", "timestamp_ms": 1, "node": node}
    return f"event: node_update\ndata: {json.dumps(event)}\n\n"


def queue_event(name: str, **others: Any) -> str:
    queue = {
        "name": name, "queued": 0, "future": 0, "limited": 0, "running": 0, "done": 0, "failed": 0, "cancelled": 0,
        "rate": 0.0, "mean_duration_s": None, "eta_s": None, "oldest_wait_s": None, "last_done_ms": None,
        "rate_next_ms": None, **others,
    }  # fmt: skip
    event = {"topic": f"queue:{name}:status", "type": "queue_update", "timestamp_ms": 1, "queue": queue}
    return f"event: queue_update\ndata: {json.dumps(event)}\n\n"
