"""Every command of Tonearm's, as somebody types it, while nobody works: what it says, and what it says is wrong."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import shelves
import tagged
from typer.main import get_command
from typer.testing import CliRunner

from tonearm import browse, catalogue, hearing
from tonearm.cli.main import app
from tonearm.errors import TonearmError
from tonearm.library import Library
from tonearm.tags import undo


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("commands")
    shelves.songs(root / "music")
    (root / "music" / "zero.mp3").touch()
    library, _ = shelves.opened(root / "home", root / "music")
    shelves.hear_all(library)
    library.close()
    return root


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "home", tmp_path / "home")
    return tmp_path / "home"


def say(home: Path, *words: str) -> str:
    """What a command prints; what it raises is raised here."""
    done = CliRunner().invoke(app, [*words], env={"TONEARM_HOME": str(home), "COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def every_command(command: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    return [words] + [found for name, each in inner.items() for found in every_command(each, (*words, name))]


def test_every_command_has_help(tmp_path: Path) -> None:
    names = every_command(get_command(app))
    wanted = {
        "serve", "scan", "status", "try", "retag", "calibrate", "write", "undo", "errors", "labels", "playlist",
        "similar", "navidrome", "models",
    }  # fmt: skip
    assert {words[0] for words in names if words} == wanted
    for words in names:
        shown = say(tmp_path, *words, "--help")
        assert "Usage:" in shown
        assert len([line for line in shown.splitlines() if line.strip()]) > 3, words


def test_labels_are_listed_corrected_and_forgotten(place: Path) -> None:
    # spec: TA-3
    shown = say(place, "labels", "list").splitlines()
    assert shown[0].split() == ["strict", "regular", "loose", "category", "label"]
    first = say(place, "labels", "list", "song 0").splitlines()[0][20:].rpartition(" ")[0].strip()
    assert first not in say(place, "labels", "remove", "song 0", first)
    assert "dreamy" in say(place, "labels", "add", "song 0", "dreamy", "--category", "mood")
    assert "set by you" in say(place, "labels", "list", "song 0")
    say(place, "labels", "forget", "song 0", "dreamy")
    assert first in say(place, "labels", "forget", "song 0", first)
    with pytest.raises(TonearmError, match="--category"):
        say(place, "labels", "add", "song 0", "dreamy")
    with pytest.raises(TonearmError, match="no label 'dreamy'"):
        say(place, "labels", "remove", "song 0", "dreamy")
    with pytest.raises(TonearmError, match=r"matches several tracks: .*give the track's number"):
        say(place, "labels", "list", "song")
    assert "genre" in say(place, "labels", "add", "song 0", "x", "--category", "shape")  # the choices are named


def test_a_label_file_of_ones_own_merges_words_and_a_broken_one_loses_nothing_heard(place: Path) -> None:
    # spec: TA-3, TA-4
    own = Path(say(place, "labels", "file").strip())
    own.write_text(own.read_text("utf-8").replace("score = 0.50", "score = 4.0", 1), "utf-8")
    with pytest.raises(TonearmError, match="must be between 0 and 1"):
        say(place, "calibrate")
    assert "until the label file is fixed" in say(place, "status")
    library = Library(place)
    say(place, "retag", "song 0")
    assert shelves.hear_all(library) == 1
    assert hearing.scores(library, 1) is not None
    library.close()
    own.write_text(
        "".join(f"[tiers.{tier}]\nscore = 0.0\npercentile = 0.0\nfloor = 0.0\nsure = 0.0\nmost = 9\n"
                for tier in ("strict", "regular", "loose"))
        + '[labels.voice.woman]\nMTT_musicnn = ["female", "woman"]\nMSD_musicnn = ["female vocalists"]\n',
        "utf-8",
    )  # fmt: skip
    assert "7 tracks counted" in say(place, "calibrate")
    assert [line.split() for line in say(place, "labels", "list").splitlines()[1:]] == [
        ["7", "7", "7", "voice", "woman"]
    ]


def test_playlists_likeness_and_what_navidrome_needs(place: Path, tmp_path: Path) -> None:
    # spec: TA-7
    all_of_them = "genre:rock or not genre:rock"
    assert say(place, "playlist", all_of_them).count("#EXTINF") == 7
    assert "7 tracks in" in say(place, "playlist", all_of_them, "--m3u", str(tmp_path / "all.m3u8"))
    say(place, "playlist", "genre:rock", "--nsp", str(tmp_path / "rock.nsp"))
    assert '"tonearm_genre": "rock"' in (tmp_path / "rock.nsp").read_text()
    with pytest.raises(TonearmError, match="cannot write"):
        say(place, "playlist", "genre:rock", "--nsp", str(tmp_path / "nowhere" / "rock.nsp"))
    with pytest.raises(TonearmError, match="genre:rock"):
        say(place, "playlist", "genre:rock and")
    with pytest.raises(TonearmError, match=r"there is no genre 'rok'; did you mean rock\?"):
        say(place, "playlist", "genre:rok")
    say(place, "labels", "add", "song 0", "krautrock", "--category", "genre")
    assert "#EXTINF" in say(place, "playlist", "genre:krautrock")  # a label of a person's is known too
    assert "no track matches genre:rock and not genre:rock" in say(place, "playlist", "genre:rock and not genre:rock")
    assert len(say(place, "similar", "song 0", "--count", "3").splitlines()) == 3
    with pytest.raises(TonearmError, match="has not been analysed yet"):
        say(place, "similar", "zero.mp3")
    assert "[Tags.tonearm_mood]" in say(place, "navidrome")


def test_nothing_is_written_in_a_dry_run_and_settings_are_checked(made: Path, place: Path) -> None:
    # spec: TA-5
    before = {path: path.read_bytes() for path in made.rglob("song*")}
    assert "mode none" in say(place, "write", "--dry-run")
    shown = say(place, "write", "--dry-run", "--mode", "full", "--tier", "loose")
    assert "+ tonearm:scores: " in shown
    assert "7 files would be changed, 0 already up to date, 0 left unchanged; nothing was written" in shown
    assert "'none', 'minimal', 'full'" in say(place, "write", "--mode", "everything")
    with pytest.raises(TonearmError, match="mood=MOOD:fill-empty"):
        say(place, "write", "--mode", "full", "--onto", "mood")
    assert "0 files to be cleaned" in say(place, "undo")
    assert {path: path.read_bytes() for path in made.rglob("song*")} == before


def counts(shown: str) -> list[str]:
    """The three counts of a dry run or a run."""
    return re.findall(r"(\d+) (?:files? (?:would be )?changed|already|left)", shown.splitlines()[-1])


def test_a_dry_run_counts_the_files_of_the_run(tmp_path: Path) -> None:
    # spec: TA-5
    music = tmp_path / "music"
    songs = shelves.songs(music)
    library, _ = shelves.opened(tmp_path / "home", music)
    shelves.hear_all(library)
    full = ("write", "--mode", "full", "--tier", "loose")
    say(tmp_path / "home", *full)
    songs[0].write_bytes(tagged.make(tmp_path, "mp3-24").read_bytes())  # written by somebody else
    undo(songs[1], root=music)
    os.link(songs[1], tmp_path / "other name.flac")
    undo(songs[2], root=music)
    songs[2].write_bytes(songs[2].read_bytes()[:-20])  # cut: only the run itself could notice
    undo(songs[3], root=music)
    catalogue.again(library, [browse.find(library, str(songs[4]))])  # to be heard anew: not in either
    before = {path: path.read_bytes() for path in songs}
    dry = say(tmp_path / "home", *full, "--dry-run")
    assert {path: path.read_bytes() for path in songs} == before
    assert sorted(os.listdir(music)) == sorted({"inside", *(path.name for path in songs if path.parent == music)})
    run = say(tmp_path / "home", *full)
    assert counts(dry) == counts(run) == ["2", "2", "2"], (dry, run)
    library.close()


def test_a_write_mode_ends_by_mode_none_and_by_undo(place: Path) -> None:
    # spec: TA-8
    library = Library(place)
    (folder,) = library.folders()
    library.change_folder(msgspec.structs.replace(folder, mode="full"))
    hearing.correct(library, 1, hearing.corrections(library, 1).add("krautrock", "genre"))
    assert "1 file to be written" in say(place, "status")
    assert "7 files to be written: by `tonearm serve`" in say(place, "calibrate")
    say(place, "write", "--mode", "none")
    assert (library.folders()[0].mode, "to be written" in say(place, "status")) == ("none", False)
    library.change_folder(msgspec.structs.replace(folder, mode="full"))
    say(place, "undo")
    assert library.folders()[0].mode == "none"
    library.close()


def test_trying_first_and_what_is_wrong(place: Path, tmp_path: Path) -> None:
    # spec: TA-1, TA-6
    say(place, "retag")
    assert "2 songs from the whole library" in say(place, "try", "--count", "2")
    shown = say(place, "status")
    assert "2 waiting" in shown
    assert "tonearm try --go-on" in shown
    say(place, "try", "--go-on")
    assert "7 songs with" in say(place, "status")
    assert "the file is empty" in say(place, "errors")
    with pytest.raises(TonearmError, match="tonearm models add FILE"):
        say(place, "models", "add", str(tmp_path / "nowhere.whl"))
    with pytest.raises(TonearmError, match="is not a folder"):
        say(place, "scan", str(tagged.make(tmp_path, "wav")))
