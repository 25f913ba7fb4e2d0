"""`make run` as a newcomer sees it: real processes and networks, a bad song, a killed worker; Ctrl+C at the end."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import soundfile
from playwright.sync_api import expect, sync_playwright
from shots_tonearm import CHROMIUM

from chargehand.testing import eventually
from tonearm import labels
from tonearm.demo import songs, story
from tonearm.ear.listen import Ear
from tonearm.tiers import SHOWN, judge, within

pytestmark = pytest.mark.full


@contextmanager
def demo(root: Path, **said: str) -> Generator[subprocess.Popen[str]]:
    """The demonstration on a terminal, its output to be read."""
    env = {**os.environ, "TONEARM_DEMO": str(root / "demo"), "XDG_CACHE_HOME": str(root / "cache"), **said}
    ours, theirs = os.openpty()
    shown = subprocess.Popen([sys.executable, "-m", "tonearm.demo"], env=env, stdout=theirs, text=True)
    os.close(theirs)
    shown.stdout = open(ours)  # noqa: SIM115
    try:
        yield shown
    finally:
        shown.send_signal(signal.SIGINT)
        shown.wait(60)
        shown.stdout.close()


def read_to(shown: subprocess.Popen[str], words: str) -> str:
    """What it says, up to the line with these words."""
    assert shown.stdout is not None
    lines: list[str] = []
    for line in shown.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"it ended without {words!r}: {''.join(lines)}")


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or what is left of it waits for its parent alone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def look_at_the_page(url: str) -> None:
    """In a real browser: how far it is, a track with its labels and likes, what went wrong, the way to the workers."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(url)
        expect(page).to_have_url(url.partition("#")[0])  # the token is gone from the address
        expect(page.get_by_role("heading", name="4 of 4 songs analysed")).to_be_visible()
        expect(page.get_by_text("the file crashed its worker 3 times")).to_be_visible()
        page.get_by_role("button", name="04 Strobe.ogg").click()
        expect(page.get_by_text("Similar tracks")).to_be_visible(timeout=30_000)
        expect(page.locator("#track .chips li").first).to_have_text("techno")
        page.get_by_label("Search tracks").fill("piano")
        expect(page.locator("#tracks tr")).to_have_count(2)
        page.get_by_role("link", name="Workers and jobs").click()
        expect(page.get_by_role("link", name="Tonearm")).to_be_visible()
        assert not wrong
        browser.close()


def test_the_first_minute_ends_with_its_counts_and_ctrl_c_ends_everything(tmp_path: Path, weights_folder: Path) -> None:
    # spec: TA-1, TA-3, TA-6, WK-6
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tonearm").symlink_to(weights_folder)
    with demo(tmp_path, DEMO_SONGS="5") as shown:
        told = read_to(shown, "the page stays available")
        assert re.search(r"01 Piano.mp3: piano  \(", told)
        assert re.search(r"04 Strobe.ogg: techno, electronic,", told)
        assert "4 tagged, 1 quarantined, 4 kills, 0 lost, 0 files changed; try:" in told
        noticed = re.search(r"kill -9 \d+ .*\n.*exit detected after \d+ ms: crash \(signal 9, SIGKILL\)", told)
        assert noticed, told
        assert "05 crashes its decoder.wav: the file crashed its worker 3 times" in told
        url = re.findall(r"http://127.0.0.1:\d+/#token=ct_[\w-]+", told)[0]
        assert told.index(url) < told.index("songs generated"), "the page was not up first"
        bare, _, token = url.partition("#token=")
        assert httpx.get(f"{bare}api/progress").status_code == 401
        now = httpx.get(f"{bare}api/progress", headers={"Authorization": f"Bearer {token}"}).json()
        pids = [worker["pid"] for worker in now["workers"] if worker["pid"]]
        assert pids
        if Path(CHROMIUM).exists():
            look_at_the_page(url)
        else:
            print(f"\nTONEARM'S PAGE WAS NOT TESTED: there is no {CHROMIUM}", file=sys.__stderr__, flush=True)
        os.kill(pids[0], signal.SIGKILL)
        read_to(shown, f"(pid {pids[0]}) exited: crash (signal 9, SIGKILL)")
        shown.send_signal(signal.SIGINT)
        assert shown.wait(60) == 0
        eventually(lambda: all(map(is_gone, pids)))


RIGHT = {
    "piano": {"piano", "classical", "solo", "slow", "instrumental"},
    "techno": {"techno", "electronic", "dance", "fast", "drums", "synthesizer", "instrumental"},
    "flute": {"flute", "classical", "solo", "slow", "instrumental"},
    "violin": {"violin", "classical", "strings", "solo", "slow", "instrumental"},
    "choir": {"choir", "vocal", "male voice", "female voice", "ambient"},
}
"""What may be said of a style; its own name must be."""


def test_the_networks_get_every_style_right(tmp_path: Path, weights_folder: Path) -> None:
    # spec: TA-9
    ear, book = Ear(cache=weights_folder), labels.load()
    wrong: dict[str, list[str]] = {}
    first = {style: seed for seed, (_, style, _) in reversed(list(enumerate(story.SONGS)))}
    for style, seed in first.items():
        path = tmp_path / "song.wav"
        soundfile.write(path, songs.song(style, 9, seed), songs.RATE)
        shown = within(judge(book, labels.merge(book, ear.listen(path, patches=2).scores)), SHOWN)
        said = [label.name for label in shown]
        if style not in said or not set(said) <= RIGHT[style]:
            wrong[style] = said
    assert not wrong


def test_without_a_network_it_says_so_and_shows_the_rest(tmp_path: Path) -> None:
    # spec: TA-3
    with demo(tmp_path, DEMO_SONGS="1", DEMO_ONCE="1", PIP_NO_INDEX="1") as shown:
        told = read_to(shown, "try:")
        assert shown.wait(60) == 0
    assert "tonearm models add FILE" in told
    assert re.search(r"exit detected after \d+ ms", told)
    assert "0 tagged, 1 waiting, 0 quarantined, 1 kills, 0 lost, 0 files changed" in told
