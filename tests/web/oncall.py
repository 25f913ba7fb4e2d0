"""Prepares broken systems, and looks whether an operator finds the cause and the remedy of each at a glance.

It looks at the first screen of the overview, and at the output of `chargehand doctor`.

PYTHONPATH=src:tests:tests/web:. .venv/bin/python tests/web/oncall.py [SYSTEM …]
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dashworld import CHROMIUM, Served
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as NotThere

from chargehand import clock
from chargehand.host.actor import acting_as
from chargehand.testing import eventually
from paths import python_path

SCREEN = {"width": 1280, "height": 800}
PATIENCE = 60.0
"""Seconds within which an operator must have found the cause."""


class System(NamedTuple):
    """A broken system, and the words that an operator must find."""

    prepare: Callable[[Path, ExitStack], Served]
    cause: str
    """A pattern of the cause."""
    remedy: str
    """A pattern of the remedy in the output of `chargehand doctor`."""
    button: str
    """A pattern of the remedy on the page: a button, a link or a command."""


class Found(NamedTuple):
    """What was found of one system; texts are empty where all was found."""

    name: str
    page_s: float
    """Seconds from the fault until the page showed the cause and the remedy."""
    doctor_s: float
    faults: tuple[str, ...]


def _served(folder: Path, stack: ExitStack, **environment: str) -> Served:
    served = Served(folder, app="scene_app", **environment)
    stack.callback(served.close)
    for name in ("thumbs", "render", "mail", "transcode", "embed", "native"):
        served.hand.crew(name, "scene_handlers:Work", max_attempts=3 if name == "transcode" else 1)
    return served


def _ready(served: Served) -> None:
    eventually(lambda: any(w["status"] == "healthy" for w in (served.hand.status() or {"workers": []})["workers"]), 60)


def crash_loop(folder: Path, stack: ExitStack) -> Served:
    """A library crashes while the workers load; another crew is paused on purpose."""
    served = _served(folder, stack)
    served.hand.crews["native"].enqueue({}, label="a.flac")
    served.hand.crews["mail"].enqueue({}, label="invoice")
    _ready(served)
    with acting_as("ann", "cli"):
        served.hand.pause("mail", reason="SMTP provider outage")
    return served


def model_path(folder: Path, stack: ExitStack) -> Served:
    """The file of a model is missing."""
    served = _served(folder, stack)
    served.hand.crews["embed"].enqueue({}, label="a.flac")
    return served


def import_error(folder: Path, stack: ExitStack) -> Served:
    """A deployment lacks a module that a handler imports."""
    served = _served(folder, stack, SCENE="import")
    served.hand.crews["mail"].enqueue({}, label="invoice")
    return served


def poison(folder: Path, stack: ExitStack) -> Served:
    """One job crashes every worker that performs it."""
    served = _served(folder, stack, SCENE="well")
    served.hand.crews["transcode"].enqueue({"crash": True}, label="a.flac")
    return served


def forgotten_pause(folder: Path, stack: ExitStack) -> Served:
    """Somebody has paused a crew and forgotten it."""
    served = _served(folder, stack, SCENE="well")
    _ready(served)
    with acting_as("ann", "cli"):
        served.hand.pause("mail", reason="SMTP provider outage")
    for at in range(6):
        served.hand.crews["mail"].enqueue({}, label=f"invoice {at}")
    return served


def no_node(folder: Path, stack: ExitStack) -> Served:
    """The API does not start workers, and nobody else does."""
    served = _served(folder, stack, SCENE="well", EMBED_WORKERS="false")
    served.hand.crews["mail"].enqueue({}, label="invoice")
    return served


def no_crew(folder: Path, stack: ExitStack) -> Served:
    """A queue that no crew serves any more has jobs."""
    served = _served(folder, stack, SCENE="well")
    served.hand.crew("thumbnails", "scene_handlers:Work").enqueue({}, label="IMG_0001.jpg")
    _ready(served)
    return served


def stopped(folder: Path, stack: ExitStack) -> Served:
    """A crew was stopped for maintenance."""
    served = _served(folder, stack, SCENE="well")
    _ready(served)
    served.hand.stop("mail")
    served.hand.crews["mail"].enqueue({}, label="invoice")
    return served


def rate(folder: Path, stack: ExitStack) -> Served:
    """The rate of a queue is used up."""
    served = _served(folder, stack, SCENE="paced")
    for at in range(30):
        served.hand.crews["mail"].enqueue({"steps": 1}, label=f"invoice {at}")
    return served


def failures(folder: Path, stack: ExitStack) -> Served:
    """Every job of a queue fails."""
    served = _served(folder, stack, SCENE="well")
    for at in range(12):
        served.hand.crews["render"].enqueue({"error": "no such codec"}, label=f"intro-{at}.mp4")
    return served


def disk_full(folder: Path, stack: ExitStack) -> Served:
    """The disk of the store is full. As root, on a file system of 24 MiB."""
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "none", small], check=True)
    stack.callback(subprocess.run, ["umount", "-l", small], check=False)
    served = Served(folder, str(small / "chargehand.db"), app="scene_app", SCENE="well")
    stack.callback(served.close)
    _ready(served)
    thumbs = served.hand.crew("thumbs", "scene_handlers:Work", max_attempts=1)
    thumbs.enqueue({"steps": 3000, "seconds": 0.02}, label="panorama.tif")
    with suppress(OSError), (small / "ballast").open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    return served


SYSTEMS = {
    "crash-loop": System(
        crash_loop, r"crew native: 2 of 2 given up: segfault", r"chargehand reset native", "Reset native",
    ),
    "model-path": System(
        model_path, r"crew embed: 2 of 2 given up: FileNotFoundError: .*/models/clip-vit-l14\.onnx",
        r"chargehand reset embed", "Reset embed",
    ),
    "import-error": System(
        import_error, r"crew broken: .*ModuleNotFoundError: No module named 'torch_that_is_not_there'",
        r"chargehand reset broken", "Reset broken",
    ),
    "poison": System(poison, r"crashed several workers: a\.flac", r"chargehand jobs retry", "Retry job"),
    "forgotten-pause": System(forgotten_pause, r"mail .*paused by ann", r"chargehand resume mail", "Resume mail"),
    "no-node": System(no_node, r"[Nn]o node", r"chargehand work", "chargehand work APP"),
    "no-crew": System(no_crew, r"queue thumbnails", r"declare its crew", "Copy remedy"),
    "stopped": System(stopped, r"mail.* stopped", r"chargehand start mail", "Start mail"),
    "rate": System(rate, r"rate", r"raise `?rate|wait", "limited by rate, next in"),
    "failures": System(failures, r"12 jobs failed|failed.*12|12.*failed", r"chargehand jobs retry", "12"),
    "disk-full": System(disk_full, r"disk|space", r"free|space", "Copy remedy|disk"),
}  # fmt: skip


def _texts(page: Page) -> str:
    """Returns the text of the first screen, with the names of buttons."""
    return str(
        page.evaluate(
            """() => [...document.querySelectorAll('main *')].filter((each) => {
              const box = each.getBoundingClientRect();
              return box.height > 0 && box.top < innerHeight && !each.closest('.hidden');
            }).map((each) => [each.getAttribute('aria-label') ?? '',
              [...each.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join(' ')].join(' '))
            .join('\\n')"""
        )
    )


def _missing(text: str, cause: str, remedy: str) -> list[str]:
    return [what for what, pattern in (("cause", cause), ("remedy", remedy)) if not re.search(pattern, text)]


def _on_the_page(browser: Browser, served: Served, system: System, began: float) -> tuple[float, list[str]]:
    page = browser.new_context(viewport=SCREEN).new_page()  # type: ignore[arg-type]
    page.goto(served.address)
    text, missing = "", ["cause", "remedy"]
    while missing and clock.monotonic() - began < PATIENCE:
        with suppress(NotThere):
            page.wait_for_timeout(250)
        text = _texts(page)
        missing = _missing(text, system.cause, system.button)
    page.context.close()
    took = clock.monotonic() - began
    return took, [f"page: no {what} within {took:.0f} s in: {' | '.join(text.split())[:1500]}" for what in missing]


def _by_doctor(served: Served, system: System) -> tuple[float, list[str]]:
    env = {**os.environ, "COLUMNS": "80", "PYTHONPATH": python_path()}
    began = clock.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "chargehand", "doctor", "--store", served.store],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    text = " ".join(done.stdout.split())
    missing = _missing(text, system.cause, system.remedy)
    return clock.monotonic() - began, [f"doctor: no {what} in: {text[:1500]} {done.stderr[-300:]}" for what in missing]


def examine(name: str, browser: Browser) -> Found:
    """Prepares one system, and looks at it as an operator would."""
    system = SYSTEMS[name]
    with TemporaryDirectory(prefix="chargehand-oncall-") as folder, ExitStack() as stack:
        served = system.prepare(Path(folder), stack)
        page_s, on_the_page = _on_the_page(browser, served, system, clock.monotonic())
        doctor_s, by_doctor = _by_doctor(served, system)
    return Found(name, page_s, doctor_s, (*on_the_page, *by_doctor))


@contextmanager
def chromium() -> Generator[Browser]:
    """Starts the browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def main() -> int:
    """Examines the systems that are named, or all."""
    bad = 0
    with chromium() as browser:
        for name in sys.argv[1:] or SYSTEMS:
            found = examine(name, browser)
            bad += bool(found.faults)
            sys.stdout.write(f"{name:16} page {found.page_s:5.1f} s   doctor {found.doctor_s:4.1f} s\n")
            sys.stdout.writelines(f"    {fault}\n" for fault in found.faults)
            sys.stdout.flush()
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
