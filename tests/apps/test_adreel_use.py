"""Adreel as people use it: its command line against a running server, and its page in a browser."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from adreelserver import MP4, Adreel, add_films
from playwright.sync_api import Browser, Page, expect, sync_playwright

from chargehand.testing import eventually

SHARE = """() => {
  const span = document.querySelector("#film .axis .span.running"), part = span?.firstElementChild?.offsetWidth ?? 0;
  return part > 0 && part < 0.6 * span.offsetWidth;
}"""
"""Whether the bar of the stage that runs shows the share that is done: one of its two jobs, and that not completely."""
WHOLE = """async () => {
  const picture = document.querySelector("#film .picture img");
  picture.src = Object.assign(document.createElement("canvas"), { width: 90, height: 1600 }).toDataURL();
  await picture.decode();
  return picture.offsetHeight <= picture.parentElement.offsetHeight;
}"""
"""Whether a picture that is much taller than wide is shown as a whole."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(autouse=True)
def every_test_ends_its_processes() -> None:
    """The tests share a server; the module's own check looks at its end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adreel]:
    made = Adreel(tmp_path_factory.mktemp("adreel"), WORKER_PROCESSES="1", ADREEL_MIN_FREE="1", CHARGEHAND_GRACE="1")
    yield made.ready()
    made.close()


def begun(server: Adreel, *words: str) -> "subprocess.Popen[str]":
    """Starts a command of Adreel on the machine of the server; it finds address and token by itself."""
    environment = {**os.environ, "ADREEL_HOME": str(server.home), "ADREEL_PORT": str(server.port), "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", "adreel", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=server.folder,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    """Waits for the end of a command."""
    try:
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def adreel(server: Adreel, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command of Adreel."""
    return ended(begun(server, *words))


@pytest.mark.full
def test_the_commands_submit_show_and_delete_films(server: Adreel, tmp_path: Path) -> None:  # spec: AR-8
    film, notes = tmp_path / os.fsdecode(b"ad\xff.mp4"), tmp_path / "notes.mp4"
    film.write_bytes(MP4)
    notes.write_text("plain text")
    done = adreel(server, "submit", str(film), str(notes), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, [each["status"] for each in found]) == (1, ["done", "refused"])
    assert "not a film" in found[1]["error"]
    name = found[0]["id"]
    listed = adreel(server, "status")
    assert f"{name}  ad?.mp4: Travel (90%), SONNENFLUG, 2 scenes" in listed.stdout
    assert "classify" in adreel(server, "status", name).stdout
    assert json.loads(adreel(server, "result", name).stdout)["guess"]["category"] == "Travel"
    assert adreel(server, "result", name, "--chapters").stdout.startswith("WEBVTT")
    assert adreel(server, "delete", name).stdout == f"{name}  deleted\n"
    gone = adreel(server, "result", name)
    assert (gone.returncode, gone.stderr) == (1, f"adreel: there is no job '{name}', or no longer\n")
    nobody = adreel(server, "status", "--url", "http://127.0.0.1:9")
    assert (nobody.returncode, "start `adreel serve`" in nobody.stderr) == (1, True)


@pytest.mark.full
def test_submit_names_the_films_after_ctrl_c_and_after_one_is_deleted(server: Adreel, tmp_path: Path) -> None:
    # spec: AR-8
    films = [tmp_path / name for name in ("first.mp4", "second.mp4")]
    for film in films:
        film.write_bytes(MP4)
    gate = server.close_gate("ingest")
    for interrupted in (True, False):
        process = begun(server, "submit", *map(str, films), "--json")
        eventually(lambda: server.http.get("/jobs?status=running").json()["jobs"], what="a film runs")
        eventually(lambda: len(server.service.films.find(state="open")) == 2, what="both are uploaded")
        rows = {row.name: row.id for row in server.service.films.find(state="open")}
        if interrupted:
            process.send_signal(signal.SIGINT)
        else:
            assert server.delete(rows["first.mp4"]) in (202, 204)
            gate.unlink()
        done = ended(process)
        found = {film["id"]: film["status"] for film in json.loads(done.stdout)}
        if interrupted:
            assert (done.returncode, found.get(rows["first.mp4"])) == (130, "queued")
            assert {server.delete(film) for film in rows.values()} <= {202, 204}
            eventually(lambda: not server.service.films.find(state="open"), what="both are deleted")
        else:
            assert (done.returncode, found) == (1, {rows["first.mp4"]: "deleted", rows["second.mp4"]: "done"})
            assert server.delete(rows["second.mp4"]) == 204


def test_without_a_key_it_listens_to_this_machine_only(server: Adreel) -> None:  # spec: SE-1
    refused = adreel(server, "serve", "--host", "0.0.0.0")
    assert (refused.returncode, "no key exists" in refused.stderr) == (1, True)


@pytest.fixture(scope="module")
def browser(server: Adreel) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("THE PAGE WAS NOT TESTED: there is no chromium (`make .venv/.browser`)")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def page(server: Adreel, browser: Browser) -> Page:
    made = browser.new_page(viewport={"width": 1360, "height": 900})
    made.goto(server.hand.with_token(f"http://127.0.0.1:{server.port}/"))
    expect(made.locator("#live")).to_have_text("live")  # signed in: a test may load another address
    return made


def test_a_film_is_dropped_watched_read_and_deleted_on_the_page(server: Adreel, page: Page) -> None:  # spec: AR-4
    expect(page.get_by_text("No films yet")).to_be_visible()
    gate = server.close_gate("ocr")
    films = [{"name": name, "mimeType": "video/mp4", "buffer": MP4} for name in ("<b>bold.mp4", "two.mp4", "three.mp4")]
    page.locator("#files").set_input_files(films[:1])  # pyright: ignore[reportArgumentType]
    server.waits_at("ocr")  # the film that comes first is the one that runs
    page.locator("#files").set_input_files(
        [*films[1:], {"name": "notes.mp4", "mimeType": "video/mp4", "buffer": b"plain text"}]  # pyright: ignore[reportArgumentType]
    )
    expect(page.locator("#sending li.bad")).to_contain_text("notes.mp4: the file is not a film")
    expect(page.locator("#list li")).to_have_count(3)
    page.get_by_role("link", name="<b>bold.mp4").click()
    expect(page.get_by_role("heading", name="<b>bold.mp4")).to_be_visible()
    expect(page.locator("#film .axis .span.running")).to_be_visible()
    page.wait_for_function(SHARE)
    gate.unlink()
    expect(page.locator("#film .reel button")).to_have_count(2, timeout=30_000)
    expect(page.locator("#film .verdicts")).to_contain_text("Travel")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#scene")).to_contain_text("words of scene 2")
    page.keyboard.press("/")
    page.keyboard.type("two")
    expect(page.locator("#list li")).to_have_count(1)
    page.get_by_label("Search films").fill("")
    expect(page.locator("#list li")).to_have_count(3)
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#list li")).to_have_count(2)
    expect(page.locator("#film")).to_be_hidden()
    first = page.locator("#list b").first.inner_text()
    page.keyboard.press("j")
    expect(page.locator("#film h1")).to_have_text(first)


def test_a_failed_film_tells_why_and_is_tried_again_on_the_page(server: Adreel, page: Page) -> None:  # spec: AR-4
    (server.gates / "refuse").touch()
    film = server.upload("broken.mp4")["id"]
    page.goto(f"http://127.0.0.1:{server.port}/#/{film}")
    expect(page.locator("#film .trouble")).to_contain_text("the film ends after 12 % of its length", timeout=30_000)
    page.get_by_role("button", name="Failed").click()
    expect(page.locator("#list li")).to_have_count(1)
    (server.gates / "refuse").unlink()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#film .reel")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("No film matches.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()


def test_a_film_that_was_classified_again_tells_how_long_that_took(server: Adreel, page: Page) -> None:  # spec: AR-4
    film = server.upload("again.mp4")["id"]
    assert server.ends(film)["status"] == "done"
    page.goto(f"http://127.0.0.1:{server.port}/#/{film}")
    expect(page.locator("#film header")).to_contain_text("analysed in")
    gate = server.close_gate("classify")
    page.get_by_role("button", name="Classify again").click()
    expect(page.locator("#film")).to_contain_text("Earlier result")
    expect(page.locator("#film .reel")).to_be_visible()
    gate.unlink()
    expect(page.locator("#film header")).to_contain_text("classified again in", timeout=30_000)
    expect(page.locator("#film")).not_to_contain_text("Earlier result")
    assert server.delete(film) == 204
    page.goto(f"http://127.0.0.1:{server.port}/")


def test_the_page_fits_a_phone_and_has_no_errors(server: Adreel, browser: Browser) -> None:  # spec: AR-4
    film = server.upload("phone.mp4")["id"]
    server.ends(film)
    made = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme="dark")
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.goto(server.hand.with_token(f"http://127.0.0.1:{server.port}/"))
    expect(made.locator("#list li").first).to_be_visible()
    made.get_by_role("link", name="phone.mp4").click()
    expect(made.locator("#film .reel")).to_be_visible()
    assert made.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert made.evaluate(WHOLE)
    made.get_by_role("button", name="← Films").click()
    expect(made.locator("#list li").first).to_be_visible()
    assert made.evaluate("document.documentElement.scrollWidth <= innerWidth")
    made.context.clear_cookies()
    made.reload()
    expect(made.get_by_text("to see the films")).to_be_visible()
    assert wrong == []
    made.close()


def test_the_list_shows_more_until_all_are_shown(server: Adreel, page: Page) -> None:  # spec: AR-4
    add_films(server.service, 220)
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.get_by_label("Search films").fill("film 2")
    expect(page.locator("#list li")).to_have_count(31)  # 2, 20 to 29, 200 to 219
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    page.get_by_label("Search films").fill("film ")
    for count in (100, 150, 200, 220):
        page.get_by_role("button", name="Show more").click()
        expect(page.locator("#list li")).to_have_count(count)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()


@pytest.mark.full
def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    environment = {**os.environ, "ADREEL_DEMO": str(tmp_path), "ADREEL_DEMO_ONCE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "adreel.demo"], env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert "3 films analysed, 1 set aside, 1 kill, 0 lost" in done.stdout
    assert "broken-export.mp4 deleted: 0 files left" in done.stdout
