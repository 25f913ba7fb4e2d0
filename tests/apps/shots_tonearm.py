"""Pictures of Tonearm's page in the middle of the demonstration, light and dark: docs/images/.

PYTHONPATH=src:apps/tonearm/src .venv/bin/python tests/apps/shots_tonearm.py [FOLDER]
TONEARM_DEMO says where the demonstration lies, and is seen in the picture.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = "/usr/bin/chromium"
TRACK = "06 One flute.flac"


def take(browser: Browser, url: str, folder: Path, theme: str) -> None:
    page = browser.new_page(
        viewport={"width": 1280, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
    )
    page.goto(url)
    page.get_by_role("button", name=TRACK).click()
    page.get_by_role("heading", name="Similar tracks").wait_for(timeout=90_000)
    page.mouse.move(5, 5)
    page.evaluate("scrollTo(0, 0)")
    bottom = page.evaluate("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)")
    page.screenshot(
        path=folder / f"tonearm-{theme}.png",
        full_page=True,
        clip={"x": 0, "y": 0, "width": 1280, "height": min(bottom, 1120)},
    )


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    ours, theirs = os.openpty()  # on a terminal the address has the token
    shown = subprocess.Popen([sys.executable, "-m", "tonearm.demo"], stdout=theirs, text=True)
    os.close(theirs)
    shown.stdout = open(ours)  # noqa: SIM115
    url = ""
    try:
        for line in shown.stdout:
            sys.stdout.write(line)
            url = url or "".join(re.findall(r"http://127.0.0.1:\d+/#token=ct_[\w-]+", line))
            if TRACK in line:
                break
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for theme in ("light", "dark"):
                take(browser, url, folder, theme)
            browser.close()
    finally:
        shown.send_signal(signal.SIGINT)
        shown.wait()


if __name__ == "__main__":
    main()
