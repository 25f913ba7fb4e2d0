"""Takes screenshots of every page of the dashboard, light, dark and on a phone, into docs/images/.

PYTHONPATH=src:tests:. .venv/bin/python tests/web/shots.py [FOLDER] [nodes]

With `nodes`, only those of several nodes on PostgreSQL. As root, each node has a host name of its own.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dashbrowser import pid_of
from dashworld import CHROMIUM, Served
from playwright.sync_api import Browser, Page, sync_playwright

import pgserver
from chargehand.host.actor import acting_as
from chargehand.model.access import Scope
from chargehand.testing import eventually
from paths import python_path

NODES = {"cpu-1": (3, 1), "cpu-2": (2, 0), "gpu-1": (2, 0)}
"""The nodes, each with its workers of the crews steps and faults."""
SONGS = ("Gymnopédie No. 1", "So What", "Clair de lune", "Blue in Green", "Metamorphosis One", "Spiegel im Spiegel")


def fill(served: Served) -> dict[str, str]:
    """Enqueues jobs of every kind; returns the ids of the jobs with a screenshot of their own."""
    hand = served.hand
    eventually(lambda: (hand.status() or {}).get("workers") and len((hand.status() or {})["workers"]) == 10, 60)
    bad = served.steps.enqueue(
        {"steps": 3, "hopeless": "the file ends after 0.2 s of audio"}, label="broken.mp3", tags=["upload"]
    )
    crash = served.faults.enqueue({"fault": "output", "lines": 3, "then": {"fault": "kill"}}, label="corrupt.flac")
    eventually(lambda: hand.job(crash.id).state.value == "failed" or hand.job(crash.id).crashes >= 2, 60)
    eventually(lambda: hand.job(bad.id).state.value == "failed", 60)
    add_songs(served, 240)
    hand.internal.enqueue([served.steps.new_job({"steps": 1}, label="nightly scan", delay=3600)])
    with acting_as("ann", "http 127.0.0.1"):
        hand.pause("worker:steps:5", reason="measuring")
    return {"bad": bad.id, "flow": begin_flows(served)}


def begin_flows(served: Served) -> str:
    """Begins flows of several stages; returns the one with a screenshot of its own, in which a scene fails."""
    films = ("summer.mp4", "interview.mov", "trailer.mp4", "harbour.mp4")
    ids: list[str] = []
    for number, film in enumerate(films):
        with served.hand.flow(film) as flow:
            decode = flow.enqueue(served.steps, {"steps": 20, "seconds": 0.05}, label=film, priority=5)
            scenes = [{"steps": 6 + (5 * n) % 17, "seconds": 0.05} for n in range(14)]
            if number == 0:
                scenes[5]["hopeless"] = "no text in frame 311"  # type: ignore[assignment]
            parts = [
                flow.enqueue(served.scenes, each, label=f"scene {n + 1}", after=decode, if_failed="run")
                for n, each in enumerate(scenes)
            ]
            flow.enqueue(served.steps, {"steps": 40}, label="classify", after=parts, priority=5, if_failed="run")
            flow.enqueue(served.scenes, {"steps": 3}, label="key frames", after=parts)
        ids.append(flow.id)
    return ids[0]


def add_songs(served: Served, count: int) -> None:
    for number in range(count):
        song, stage = SONGS[number % len(SONGS)], ("decode", "net", "labels")[number % 3]
        served.steps.enqueue(
            {
                "steps": 12 + number % 17,
                "seconds": 0.05,
                "stage": stage,
                "detail": song,
            },
            label=f"{song} ({number // 6 + 1})",
            tags=["vinyl", "night"] if number % 4 == 0 else ["vinyl"] if number % 4 == 1 else [],
        )


def take(page: Page, folder: Path, theme: str, places: dict[str, str]) -> None:
    page.get_by_label("Theme").select_option(theme)
    for name, where in places.items():
        page.evaluate("where => { location.hash = '#/' + where }", where)
        page.wait_for_timeout(1600)
        bottom = page.evaluate("Math.ceil(document.querySelector('footer').getBoundingClientRect().bottom)")
        clip: Any = {"x": 0, "y": 0, "width": 1280, "height": min(bottom, 1120)}
        page.screenshot(path=folder / f"dashboard-{name}-{theme}.png", clip=clip)


@contextmanager
def node(folder: Path, address: str, name: str, steps: int, faults: int) -> Generator[subprocess.Popen[bytes]]:
    """Runs `chargehand work` as on a machine of its own."""
    env = {
        **os.environ, "CHARGEHAND_URL": address, "NODE_NAME": name, "XDG_STATE_HOME": str(folder / name),
        "DASH_WORKERS": str(steps), "CHARGEHAND_CREW_FAULTS_WORKERS": str(faults), "PYTHONPATH": python_path(),
    }  # fmt: skip
    command = [sys.executable, "-m", "chargehand", "work", "dashboard_app:hand"]
    if os.geteuid() == 0:
        command = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *command]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)


def several(browser: Browser, folder: Path, pictures: Path) -> None:
    """Takes the page of three nodes: one works, one has just been killed, one is drained."""
    address = pgserver.new_store()
    os.environ["XDG_STATE_HOME"] = str(folder / "api")
    served = Served(folder, address, EMBED_WORKERS="false")
    hand = served.hand
    try:
        with (
            node(folder, address, "cpu-1", *NODES["cpu-1"]),
            node(folder, address, "cpu-2", *NODES["cpu-2"]) as lost,
            node(folder, address, "gpu-1", *NODES["gpu-1"]),
        ):
            ready = sum(map(sum, NODES.values()))
            eventually(lambda: sum(c.live for n in hand.internal.nodes() for c in n.crews) == ready, 60)
            add_songs(served, 400)
            page = browser.new_page(viewport={"width": 1280, "height": 1120})
            page.goto(served.address)
            page.wait_for_timeout(8000)
            (pid,) = [each.pid for each in hand.internal.nodes() if each.name == "cpu-2"]
            lost.kill()
            os.kill(int(pid or 0), signal.SIGKILL)
            with acting_as("ann", "http 127.0.0.1"):
                hand.drain("gpu-1/*")
            eventually(lambda: any(each.status == "gone" for each in hand.internal.nodes()), 60)
            for theme in ("light", "dark"):
                take(page, pictures, theme, {"nodes": "nodes"})
    finally:
        served.close()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="chargehand-shots-") as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            if sys.argv[2:] != ["nodes"]:
                one_machine(browser, Path(name), folder)
            several(browser, Path(name), folder)
        finally:
            browser.close()


def one_machine(browser: Browser, name: Path, folder: Path) -> None:
    """Takes all other pages."""
    served = Served(name, DASH_WORKERS="6", DASH_SCENES="3", NODE_NAME="node-a")
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 1120})
        page.goto(served.address)
        jobs = fill(served)
        page.wait_for_timeout(25_000)  # so that the charts have data
        served.faults.enqueue({"fault": "kill"}, label="too large.wav")
        (newest,) = served.hand.crashes()[:1]
        places = {
            "overview": "", "jobs": "jobs?filter=state:failed", "job": f"job/{jobs['bad']}",
            "worker": "worker/worker:steps:0", "flows": "flows", "flow": f"flow/{jobs['flow']}",
            "crash": f"crash/{newest.id}", "crashes": "crashes", "operations": "operations", "doctor": "doctor",
        }  # fmt: skip
        for theme in ("light", "dark"):
            os.kill(pid_of(served, "worker:steps:0"), signal.SIGKILL)
            take(page, folder, theme, places)
        phone = browser.new_page(viewport={"width": 375, "height": 760}, color_scheme="dark")
        phone.goto(served.address)
        phone.wait_for_timeout(3000)
        phone.screenshot(path=folder / "dashboard-phone-dark.png")
        phone.goto(f"{served.url}/dashboard#/flow/{jobs['flow']}")
        phone.wait_for_timeout(2000)
        phone.screenshot(path=folder / "dashboard-flow-phone-dark.png", full_page=True)
        served.hand.make_key("ann", list(Scope))
        page.wait_for_timeout(1500)
        for theme in ("light", "dark"):
            signed_out = browser.new_page(viewport={"width": 1280, "height": 500}, color_scheme=theme)
            signed_out.goto(f"{served.url}/dashboard")
            signed_out.wait_for_timeout(1000)
            signed_out.screenshot(path=folder / f"dashboard-signin-{theme}.png")
    finally:
        served.close()


if __name__ == "__main__":
    main()
