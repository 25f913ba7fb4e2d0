"""Pictures of Adreel's page after the demonstration: docs/images/.

.venv/bin/python tests/apps/shots_adreel.py [FOLDER]
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = "/usr/bin/chromium"
FILM = "nordlys-spring.mp4"
SIZES = {"light": (1360, 900), "dark": (1360, 900), "phone": (390, 844)}


def take(browser: Browser, url: str, folder: Path, kind: str) -> None:
    width, height = SIZES[kind]
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if kind == "dark" else "light"
    )
    page.goto(url)
    page.get_by_role("link", name=FILM).click()
    page.locator(".reel").wait_for()
    page.keyboard.press("ArrowRight")
    page.mouse.move(5, 5)
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    page.screenshot(path=folder / f"adreel-{kind}.png")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    ours, theirs = os.openpty()  # on a terminal the address has the token
    shown = subprocess.Popen([sys.executable, "-m", "adreel.demo"], stdout=theirs, text=True)
    os.close(theirs)
    shown.stdout = open(ours)  # noqa: SIM115
    url = ""
    try:
        for line in shown.stdout:
            sys.stdout.write(line)
            url = url or "".join(re.findall(r"http://127.0.0.1:\d+/#token=ct_[\w-]+", line))
            if "stays available" in line:
                break
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for kind in SIZES:
                take(browser, url, folder, kind)
            browser.close()
    finally:
        shown.send_signal(signal.SIGINT)
        shown.wait()


if __name__ == "__main__":
    main()
