"""Real music, from Debian's free packages, in all formats: scanned, heard, written, read by others, undone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import shelves
import tagged
from test_tonearm_app_commands import say

from chargehand.testing import perform
from tonearm import catalogue, hearing, report
from tonearm.library import Library
from tonearm.tagger import Tagger
from tonearm.tiers import within

pytestmark = pytest.mark.full

INSTALLED = (
    "/usr/share/games/frozen-bubble/snd/*zik*.ogg",  # frozen-bubble-data
    "/usr/share/singularity/music/*.ogg",  # singularity-music
    "/usr/share/games/singularity/music/*.ogg",
)
SECONDS = 12


@pytest.fixture(scope="module")
def song() -> Path:
    """A song by people; skipped loudly where none is installed."""
    found = sorted(path for pattern in INSTALLED for path in Path("/").glob(pattern[1:]))
    lacking = "no free music is installed (apt-get install frozen-bubble-data)" if not found else ""
    lacking = lacking or ("" if shutil.which("ffmpeg") and shutil.which("ffprobe") else "ffmpeg is not installed")
    if lacking:
        print(f"\nREAL SONGS WERE NOT TESTED: {lacking}", file=sys.__stderr__, flush=True)
        pytest.skip(f"REAL SONGS WERE NOT TESTED: {lacking}")
    return found[0]


def in_all_formats(folder: Path, song: Path) -> list[Path]:
    """A piece of the song in every format, with a cover and tags of others."""
    made: list[Path] = []
    folder.mkdir()
    for case in shelves.FORMATS:
        _, suffix, tag = tagged.CASES[case]
        path = folder / f"piece{suffix}"
        piece = ["-ss", "20", "-t", str(SECONDS), "-i", str(song), "-vn", "-map_metadata", "-1", "-bitexact"]
        subprocess.run(["ffmpeg", "-v", "error", *piece, str(path)], check=True)
        tag(path)
        made.append(path)
    return made


def hear(library: Library) -> None:
    tagger = Tagger()
    tagger.set_up()
    for _, number, turn, _ in catalogue.in_line(library, "", 100):
        assert perform(tagger, {"id": number, "round": turn})["labels"] is not None
    tagger.tear_down()


def said(path: Path) -> str:
    """Every tag that ffprobe sees, as text."""
    shown = ["ffprobe", "-v", "error", "-show_entries", "format_tags:stream_tags", "-of", "json", str(path)]
    answer: Any = json.loads(subprocess.run(shown, check=True, capture_output=True, text=True).stdout)
    tags = [answer.get("format", {}), *answer.get("streams", [])]
    return json.dumps([each.get("tags", {}) for each in tags]).lower()


def test_real_songs_are_heard_alike_in_all_formats_and_written_so_that_others_read_it(
    tmp_path: Path, song: Path, weights_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: TA-2, TA-3, TA-4, TA-5
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tonearm").symlink_to(weights_folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TONEARM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TONEARM_NICE", "0")
    made = in_all_formats(tmp_path / "music", song)
    before = {path: (tagged.packets(path), tagged.others(path)) for path in made}
    library, _ = shelves.opened(tmp_path / "home", tmp_path / "music")
    assert not report.troubles(library)
    hear(library)
    assert report.progress(library).tagged == len(made)
    scores = [hearing.scores(library, number) for (number,) in library.rows("SELECT id FROM file")]
    best = [max(zip(each["MTT_musicnn"], range(50), strict=True)) for each in scores if each]
    assert len({place for _, place in best}) == 1, "the strongest word depends on the format"
    assert max(best)[0] - min(best)[0] < 0.1
    assert f"{len(made)} tracks counted" in say(tmp_path / "home", "calibrate")
    assert f"{len(made)} files changed" in say(
        tmp_path / "home", "write", "--mode", "minimal", "--tier", "loose", "--onto", "genre=GENRE:add"
    )
    for number, path in library.rows("SELECT id, path FROM file"):
        file = tmp_path / "music" / path.decode()
        genres = [label.name for label in within(hearing.labels(library, number), "loose") if label.category == "genre"]
        assert genres
        assert genres[0] in said(file) or file.suffix == ".wav", file  # of which ffmpeg 5 shows nobody's texts
        assert genres[0] in str(tagged.metadata(file)), file
        assert genres[0] in repr(tagged.others(file)).lower(), file
        assert tagged.packets(file) == before[file][0], file
    assert f"{len(made)} files changed" in say(tmp_path / "home", "undo")
    assert {path: (tagged.packets(path), tagged.others(path)) for path in made} == before
    library.close()
