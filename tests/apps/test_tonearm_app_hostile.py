"""A library that nothing good can be said about, and calibration by its crew: real processes, no command line."""

import os
import shutil
import wave
from collections import Counter
from pathlib import Path

import pytest
import shelves
import tagged
from test_tonearm_app_commands import say

from chargehand import JobFilter, State
from chargehand.testing import eventually
from tonearm import crews, hearing, report
from tonearm.demo import story
from tonearm.handlers import Look
from tonearm.library import Library
from tonearm.tags import read

pytestmark = pytest.mark.full

HOURS = 1


def very_long(path: Path) -> None:
    """An hour of silence that takes no space on disk."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(2))
    size = HOURS * 3600 * 16000 * 2
    with path.open("r+b") as file:
        for at, value in ((4, size + 36), (40, size)):
            file.seek(at)
            file.write(value.to_bytes(4, "little"))
        file.truncate(size + 44)


def test_a_hostile_library_comes_to_its_end_and_everything_bad_is_listed(tmp_path: Path, weights_folder: Path) -> None:
    # spec: TA-2, TA-3, TA-5, TA-6, TA-8, WK-6
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tonearm").symlink_to(weights_folder)
    music, locked = tmp_path / "music", tmp_path / "music" / "locked"
    locked.mkdir(parents=True)
    song = tagged.make(music, "flac", "good", seconds=3.5)
    tagged.make(locked, "flac", "locked", seconds=3.5)
    shutil.copy(tagged.make(tmp_path, "wav", seconds=1), music / story.BAD)
    very_long(music / "long.wav")
    wrong = {os.fsdecode(name): why for name, why in shelves.odd_files(music, song, tmp_path / "outside.flac").items()}
    for name in ("caf\udce9.flac", "caf\udce8.flac"):  # not UTF-8, and alike if what is not is replaced
        shutil.copy(song, music / name)
    locked.chmod(0o555)
    library = Library(tmp_path / "home")
    all_crews = crews.build(
        tmp_path / "home", workers=2, nice=0, tagger="tonearm.demo.handlers:DemoTagger",
        environment={"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    all_crews.hand.log_level = "CRITICAL"

    def left() -> int:
        report.notice_failures(all_crews.hand, library)
        return report.progress(library).waiting

    def reasons() -> dict[str, str]:
        return {each.path.rpartition("/")[2]: each.reason for each in report.troubles(library)}

    with all_crews.hand.running():
        all_crews.library.enqueue(Look(library.add_folder(music).id)).wait(timeout=60)
        all_crews.hand.wake("tag")
        eventually(lambda: not left(), 90)
        found = reasons()
        assert found.pop(story.BAD) == "the file crashed its worker 3 times"
        assert {name for name, why in wrong.items() if why in found[name]} == found.keys() == wrong.keys(), found
        heard = dict(library.rows("SELECT path, duration FROM file JOIN heard ON heard.file = file.id"))
        odd = {b"two\nlines \xf0\x9f\x8e\xb5.flac", b"\xff\xfe.flac", b"caf\xe9.flac", b"caf\xe8.flac"}
        assert heard.keys() == {b"good.flac", b"locked/locked.flac", b"long.wav"} | odd
        done = Counter(job.label for job in all_crews.hand.jobs(JobFilter(queue="tag", state=State.DONE, limit=100)))
        assert (done[r"caf\xe9.flac"], done[r"caf\xe8.flac"]) == (1, 1)
        assert heard[b"long.wav"] == HOURS * 3600
        say(tmp_path / "home", "write", "--mode", "minimal", "--tier", "loose")
        eventually(lambda: not report.progress(library).writes_waiting, 60)
        late = tagged.make(music, "vorbis", "late", seconds=3.5)  # the write mode holds for it too
        all_crews.library.enqueue(Look(library.add_folder(music).id)).wait(timeout=60)
        eventually(lambda: getattr(read(late), "own", {}), 60)
        heard[b"late.ogg"] = 3.5
        eventually(lambda: not report.progress(library).writes_waiting, 60)
    assert "folder is read-only" in reasons()["locked.flac"]
    assert report.progress(library).written == len(heard) - 1
    locked.chmod(0o755)
    all_crews.hand.close()
    library.close()


def test_the_calibration_crew_counts_shows_drift_and_derives_labels_without_listening(tmp_path: Path) -> None:
    # spec: TA-4
    home, music = tmp_path / "home", tmp_path / "music"
    music.mkdir()
    song = tagged.make(music, "wav-bare", seconds=0.1)
    for number in range(59):
        shutil.copy(song, music / f"{number}.wav")
    library, _ = shelves.opened(home, music)
    shelves.hear_all(library)
    before = {row["name"]: row["regular"] for row in report.distribution(library)}
    all_crews = crews.build(home, workers=0)  # nobody could listen, if somebody wanted to
    all_crews.hand.log_level = "CRITICAL"
    with all_crews.hand.running():
        eventually(all_crews.hand.status)
        assert "60 tracks counted" in say(home, "calibrate")
        assert {row["name"]: row["regular"] for row in report.distribution(library)} != before
        (job,) = all_crews.hand.jobs(JobFilter(queue="calibration"))
        assert [each.worker for each in all_crews.hand.attempts(job.id)] == ["worker:calibration:0"]
        with library.writing() as db:  # as if the library had become another one
            loud = {model: [0.9] * len(scores) for model, scores in shelves.heard(1).scores.items()}
            db.execute("UPDATE heard SET scores = ? WHERE file % 2", (hearing._packed(loud),))
        told = say(home, "calibrate")
        assert "largest changes since the last calibration:\n   50%" in told, told
        assert "no label changed" in say(home, "calibrate")
    all_crews.hand.close()
    library.close()
