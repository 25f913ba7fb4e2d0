"""Prepares broken and busy systems, and takes screenshots of their pages: light, dark, and on a phone.

PYTHONPATH=src:tests:. .venv/bin/python tests/web/scenes.py FOLDER [SCENE …]

With SCENE_HOLD=1 a scene stays until Enter is pressed, so that one can try it in a browser and with the command line.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dashworld import CHROMIUM, Served
from playwright.sync_api import Browser, Page, sync_playwright
from shots import NODES, add_songs, begin_flows, node

import pgserver
from chargehand import clock
from chargehand.host.actor import acting_as
from chargehand.model.access import Scope
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.testing import eventually

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 760}
WARM_UP_MS = 14_000
"""How long a page is left open before its pictures, so that charts have data."""

Scene = Callable[["Stage"], dict[str, str]]
SCENES: dict[str, Scene] = {}


class Stage:
    """What a scene works with: a folder, a server that ends with the scene, and a browser."""

    def __init__(self, folder: Path, browser: Browser, stack: ExitStack) -> None:
        self.folder, self.browser, self.stack = folder, browser, stack
        self.with_key = False
        """Whether a key is made, with which the pages sign in: the token ends with the first key."""
        self.before: Callable[[], None] | None = None
        """What happens when the page has been open for a while, before the pictures are taken."""

    def serve(self, address: str | None = None, app: str = "scene_app", **environment: str) -> Served:
        """Starts the application; it ends with the scene."""
        self.served = Served(self.folder, address, app=app, **environment)
        self.stack.callback(self.served.close)
        for name in ("thumbs", "render", "mail", "transcode", "embed", "native"):
            if app == "scene_app" and "SCENE_CREWS" not in environment:
                self.served.hand.crew(name, "scene_handlers:Work", max_attempts=3 if name == "transcode" else 1)
        return self.served


def scene(work: Scene) -> Scene:
    SCENES[work.__name__] = work
    return work


def _workers(served: Served) -> list[dict[str, Any]]:
    return list((served.hand.status() or {"workers": []})["workers"])


def _given_up(served: Served, crew: str) -> bool:
    its = [worker["status"] for worker in _workers(served) if worker["crew"] == crew]
    return bool(its) and all(status == "failed" for status in its)


@scene
def broken(stage: Stage) -> dict[str, str]:
    """A crash loop, a wrong model path, a poison job, failures and a pause, while two crews are well."""
    served = stage.serve()
    crews = served.hand.crews
    for at in range(400):
        crews["thumbs"].enqueue({"steps": 1 + at % 4, "seconds": 0.03}, label=f"IMG_{at:04}.jpg", tags=["album-7"])
    for at in range(9):
        crews["thumbs"].enqueue({"error": f"IMG_9{at:03}.jpg"}, label=f"IMG_9{at:03}.jpg")
    for at in range(4):
        crews["render"].enqueue({"steps": 600, "seconds": 0.2, "detail": "frame"}, label=f"intro-{at}.mp4")
    with acting_as("ann", "http 127.0.0.1"):
        served.hand.pause("mail", reason="SMTP provider outage")
    for at in range(6):
        crews["mail"].enqueue({}, label=f"invoice {at}")
    poison = crews["transcode"].enqueue({"crash": True}, label="a.flac")
    for name in ("embed", "native"):
        crews[name].enqueue({}, label="a.flac")
        eventually(lambda crew=name: _given_up(served, crew), 120)
    eventually(lambda: served.hand.job(poison.id).state.value == "failed", 120)
    which = JobFilter(queue="thumbs", state=State.FAILED, limit=1)
    failed = (eventually(lambda: served.hand.jobs(which), 120) or [])[0]
    crash = served.hand.crashes()[0]
    return {
        "overview": "", "queue": "queue/thumbs", "queue-down": "queue/embed", "jobs": "jobs", "job": f"job/{failed.id}",
        "poison": f"job/{poison.id}", "worker": "worker/worker:embed:0", "crashes": "crashes",
        "crash": f"crash/{crash.id}", "operations": "operations", "doctor": "doctor", "nodes": "nodes",
    }  # fmt: skip


@scene
def well(stage: Stage) -> dict[str, str]:
    """Everything works."""
    served = stage.serve(SCENE="well")
    for at in range(1500):
        served.hand.crews["thumbs"].enqueue({"steps": 1 + at % 4, "seconds": 0.03}, label=f"IMG_{at:04}.jpg")
    for at in range(2):
        served.hand.crews["render"].enqueue({"steps": 600, "seconds": 0.2}, label=f"intro-{at}.mp4")
    return {"overview": "", "queue": "queue/thumbs"}


@scene
def new(stage: Stage) -> dict[str, str]:
    """Nothing has happened yet: every page is empty."""
    stage.serve(SCENE="well")
    return {name or "overview": name for name in ("", "jobs", "flows", "crashes", "operations", "doctor", "queue/mail")}


@scene
def no_node(stage: Stage) -> dict[str, str]:
    """The API does not start workers, and nobody else does."""
    served = stage.serve(EMBED_WORKERS="false", SCENE="well")
    for at in range(5):
        served.hand.crews["mail"].enqueue({}, label=f"invoice {at}")
    return {"overview": "", "queue": "queue/mail", "doctor": "doctor"}


@scene
def server_dead(stage: Stage) -> dict[str, str]:
    """The server goes away under an open page."""
    served = stage.serve(SCENE="well")
    for at in range(300):
        served.hand.crews["thumbs"].enqueue({"steps": 3, "seconds": 0.03}, label=f"IMG_{at:04}.jpg")
    stage.before = served.stop
    return {"overview": "", "queue": "queue/thumbs"}


@scene
def disk_full(stage: Stage) -> dict[str, str]:
    """The disk of the store is full while jobs arrive. As root, on a file system of 24 MiB."""
    small = stage.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "none", small], check=True)
    stage.stack.callback(subprocess.run, ["umount", "-l", small], check=False)
    served = stage.serve(str(small / "chargehand.db"), SCENE="well")
    served.hand.crews["thumbs"].enqueue({}).wait(30)

    def fill() -> None:
        with (small / "ballast").open("wb") as file:
            try:
                while True:
                    file.write(b"x" * 65536)
                    file.flush()
            except OSError:
                return

    stage.before = fill
    return {"overview": "", "doctor": "doctor"}


@scene
def many(stage: Stage) -> dict[str, str]:
    """30 crews, 60 workers and 100,000 jobs."""
    served = stage.serve(SCENE_CREWS="30", SCENE_WORKERS="2")
    eventually(lambda: len(_workers(served)) == 60, 120)
    served.fill(100_000)
    for number in range(30):
        crew = served.hand.crew(f"crew-{number:02}", "scene_handlers:Work", max_attempts=1)
        served.hand.internal.enqueue([
            crew.new_job({"steps": 4, "seconds": 0.05 + number / 50, "error": "x"} if at % 40 == 3 else
                         {"steps": 4, "seconds": 0.05 + number / 50}, label=f"job {at}")
            for at in range(40 + 25 * number)
        ])  # fmt: skip
    return {"overview": "", "queue": "queue/crew-07", "jobs": "jobs"}


@scene
def nodes(stage: Stage) -> dict[str, str]:
    """Three nodes on one store: one works, one has just been killed, one is drained."""
    address = pgserver.new_store()
    os.environ["XDG_STATE_HOME"] = str(stage.folder / "api")
    served = stage.serve(address, app="dashboard_app", EMBED_WORKERS="false")
    lost = [stage.stack.enter_context(node(stage.folder, address, name, *NODES[name])) for name in NODES][1]
    ready = sum(map(sum, NODES.values()))
    eventually(lambda: sum(c.live for n in served.hand.internal.nodes() for c in n.crews) == ready, 120)
    add_songs(served, 400)

    def kill() -> None:
        (pid,) = [each.pid for each in served.hand.internal.nodes() if each.name == "cpu-2"]
        lost.kill()
        os.kill(int(pid or 0), signal.SIGKILL)
        with acting_as("ann", "http 127.0.0.1"):
            served.hand.drain("gpu-1/*")
        eventually(lambda: any(each.status == "gone" for each in served.hand.internal.nodes()), 120)

    stage.before = kill
    return {"overview": "", "nodes": "nodes"}


@scene
def flows(stage: Stage) -> dict[str, str]:
    """Flows of several stages, one of which has failed."""
    served = stage.serve(app="dashboard_app", DASH_WORKERS="4", DASH_SCENES="3")
    return {"flow": f"flow/{begin_flows(served)}", "flows": "flows", "overview": ""}


@scene
def schedules(stage: Stage) -> dict[str, str]:
    """Recurring jobs that are well, fail, and are paused; keys; jobs with large payloads."""
    served = stage.serve(SCENE="schedules")
    hand = served.hand
    eventually(lambda: len(hand.recurrences()) == 4, 60)
    with acting_as("ann", "http 127.0.0.1"):
        hand.pause_recurring("monthly invoices of all customers in every region", "the bank does not answer")
        hand.run_recurring("nightly scan")
    songs = [{"path": f"/music/{n:03}.flac", "id": (1 << 62) + n, "tags": ["vinyl", None, True]} for n in range(60)]
    large = hand.crews["thumbs"].enqueue({"steps": 2, "songs": songs, "options": {"rate": 0.25, "deep": {"a": [1, 2]}}})

    def use_keys() -> None:
        hand.make_key("grafana", [Scope.READ])
        hand.make_key("deploy", [Scope.READ, Scope.CONTROL], seconds=86_400 * 30)
        hand.make_key("old laptop", list(Scope))
        hand.revoke_key("old laptop")

    stage.with_key = True
    stage.before = use_keys
    return {"recurring": "recurring", "keys": "keys", "payload": f"job/{large.id}", "overview": ""}


@scene
def paced(stage: Stage) -> dict[str, str]:
    """A queue that is limited by its rate, and a crew whose workers each have several jobs in hand."""
    served = stage.serve(SCENE="paced")
    hand = served.hand
    hand.crew("calls", "scene_handlers:Call", max_attempts=1)
    hand.internal.enqueue([hand.crews["mail"].new_job({"steps": 1}, label=f"invoice {at}") for at in range(120)])
    hand.internal.enqueue(
        [hand.crews["calls"].new_job({}, label=f"fetch page {at} of the catalogue") for at in range(400)]
    )
    return {"overview": "", "queue": "queue/mail", "queue-calls": "queue/calls", "worker": "worker/worker:calls:0"}


@contextmanager
def _tab(browser: Browser, address: str, theme: str, size: dict[str, int]) -> Generator[Page]:
    context = browser.new_context(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def take(name: str, stage: Stage, work: Scene, pictures: Path) -> None:
    """Prepares one scene, and takes its pictures: each page light, dark, and on a phone."""
    began = clock.monotonic()
    places = work(stage)
    tabs = [("light", "light", LAPTOP), ("dark", "dark", LAPTOP), ("phone", "dark", PHONE)]
    if os.environ.get("SCENE_HOLD"):
        input(f"{stage.served.address}\n{stage.served.store}\nEnter ends the scene: ")
        return
    address = stage.served.address
    if stage.with_key:
        address = f"{stage.served.url}/dashboard#token={stage.served.hand.make_key('ann', list(Scope))[0]}"
    with ExitStack() as open_tabs:
        found = {
            kind: open_tabs.enter_context(_tab(stage.browser, address, theme, size))  # type: ignore[arg-type]
            for kind, theme, size in tabs
        }
        found["light"].wait_for_timeout(WARM_UP_MS)
        if stage.before is not None:
            stage.before()
            found["light"].wait_for_timeout(4000)
        for kind, page in found.items():
            for title, where in places.items():
                page.evaluate("where => { location.hash = '#/' + where }", where)
                page.wait_for_timeout(1200)
                path = pictures / f"{name}-{title.replace('/', '-')}-{kind}.png"
                page.screenshot(path=path, full_page=True)
    sys.stdout.write(f"{name}: {clock.monotonic() - began:.0f} s\n")
    sys.stdout.flush()


def main() -> None:
    pictures = Path(sys.argv[1])
    pictures.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or SCENES:
        with (
            TemporaryDirectory(prefix="chargehand-scene-") as folder,
            sync_playwright() as playwright,
            ExitStack() as stack,
        ):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            stack.callback(browser.close)
            take(name, Stage(Path(folder), browser, stack), SCENES[name], pictures)


if __name__ == "__main__":
    main()
