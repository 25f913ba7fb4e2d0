"""Replacing files: whole or not at all, in the library alone, dressed as before; clearing up after killed writers."""

import errno
import fcntl
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import mutagen
import pytest
import tagged

from tonearm.tags import (
    Refused,
    Settings,
    Swept,
    Unchanged,
    Written,
    formats,
    place,
    preview,
    read,
    sweep,
    sweep_folder,
    undo,
    write,
)
from tonearm.tags.kinds import kind_of
from tonearm.tags.outcome import Refusal, from_error
from tonearm.tags.plan import to_write
from tonearm.tags.write import check

FULL = Settings("full")


def refused(outcome: object, why: str) -> str:
    assert isinstance(outcome, Refused), outcome
    assert outcome.why == why, outcome
    return outcome.reason


def put(path: Path, **settings: Any) -> object:
    return write(path, tagged.SOME, Settings("full", **settings), root=path.parent)


@pytest.fixture
def song(tmp_path: Path) -> Iterator[Path]:
    yield tagged.make(tmp_path, "mp3-23")
    assert not [name for name in os.listdir(tmp_path) if place.TEMPORARY.fullmatch(name)]


def test_permissions_and_attributes_stay_and_the_time_if_wished(song: Path) -> None:
    # spec: TA-5
    os.chmod(song, 0o640)
    try:
        os.setxattr(song, "user.rating", b"5")
    except OSError:
        pytest.skip("this file system has no attributes")
    os.utime(song, ns=(1, 123_456_789))
    put(song)
    assert song.stat().st_mode & 0o777 == 0o640
    assert os.getxattr(song, "user.rating") == b"5"
    assert song.stat().st_mtime_ns != 123_456_789
    os.utime(song, ns=(1, 123_456_789))
    outcome = write(song, tagged.OTHER, Settings("full", keep_mtime=True), root=song.parent)
    assert isinstance(outcome, Written)
    assert song.stat().st_mtime_ns == 123_456_789 == outcome.mtime_ns


def test_hard_linked_files_are_left_alone_unless_asked_for(song: Path) -> None:
    # spec: TA-6
    other = song.with_name("other.mp3")
    os.link(song, other)
    before = song.read_bytes()
    assert "1 more hard link" in refused(put(song), "hard-linked")
    assert song.read_bytes() == before
    assert isinstance(put(song, hard_links=True), Written)
    assert other.read_bytes() == before
    assert song.stat().st_nlink == other.stat().st_nlink == 1


def test_a_link_is_followed_inside_the_library_and_never_replaced(song: Path) -> None:
    link = song.with_name("link.mp3")
    link.symlink_to(song.name)
    assert isinstance(put(link), Written)
    assert link.is_symlink()
    found = read(song)
    assert "genre" in getattr(found, "own", {})


def test_nothing_outside_the_library_is_written(song: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tagged.make(tmp_path_factory.mktemp("elsewhere"), "mp3-23")
    before = elsewhere.read_bytes()
    link, folder = song.with_name("link.mp3"), song.with_name("folder")
    link.symlink_to(elsewhere)
    folder.symlink_to(elsewhere.parent)
    for path in (link, folder / elsewhere.name, elsewhere, Path("..") / elsewhere.parent.name / elsewhere.name):
        assert "outside" in refused(write(path, tagged.SOME, FULL, root=song.parent), "outside")
    assert elsewhere.read_bytes() == before


def test_a_folder_swapped_for_a_link_leads_nowhere(song: Path) -> None:
    inner = song.parent / "inner"
    inner.symlink_to(song.parent)
    folder = os.open(song.parent, place.FOLDER)
    try:
        with pytest.raises(OSError, match=r"directory|symbolic") as caught:
            os.open("inner", place.FOLDER, dir_fd=folder)
    finally:
        os.close(folder)
    assert from_error(caught.value).why in ("outside", "vanished")


def test_what_is_not_there_or_no_file_is_refused(song: Path) -> None:
    # spec: TA-6
    refused(put(song.with_name("gone.mp3")), "vanished")
    (song.parent / "sub").mkdir()
    assert "regular" in refused(write(song.parent / "sub", tagged.SOME, FULL, root=song.parent), "unreadable")
    os.mkfifo(song.parent / "pipe.mp3")
    assert "regular" in refused(put(song.parent / "pipe.mp3"), "unreadable")
    text = song.with_name("text.mp3")
    text.write_text("not music at all\n" * 100)
    refused(put(text), "unreadable")
    assert text.read_text() == "not music at all\n" * 100


def test_a_read_only_file_is_respected_even_by_root(song: Path) -> None:
    os.chmod(song, 0o444)
    assert "read-only" in refused(put(song), "read-only")


def test_a_read_only_folder_is_respected_even_by_root(song: Path) -> None:
    os.chmod(song.parent, 0o555)
    assert "folder is read-only" in refused(put(song), "read-only")
    os.chmod(song.parent, 0o755)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tonearm-"))
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], object]) -> object:
    if os.geteuid() != 0:
        return work()
    os.seteuid(65534)
    try:
        return work()
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    song = tagged.make(open_folder, "flac")
    if os.geteuid() == 0:
        os.chown(song, 65534, 65534)
    os.chmod(open_folder, 0o555)
    refused(as_nobody(lambda: put(song)), "read-only")
    os.chmod(open_folder, 0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_file_whose_owner_would_change_is_left_alone(open_folder: Path) -> None:
    song = tagged.make(open_folder, "flac")
    before = song.read_bytes()
    os.chmod(song, 0o666)
    os.chmod(open_folder, 0o777)
    assert "owner" in refused(as_nobody(lambda: put(song)), "not-kept")
    assert song.read_bytes() == before
    assert os.listdir(open_folder) == [song.name]
    os.chown(song, 1234, 4321)  # root can keep it
    assert isinstance(put(song), Written)
    assert (song.stat().st_uid, song.stat().st_gid) == (1234, 4321)


@pytest.mark.parametrize("case", ["mp3-bare", "flac", "m4a"])
def test_no_space_is_said_and_leaves_nothing_behind(case: str, tmp_path: Path) -> None:
    song = tagged.make(tmp_path, case)
    before = song.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        rehearsed = preview(song, tagged.SOME, FULL, root=tmp_path)
        outcome = put(song)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "free space" in refused(outcome, "no-space")
    assert rehearsed == outcome
    assert song.read_bytes() == before
    assert os.listdir(tmp_path) == [song.name]


def test_what_the_file_system_says_becomes_a_reason() -> None:
    said = [(errno.ENOSPC, "no-space"), (errno.EROFS, "read-only"), (errno.ESTALE, "vanished"), (errno.EIO, "trouble")]
    for number, why in said:
        assert from_error(OSError(number, os.strerror(number))).why == why


def test_somebody_elses_change_meanwhile_wins(song: Path) -> None:
    def fill(out: BinaryIO) -> None:
        out.write(b"ours")
        song.write_bytes(b"theirs")

    with place.opened_inside(str(song.parent), song.name) as found, pytest.raises(Refusal) as caught:
        place.replace(found, fill, lambda _: None, keep_mtime=False)
    assert caught.value.refused.why == "changed"
    assert song.read_bytes() == b"theirs"


def test_a_file_that_vanishes_meanwhile_is_not_made_again(song: Path) -> None:
    with place.opened_inside(str(song.parent), song.name) as found, pytest.raises(FileNotFoundError):
        place.replace(found, lambda _: song.unlink(), lambda _: None, keep_mtime=False)
    assert os.listdir(song.parent) == []


def test_two_writers_of_one_file_do_not_mix(song: Path) -> None:
    with open(song, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refused(put(song), "busy")
    assert isinstance(put(song), Written)


def damage_audio(path: Path) -> None:
    data = bytearray(path.read_bytes())
    chunk = next((name for name in (b"mdat", b"data", b"SSND") if name in data[:64] or name == b"mdat" in data), None)
    spot = data.find(chunk) + 200 if chunk else len(data) - 600
    data[spot] ^= 0x10
    path.write_bytes(data)


def drop_title(path: Path) -> None:
    file: Any = mutagen.File(path)
    tags: Any = file.tags
    for key in [key for key in tags.keys() if key in ("TIT2", "title", "\xa9nam")]:  # noqa: SIM118 (lists have keys too)
        del tags[key]
    file.save(path)


def drop_cover(path: Path) -> None:
    file: Any = mutagen.File(path)
    if hasattr(file, "clear_pictures"):
        file.clear_pictures()
    for key in [key for key in file.tags.keys() if key.startswith(("APIC", "covr", "metadata_block"))]:  # noqa: SIM118
        del file.tags[key]
    file.save(path)


@pytest.mark.parametrize("case", ["mp3-24", "flac", "vorbis", "opus", "m4a", "wav", "aiff"])
def test_a_copy_that_lost_something_is_never_accepted(case: str, tmp_path: Path) -> None:
    # spec: TA-5
    song = tagged.make(tmp_path, case)
    with open(song, "rb") as file:
        kind = kind_of(file)
        plan = to_write(formats.look(file, kind, ()), tagged.SOME, FULL)
        before = formats.rest(file, kind, ())
    put(song)
    whole = song.read_bytes()
    with open(song, "rb") as file:
        check(file, kind, before, plan)
    for spoil in (damage_audio, drop_title, drop_cover):
        song.write_bytes(whole)
        spoil(song)
        with open(song, "rb") as file, pytest.raises(Refusal) as caught:
            check(file, kind, before, plan)
        assert caught.value.refused.why == "not-kept"


def test_leftovers_are_swept_and_nothing_else(tmp_path: Path) -> None:
    inner = tmp_path / "album"
    inner.mkdir()
    left = inner / ".tonearm-0123456789abcdef.part"
    busy = inner / ".tonearm-fedcba9876543210.part"
    strangers = [inner / ".tonearm-notes.part", inner / "tonearm-0123456789abcdef.part", inner / "song.mp3"]
    for path in (left, busy, *strangers):
        path.write_bytes(b"x")
    link = inner / ".tonearm-00000000000000aa.part"
    link.symlink_to(strangers[2])
    with open(busy, "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        swept = sweep(tmp_path)
    assert swept.removed == (left,)
    assert {path: reason for path, reason in swept.kept if path == busy} == {
        busy: "another process is writing the file"
    }
    assert link.is_symlink()
    assert all(path.exists() for path in (busy, *strangers))
    assert sweep_folder(tmp_path) == Swept((), ())


def test_undo_follows_the_same_rules(song: Path) -> None:
    put(song)
    os.link(song, song.with_name("other.mp3"))
    refused(undo(song, root=song.parent), "hard-linked")
    assert isinstance(undo(song, Settings(hard_links=True), root=song.parent), Written)
    assert undo(song, root=song.parent) == Unchanged()
