"""The dashboard's files: what is built belongs to the source, is small, needs nobody else, and is served so."""

import gzip
import json
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from webworld import AWAY, Web, problem

from chargehand import Chargehand, ConfigurationError, Page
from chargehand.web.routes.dashboard import BUILT, POLICY

SOURCE = BUILT.parent / "source"
LIMIT = 150_000
"""Bytes, compressed, in all."""


def digest(folder: Path) -> str:
    """What the build writes down of its source: see vite.config.js."""
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "node_modules" not in path.relative_to(folder).parts
    )
    lines = [f"{sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    return sha256("".join(lines).encode()).hexdigest()


def test_the_built_files_are_those_of_the_source() -> None:  # spec: HT-6
    assert (BUILT / "source.sha256").read_text().strip() == digest(SOURCE), "the source has changed: make dashboard"


def test_the_types_of_the_dashboard_are_those_of_the_openapi_document() -> None:
    script = BUILT.parent / "generate_types.py"
    stale = subprocess.run([sys.executable, str(script), "--check"]).returncode
    assert stale == 0, "the OpenAPI document has changed: make dashboard"


def test_a_changed_source_is_noticed(tmp_path: Path) -> None:  # spec: HT-6
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "a.ts").write_text("1")
    before = digest(tmp_path)
    (tmp_path / "node_modules" / "b.ts").write_text("anything")
    assert digest(tmp_path) == before
    (tmp_path / "a.ts").write_text("2")
    assert digest(tmp_path) != before


def test_it_is_small_and_asks_nobody_else() -> None:  # spec: DB-7
    files = [path for path in BUILT.iterdir() if path.suffix not in (".sha256", ".txt")]  # those are not served
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < LIMIT
    page = (BUILT / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page)
    assert all(not name.startswith(("http", "/")) for name in re.findall(r'(?:src|href)="([^"]+)"', page))
    for path in files:
        hosts = set(re.findall(r"https?://([\w.-]+)", path.read_text())) - {"www.w3.org"}
        assert not hosts, (path.name, hosts)


def test_it_is_built_on_every_platform() -> None:
    locked = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    for builder in ("@rolldown/binding-", "lightningcss-", "@typescript/typescript-"):
        binaries = [each for name, each in locked.items() if name.startswith(f"node_modules/{builder}")]
        assert {"linux", "darwin", "win32"} <= {system for each in binaries for system in each.get("os", ())}


def test_no_source_makes_markup_of_text() -> None:  # spec: DB-7 SE-4
    ways = re.compile(r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(")
    for path in (SOURCE / "src").iterdir():
        assert not ways.search(path.read_text()), path.name


def test_it_is_open_to_all_and_locked_down(web: Web) -> None:  # spec: HT-6 DB-7 SE-2
    web.key("read")  # now everything else needs one
    for path in ("/dashboard", "/dashboard/chargehand.css", "/dashboard/frame.js", "/dashboard/states.js"):
        answer = web.ask("GET", path, client=AWAY, base="http://example.org")
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["content-encoding"] == "gzip"
    assert "default-src 'self'" in POLICY
    assert "unsafe" not in POLICY
    problem(web.ask("GET", "/api/v1/info"), 401, "key-needed")


def test_files_are_kept_by_browsers_as_long_as_they_are_true(web: Web) -> None:  # spec: HT-6
    page = web.ask("GET", "/dashboard")
    (script,) = re.findall(r'src="(dashboard/app-[^"]+\.js)"', page.text)
    found = web.ask("GET", f"/{script}", headers={"Accept-Encoding": "identity"})
    assert found.headers["content-type"].startswith("text/javascript")
    assert "immutable" in found.headers["cache-control"]
    assert "content-encoding" not in found.headers
    for path in ("/dashboard", "/dashboard/chargehand.css"):
        first = web.ask("GET", path)
        assert first.headers["cache-control"] == "no-cache"
        again = web.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["source.sha256", "..%2fsource%2fpackage.json", "nothing.js", "%2e%2e"])
def test_nothing_else_is_served(web: Web, name: str) -> None:  # spec: SE-3
    assert web.ask("GET", f"/dashboard/{name}").status_code in (307, 404)
    problem(web.ask("GET", "/dashboard/nothing.js"), 404, "no-such-path")


def test_the_root_leads_to_it(web: Web) -> None:  # spec: HT-6
    answer = web.ask("GET", "/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/dashboard")


def test_an_application_can_name_its_own_pages(web: Web) -> None:
    web.hand.pages.append(Page("Songs", "/songs"))
    assert web.get("/api/v1/info")["pages"] == [{"title": "Songs", "url": "/songs"}]
    for title, url in (("", "/songs"), ("Songs", "javascript:alert(1)")):
        with pytest.raises(ConfigurationError, match="must have a title"):
            Page(title, url)


def test_doctor_and_logs_over_http_without_a_node(web: Web) -> None:  # spec: DB-6
    web.hand.open()
    found = web.get("/api/v1/doctor")
    assert found["well"] is False
    assert found["findings"][0]["cause"] == "no-node"
    assert found["findings"][0]["remedy"]
    assert web.get("/api/v1/logs", params={"scope": "tag", "limit": 5}) == {"lines": []}
    assert isinstance(web.hand, Chargehand)


def test_the_diagnosis_is_never_older_than_its_request(web: Web) -> None:  # spec: DB-6
    """A pause that was just ended is not shown again from a cached diagnosis."""
    for _ in range(2):
        web.hand.pause("plain", reason="measuring")
        assert "paused" in [finding["cause"] for finding in web.get("/api/v1/doctor")["findings"]]
        web.hand.resume("plain")
        assert "paused" not in [finding["cause"] for finding in web.get("/api/v1/doctor")["findings"]]
