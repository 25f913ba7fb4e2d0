"""Reading: every format's tags as plain data; a hostile file gives a reason, never anything else."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tagged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonearm.tags import Refused, Settings, Tags, Unchanged, Unreadable, Written, read, write

FULL = Settings("full")


@pytest.mark.parametrize("case", tagged.TAGGED)
def test_every_format_is_read_as_plain_data(case: str, tmp_path: Path) -> None:
    # spec: TA-2
    found = read(tagged.make(tmp_path, case))
    assert isinstance(found, Tags)
    assert found.kind == tagged.CASES[case][0]
    assert (found.title, found.artist, found.album, found.year) == ("Тихая ночь", ("One", "Two"), "Album", 1999)
    assert found.genre[0] == "Rock"
    assert found.duration == pytest.approx(0.5, abs=0.2)
    assert found.sample_rate == (48000 if case == "opus" else tagged.RATE)
    assert found.channels == 1
    assert found.has_cover
    assert found.own == {}


@pytest.mark.parametrize("case", ["mp3-bare", "flac-bare", "m4a-bare", "wav-bare"])
def test_a_file_without_tags_says_nothing(case: str, tmp_path: Path) -> None:
    found = read(tagged.make(tmp_path, case))
    assert isinstance(found, Tags)
    assert (found.title, found.artist, found.genre, found.year, found.has_cover) == (None, (), (), None, False)


def test_a_wav_may_say_it_in_its_own_list(tmp_path: Path) -> None:
    path = tagged.make(tmp_path, "wav-bare")
    items = b"".join(
        name + struct.pack("<I", len(text)) + text + bytes(len(text) % 2)
        for name, text in ((b"INAM", b"Name\0"), (b"IART", "Zoë".encode("latin-1")), (b"ICRD", b"2004"))
    )
    data = path.read_bytes() + b"LIST" + struct.pack("<I", 4 + len(items)) + b"INFO" + items
    path.write_bytes(data[:4] + struct.pack("<I", len(data) - 8) + data[8:])
    found = read(path)
    assert isinstance(found, Tags)
    assert (found.title, found.artist, found.year) == ("Name", ("Zoë",), 2004)
    assert isinstance(write(path, tagged.SOME, FULL, root=tmp_path), Written)
    assert items in path.read_bytes()


def test_the_name_does_not_matter(tmp_path: Path) -> None:
    path = tagged.make(tmp_path, "flac").rename(tmp_path / "song.mp3")
    found = read(path)
    assert isinstance(found, Tags)
    assert found.kind == "flac"


NOT_AUDIO = [b"", b"\0" * 5000, b"just text\n" * 50, b"ID3", b"OggS" + b"\0" * 80, b"RIFF\0\0\0\0WAVE"]


def test_what_is_not_audio_is_unreadable_with_a_reason(tmp_path: Path) -> None:
    # spec: TA-6
    path = tmp_path / "song.mp3"
    for content in NOT_AUDIO:
        path.write_bytes(content)
        found = read(path)
        assert isinstance(found, Unreadable)
        assert found.reason
        assert isinstance(write(path, tagged.SOME, FULL, root=tmp_path), Refused)
        assert path.read_bytes() == content


def test_pipes_folders_and_missing_files_are_unreadable(tmp_path: Path) -> None:
    # spec: TA-6
    os.mkfifo(tmp_path / "pipe.mp3")
    assert read(tmp_path / "pipe.mp3") == Unreadable("not a regular file")
    assert read(tmp_path) == Unreadable("not a regular file")
    assert read(tmp_path / "gone.mp3") == Unreadable("No such file or directory")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.sampled_from(tagged.TAGGED),
    cut=st.none() | st.floats(0, 1),
    spots=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 255)), max_size=6),
)
def test_cut_and_spoilt_files_never_raise_and_are_never_lost(
    case: str, cut: float | None, spots: list[tuple[int, int]], tmp_path: Path
) -> None:
    # spec: TA-6
    path = tagged.make(tmp_path, case, seconds=0.1)
    data = bytearray(path.read_bytes())
    for spot, value in spots:
        data[spot % min(len(data), 400 if spot % 2 else 6000)] = value
    data = data[: int(len(data) * cut)] if cut is not None else data
    path.write_bytes(data)
    assert isinstance(read(path), Tags | Unreadable)
    outcome = write(path, tagged.SOME, FULL, root=tmp_path)
    assert isinstance(outcome, Written | Refused | Unchanged)
    if not isinstance(outcome, Written):
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == [path.name]
    path.unlink()


def test_reading_loads_no_model_and_no_decoder() -> None:
    heavy = "[m for m in ('numpy', 'av', 'soundfile', 'onnxruntime', 'fastapi') if m in sys.modules]"
    code = f"import sys, tonearm.tags; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
