"""The documentation site: it builds without a warning, makes no request to other servers, and its search works."""

import fcntl
import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parent.parent
CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if os.path.exists(path)), None)
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: make site"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Builds the site once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent
    with open(base / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (base / "site" / "built").exists():
            _build(base / "site")
            (base / "site" / "built").touch()
    return base / "site"


def _build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


def test_every_link_of_the_site_leads_to_a_file(site: Path) -> None:
    broken: list[tuple[str, str]] = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            path, _ = urldefrag(unquote(link))
            if not path or re.match(r"\w+:", path):
                continue
            target = site / path.lstrip("/") if path.startswith("/") else page.parent / path
            if not (target.is_file() or (target / "index.html").is_file()):
                broken.append((str(page.relative_to(site)), link))
    assert broken == []


def test_llms_txt_names_every_page_of_the_navigation(site: Path) -> None:
    index = (site / "llms.txt").read_text()
    pages = re.findall(r"\]\(([\w/-]+)/\)", index)
    assert len(pages) > 40
    assert [page for page in pages if not (site / page / "index.html").is_file()] == []
    assert "# Tutorial" in (site / "llms-full.txt").read_text()


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//[^"]+', page.read_text()), page
        assert not re.findall(r'<link[^>]+href="(?:https?:)?//[^"]+', page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), style


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium in /usr/bin")
def test_the_search_finds_pages_without_other_servers(address: str) -> None:
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.locator("input.md-search__input").click()
        # The page reads the field when its index is ready and at each key, but not when a script sets its value.
        page.locator("input.md-search__input").press_sequentially("quarantined")
        page.locator(".md-search-result__item a").first.wait_for(timeout=60_000)
        assert page.locator(".md-search-result__item").count() > 0
        browser.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
