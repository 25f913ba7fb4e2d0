"""Every command of Tonearm's, as somebody types it, while nobody works: what it says, and what it says is wrong."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import shelves
import tagged
from typer.main import get_command
from typer.testing import CliRunner

from tonearm import hearing
from tonearm.cli.main import app
from tonearm.errors import TonearmError
from tonearm.library import Library


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
    assert "7 files would be written; nothing was written" in shown
    assert "'none', 'minimal', 'full'" in say(place, "write", "--mode", "everything")
    with pytest.raises(TonearmError, match="mood=MOOD:fill-empty"):
        say(place, "write", "--mode", "full", "--onto", "mood")
    assert "0 files to be cleaned" in say(place, "undo")
    assert {path: path.read_bytes() for path in made.rglob("song*")} == before


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
