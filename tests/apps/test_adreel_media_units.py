"""The decisions of the media half, one by one: cuts, runs, text, brands, categories, chapters, limits."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filmed import sorter

from adreel.media.category import BUILT_IN, Categories, guess, split
from adreel.media.chapters import stamp, webvtt
from adreel.media.decode import quarter_turns
from adreel.media.files import put, put_folder
from adreel.media.frames import display_size
from adreel.media.limits import THREAD_VARIABLES, Limits, cap_threads
from adreel.media.minilm import MiniLM
from adreel.media.qr import read_codes
from adreel.media.scenes import MOST_RUNS, CutDetector, runs_of
from adreel.media.text import are_alike, brands, hosts, is_name, joined, meaning
from adreel.records import Code, Guess, Line, Refusal, Scene, SceneResult, SceneText, Still
from adreel.synth import Card, drawn

RATE = 25


def detected(brightness: Sequence[float], rate: float = RATE) -> list[float]:
    """The cuts in a film whose frames are grey, with a little noise."""
    noise = np.random.default_rng(3)
    detector, cuts = CutDetector(), list[float]()
    for number, value in enumerate(brightness):
        grey = noise.normal(value, 1, (36, 64)).clip(0, 255)
        picture = np.stack([grey, np.full_like(grey, 128), np.full_like(grey, 128)]).astype(np.uint8)
        if (cut := detector.feed(number / rate, picture.reshape(-1, 64))) is not None:
            cuts.append(cut)
    last = detector.finish(len(brightness) / rate)
    return cuts if last is None else [*cuts, last]


@pytest.mark.parametrize(
    ("brightness", "cuts"),
    [
        ([60] * 50, []),
        ([60] * 50 + [160] * 50, [2.0]),
        ([60] * 50 + [160] * 10, [2.0]),
        ([60] * 50 + [160] * 3, []),  # too short for a scene
        ([60] * 50 + [250] * 3 + [60] * 50, []),  # a flash
        ([60] * 50 + [250] * 3 + [120] * 50, [2.0]),  # a flash at a cut
        ([60 + number for number in range(150)], []),  # brighter and brighter
        ([60] * 50 + [75] * 50, [2.0]),  # a slight change in a still picture
        ([120] * 25 + [max(16, 120 - 5 * n) for n in range(25)] + [16] * 10 + [16 + 5 * n for n in range(25)], [2.2]),
        ([16] * 25 + [16 + 5 * n for n in range(25)] + [140] * 25, []),  # it begins with black
        ([100] * 50 + [16] * 50 + [100] * 50, [2.0, 4.0]),  # black with cuts at both ends
    ],
    ids=["none", "one", "late", "end", "flash", "flash-cut", "slow", "slight", "fade", "fade-in", "black"],
)
def test_cuts(brightness: list[float], cuts: list[float]) -> None:  # spec: AR-1
    assert detected(brightness) == pytest.approx(cuts, abs=0.25 if cuts == [2.2] else 0.001)


def test_a_slide_show_of_one_frame_a_second_has_a_cut_at_each_slide() -> None:
    slides = [40.0, 200.0, 90.0, 180.0, 30.0]
    assert detected(slides, rate=1) == [1, 2, 3, 4]


def scene(number: int, start: float, length: float, stills: int = 1, flat: bool = False) -> Scene:
    return Scene(number, start, start + length, [Still(number * 10 + n, start, flat) for n in range(stills)])


@pytest.mark.parametrize("count", [0, 1, 7, 999, 1001, 20_001])
@pytest.mark.parametrize("length", [0.3, 1.0, 3.0])
def test_runs_cover_all_scenes_and_are_at_most_1000(count: int, length: float) -> None:  # spec: AR-1
    scenes = [scene(number + 1, number * length, length) for number in range(count)]
    runs = runs_of(scenes)
    assert [number for first, last in runs for number in range(first, last + 1)] == list(range(1, count + 1))
    assert len(runs) <= MOST_RUNS
    if length == 3.0 and count <= MOST_RUNS:
        assert len(runs) == count


def test_scenes_of_one_colour_are_not_read() -> None:
    scenes = [scene(1, 0, 3), scene(2, 3, 3, flat=True), scene(3, 6, 3, stills=0), scene(4, 9, 3)]
    assert runs_of(scenes) == [(1, 1), (4, 4)]


def line(text: str, score: float = 1.0, height: float = 0.1) -> Line:
    return Line(text, score, height, 0.5, 0.5)


def test_lines_of_several_frames_are_joined() -> None:
    found = joined([[line("NORDLYS", 0.8)], [line("NORDLY5", 0.7), line("Shoes")], [line("NORDLYS.", 0.9)]])
    assert [each.text for each in found] == ["NORDLYS.", "Shoes"]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [("nordlys", "nordlys", True), ("nordlys", "nordly", True), ("save", "sale", False), ("abcdef", "uvwxyz", False)],
)
def test_readings_of_the_same_text(one: str, other: str, alike: bool) -> None:
    assert are_alike(one, other) is alike


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NORDLYS", True), ("Café Müller", True), ("3M", False), ("VW", True), ("The Gap", True), ("30% off", False),
        ("www.a.example", False), ("Order now", False), ("For every road and every day", False), ("12:45", False),
    ],
)  # fmt: skip
def test_what_could_be_a_name(text: str, name: bool) -> None:
    assert is_name(text) is name


def test_a_brand_is_large_repeated_or_in_an_address() -> None:
    texts = [
        SceneText(1, [line("Acme", height=0.2)], []),
        SceneText(2, [line("Some small words", height=0.02)], []),
        SceneText(3, [line("ACME", height=0.2), line("Zenith", height=0.05)], ["https://www.zenith.example/x"]),
    ]
    found = brands(texts)
    assert [(each.text, each.scenes) for each in found] == [("Acme", [1, 3]), ("Zenith", [3])]
    assert hosts(["see https://shop.zenith.example/x or mail", "nothing"]) == {"zenith"}


def test_addresses_and_numbers_have_no_meaning() -> None:
    assert meaning(["Order pizza at", "www.pizza.example/now", "call 0800 / 123 456"]) == "Order pizza at call"
    assert meaning(["学", "12:45"]) == ""


def test_embeddings_are_those_of_the_original_implementation() -> None:  # spec: AR-3
    """The values that sentence-transformers gives for this model."""
    sentences = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    vectors = MiniLM().embed(["This is an example sentence", *sentences])
    assert vectors[0][:4] == pytest.approx([0.06765690, 0.06349581, 0.04871310, 0.07930496], abs=1e-5)
    assert vectors[1:] @ vectors[1] == pytest.approx([1, 0.6945774, 0.9429150, 0.2568760], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Fly to Lisbon from 49 euros", "Travel"),
        ("Your mortgage from 1.9% a year", "Finance & insurance"),
        ("0-100 in 3.2 seconds. Fully electric", "Cars & mobility"),
        ("Stops headache fast. Ask your pharmacist", "Health & beauty"),
        ("Unlimited 5G for 20 a month", "Telecom & internet"),
        ("Every child deserves clean water. Donate", "Charity & public information"),
        ("THE END", None),
        ("Coming soon", None),
        ("NORDLYS", None),
        ("Just do it", None),
        ("Copyright 2024 All rights reserved", None),
        ("asdkjh qwe", None),
    ],
)
def test_a_category_or_not_sure(text: str, category: str | None) -> None:  # spec: AR-1
    categories = Categories.read(BUILT_IN)
    found = guess(categories, sorter().likenesses(categories, [text], lambda _: None)[0])
    assert found.category == category
    assert (found.confidence >= categories.least_confidence) is (category is not None)


@pytest.mark.parametrize("size", [(360, 640), (320, 180), (854, 480)])
@pytest.mark.parametrize("content", ["https://nordlys.example/spring", "https://nordlys.example/?campaign=" + "x" * 40])
def test_small_codes_are_read(size: tuple[int, int], content: str) -> None:  # spec: AR-1
    picture = drawn(Card(1.0, ("BUY NOW",), paper=(18, 30, 74), qr=content), size)
    assert read_codes(picture) == [content]


def test_a_very_long_text_is_read_in_parts() -> None:
    parts = split("word " * 100_000)
    assert len(parts) <= 8
    assert split("") == []


def test_chapters_cannot_be_broken_by_text() -> None:
    scenes = [SceneResult(1, 0, 3661.5, [], ["a --> b", "<script>\n\n"], [], Guess(None, 0))]
    assert webvtt(scenes) == "WEBVTT\n\n1\n00:00:00.000 --> 01:01:01.500\na --&gt; b &lt;script&gt;\n"
    assert stamp(59.9999) == "00:01:00.000"


@pytest.mark.parametrize(
    ("size", "aspect", "shown"),
    [
        ((1920, 1080), 1.0, (1280, 720)), ((720, 576), 64 / 45, (1024, 576)), ((640, 360), 1.0, (640, 360)),
        ((10_000, 10), 1.0, (1280, 2)), ((100, 100), 0.5, (100, 200)),
    ],
)  # fmt: skip
def test_size_of_key_frames(size: tuple[int, int], aspect: float, shown: tuple[int, int]) -> None:
    assert display_size(*size, aspect) == shown


@pytest.mark.parametrize(
    ("degrees", "turned"), [(0, 0), (-90, 270), (90, 90), (-180, 180), (89, 90), (-89, 270), (271, 270), (1 << 31, 0)]
)
def test_films_are_turned_by_quarters(degrees: int, turned: int) -> None:  # spec: AR-1
    """The numbers of a display matrix may be rounded, or all 0."""
    assert quarter_turns(degrees) == turned


def test_limits_come_from_the_environment() -> None:
    assert Limits.from_environment({"ADREEL_MAX_SECONDS": "60"}).seconds == 60
    assert Limits.from_environment({}) == Limits()
    for text in ("0", "-1", "much", "nan", "inf"):
        with pytest.raises(ValueError, match=f"ADREEL_MAX_PIXELS must be a positive number, not '{text}'"):
            Limits.from_environment({"ADREEL_MAX_PIXELS": text})


def test_every_native_pool_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:  # spec: AR-2
    import cv2

    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "7")
    cap_threads(2)
    assert (cv2.getNumThreads(), {os.environ[name] for name in THREAD_VARIABLES}) == (2, {"2"})
    cap_threads(1)


def test_a_refusal_is_found_in_an_error_text() -> None:
    refusal = Refusal(Code.TOO_LONG, "the film is: too long")
    assert Refusal.parse(str(refusal)) == refusal
    for other in (None, "", "ValueError: x", "too-long"):
        assert Refusal.parse(other) is None


def test_files_are_copied_between_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the attempt's folder is on a local disk, and the film's on a shared one."""
    scratch, folder = tmp_path / "scratch", tmp_path / "folder"
    for each in (scratch / "frames", folder / "frames"):
        each.mkdir(parents=True)
        (each / each.parent.name).write_text("x")
    rename = Path.replace

    def other_system(self: Path, target: Any) -> Path:
        if self.is_relative_to(scratch):
            raise OSError(18, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", other_system)
    put(b"content", "text/00001.json", scratch, folder)
    put_folder("frames", scratch, folder)
    assert (folder / "text/00001.json").read_bytes() == b"content"
    assert [each.name for each in (folder / "frames").iterdir()] == ["scratch"]
    assert sorted(each.name for each in folder.iterdir()) == ["frames", "text"]


def test_scenes_follow_each_other() -> None:
    cuts = detected([60] * 50 + [160] * 50 + [20] * 50)
    assert all(one < other for one, other in pairwise(cuts))
