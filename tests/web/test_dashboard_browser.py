"""The dashboard in a real browser, before a real server, node and workers. One of each for all tests here."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dashboard_app import HOSTILE
from dashworld import CHROMIUM, CROWD, Served, axe, missing

from chargehand import Flow, clock
from chargehand.model.access import Scope
from chargehand.model.records import JobFilter
from chargehand.testing import eventually

WHY_NOT = missing()
if WHY_NOT is not None:
    sys.__stderr__.write(f"\nSKIPPED: the dashboard's browser tests: {WHY_NOT}\n")  # type: ignore[union-attr]
    pytest.skip(WHY_NOT, allow_module_level=True)

from dashbrowser import (  # noqa: E402
    SLOW,
    Watched,
    close,
    go,
    node_event,
    pid_of,
    queue_event,
    sign_in,
    tab_to,
    tile,
    worker_event,
)
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright  # noqa: E402 (it may not be there)

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
CUT = """
selector => [...document.querySelectorAll(selector)]
  .filter(each => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1
    || each.getBoundingClientRect().right > innerWidth)
  .map(each => each.innerText)
"""
"""The texts of elements that do not show all they have, or stand outside the page."""
PAGES = (
    "",
    "?view=tiles",
    "queues",
    "queue/steps",
    "workers",
    "jobs",
    "flows",
    "crashes",
    "recurring",
    "keys",
    "operations",
    "doctor",
    "worker/worker:steps:0",
)


def pages(served: Served) -> list[str]:
    """Every page there is: of a job and of a crash, too."""
    if not served.hand.jobs(JobFilter(limit=1)):
        first = served.steps.enqueue({"steps": 1, "seconds": 0})
        eventually(lambda: served.hand.job(first.id).state.value == "done", 30)  # `wait` would block Playwright's loop
    if not served.hand.crashes():
        os.kill(pid_of(served, "worker:faults:0"), signal.SIGKILL)
        eventually(served.hand.crashes)
        served.hand.reset("faults")
    (job,), crash = served.hand.jobs(JobFilter(limit=1)), served.hand.crashes()[0]
    flow = next(iter(served.hand.flows()), None) or begin(served, "accessible.mp4").status()
    return [*PAGES, f"job/{job.id}", f"flow/{flow.id}", f"crash/{crash.id}"]


def begin(served: Served, name: str, scenes: int = 3, *, steps: int = 1, **last: Any) -> Flow:
    """A flow of some jobs, and one that waits for them all."""
    with served.hand.flow(name) as flow:
        parts = flow.enqueue_many(served.steps, [{"steps": steps}] * scenes, label="scene")
        flow.enqueue(served.steps, {"steps": 1, **last}, label="classify", after=parts)
    return flow


expect.set_options(timeout=SLOW)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(living: Callable[[], list[int]]) -> Iterator[None]:
    """Of a module whose tests share processes, at its end."""
    yield
    eventually(lambda: not living(), 15, what="processes left behind")


@pytest.fixture(scope="module")
def served(nothing_is_left_behind: None) -> Iterator[Served]:
    with TemporaryDirectory(prefix="chargehand-dash-", dir=MEMORY) as name:
        server = Served(Path(name))
        yield server
        server.close()


@pytest.fixture(scope="module")
def browser(nothing_is_left_behind: None) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened_by_address(browser: Browser, served: Served) -> str:
    """The address that is printed on a terminal, opened before there is a key."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(served.address)
    expect(page.get_by_role("navigation", name="Pages").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"/chargehand/dashboard$"))
    page.go_back()
    (cookie,) = context.cookies(served.url)
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    context.close()
    return served.address


@pytest.fixture(scope="module")
def keys(opened_by_address: str, served: Served) -> dict[str, str]:
    every = list(Scope)
    return {
        "ann": served.hand.make_key("ann", every)[0],
        "eve": served.hand.make_key("eve", [Scope.READ])[0],
    }


@pytest.fixture(autouse=True)
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    assert found.complaints == []


@pytest.fixture(scope="module")
def opened(browser: Browser, served: Served, keys: dict[str, str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    sign_in(page, served.url, keys["ann"])
    yield page
    context.close()


@pytest.fixture
def page(opened: Page, served: Served, watched: Watched) -> Page:
    watched.watch(opened)
    if "/dashboard" not in opened.url:  # a test ended on a page of the application's own
        opened.goto(f"{served.url}/dashboard")
    go(opened, "?view=tiles")
    expect(tile(opened, "steps:0")).to_have_attribute("data-state", "healthy")
    return opened


def test_signing_in_and_what_a_key_does_not_allow(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:  # spec: SE-2 DB-5
    context = browser.new_context()
    page = watched.watch(context.new_page())
    page.goto(f"{served.url}/dashboard")
    expect(page.get_by_role("heading", name="Sign in to Chargehand")).to_be_visible()
    page.get_by_label("Key").fill("ch_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("the key is not known")
    page.get_by_label("Key").fill(keys["eve"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Workers")).to_contain_text("free")
    assert page.evaluate("document.cookie") == ""
    assert page.get_by_role("button", name="Pause").count() == 0
    go(page, "jobs")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert page.get_by_role("group", name="Actions for jobs").count() == 0
    assert page.get_by_role("button", name="New job").count() == 0
    for where in ("worker/worker:steps:0", "doctor", "operations"):
        go(page, where)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.get_by_role("button", name=re.compile("Pause|Restart|Reset|Resume|Stop|Scale")).count() == 0
    go(page, "jobs")
    page.reload()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You have signed out.")).to_be_visible()
    context.close()


def test_a_kill_a_restart_a_give_up_and_a_reset_are_seen(
    page: Page, served: Served
) -> None:  # spec: DB-1 DB-4 DB-5 DB-7
    os.kill(pid_of(served, "worker:faults:0"), signal.SIGKILL)
    expect(page.get_by_role("list").filter(has_text="SIGKILL").first).to_be_visible()
    expect(tile(page, "faults:0")).to_contain_text("1 restart")
    expect(tile(page, "faults:0")).to_have_attribute("data-state", "healthy")
    for _ in range(2):  # the limit
        before = pid_of(served, "worker:faults:0")
        os.kill(before, signal.SIGKILL)
        eventually(lambda gone=before: all(w["pid"] != gone for w in (served.hand.status() or {})["workers"]))
    expect(tile(page, "faults:0")).to_have_attribute("data-state", "failed")
    expect(tile(page, "faults:0")).to_contain_text("given up")
    _what_is_wrong_stands_first(page, served)
    go(page, "queue/faults")
    its = page.get_by_role("region", name="Problems").get_by_role("listitem")
    expect(its).to_have_text(re.compile("crew faults: 1 of 1 given up: killed .SIGKILL."))
    expect(its.get_by_role("button", name="Reset faults")).to_be_visible()
    go(page, "queue/steps")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queue steps")
    expect(its).to_have_count(0)
    go(page, "doctor")
    expect(page.get_by_role("button", name="Reset faults")).to_be_visible()
    page.get_by_role("button", name="Reset faults").click()
    expect(page.get_by_role("status").last).to_contain_text("crash history cleared")
    go(page, "?view=tiles")
    expect(tile(page, "faults:0")).to_have_attribute("data-state", "healthy")
    go(page, "operations")
    expect(page.get_by_role("row").filter(has_text="reset").first).to_contain_text("ann")


def _what_is_wrong_stands_first(page: Page, served: Served) -> None:
    """The cause, in one line, and its remedy beside it; a deliberate pause below; the well folded."""
    served.hand.pause("steps", reason="measuring")
    held = served.steps.enqueue({"steps": 1})
    go(page, "")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Error: 1 of 2 crews is down"))
    problems = page.locator(".problems li")
    expect(problems.first).to_contain_text(re.compile("crew faults: 1 of 1 given up: killed .SIGKILL."))
    expect(problems.first.get_by_role("button", name="Reset faults")).to_be_visible()
    expect(problems.last).to_contain_text("steps paused by")
    expect(problems.last.get_by_role("button", name="Resume steps")).to_be_visible()
    expect(page).to_have_title(re.compile(r"^\(\d+\) Overview"))
    expect(page.locator('link[rel="icon"]')).to_have_attribute("href", re.compile("icon-bad"))
    rows = page.get_by_role("list", name="Workers, the unwell first").get_by_role("listitem")
    expect(rows.first).to_contain_text("killed (SIGKILL)")
    expect(rows.last).to_contain_text(re.compile("steps 0–1.*2 paused"))
    rows.last.get_by_role("button").click()
    expect(rows).to_have_count(4)
    problems.last.get_by_role("button", name="Resume steps").click()
    expect(problems.filter(has_text="paused")).to_have_count(0)
    eventually(lambda: served.hand.job(held.id).state.value == "done", 30)


def test_a_job_is_made_watched_cancelled_and_retried(page: Page) -> None:  # spec: DB-3
    go(page, "jobs")
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Crew").select_option("steps")
    page.get_by_label("Payload").fill('{"steps": 2000, bad')
    page.get_by_label("Label").fill("long one")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The payload is not JSON")
    expect(page.get_by_label("Payload")).to_have_value('{"steps": 2000, bad')  # nothing that was typed is lost
    big = 12345678901234567891  # JavaScript would round it
    page.get_by_label("Payload").fill(json.dumps({"steps": 2000, "seconds": 0.02, "stage": "listening", "big": big}))
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("heading", name="long one")).to_be_visible()
    bar = page.get_by_role("progressbar", name="Progress")
    expect(bar).to_have_attribute("aria-valuetext", re.compile(r"listening, \d+ of 2,000"))
    first = bar.get_attribute("aria-valuetext") or ""
    expect(bar).not_to_have_attribute("aria-valuetext", first)  # it moves
    expect(page.get_by_role("region", name="Payload").last).to_contain_text(str(big))
    life = page.get_by_role("region", name="Life")
    expect(life.get_by_role("listitem").last).to_contain_text("running for")
    page.get_by_role("button", name="Stack now").click()
    expect(page.get_by_role("region", name="Stacks")).to_contain_text("perform")
    expect(page.get_by_role("region", name="Stack", exact=True)).to_contain_text("MiB of memory")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("cancelled")
    expect(page.get_by_role("row").filter(has_text="cancelled")).to_be_visible()
    expect(life.get_by_role("listitem").last).to_contain_text("cancelled after")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("running")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("cancelled")


def test_jobs_are_filtered_by_tag(page: Page, served: Served) -> None:
    red, blue = (
        served.steps.enqueue({"steps": 1, "seconds": 0}, label=name, tags=[name, "nightly"]) for name in ("red", "blue")
    )
    rows = page.locator("[data-job]")
    go(page, "jobs?queue=steps&tag=nightly")
    expect(rows).to_have_count(2)
    field = page.get_by_label("Filter")
    expect(field).to_have_value("queue:steps tags:nightly")
    page.locator(f'[data-job="{red.id}"]').get_by_role("link", name="red").last.click()
    expect(rows).to_have_count(1)
    expect(field).to_have_value("queue:steps tags:red")  # the other words are kept
    assert "filter=queue%3Asteps+tags%3Ared" in page.url
    page.reload()
    expect(rows).to_have_count(1)
    field.fill("tags:nightly queue:steps")
    expect(rows).to_have_count(2)
    field.fill("stat:done")
    expect(page.get_by_role("alert")).to_contain_text("did you mean state:?")
    go(page, f"job/{blue.id}")
    page.get_by_role("list", name="Tags").get_by_role("link", name="blue").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("blue")
    third = served.steps.enqueue({"steps": 1, "seconds": 0}, tags=["blue"])
    page.get_by_role("button", name="Show newer jobs (1)").click()
    expect(rows.first).to_have_attribute("data-job", third.id)


def test_jobs_are_picked_grouped_and_retried(page: Page, served: Served) -> None:  # spec: DB-3 DB-8
    """By the mouse, by the keyboard, and all that match."""
    texts = ("truncated at byte 17", "truncated at byte 4", "no such album")
    failed = [
        served.steps.enqueue({"steps": 1, "seconds": 0, "hopeless": text}, label=f"bad {n}", tags=["pick"])
        for n, text in enumerate(texts)
    ]
    eventually(lambda: all(served.hand.job(job.id).state.value == "failed" for job in failed))
    go(page, "jobs?filter=tags:pick")
    rows = page.locator("[data-job]")
    expect(rows).to_have_count(3)
    tabs = page.get_by_role("group", name="State")
    expect(tabs.get_by_role("button", name="failed 3")).to_be_visible()
    tabs.get_by_role("button", name="failed").click()
    causes = page.get_by_role("list").filter(has_text="2 × truncated at byte 4")
    expect(causes).to_be_visible()
    page.get_by_role("heading", level=1).focus()
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    acting = page.get_by_role("group", name="Actions for jobs")
    expect(acting).to_contain_text("2 picked")
    expect(page.get_by_role("checkbox", name="Pick bad 2")).to_be_checked()
    page.keyboard.press("x")
    expect(acting).to_contain_text("1 picked")
    acting.get_by_role("button", name="Select all 3 that match").click()
    acting.get_by_role("button", name="Delete 3").click()
    expect(page.get_by_role("dialog")).to_contain_text("Delete 3 jobs?")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    causes.get_by_role("button", name="Retry 2 × truncated").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry 2 jobs").click()
    expect(page.get_by_role("status").last).to_contain_text("2 jobs queued again")
    (entry,) = [each for each in served.hand.operations() if each.verb == "retry" and "truncated" in str(each.detail)]
    assert str(entry.detail).startswith("2 jobs: state:failed")


def test_newer_jobs_that_do_not_match_are_not_announced_again(page: Page, served: Served) -> None:  # spec: DB-3
    first = served.steps.enqueue({"steps": 1, "seconds": 0}, label="needle 1", tags=["newer"])
    go(page, "jobs?filter=tags:newer label:~needle")
    rows = page.locator("[data-job]")
    expect(rows).to_have_count(1)
    served.steps.enqueue({"steps": 1, "seconds": 0}, label="hay", tags=["newer"])
    page.get_by_role("button", name="Show newer jobs (1)").click()  # the page cannot judge the label
    expect(page.get_by_role("button", name="No newer jobs")).to_be_disabled()
    second = served.steps.enqueue({"steps": 1, "seconds": 0}, label="needle 2", tags=["newer"])
    page.get_by_role("button", name="Show newer jobs (1)").click()
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_attribute("data-job", second.id)
    expect(rows.last).to_have_attribute("data-job", first.id)


def test_picked_jobs_are_offered_what_can_be_done_to_them(page: Page, served: Served) -> None:  # spec: DB-3
    done = [served.steps.enqueue({"steps": 1, "seconds": 0}, tags=["fits"]) for _ in range(2)]
    eventually(lambda: all(served.hand.job(job.id).state.value == "done" for job in done))
    go(page, "jobs?filter=tags:fits")
    page.get_by_role("checkbox", name="Pick all jobs on this page").click()
    acting = page.get_by_role("group", name="Actions for jobs")
    for name in ("Retry", "Cancel"):
        expect(acting.get_by_role("button", name=name, exact=True)).to_be_disabled()
    served.hand.delete(done[0].id)
    acting.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 2 jobs").click()
    told = page.get_by_role("status").last
    expect(told).to_contain_text("1 job deleted")
    expect(told).to_contain_text("1 job left")


def test_the_question_before_the_retry_of_a_cause_has_the_number_that_is_retried(page: Page, served: Served) -> None:
    """What errors that are numbers have in common selects other errors, too. spec: DB-3"""
    failed = [
        served.steps.enqueue({"steps": 1, "seconds": 0, "hopeless": text}, tags=["number"])
        for text in ("no such album", "404")
    ]
    eventually(lambda: all(served.hand.job(job.id).state.value == "failed" for job in failed))
    go(page, "jobs?filter=tags:number state:failed")
    page.get_by_role("button", name="Retry 1 × 404").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 2 jobs?")
    expect(dialog).to_contain_text("1 of them failed since, or with another error")
    dialog.get_by_role("button", name="Cancel").click()


def test_a_long_label_leaves_the_id_and_its_copy_button_in_the_row(page: Page, served: Served) -> None:  # spec: DB-3
    named = served.steps.enqueue({"steps": 1, "seconds": 0}, label="/music/" + "very long name " * 12, tags=["long"])
    unnamed = served.steps.enqueue({"steps": 1, "seconds": 0}, tags=["long"])
    go(page, "jobs?filter=tags:long")
    row = page.locator(f"[data-job='{named.id}']")
    expect(row).to_contain_text(named.id[-8:])
    inside = "cell => cell.querySelector('button').getBoundingClientRect().right <= cell.getBoundingClientRect().right"
    assert row.locator("td.name").evaluate(inside)
    text = page.locator(f"[data-job='{unnamed.id}'] td.name").inner_text()
    assert text.count(unnamed.id[-8:]) == 1


def test_a_text_does_not_turn_those_beside_it(page: Page, served: Served) -> None:  # spec: DB-7 SE-4
    served.hand.pause("faults", reason="\u202eegatuo")
    try:
        go(page, "")
        expect(page.locator("main")).to_contain_text("\\u202eegatuo")
        expect(page.locator("main")).not_to_contain_text("\u202e")
    finally:
        served.hand.resume("faults")


def test_hostile_text_is_text(page: Page, served: Served) -> None:  # spec: DB-7 SE-4 DB-3
    payload = {"steps": 1, "seconds": 0, "error": HOSTILE, "stage": HOSTILE, "say": HOSTILE}
    job = served.steps.enqueue(payload, label=HOSTILE, key=HOSTILE, tags=[HOSTILE])
    eventually(lambda: served.hand.job(job.id).state.value == "failed")
    go(page, "jobs?state=failed&text=onerror")
    row = page.locator(f'[data-job="{job.id}"]')
    expect(row).to_contain_text(HOSTILE)
    page.get_by_label("Filter").fill("state:failed reason:timed-out onerror")
    expect(row).to_have_count(0)
    page.get_by_label("Filter").fill("state:failed reason:raised onerror")
    expect(row).to_contain_text(HOSTILE)
    row.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="Error", exact=True).last).to_contain_text("RuntimeError")
    expect(page.get_by_role("region", name="Payload").last).to_contain_text("<img src=x onerror")
    expect(page.get_by_role("log")).to_contain_text(HOSTILE)
    expect(page.get_by_role("list", name="Tags")).to_contain_text(HOSTILE)
    served.hand.pause("steps", reason=HOSTILE)
    for where, shows in (
        ("", page.locator(".problems li").last),
        ("operations", page.get_by_role("row", name="pause").first),
    ):
        go(page, where)
        expect(shows).to_contain_text(HOSTILE)
    served.hand.resume("steps")
    assert page.locator("main img, main script").count() == 0
    assert "owned" not in page.title()
    go(page, f"job/{job.id}")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status").last).to_contain_text("is queued again")
    eventually(lambda: served.hand.job(job.id).state.value == "failed")


def test_what_the_policy_forbids_would_be_noticed(page: Page, watched: Watched) -> None:  # spec: DB-7
    page.evaluate(
        "() => { const s = document.createElement('style'); s.textContent = 'p{}'; document.body.append(s); }"
    )
    assert "TypeError" in page.evaluate("() => { try { document.body.innerHTML = '' } catch (e) { return e.name } }")
    eventually(lambda: page.evaluate("1") and len(watched.complaints) >= 2)
    assert all("Content Security Policy" in said or "Trusted" in said for said in watched.complaints)
    watched.complaints.clear()


def test_a_crash_report_shows_the_stack(page: Page, served: Served) -> None:  # spec: DB-4
    job = served.faults.enqueue({"fault": "segfault"}, label="crasher")
    eventually(lambda: served.hand.job(job.id).crashes > 0)
    served.hand.cancel(job.id)
    go(page, "crashes")
    when = page.locator("tbody time").first
    expect(when).to_have_text(re.compile("just now|ago"))
    assert re.search(r"\w{3}, \d+ \w+ \d{4}.* (UTC|GMT|[A-Z]+)", when.get_attribute("title") or "")
    page.get_by_role("link").filter(has_text="SIGSEGV").first.click()
    expect(page.get_by_role("region", name="Stacks").last).to_contain_text("segfault")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as bug report").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    report = page.evaluate("navigator.clipboard.readText()")
    assert re.match(r"Chargehand \d.*SIGSEGV", report)
    assert "## Stacks" in report
    expect(page.get_by_role("link", name=job.id)).to_be_visible()
    go(page, "worker/worker:faults:0")
    expect(page.get_by_role("list", name="Events, newest first")).to_contain_text(
        re.compile(r"segfault in .*\(SIGSEGV\)")
    )
    expect(page.get_by_role("log")).to_contain_text("worker ready")
    served.hand.reset("faults")


def test_pause_and_resume_by_keyboard_alone(page: Page) -> None:  # spec: DB-5 DB-8
    tab_to(page, "Pause crew steps")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason (shown to other users)")).to_be_focused()
    page.keyboard.type("tea")
    page.keyboard.press("Enter")
    expect(tile(page, "steps:0")).to_have_attribute("data-state", "paused")
    expect(page.get_by_text("paused by ann: tea")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    tab_to(page, "Resume crew steps")
    page.keyboard.press("Enter")
    expect(tile(page, "steps:0")).to_have_attribute("data-state", "healthy")
    tab_to(page, "Stop crew steps", through="More actions for crew steps")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Current jobs may finish within the grace period")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_server_restarts_under_the_page(page: Page, served: Served) -> None:  # spec: DB-7 EV-5
    go(page, "")
    expect(page.get_by_role("button", name="Pause all workers")).to_be_visible()
    served.stop()
    expect(page.get_by_text("Connection lost")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("The server does not answer")
    expect(page.get_by_role("button", name="Pause all workers")).to_have_count(0)
    expect(page.locator("main")).to_have_class("stale")
    served.start()
    expect(page.get_by_text("Connection lost")).to_have_count(0)
    job = served.steps.enqueue({"steps": 1000, "seconds": 0.02})
    expect(page.locator('[data-state="busy"]')).to_have_count(1)
    served.hand.cancel(job.id)
    expect(page.locator('[data-state="busy"]')).to_have_count(0)


def test_a_phone_in_the_dark(browser: Browser, served: Served, keys: dict[str, str], watched: Watched) -> None:
    # spec: DB-8
    context = browser.new_context(viewport={"width": 375, "height": 720}, color_scheme="dark")
    page = watched.watch(context.new_page())
    sign_in(page, served.url, keys["ann"])
    expect(page.get_by_role("list", name="Workers, the unwell first")).to_contain_text("steps 0–1")
    dark = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(dark) == "rgb(15, 18, 22)"
    for where in pages(served):
        go(page, where)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
    page.get_by_label("Theme").select_option("light")
    assert page.evaluate(dark) == "rgb(246, 247, 249)"
    page.reload()
    expect(page.get_by_label("Theme")).to_have_value("light")
    context.close()


def test_nothing_is_cut_on_a_phone(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:  # spec: DB-8 DB-4 DB-3
    """Causes are whole, a job's life shows only words that fit, and jobs are named by the ends of their ids."""
    done = [served.steps.enqueue({"steps": 1, "seconds": 0.01}) for _ in range(8)]
    bad = served.steps.enqueue({"steps": 1, "seconds": 0.01, "error": "truncated"}, label="b.flac", delay=1)
    eventually(lambda: served.hand.job(bad.id).state.value == "failed", 30)
    pages(served)  # there is a crash
    context = browser.new_context(viewport={"width": 375, "height": 720})
    page = watched.watch(context.new_page())
    sign_in(page, served.url, keys["ann"])
    go(page, "crashes")
    expect(page.locator("td.cause a").first).to_be_visible()
    assert page.evaluate(CUT, "td.cause .short") == []
    go(page, f"job/{bad.id}")
    expect(page.locator(".life li")).to_have_count(2)
    assert page.evaluate(CUT, ".life li") == []
    expect(page.locator(".life li").last).to_contain_text("raised after")  # for screen readers
    ends = {each.id[-8:]: each.id for each in done}
    go(page, "worker/worker:steps:0")
    events = page.get_by_role("list", name="Events, newest first")
    link = events.get_by_role("link").filter(has_text=re.compile("^[0-9a-f]{8}$")).first
    expect(link).to_have_attribute("title", re.compile(r"^[0-9a-f]{32}$"))
    assert any(text in ends for text in events.get_by_role("link").all_inner_texts())
    context.close()


def test_a_thousand_workers(browser: Browser, served: Served, keys: dict[str, str], watched: Watched) -> None:
    # spec: DB-1 EV-4
    told = "".join(worker_event(number, "healthy") for number in range(1000)) + worker_event(7, "crashed")
    body = f"retry: 600000\n\n{told}"
    context = browser.new_context()
    page = watched.watch(context.new_page())
    page.route("**/api/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    sign_in(page, served.url, keys["eve"])
    rows = page.get_by_role("list", name="Workers, the unwell first").get_by_role("listitem")
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_attribute("data-state", "crashed")
    expect(rows.last).to_contain_text("999 free")
    page.get_by_role("button", name="Tiles").click()
    expect(page.locator(".tile")).to_have_count(1000)
    expect(tile(page, "big:7")).to_have_attribute("data-state", "crashed")
    close(page)


# spec: DB-1 WP-15
def test_a_hundred_jobs_in_one_hand_do_not_fill_the_page(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:
    ids = [f"{number:032x}" for number in range(100)]
    hand: dict[str, Any] = {"concurrency": 100, "in_hand": 100, "current_job": ids[0], "batch_jobs": ids}
    body = f"retry: 600000\n\n{worker_event(0, 'healthy', **hand)}"
    for width in (1280, 375):
        context = browser.new_context(viewport={"width": width, "height": 800})
        page = watched.watch(context.new_page())
        page.route("**/api/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
        sign_in(page, served.url, keys["eve"])
        expect(tile(page, "big:0")).to_contain_text("100 of 100 jobs")
        go(page, "worker/worker:big:0")
        jobs = page.get_by_role("region", name="Jobs in hand: 100 of 100")
        expect(jobs.get_by_role("link")).to_have_count(100)
        box = jobs.bounding_box()
        assert box is not None
        assert box["height"] < 300
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        close(page)


# spec: DB-1 WK-19
def test_a_queue_that_is_limited_by_its_rate_says_when_the_next_job_starts(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:
    soon = clock.now_ms() + 50_000
    told = queue_event("call", queued=20, rate=0.2, rate_next_ms=soon) + queue_event("tag", queued=2, rate=1, eta_s=2)
    body = f"retry: 600000\n\n{told}"
    context = browser.new_context()
    page = watched.watch(context.new_page())
    page.route("**/api/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    sign_in(page, served.url, keys["eve"])
    expect(page.locator("[data-queue=call]")).to_contain_text(re.compile(r"limited by rate, next in \d+ s"))
    expect(page.locator("[data-queue=tag]")).not_to_contain_text("limited by rate")
    close(page)


# spec: MN-1 DB-1
def test_nodes_that_share_a_store(browser: Browser, served: Served, keys: dict[str, str], watched: Watched) -> None:
    told = node_event("a", "healthy") + node_event("b", "gone")
    told += "".join(worker_event(number, "healthy", "a") for number in range(2))
    told += worker_event(0, "unknown", "b", "its node b is gone")
    body = f"retry: 600000\n\n{told}"
    context = browser.new_context()
    page = watched.watch(context.new_page())
    page.route("**/api/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    sign_in(page, served.url, keys["eve"])
    expect(page.locator("[data-state=gone]")).to_contain_text("its node b is gone")
    expect(page.locator(".problems li")).to_contain_text("node b is gone")
    page.get_by_label("Node", exact=True).select_option("a")
    expect(page.locator("[data-state=gone]")).to_have_count(0)
    go(page, "nodes")
    expect(page.locator("[data-node=a]")).to_contain_text("machine-a")
    expect(page.locator("[data-node=b]")).to_have_attribute("data-state", "gone")
    expect(page.locator("[data-node=b]")).to_contain_text("big 0 of 2")
    theirs = page.get_by_role("region", name="b").locator("[data-worker]")
    expect(theirs).to_have_attribute("data-state", "gone")
    expect(theirs).to_contain_text("its node b is gone")
    theirs.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Worker b/big:0")
    close(page)


# spec: DB-4 MN-3
def test_a_whole_node_is_drained_and_started_again(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:
    told = [node_event("a", "healthy") + node_event("b", "gone") + worker_event(0, "healthy", "a"), ""]
    told[1] = node_event("a", "healthy", "drained")
    asked: list[tuple[str, Any]] = []

    def answer(route: Route) -> None:
        asked.append((route.request.url.rpartition("/")[2], route.request.post_data_json))
        route.fulfill(json={"answers": [{"component": "a/big:0", "text": "stops", "code": "stops"}]})

    context = browser.new_context()
    page = watched.watch(context.new_page())
    body = "retry: 100\n\n{}"
    page.route(
        "**/api/events?*",
        lambda route: route.fulfill(content_type="text/event-stream", body=body.format(told[len(asked) > 0])),
    )
    page.route("**/api/web/worker/*", answer)
    sign_in(page, served.url, keys["ann"])
    go(page, "nodes")
    expect(page.get_by_role("group", name="Actions for node b")).to_have_count(0)
    page.get_by_role("button", name="Drain node a").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("other nodes take the jobs that wait")
    dialog.get_by_role("button", name="Drain").click()
    page.get_by_role("button", name="Start node a").click()
    page.get_by_role("button", name="Scale a/big").click()
    dialog.get_by_label("Workers").fill("3")
    dialog.get_by_role("button", name="Scale").click()
    expect(page.get_by_text("Scale a/big", exact=True)).to_be_visible()
    assert asked == [
        ("drain", {"scope": "a/*"}), ("start", {"scope": "a/*"}), ("scale", {"scope": "a/big", "count": 3}),
    ]  # fmt: skip
    close(page)


def test_without_a_node_nothing_can_be_pressed(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:  # spec: DB-6
    context = browser.new_context()
    page = watched.watch(context.new_page())

    def without(route: Route) -> None:
        found = route.fetch().json()
        route.fulfill(json={**found, "supervisor": None})

    page.route("**/api/v1/info", without)
    sign_in(page, served.url, keys["ann"])
    expect(page.get_by_role("heading", level=1)).to_have_text("No node is running")
    expect(page.get_by_role("main")).to_contain_text("chargehand work APP")
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert page.get_by_role("button", name=re.compile("Pause|Restart|Reset|Resume|Stop|Scale")).count() == 0
    close(page)


def test_a_queue_has_a_page_with_its_failures_and_orders(page: Page, served: Served) -> None:  # spec: DB-2 DB-5
    for name in ("a.flac", "b.flac"):
        served.steps.enqueue({"steps": 1, "error": f"{name}: truncated"}, label=name)
    longest = served.steps.enqueue({"steps": 400, "stage": "mix"})
    eventually(lambda: (served.hand.counts() or [])[0] and served.hand.job(longest.id).state.value == "running")
    go(page, "")
    page.get_by_role("link", name="steps", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queue steps")
    failures = page.get_by_role("region", name="Failures by error").get_by_role("listitem")
    expect(failures.filter(has_text="RuntimeError: b.flac: truncated")).to_contain_text(re.compile(r"\d+ ×"))
    expect(page.get_by_role("region", name="Running longest")).to_contain_text("mix")
    expect(page.locator(".figures")).to_contain_text(re.compile(r"run p50 / p95\s*\d"))
    served.hand.cancel(longest.id)
    page.get_by_role("button", name=re.compile("Retry .* failed job")).click()
    page.get_by_role("dialog").get_by_role("button", name="Retry all").click()
    expect(page.get_by_role("status").last).to_contain_text("queued again")
    page.get_by_role("button", name="Pause crew steps").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator(".held")).to_contain_text("no reason given")
    page.get_by_role("button", name="Resume crew steps").click()
    expect(page.locator(".held")).to_have_count(0)


def test_a_key_counts_as_soon_as_a_page_is_there(page: Page) -> None:  # spec: DB-8
    found = page.evaluate("""async () => {
      const changed = new Promise((done) => addEventListener("hashchange", done, { once: true }));
      location.hash = "#/queues";
      await changed;
      await new Promise((done) => {
        const next = new MessageChannel();
        next.port1.onmessage = done;
        next.port2.postMessage(null);
      });
      const shown = document.querySelector("h1").textContent;
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true }));
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      return [shown, document.querySelector("dialog[open] h2")?.textContent];
    }""")
    assert found == ["Queues", "Keys"]
    page.keyboard.press("Escape")


def test_the_keyboard_reaches_pages_rows_and_search(page: Page) -> None:  # spec: DB-8
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Search jobs")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(re.compile("#/queues$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")  # the page before has the same rows
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.locator("[data-queue=faults]")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("[data-queue=faults] a").first).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator("[data-queue=steps] a").first).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queue faults")
    page.keyboard.press("p")
    expect(page.get_by_role("dialog")).to_contain_text("Pause crew faults")
    page.keyboard.press("p")  # into the field: no key of the page
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page).to_have_url(re.compile("#/jobs$"))
    expect(page.locator("main input:focus")).to_have_count(1)


def test_very_many_jobs_are_paged(page: Page, served: Served) -> None:  # spec: DB-3
    served.fill(CROWD)
    go(page, "jobs?queue=archive")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{CROWD:,}")
    rows = page.locator("[data-job]")
    seen: list[str] = []
    for _ in range(5):
        expect(rows).to_have_count(50)
        ids = rows.evaluate_all("rows => rows.map(row => row.dataset.job)")
        seen += ids
        page.get_by_role("button", name="Older").click()
        expect(page.locator(f'[data-job="{ids[0]}"]')).to_have_count(0)
    assert seen == [f"{CROWD - number:032x}" for number in range(250)]  # each once, newest first
    page.get_by_role("button", name="Newest").click()
    expect(page.locator(f'[data-job="{CROWD:032x}"]')).to_be_visible()
    page.get_by_label("Filter").fill('queue:archive "song 12345"')
    expect(page.locator(f'[data-job="{12345:032x}"]')).to_be_visible()
    expect(rows.first).to_contain_text("scheduled for")
    served.empty()


def test_charts_begin_with_the_past(browser: Browser, served: Served, keys: dict[str, str], watched: Watched) -> None:
    # spec: DB-2
    eventually(served.hand.queue_history, 20)  # what the page hears itself is later than this
    began = served.hand.queue_history()[-1]["at_ms"][0] // 1000
    context = browser.new_context()
    page = watched.watch(context.new_page())
    sign_in(page, served.url, keys["eve"])
    go(page, "queue/steps")
    page.get_by_role("button", name="2 hours").click()
    chart = page.get_by_role("img", name=re.compile("^Waiting and running: queue steps over the last hours"))
    expect(chart).to_have_attribute("data-since", re.compile(rf"{began}|{began + 1}"))
    expect(page.locator(".charts figure")).to_have_count(4)
    expect(chart.locator(".u-value").nth(1)).to_have_text(re.compile(r"\d"))  # the newest value, or that pointed at
    _a_worker_has_a_past(page, served)
    context.close()


def _a_worker_has_a_past(page: Page, served: Served) -> None:
    worker = "worker:faults:0"
    eventually(lambda: (served.hand.worker_history(worker) or {"memory": []})["memory"], 20)
    before = served.faults.enqueue({}, label="before")
    eventually(lambda: served.hand.job(before.id).state.value == "done", 20)
    past = served.hand.worker_history(worker) or {}
    go(page, f"worker/{worker}")
    moments = page.get_by_role("list", name="Events, newest first").get_by_role("listitem")
    ended = moments.filter(has=page.get_by_role("link", name=before.id[-8:]))
    expect(ended).to_have_text(re.compile(r"done.*\d+ m?s$"))
    expect(moments.filter(has_text="starting").first).to_contain_text("process")
    chart = page.get_by_role("img", name=f"Memory of {worker} over the last hour")
    expect(chart).to_have_attribute("data-since", re.compile(str(past["memory_at_ms"][0] // 1000)))
    since = served.faults.enqueue({}, label="since")
    expect(moments.filter(has_text=since.id[-8:])).to_have_text(
        re.compile(r"done.*\d+ m?s$")
    )  # once, however it was heard of
    expect(ended).to_have_count(1)
    ended.get_by_role("link").click()
    expect(page.get_by_role("heading", name="before")).to_be_visible()


def test_a_page_of_the_applications_own(page: Page, served: Served, watched: Watched) -> None:  # spec: DB-7 DB-8
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("link", name="Songs").click()
    expect(page.get_by_role("link", name="Songs")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("status")).to_contain_text("live")
    expect(page.locator("#songs")).to_contain_text("busy")
    expect(page.get_by_role("progressbar", name="Songs heard")).to_have_attribute("aria-valuenow", "50")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 22)"
    assert grave(page) == []
    page.get_by_label("Theme").select_option("auto")
    page.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")


def grave(page: Page, *rules: str) -> list[Any]:
    """What axe-core finds that is serious, or worse; by these rules, or by all."""
    script, why_not = axe()
    if script is None:
        sys.__stderr__.write(f"\nSKIPPED: axe-core: {why_not}\n")  # type: ignore[union-attr]
        pytest.skip(why_not)
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(script)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(options)", options)
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.full
def test_axe_finds_nothing_serious(page: Page, served: Served) -> None:  # spec: DB-8
    for theme, rules in (("light", ()), ("dark", ("color-contrast",))):  # the rest is the same in both
        page.get_by_label("Theme").select_option(theme)
        for where in pages(served):
            go(page, where)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert grave(page, *rules) == [], (theme, where)
        go(page, "jobs")
        page.get_by_role("button", name="New job").click()
        assert grave(page, *rules) == [], (theme, "a question")
        page.keyboard.press("Escape")
    page.get_by_label("Theme").select_option("auto")


def test_an_address_with_a_token_that_has_ended_asks_for_a_key(  # spec: SE-1
    browser: Browser, opened_by_address: str, keys: dict[str, str]
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(opened_by_address)
    expect(page.get_by_role("heading", name="Sign in to Chargehand")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/chargehand/dashboard$"))
    context.close()


def test_axe_finds_nothing_serious_before_anybody_signs_in(browser: Browser, served: Served) -> None:  # spec: DB-8
    for theme in ("light", "dark"):
        context = browser.new_context(color_scheme=theme)
        page = context.new_page()
        page.goto(f"{served.url}/dashboard")
        expect(page.get_by_role("heading", name="Sign in to Chargehand")).to_be_visible()
        assert grave(page) == [], theme
        context.close()


def test_axe_would_find_something(page: Page) -> None:
    page.evaluate("() => { const b = document.createElement('button'); b.id = 'nameless'; document.body.append(b); }")
    assert [rule for rule, _ in grave(page)] == ["button-name"]
    page.evaluate("document.getElementById('nameless').remove()")


def test_a_flow_is_followed_to_its_end(page: Page, served: Served) -> None:  # spec: FL-4 DB-7
    go(page, "flows")
    expect(page.locator("main table, main .empty").first).to_be_visible()
    flow = begin(served, "summer.mp4", steps=20)
    page.get_by_role("button", name="Show newer flows").click()
    row = page.locator(f'[data-flow="{flow.id}"]')
    expect(row).to_contain_text("running")
    row.get_by_role("link", name="summer.mp4").click()
    expect(page.get_by_role("heading", name="summer.mp4", level=1)).to_contain_text("running")
    stage = page.locator('[data-stage="steps"]')
    expect(stage.locator(".job.hollow").first).to_be_attached()
    expect(page.get_by_role("heading", name="summer.mp4", level=1)).to_contain_text("done")
    expect(stage.locator(".job.good")).to_have_count(4)
    expect(stage.locator(".job.hollow")).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    stage.locator('.job[title^="classify"]').click()
    expect(page.get_by_role("heading", name="Predecessors")).to_be_visible()
    page.locator("dl").get_by_role("link", name="summer.mp4").click()
    expect(page.get_by_role("heading", name="summer.mp4", level=1)).to_be_visible()


def test_a_flow_is_cancelled_and_retried_after_a_question(page: Page, served: Served) -> None:  # spec: FL-4 DB-5
    flow = begin(served, "winter.mp4", steps=600)
    go(page, f"flow/{flow.id}")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("4 jobs of winter.mp4 are cancelled")
    dialog.get_by_role("button", name="Cancel the flow").click()
    heading = page.get_by_role("heading", name="winter.mp4", level=1)
    expect(heading).to_contain_text("cancelled")
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry the flow").click()
    expect(heading).to_contain_text("running")
    flow.cancel()
    expect(heading).to_contain_text("cancelled")


def test_what_failed_in_a_flow_is_named_and_marked(page: Page, served: Served) -> None:  # spec: FL-2 DB-8
    flow = begin(served, "<b>broken</b>.mp4", 2, hopeless="the file ends early")
    eventually(lambda: flow.status().state == "failed", 30)
    go(page, f"flow/{flow.id}")
    expect(page.get_by_role("heading", name="<b>broken</b>.mp4", level=1)).to_contain_text("failed")
    expect(page.locator(".lanes .job.bad .mark")).to_have_count(1)
    expect(page.get_by_role("region", name="Stages")).to_contain_text("2 done, 1 failed")
    expect(page.locator(".related")).to_contain_text("the file ends early")
    page.get_by_role("link", name="All 3 jobs").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_texts_name_jobs_by_the_ends_of_their_ids(page: Page, served: Served) -> None:
    with served.hand.flow("summer") as flow:
        first = flow.enqueue(served.steps, {"steps": 1, "hopeless": "no text in frame 311"}, label="scene")
        flow.enqueue(served.steps, {"steps": 1}, label="cut", after=first)
    eventually(lambda: flow.status().state == "failed", 30)
    go(page, f"flow/{flow.id}")
    expect(page.locator(".related")).to_contain_text(f"predecessor {first.id[-8:]}")
    expect(page.locator(".related")).not_to_contain_text(first.id)


def test_a_pause_is_marked_as_a_pause_in_the_diagnosis(page: Page, served: Served) -> None:  # spec: DB-6
    served.hand.pause("steps", reason="measuring")
    held = served.steps.enqueue({"steps": 1})
    go(page, "doctor")
    finding = page.locator(".findings > li").filter(has_text="steps was paused")
    expect(finding.locator(".state")).to_have_text("paused")
    served.hand.resume("steps")
    eventually(lambda: served.hand.job(held.id).state.value == "done")


def test_a_problem_leads_to_what_it_is_about(page: Page) -> None:  # spec: DB-6
    def finding(cause: str, about: str, severity: str = "error") -> dict[str, Any]:
        return {
            "severity": severity, "cause": cause, "about": about, "short": cause, "text": f"{cause} of {about}",
            "remedy": "chargehand", "since_ms": None,
        }  # fmt: skip

    job = "01a1f4f56d583afc28db20c917bf0ca5"
    found = [finding("failing", "steps"), finding("crashing", "worker:faults:0"), finding("poison", job, "note")]
    page.route("**/api/v1/doctor", lambda route: route.fulfill(json={"headline": "down", "findings": found}))
    page.reload()
    problem = page.locator(".problems li")
    failed = problem.filter(has_text="failing of steps").get_by_role("link", name="Failed jobs")
    expect(failed).to_have_attribute("href", "#/jobs?queue=steps&state=failed")
    expect(problem.filter(has_text="poison of").get_by_role("button")).to_have_text("Retry job 17bf0ca5")
    problem.filter(has_text="crashing of").get_by_role("link", name="Crash reports").click()
    expect(page.get_by_role("heading", name="Crashes of faults")).to_be_visible()
    page.unroute_all(behavior="wait")


def test_ten_thousand_jobs_of_a_flow_do_not_stutter(page: Page, served: Served) -> None:  # spec: FL-4 DB-3
    served.hand.pause("steps")
    with served.hand.flow("ten thousand.mp4") as flow:
        flow.enqueue_many(served.steps, [{"steps": 1}] * 10_000)
    go(page, f"flow/{flow.id}")
    expect(page.get_by_role("heading", name="ten thousand.mp4", level=1)).to_be_visible()
    expect(page.locator(".legend")).to_contain_text("are left out")
    assert page.locator(".lanes .job").count() <= 100
    took = page.evaluate(
        "() => new Promise(done => { const t = performance.now(); requestAnimationFrame(() => requestAnimationFrame("
        "() => done(performance.now() - t))) })"
    )
    assert took < 1000
    flow.cancel()
    served.hand.resume("steps")


def test_a_recurring_job_is_run_paused_and_resumed(page: Page, served: Served) -> None:  # spec: WK-11 DB-5
    go(page, "recurring")
    row = page.locator('[data-recurring="nightly scan"]')
    expect(row).to_contain_text(re.compile("At 03:00 every day.*in .*never"))
    row.get_by_role("button", name="Run now: nightly scan").click()
    expect(page.get_by_role("status").last).to_contain_text("is queued")
    expect(row.get_by_role("link", name=re.compile("^done"))).to_be_visible()
    expect(row.get_by_role("img", name=re.compile("1 runs, 0 failed"))).to_be_visible()
    row.get_by_role("button", name="Pause nightly scan").click()
    page.get_by_label("Reason (shown to other users)").fill("new disk")
    page.keyboard.press("Enter")
    expect(row).to_contain_text(re.compile("paused by ann .*new disk"))
    assert served.hand.recurrences()[0].pause_reason == "new disk"
    row.get_by_role("button", name="Resume nightly scan").click()
    expect(row).not_to_contain_text("paused")
    go(page, "operations")
    expect(page.get_by_role("link", name="nightly scan").first).to_be_visible()


def test_a_key_is_made_shown_once_and_revoked(page: Page, served: Served) -> None:  # spec: SE-1 DB-5
    go(page, "keys")
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name: who or what uses it").fill("grafana")
    expect(dialog.get_by_label("read: see everything")).to_be_checked()
    dialog.get_by_role("button", name="Create").click()
    secret = page.locator(".made code").inner_text()
    assert secret.startswith("ch_")
    row = page.locator('[data-key-name="grafana"]')
    expect(row).to_contain_text(re.compile("in use.*read.*never"))
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    row.get_by_role("button", name="Revoke grafana").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    assert next(key for key in served.hand.api_keys() if key.name == "grafana").revoked_ms


def test_keys_are_hidden_from_a_key_without_control(
    browser: Browser, served: Served, keys: dict[str, str], watched: Watched
) -> None:  # spec: SE-2
    context = browser.new_context()
    page = watched.watch(context.new_page())
    sign_in(page, served.url, keys["eve"])
    expect(page.get_by_role("link", name="Keys", exact=True)).to_have_count(0)
    go(page, "recurring")
    expect(page.locator("[data-recurring]")).to_have_count(1)
    expect(page.locator("[data-recurring] button")).to_have_count(0)
    go(page, "keys")
    expect(page.get_by_text("This key does not have the scope control.")).to_be_visible()
    context.close()


def test_a_large_payload_folds_and_keeps_its_numbers(page: Page, served: Served) -> None:  # spec: DB-3
    songs = [{"id": (1 << 62) + n, "path": f"/music/{n}.flac"} for n in range(60)]
    job = served.steps.enqueue({"steps": 1, "seconds": 0, "songs": songs, "deep": {"a": {"b": {"c": HOSTILE}}}})
    go(page, f"job/{job.id}")
    tree = page.locator(".json")
    expect(tree.get_by_text("steps: 1")).to_be_visible()
    expect(tree).not_to_contain_text(str(1 << 62))
    tree.locator("summary", has_text="songs").click()
    tree.locator("summary", has_text=re.compile("^7: ")).click()
    expect(tree).to_contain_text(f"id: {(1 << 62) + 7}")
    tree.locator("summary", has_text="songs").click()
    expect(tree).not_to_contain_text(str((1 << 62) + 7))


def test_the_filter_line_completes_fields_queues_and_states(page: Page) -> None:  # spec: DB-3
    go(page, "jobs")
    line = page.get_by_label("Filter", exact=True)
    offered = page.locator("#filter-words option")
    for typed, completed in (
        ("qu", "queue:"),
        ("queue:st", "queue:steps"),
        ("queue:steps state:fa", "queue:steps state:failed"),
    ):
        line.fill(typed)
        expect(offered.first).to_have_attribute("value", completed)
    line.fill("")


def test_a_page_that_cannot_begin_says_why(browser: Browser, served: Served, watched: Watched) -> None:  # spec: DB-6
    context = browser.new_context()
    page = watched.watch(context.new_page())
    told = {"type": "urn:chargehand:problem:store-unusable", "detail": "the disk of the store is full", "status": 503}
    page.route("**/api/web/session", lambda route: route.fulfill(status=503, json=told))
    page.goto(f"{served.url}/dashboard")
    expect(page.get_by_role("heading", level=1)).to_have_text("The dashboard cannot begin")
    expect(page.get_by_text("the disk of the store is full")).to_be_visible()
    page.unroute("**/api/web/session")
    expect(page.get_by_label("Key")).to_be_visible()
    close(page)


def test_empty_pages_show_the_command(page: Page) -> None:
    go(page, "jobs?filter=label:~nobody%27s")
    command = page.locator(".empty .command code")
    expect(command).to_have_text("chargehand jobs list 'label:~nobody'\\''s'")
    go(page, "flows?text=nothing")
    expect(page.locator(".empty")).to_contain_text("No flows match the filter.")
