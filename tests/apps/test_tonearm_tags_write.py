"""Writing and taking back, in every format: audio, covers and other people's tags stay as they were."""

import os
from pathlib import Path
from typing import Any

import mutagen
import pytest
import tagged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutagen.id3 import ID3

from tonearm.tags import (
    Labels,
    Plan,
    Refused,
    Settings,
    Tags,
    TextError,
    Unchanged,
    Written,
    parse_ontos,
    preview,
    read,
    undo,
    write,
)
from tonearm.tags.settings import check_label

FULL = Settings("full")
MINIMAL = Settings("minimal")
MAPPED = Settings("full", parse_ontos(["mood=MOOD:fill-empty", "genre=GENRE:add", "voice=SINGER:replace"]))


def tags(path: Path) -> Tags:
    found = read(path)
    assert isinstance(found, Tags), found
    return found


@pytest.mark.parametrize("case", tagged.CASES)
def test_a_write_changes_nothing_but_our_tags_and_undo_takes_them_back(case: str, tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, case)
    before, audio, others, shown = path.read_bytes(), tagged.packets(path), tagged.others(path), tagged.metadata(path)
    outcome = write(path, tagged.SOME, FULL, root=tmp_path)
    assert isinstance(outcome, Written), outcome
    assert outcome.size == path.stat().st_size
    assert outcome.mtime_ns == path.stat().st_mtime_ns
    assert tagged.packets(path) == audio
    if case != "mp3-v1":  # there the old footer's texts are repeated, see below
        assert tagged.others(path) == others
    now = tagged.metadata(path)  # another reader sees the labels, and everything that it saw before
    assert shown.items() <= now.items()
    assert now.get("tonearm:genre", now.get("TONEARM_GENRE", "")).startswith("rock")
    assert tags(path).own["genre"] == ("rock", "indie rock")
    assert tags(path).own["scores"] == ("rock=0.910", "calm=0.500")
    assert tags(path).own["model"] == ("musicnn 0.1",)
    assert isinstance(undo(path, root=tmp_path), Written)
    assert tagged.others(path) == others
    assert tagged.metadata(path) == shown
    assert tagged.packets(path) == audio
    assert undo(path, root=tmp_path) == Unchanged()
    if case in ("mp3-bare", "mp3-v1", "wav-bare", "m4a"):
        assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("case", ["mp3-23", "opus", "m4a", "wav-bare"])
def test_writing_the_same_again_touches_nothing(case: str, tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, case)
    write(path, tagged.SOME, MAPPED, root=tmp_path)
    seen = path.stat()
    assert write(path, tagged.SOME, MAPPED, root=tmp_path) == Unchanged()
    now = path.stat()  # not all of it: reading may move the time of access
    assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns)


def test_mode_none_writes_nothing_and_minimal_only_labels(tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, "flac")
    before = path.read_bytes()
    assert write(path, tagged.SOME, Settings(), root=tmp_path) == Unchanged()
    assert path.read_bytes() == before
    write(path, tagged.SOME, FULL, root=tmp_path)
    write(path, tagged.SOME, MINIMAL, root=tmp_path)
    assert dict(tags(path).own) == {"genre": ("rock", "indie rock"), "mood": ("calm",)}


def test_other_labels_replace_all_that_was_said_before(tmp_path: Path) -> None:
    path = tagged.make(tmp_path, "vorbis")
    write(path, tagged.SOME, MAPPED, root=tmp_path)
    write(path, tagged.OTHER, MAPPED, root=tmp_path)
    own = tags(path).own
    assert own["genre"] == ("jazz",)
    assert "mood" not in own
    file: Any = mutagen.File(path)
    assert file["genre"] == ["Rock", "Pop", "jazz"]
    assert "mood" not in file
    assert file["singer"] == ["female", "ünïcødé 日本"]


@pytest.mark.parametrize("case", tagged.TAGGED)
def test_mapped_tags_are_read_by_players_and_taken_back(case: str, tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, case)
    others, shown, genres = tagged.others(path), tagged.metadata(path), tags(path).genre
    write(path, tagged.SOME, MAPPED, root=tmp_path)
    assert tags(path).genre == (*genres, "indie rock")  # rock is there already, whatever its case
    now = {key.upper(): value for key, value in tagged.metadata(path).items()}
    assert now.get("MOOD", now.get("TMOO")) == "calm"
    write(path, tagged.OTHER, MAPPED, root=tmp_path)
    assert isinstance(undo(path, root=tmp_path), Written)
    assert tagged.others(path) == others
    assert tagged.metadata(path) == shown


@pytest.mark.parametrize("case", ["mp3-24", "flac", "m4a"])
def test_replaced_tags_come_back(case: str, tmp_path: Path) -> None:
    path = tagged.make(tmp_path, case)
    others = tagged.others(path)
    replacing = Settings("minimal", parse_ontos(["genre=GENRE:replace"]))
    write(path, tagged.SOME, replacing, root=tmp_path)
    assert tags(path).genre == ("rock", "indie rock")
    write(path, tagged.OTHER, replacing, root=tmp_path)
    assert tags(path).genre == ("jazz",)
    undo(path, root=tmp_path)
    assert tagged.others(path) == others


@pytest.mark.parametrize(("case", "version"), [("mp3-23", 3), ("mp3-24", 4), ("wav", 3)])
def test_the_version_of_the_tag_stays(case: str, version: int, tmp_path: Path) -> None:
    path = tagged.make(tmp_path, case)
    write(path, tagged.OTHER, FULL, root=tmp_path)
    file: Any = mutagen.File(path)
    assert file.tags.version[1] == version
    assert tags(path).own["voice"] == ("female", "ünïcødé 日本")


def test_an_old_footer_stays_and_its_words_are_not_hidden(tmp_path: Path) -> None:
    path = tagged.make(tmp_path, "mp3-v1")
    write(path, tagged.SOME, FULL, root=tmp_path)
    assert path.read_bytes().endswith(tagged.old_footer())
    now = tags(path)
    assert (now.title, now.artist, now.album, now.year) == ("Old title", ("Old artist",), "Old album", 1987)
    assert now.genre == ("Rock",)
    assert tagged.metadata(path)["title"] == "Old title"


def test_what_a_person_adds_later_survives_undo(tmp_path: Path) -> None:
    path = tagged.make(tmp_path, "mp3-bare")
    write(path, tagged.SOME, MAPPED, root=tmp_path)
    file = ID3(path)
    file["TCON"].text.append("my own")
    file.save(path)
    undo(path, root=tmp_path)
    assert tags(path).genre == ("my own",)
    assert not tags(path).own


def test_a_preview_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    path = tagged.make(tmp_path, "mp3-23")
    before = path.read_bytes()
    plan = preview(path, tagged.SOME, MAPPED, root=tmp_path)
    assert isinstance(plan, Plan)
    assert plan.lines() == [
        "+ tonearm:genre: rock, indie rock",
        "+ tonearm:model: musicnn 0.1",
        "+ tonearm:mood: calm",
        "+ tonearm:scores: rock=0.910, calm=0.500",
        "~ GENRE: (17)Rock → (17)Rock, indie rock",
        "+ MOOD: calm",
    ]
    assert path.read_bytes() == before
    assert preview(tmp_path / "gone.mp3", tagged.SOME, FULL, root=tmp_path) == Refused(
        "vanished", "No such file or directory: scan the folder again"
    )


LABEL = st.text(max_size=40).map(str.strip)


def is_label(text: str) -> bool:
    try:
        check_label(text)
    except TextError:
        return False
    return True


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(labels=st.lists(LABEL.filter(is_label), min_size=1, max_size=4, unique=True), data=st.data())
def test_any_label_text_comes_back_as_it_was_written(labels: list[str], data: st.DataObject, tmp_path: Path) -> None:
    case = data.draw(st.sampled_from(["mp3-23", "mp3-24", "flac", "opus", "m4a", "aiff"]))
    path = tagged.make(tmp_path, case, seconds=0.1)
    others = tagged.others(path)
    how = Settings("minimal", parse_ontos(["genre=KEYWORDS:add"]))
    assert isinstance(write(path, Labels({"genre": tuple(labels)}), how, root=tmp_path), Written)
    assert tags(path).own["genre"] == tuple(labels)
    assert isinstance(undo(path, root=tmp_path), Written)
    assert tagged.others(path) == others
