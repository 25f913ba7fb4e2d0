"""Tonearm's page and JSON, in this process; and what the API's process must never import."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import shelves
from fastapi.routing import APIRoute
from typer.main import get_command

from chargehand.web.auth import needs_of
from tonearm import crews, web
from tonearm.cli.main import app as cli
from tonearm.library import Library

HEAVY = ("numpy", "onnxruntime", "av", "soundfile", "soxr")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[crews.Crews, Library]]:
    """A library with seven heard songs, one of which calls itself by markup, and odd files."""
    root = tmp_path_factory.mktemp("page")
    made = shelves.songs(root / "music")
    made[1].rename(root / "music" / "<img src=x onerror=alert(1)>.flac")
    (root / "music" / "zero.mp3").touch()
    library, _ = shelves.opened(root / "home", root / "music")
    shelves.hear_all(library)
    found = crews.build(root / "home", machine=crews.Machine(2, 4 << 30))
    yield found, library
    found.hand.close()
    library.close()


def key(place: tuple[crews.Crews, Library]) -> dict[str, str]:
    return {"Authorization": f"Bearer {place[0].hand.with_token('').removeprefix('#token=')}"}


def ask(place: tuple[crews.Crews, Library], *paths: str, **how: Any) -> list[httpx.Response]:
    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(web.create(*place))
        headers = how.get("headers", key(place))
        async with httpx.AsyncClient(transport=transport, base_url=how.pop("base", "http://localhost")) as client:
            return [await client.request(how.get("method", "GET"), path, headers=headers) for path in paths]

    return asyncio.run(all_of_them())


def test_the_page_loads_nothing_from_elsewhere_and_says_where_things_stand(place: tuple[crews.Crews, Library]) -> None:
    # spec: TA-7
    page, script, style, progress, labels, errors = ask(
        place, "/", "/page/tonearm.js", "/page/tonearm.css", "/api/progress", "/api/labels", "/api/errors"
    )
    for part in (page, script, style):
        assert part.status_code == 200
        assert "http://" not in part.text
        assert "https://" not in part.text
        assert "default-src 'none'" in part.headers["content-security-policy"]
    assert "innerHTML" not in script.text
    said = progress.json()
    assert (said["files"], said["tagged"], said["waiting"], said["eta"], said["working"]) == (8, 7, 0, 0.0, False)
    assert said["certainty"] == "A label needs a score of 0.35 (bold: 0.50); if none is that certain, none is shown."
    assert labels.json()[0]["regular"] >= labels.json()[-1]["regular"]
    assert [wrong["reason"] for wrong in errors.json()] == ["the file is empty"]


def test_tracks_are_found_shown_with_scores_and_exported(place: tuple[crews.Crews, Library]) -> None:
    # spec: TA-7
    (found,) = ask(place, "/api/tracks?text=onerror")
    (track,) = found.json()
    shown, unknown, playlist, smart, wrong, misspelt, empty = ask(
        place,
        f"/api/tracks/{track['id']}",
        "/api/tracks/999",
        "/api/playlist?rule=genre:rock or not genre:rock",
        "/api/playlist?rule=genre:rock&form=nsp",
        "/api/playlist?rule=genre",
        "/api/playlist?rule=gender:rock",
        "/api/playlist?rule=genre:rock and not genre:rock",
    )
    assert shown.json()["labels"]
    assert shown.json()["scores"][0]["score"] >= shown.json()["scores"][-1]["score"]
    assert unknown.status_code == 404
    assert playlist.text.count("#EXTINF") == 7
    assert smart.json()["all"] == [{"is": {"tonearm_genre": "rock"}}]
    assert wrong.status_code == 422
    assert (misspelt.status_code, "did you mean genre?" in misspelt.text) == (422, True)
    assert (empty.status_code, "no track matches" in empty.text) == (404, True)


NEEDS = {
    "GET /": None,
    "GET /page/{name}": None,
    "GET /api/progress": "read",
    "GET /api/errors": "read",
    "GET /api/labels": "read",
    "GET /api/tracks": "read",
    "GET /api/tracks/{number}": "read",
    "GET /api/tracks/{number}/similar": "read",
    "GET /api/playlist": "read",
    "POST /api/errors/retry": "control",
}
"""Whoever adds a route adds it here; None is for everybody."""


def test_all_but_the_files_of_the_page_is_behind_the_door(place: tuple[crews.Crews, Library]) -> None:  # spec: TA-11
    routes = [route for route in web.create(*place).routes if isinstance(route, APIRoute)]
    needs = {f"{method} {route.path}": needs_of(route) for route in routes for method in route.methods or ()}
    assert needs == NEEDS
    for name, needed in NEEDS.items():
        method, path = name.split()
        path = path.replace("{number}", "1").replace("{name}", "tonearm.js")
        (nobody,) = ask(place, path, method=method, headers={})
        (wrong,) = ask(place, path, method=method, headers={"Authorization": "Bearer ct_wrong"})
        assert (nobody.status_code, wrong.status_code) == ((200, 200) if needed is None else (401, 401)), name


@pytest.mark.parametrize("number", [1 << 63, -1 << 63, 10**40])
def test_a_number_that_no_track_can_have_is_refused(place: tuple[crews.Crews, Library], number: int) -> None:
    # spec: TA-7
    found, similar = ask(place, f"/api/tracks/{number}", f"/api/tracks/{number}/similar")
    assert (found.status_code, similar.status_code) == (422, 422)
    assert ask(place, f"/api/tracks/{2**63 - 1}")[0].status_code == 404


def test_other_sites_can_change_nothing(place: tuple[crews.Crews, Library]) -> None:
    # spec: SE-1
    (signed,) = ask(place, "/chargehand/api/web/session", method="GET")
    assert signed.json()["kind"] == "token"
    (told,) = ask(place, "/api/errors/retry", method="POST")
    (renamed,) = ask(place, "/api/progress", base="http://evil.example")
    assert (told.status_code, renamed.status_code) == (200, 400)


def test_monitoring_finds_tonearm_at_its_own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # spec: TA-10
    monkeypatch.setenv("CHARGEHAND_ADMIN_KEY", "long-enough-for-a-test-0123456789")
    monkeypatch.setenv("TONEARM_PORT", "8399")
    found, library = crews.build(tmp_path), Library(tmp_path)
    app = web.create(found, library)
    key = {"Authorization": f"Bearer {os.environ['CHARGEHAND_ADMIN_KEY']}"}

    async def asked(path: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    for path in ("/api/v1/info", "/api/web/worker/status"):
        at_root, below = (asyncio.run(asked(prefix + path, **key)) for prefix in ("", "/chargehand"))
        assert (at_root.status_code, at_root.json()) == (200, below.json())
        assert asyncio.run(asked(path)).status_code == 401
    assert asyncio.run(asked("/healthz")).json() == {"status": "ok"}
    command = get_command(cli).commands["serve"]  # type: ignore[attr-defined]
    assert command.make_context("serve", []).params["port"] == 8399
    monkeypatch.delenv("TONEARM_PORT")
    assert command.make_context("serve", []).params["port"] == 8356
    found.hand.close()
    library.close()


def test_the_api_imports_nothing_heavy(tmp_path: Path) -> None:
    # spec: TA-1
    code = (
        "import sys, pathlib; import tonearm.cli.main, tonearm.web, uvicorn; from tonearm import crews, library\n"
        "home = pathlib.Path(sys.argv[1])\n"
        "tonearm.web.create(crews.build(home), library.Library(home))\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
