"""Ogg files that only bytes can keep: comments without a name, other encodings, audio on the page of the headers."""

from pathlib import Path

import odd_ogg
import pytest
import soundfile
import tagged

from tonearm.tags import Refused, Settings, Tags, Unchanged, Written, ogg, parse_ontos, read, undo, write

MAPPED = Settings("full", parse_ontos(["genre=GENRE:add", "mood=MOOD:fill-empty"]))
SHARED: dict[str, dict[str, int]] = {
    "nothing": {},
    "packets": {"whole": 9},
    "packets and a beginning": {"whole": 9, "begun": 510},
    "a beginning": {"begun": 255},
}
"""What follows the headers on their last page."""


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("name", ["song.ogg", "song.opus"])
def test_odd_ogg_files_are_written_and_nothing_of_theirs_is_lost(name: str, shared: str, tmp_path: Path) -> None:
    # spec: TA-5
    path = odd_ogg.make(tmp_path / name, **SHARED[shared])
    before, entries, packets = path.read_bytes(), odd_ogg.stored(path), odd_ogg.packets(path)
    demuxed = tagged.packets(path)
    sound = soundfile.read(odd_ogg.make(tmp_path / f"ordinary {name}"))[0]
    outcome = write(path, tagged.SOME, MAPPED, root=tmp_path)
    assert isinstance(outcome, Written), outcome
    now = odd_ogg.stored(path)
    ours = [entry for entry in now if entry.startswith(b"TONEARM_")]
    assert ours
    added = {b"Genre=indie rock", b"MOOD=calm"}
    assert [entry for entry in now if entry not in ours and entry not in added] == entries
    assert added <= set(now)
    after = odd_ogg.packets(path)
    assert (after[0], after[2:]) == (packets[0], packets[2:])
    assert (soundfile.read(path)[0] == sound).all()  # libsndfile skips audio on the page of the headers: not any more
    assert tagged.packets(path) == demuxed
    headers = odd_ogg.HEADERS[path.suffix]
    (end,) = (page for page in odd_ogg.pages(path) if page.packets[-1].endswith(after[headers - 1][-50:]))
    assert end.complete  # the audio starts on a page of its own, as the format demands
    found = read(path)
    assert isinstance(found, Tags)
    assert found.own["genre"] == ("rock", "indie rock")
    assert write(path, tagged.SOME, MAPPED, root=tmp_path) == Unchanged()
    assert isinstance(undo(path, root=tmp_path), Written)
    assert odd_ogg.stored(path) == entries
    assert odd_ogg.packets(path) == packets
    assert shared != "nothing" or path.read_bytes() == before


def test_a_flac_file_keeps_odd_comments_too(tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, "flac")
    said = comments(path)
    odd = ogg.Comments(said.vendor, (*odd_ogg.NAMELESS, odd_ogg.NOT_UTF8, *said.entries), b"")
    with_comments(path, odd)
    packets = tagged.packets(path)
    assert isinstance(write(path, tagged.SOME, MAPPED, root=tmp_path), Written)
    assert [entry for entry in comments(path).entries if entry in odd.entries] == list(odd.entries)
    assert tagged.packets(path) == packets
    assert isinstance(undo(path, root=tmp_path), Written)
    assert comments(path) == odd


def test_a_flac_file_without_comments_has_none_after_undo(tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, "flac")
    with_comments(path, ogg.NO_COMMENTS)
    before, packets = blocks(path), tagged.packets(path)
    assert ogg.COMMENT_BLOCK not in dict(before)
    assert isinstance(write(path, tagged.SOME, MAPPED, root=tmp_path), Written)
    assert tagged.packets(path) == packets
    assert isinstance(undo(path, root=tmp_path), Written)
    assert blocks(path) == before


def blocks(path: Path) -> list[tuple[int, bytes]]:
    """All blocks except padding."""
    with path.open("rb") as file:
        return [block for block in ogg.blocks(file)[0] if block[0] != ogg.PADDING_BLOCK]


def comments(path: Path) -> ogg.Comments:
    return ogg.comments(dict(blocks(path))[ogg.COMMENT_BLOCK])


def with_comments(path: Path, said: ogg.Comments) -> None:
    other = path.with_name("other.flac")
    with path.open("rb") as source, other.open("w+b") as out:
        ogg.flac_with_comments(source, out, said)
    other.rename(path)


def test_a_value_that_could_not_be_restored_is_not_replaced(tmp_path: Path) -> None:
    # spec: TA-5
    path = tagged.make(tmp_path, "opus")
    odd_ogg.rebuild(path, odd_ogg.with_entries(path, [b"GENRE=Chor\xe4le"]))
    before = path.read_bytes()
    replacing = Settings("minimal", parse_ontos(["genre=GENRE:replace"]))
    outcome = write(path, tagged.SOME, replacing, root=tmp_path)
    assert isinstance(outcome, Refused)
    assert (outcome.why, "not UTF-8" in outcome.reason) == ("not-kept", True)
    assert path.read_bytes() == before
    assert isinstance(write(path, tagged.SOME, MAPPED, root=tmp_path), Written)
    assert b"GENRE=Chor\xe4le" in odd_ogg.stored(path)


def test_a_damaged_page_stays_damaged(tmp_path: Path) -> None:
    """A player skips the page with the wrong checksum; a right one would make noise of it."""
    path = tagged.make(tmp_path, "vorbis", seconds=3)
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)
    big = tagged.Labels({"genre": tuple(f"label {number}" for number in range(9000))})  # more pages: all are renumbered
    assert isinstance(write(path, big, MAPPED, root=tmp_path), Written)
    with path.open("rb") as file:
        assert [page.sound for page in ogg.pages(file)].count(False) == 1
    assert odd_ogg.pages(path)[-1].sequence == len(odd_ogg.pages(path)) - 1
    assert isinstance(undo(path, root=tmp_path), Written)
    assert path.read_bytes()[-100:-22] == bytes(data)[-100:-22]
