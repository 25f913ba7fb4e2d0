"""Tonearm's library without any process: scanning, moves, calibration, corrections, writing and undoing."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest
import shelves
import tagged

from tonearm import browse, catalogue, crews, hearing, hours, report, scan, written
from tonearm.errors import TonearmError
from tonearm.heard import MODELS
from tonearm.library import Folder, Library
from tonearm.tags import Refused, Unchanged, Written, read, rules
from tonearm.tags.read import Tags

GROUPS = {"genre", "mood", "instrument", "voice", "era"}


@pytest.fixture
def music(tmp_path: Path) -> Path:
    shelves.songs(tmp_path / "music")
    return tmp_path / "music"


def names(library: Library) -> set[bytes]:
    return {row[0] for row in library.rows("SELECT path FROM file WHERE missing_ms IS NULL")}


def do_all(library: Library) -> list[object]:
    tasks = [written.task(library, number) for number, _, _ in written.in_line(library, 0, 1000)]
    return [written.perform(library, task) for task in tasks if task is not None]


def test_a_scan_finds_all_formats_and_what_was_moved_changed_or_removed(tmp_path: Path, music: Path) -> None:
    # spec: TA-2
    library, folder = shelves.opened(tmp_path / "home", music)
    assert report.progress(library).kinds == dict.fromkeys(("mp3", "flac", "vorbis", "opus", "m4a", "wav", "aiff"), 1)
    assert shelves.hear_all(library) == 7
    assert not report.progress(library).waiting
    # a quick look opens nothing; a full one hears nothing anew
    assert scan.scan(library, folder) == scan.Report(files=7)
    assert scan.scan(library, folder, full=True) == scan.Report(files=7)
    # moved: the same record, nothing to hear
    (before,) = library.rows("SELECT id FROM file WHERE path = ?", b"inside/song 1.flac")
    (music / "inside/song 1.flac").rename(music / "renamed.flac")
    assert scan.scan(library, folder).moved == 1
    assert library.rows("SELECT id FROM file WHERE path = ?", b"renamed.flac") == [before]
    # somebody else's tags: the audio is the same
    tagged.tag_mp3(music / "song 0.mp3", 4)
    assert scan.scan(library, folder).retagged == 1
    assert not report.progress(library).waiting
    # other audio: to be heard again
    shutil.copy(tagged.make(tmp_path, "wav", "other", seconds=0.7), music / "inside/song 5.wav")
    assert scan.scan(library, folder).changed == 1
    assert report.progress(library).waiting == 1
    # removed: noticed, and its record stays
    (music / "song 6.aiff").unlink()
    assert scan.scan(library, folder).missing == 1
    assert report.progress(library).missing == 1
    assert library.number("SELECT count(*) FROM heard") == 7


def test_of_a_moved_file_and_its_copy_one_is_new(tmp_path: Path, music: Path) -> None:
    # spec: TA-2
    library, folder = shelves.opened(tmp_path / "home", music)
    shutil.copy2(music / "song 0.mp3", music / "copy.mp3")
    (music / "song 0.mp3").rename(music / "renamed.mp3")
    found = scan.scan(library, folder)
    assert (found.files, found.moved, found.new, found.missing) == (8, 1, 1, 0)
    assert names(library) >= {b"copy.mp3", b"renamed.mp3"}


def test_a_disk_that_is_not_mounted_removes_nothing(tmp_path: Path, music: Path) -> None:
    # spec: TA-2
    library, folder = shelves.opened(tmp_path / "home", music)
    music.rename(tmp_path / "away")
    with pytest.raises(TonearmError, match="mounted"):
        scan.scan(library, folder)
    music.mkdir()
    with pytest.raises(TonearmError, match="had 7 files"):
        scan.scan(library, folder)
    assert report.progress(library).missing == 0
    assert scan.scan(library, folder, full=True).missing == 7
    with pytest.raises(TonearmError, match="overlaps"):
        library.add_folder(tmp_path)


def test_a_folder_that_cannot_be_read_loses_nothing(tmp_path: Path, music: Path) -> None:
    # spec: TA-2
    library, folder = shelves.opened(tmp_path / "home", music)
    assert catalogue.end_scan(library, folder, catalogue.begin_scan(library, folder), [b"inside"]) == 4
    assert {name.split(b"/")[0] for name in names(library)} == {b"inside"}
    assert catalogue.end_scan(library, folder, catalogue.begin_scan(library, folder), [b""]) == 0
    assert scan.scan(library, folder) == scan.Report(files=7)
    assert len(names(library)) == 7


def test_the_newest_come_first_and_some_can_be_tried_before_all_others(tmp_path: Path, music: Path) -> None:
    # spec: TA-1
    files = sorted(music.rglob("*.*"))
    for age, file in enumerate(files):
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    library, _ = shelves.opened(tmp_path / "home", music)
    line = catalogue.in_line(library, "", 100)
    assert [label for *_, label in line] == [file.name for file in files]
    page = catalogue.in_line(library, line[2][0], 2)
    assert page == line[3:5]
    tried = catalogue.varied(library, 3)
    folders = {os.path.dirname(row[0]) for n in tried for row in library.rows("SELECT path FROM file WHERE id = ?", n)}
    assert (len(tried), len(folders)) == (3, 2)
    catalogue.again(library, tried, first=True)
    library.set("trying", "yes")
    assert {row[1] for row in catalogue.in_line(library, "", 100)} == set(tried)
    assert report.progress(library).waiting == 3
    library.set("trying", None)
    assert len(catalogue.in_line(library, "", 100)) == 7
    # a song that was heard while its worker died is not heard twice: its round is over
    _, number, turn, _ = line[0]
    file = catalogue.waiting(library, number, turn + (number in tried))
    assert file is not None
    assert hearing.keep(library, file, shelves.heard(1), None, 1.0) is not None
    assert hearing.keep(library, file, shelves.heard(2), None, 1.0) is None


def test_corrections_outlive_calibration_and_labels_are_derived_without_listening(tmp_path: Path) -> None:
    # spec: TA-3, TA-4
    music = tmp_path / "music"
    music.mkdir()
    song = tagged.make(music, "wav-bare", seconds=0.1)
    for number in range(59):
        shutil.copy(song, music / f"{number}.wav")
    library, _ = shelves.opened(tmp_path / "home", music)
    assert shelves.hear_all(library) == 60
    assert hearing.is_due(library)
    number = browse.find(library, "58.wav")
    mine = hearing.corrections(library, number).add("for dancing", "mood")
    gone = hearing.labels(library, number)[0].name
    hearing.correct(library, number, mine.remove(gone))
    before = {row["name"]: row["loose"] for row in report.distribution(library)}
    done = hearing.recalibrate(library)
    assert (done.tracks, done.applied, done.enough) == (60, True, True)
    assert {row["name"]: row["loose"] for row in report.distribution(library)} != before
    found = {given.name: given for given in hearing.labels(library, number)}
    assert found["for dancing"].by == "person"
    assert gone not in found
    assert any(given.percentile is not None for given in found.values())
    # nothing moved since: nothing is derived again, and nothing is due
    assert not hearing.recalibrate(library).applied
    assert not hearing.is_due(library)
    assert [entry.path for entry in browse.matching(library, rules.parse('mood:"for dancing"'))] == [
        str(music / "58.wav")
    ]


def test_labels_are_written_only_when_asked_read_back_and_undone(tmp_path: Path, music: Path) -> None:
    # spec: TA-5, TA-6
    other = music / "linked.flac"
    os.link(music / "inside/song 1.flac", other)
    library, folder = shelves.opened(tmp_path / "home", music)
    shelves.hear_all(library)
    before = {path: (tagged.packets(path), tagged.others(path)) for path in music.rglob("*.*")}
    assert written.in_line(library, 0, 10) == []
    mode = Folder(id=folder.id, root=folder.root, mode="full", onto=("mood=MOOD:fill-empty",), tier="loose")
    library.change_folder(mode)
    assert written.ask(library, mode, "write") == 8
    kinds = [type(outcome) for outcome in do_all(library)]
    assert (kinds.count(Written), kinds.count(Refused)) == (6, 2)
    assert {wrong.why for wrong in report.troubles(library)} == {"hard-linked"}
    assert len(report.troubles(library)) == 2
    for number, path in library.rows("SELECT id, path FROM file WHERE written IS NOT NULL"):
        said = read(music / os.fsdecode(path))
        assert isinstance(said, Tags)
        own = {label for group in said.own.keys() & GROUPS for label in said.own[group]}
        assert own == {label.name for label in hearing.labels(library, number)}
    # a scan knows its own hand; who asks again changes nothing
    assert scan.scan(library, mode) == scan.Report(files=8)
    written.ask(library, mode, "write")
    assert Written not in {type(outcome) for outcome in do_all(library)}
    assert library.number("SELECT count(*) FROM journal") == 6
    assert written.ask(library, mode, "undo") == 6
    assert {type(outcome) for outcome in do_all(library)} == {Written}
    assert {path: (tagged.packets(path), tagged.others(path)) for path in music.rglob("*.*")} == before
    # a writer that was killed after the rename, before it could say so: the next one finds it done
    library.change_folder(mode)
    written.ask(library, mode, "write")
    task = written.task(library, written.in_line(library, 0, 10)[0][0])
    assert task is not None
    assert isinstance(written.perform(library, task), Written)
    with library.writing() as db:
        db.execute("UPDATE file SET asked = 'write', size = 1 WHERE id = ?", (task.id,))
    assert isinstance(written.perform(library, task), Unchanged)
    assert scan.scan(library, mode).changed == 0


def waiting(library: Library) -> set[bytes]:
    return {path for _, _, path in written.in_line(library, 0, 1000)}


def louder(library: Library, number: int) -> None:
    """As if the networks had heard something else."""
    with library.writing() as db:
        scores = {model: [0.9 * (at % 9 == 0) for at in range(len(words))] for model, words in MODELS.items()}
        db.execute("UPDATE heard SET scores = ? WHERE file = ?", (hearing._packed(scores), number))


def test_a_write_mode_holds_for_songs_that_are_heard_later_and_after_a_calibration(tmp_path: Path, music: Path) -> None:
    # spec: TA-8
    library, folder = shelves.opened(tmp_path / "home", music)
    shelves.hear_all(library)
    assert not waiting(library)
    mode = msgspec.structs.replace(folder, mode="minimal", tier="loose")
    library.change_folder(mode)
    assert written.ask(library, mode, "write") == 7
    assert {type(outcome) for outcome in do_all(library)} == {Written}
    # a song that comes later
    tagged.make(music, "flac", "later", seconds=0.7)
    scan.scan(library, mode)
    assert not waiting(library)
    shelves.hear_all(library)
    assert waiting(library) == {b"later.flac"}
    assert {type(outcome) for outcome in do_all(library)} == {Written}
    said = read(music / "later.flac")
    assert isinstance(said, Tags)
    assert said.own
    # a calibration requests what it changes, and nothing else
    hearing.recalibrate(library, force=True)
    assert not waiting(library)
    (number,) = (row[0] for row in library.rows("SELECT id FROM file WHERE path = ?", b"later.flac"))
    louder(library, number)
    hearing.recalibrate(library, force=True)
    assert waiting(library) == {b"later.flac"}
    assert {type(outcome) for outcome in do_all(library)} == {Written}
    # so does a person's correction
    hearing.correct(library, number, hearing.corrections(library, number).add("krautrock", "genre"))
    assert waiting(library) == {b"later.flac"}
    # new labels while an older request is carried out: the request stays
    task = written.task(library, number)
    assert task is not None
    hearing.correct(library, number, hearing.corrections(library, number).add("zeuhl", "genre"))
    written.perform(library, task)
    assert waiting(library) == {b"later.flac"}
    # mode none, and undo, end it
    written.end(library, mode)
    assert not waiting(library)
    library.change_folder(mode)
    assert written.ask(library, mode, "undo") == 8
    do_all(library)
    louder(library, 1)
    hearing.recalibrate(library, force=True)
    assert not waiting(library)
    assert report.progress(library).written == 0


def test_a_song_without_a_label_is_not_requested_again_and_again(tmp_path: Path, music: Path) -> None:
    # spec: TA-8
    library, folder = shelves.opened(tmp_path / "home", music)
    library.change_folder(msgspec.structs.replace(folder, mode="minimal"))
    for _, number, turn, _ in catalogue.in_line(library, "", 100):
        file = catalogue.waiting(library, number, turn)
        assert file is not None
        silent = {model: [0.0] * len(words) for model, words in MODELS.items()}
        heard = msgspec.structs.replace(shelves.heard(1), scores=silent)
        assert hearing.keep(library, file, heard, None, 1.0) == []
    assert not waiting(library)
    assert written.ask(library, library.folders()[0], "write") == 7
    assert {type(outcome) for outcome in do_all(library)} == {Unchanged}
    assert report.progress(library).written == 0
    assert written.ask(library, folder, "undo") == 0


def test_working_hours() -> None:
    # spec: TA-1
    night = hours.parse("22:30-07:00")
    assert [night.include(minute) for minute in (22 * 60 + 29, 22 * 60 + 30, 0, 419, 420)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    day = hours.parse("9:00-17:00")
    assert (day.include(540), day.include(1020)) == (True, False)
    for wrong in ("9-17", "25:00-01:00", "01:00-01:00", ""):
        with pytest.raises(TonearmError, match="working hours"):
            hours.parse(wrong)


def test_the_crews_rest_outside_working_hours_but_what_a_person_paused_stays_so(tmp_path: Path) -> None:
    # spec: TA-1, TA-8
    hand = crews.build(tmp_path, machine=crews.Machine(2, 4 << 30)).hand
    hand.open()
    keeper = hours.Keeper(hand, hours.parse("01:00-07:00"))
    keeper.step(600)
    keeper.step(601)
    assert [(pause.scope, pause.who) for pause in hand.pauses()] == [("tag", hours.WHO), ("write", hours.WHO)]
    keeper.step(61)
    assert hand.pauses() == []
    hand.pause("tag", who="somebody")
    keeper.step(600)
    assert len(hand.pauses()) == 2
    keeper.step(61)
    assert [pause.who for pause in hand.pauses()] == ["somebody"]
    hand.close()


@pytest.mark.parametrize(
    ("cores", "gigabytes", "listeners"), [(1, 1, 1), (2, 4, 2), (8, 2, 2), (64, 256, crews.MOST_LISTENERS)]
)
def test_as_many_listen_as_cores_and_memory_bear(cores: int, gigabytes: int, listeners: int) -> None:
    # spec: TA-1
    assert crews.Machine(cores, gigabytes << 30).listeners() == listeners
