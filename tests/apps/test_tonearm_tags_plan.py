"""The pure part: what would change, how mappings are read, and ID3 tags as bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonearm.tags import id3
from tonearm.tags.id3 import Frame, Id3
from tonearm.tags.malformed import Malformed
from tonearm.tags.plan import Change, Existing, Plan, to_undo, to_write
from tonearm.tags.settings import How, Labels, Onto, Settings, TextError, parse_onto, parse_ontos

CALM = Labels({"mood": ("calm", "slow")})


def after(plan: Plan) -> Existing:
    return Existing(plan.own, plan.standard)


def mapped(how: How, before: tuple[str, ...], labels: Labels = CALM) -> tuple[str, ...]:
    plan = to_write(Existing({}, {"MOOD": before}), labels, Settings("minimal", (Onto("mood", "MOOD", how),)))
    return plan.standard["MOOD"]


def test_the_three_ways_onto_a_standard_tag() -> None:
    # spec: TA-5
    assert mapped("fill-empty", ()) == ("calm", "slow")
    assert mapped("fill-empty", ("dark",)) == ("dark",)
    assert mapped("add", ("dark", "CALM")) == ("dark", "CALM", "slow")
    assert mapped("replace", ("dark",)) == ("calm", "slow")


def test_no_label_never_erases_what_a_person_wrote() -> None:
    for how in ("fill-empty", "add", "replace"):
        assert mapped(how, ("dark",), Labels({"mood": ()})) == ("dark",)


def test_what_people_changed_since_stays() -> None:
    # spec: TA-5
    settings = Settings("minimal", (Onto("mood", "MOOD", "replace"),))
    written = to_write(Existing({}, {"MOOD": ("dark",)}), CALM, settings)
    edited = Existing(written.own, {"MOOD": ("calm", "slow", "mine")})
    assert to_undo(edited).standard["MOOD"] == ("dark", "mine")
    retyped = Existing(written.own, {"MOOD": ("mine alone",)})
    assert to_undo(retyped).standard["MOOD"] == ("mine alone",)
    assert to_undo(Existing({"added": ("{spoilt",)}, {"MOOD": ("x",)})).standard["MOOD"] == ("x",)


def test_a_mapping_that_is_dropped_is_taken_back() -> None:
    written = to_write(Existing({}, {"MOOD": ()}), CALM, Settings("minimal", parse_ontos(["mood=MOOD:add"])))
    again = to_write(after(written), CALM, Settings("minimal"))
    assert Change("MOOD", ("calm", "slow"), ()) in again.changes
    assert "added" not in again.own


def test_two_groups_may_share_a_tag() -> None:
    ontos = parse_ontos(["mood=KEYWORDS:add", "genre=KEYWORDS:add"])
    plan = to_write(Existing({}, {}), Labels({"mood": ("calm",), "genre": ("rock",)}), Settings("minimal", ontos))
    assert plan.standard == {"KEYWORDS": ("calm", "rock")}


def test_a_plan_reads_well_and_is_data() -> None:
    plan = to_write(
        Existing({"genre": ("pop",), "old": ("x",)}, {}),
        Labels({"genre": ("rock",), "mood": ("calm",)}),
        Settings("minimal"),
    )
    assert plan.lines() == ["~ tonearm:genre: pop → rock", "+ tonearm:mood: calm", "- tonearm:old: x"]
    assert plan.data()[0] == {"tag": "tonearm:genre", "before": ["pop"], "after": ["rock"]}


WORDS = st.lists(st.sampled_from(["rock", "Rock", "calm", "pop", "jazz"]), max_size=3, unique=True).map(tuple)
SETTINGS = st.builds(
    Settings,
    st.sampled_from(["minimal", "full"]),
    st.sampled_from(["fill-empty", "add", "replace"]).map(lambda how: parse_ontos([f"genre=GENRE:{how}"])),
)


@settings(max_examples=80, deadline=None)
@given(before=WORDS, rounds=st.lists(st.tuples(WORDS, SETTINGS), min_size=1, max_size=4))
def test_undo_gives_back_what_was_and_writing_again_changes_nothing(
    before: tuple[str, ...], rounds: list[tuple[tuple[str, ...], Settings]]
) -> None:
    # spec: TA-5
    first = Existing({}, {"GENRE": before})
    now = first
    for labels, how in rounds:
        said = Labels({"genre": labels}, dict.fromkeys(labels, 0.5), "model 1")
        now = after(to_write(now, said, how))
        assert to_write(now, said, how).changes == ()
    undone = to_undo(now)
    assert undone.standard == first.standard
    assert undone.own == {}


def test_mappings_are_read_and_mistakes_explained() -> None:
    # spec: TA-5
    assert parse_onto("mood=MOOD:fill-empty") == Onto("mood", "MOOD", "fill-empty")
    assert parse_onto(" genre = genre : add ") == Onto("genre", "GENRE", "add")
    assert parse_onto("mood=MOOD").how == "fill-empty"
    assert str(parse_onto("mood=MOOD:add")) == "mood=MOOD:add"


WRONG = [
    ("mood", "use the form group=TAG:how"),
    ("=MOOD:add", "use the form group=TAG:how"),
    ("mood=MOOD:overwrite", "'overwrite' is not one of fill-empty, add, replace"),
    ("mood=TITLE:add", "TITLE cannot contain labels"),
    ("mood=REPLAYGAIN_TRACK_GAIN:add", "cannot contain labels"),
    ("mood=TONEARM_GENRE:add", "cannot contain labels"),
    ("mood=MÖÖD:add", "is not a tag name"),
    ("Mood!=MOOD:add", "a name consists of"),
    ("added=MOOD:add", "must not be one of"),
]


def test_a_wrong_mapping_says_what_is_wrong() -> None:
    for text, said in WRONG:
        with pytest.raises(TextError, match=said):
            parse_onto(text)


def test_two_mappings_onto_one_tag_must_agree() -> None:
    with pytest.raises(TextError, match="two ways"):
        parse_ontos(["mood=MOOD:add", "genre=MOOD:replace"])


IMPOSSIBLE: list[dict[str, tuple[str, ...]]] = [
    {"genre": ("",)},
    {"genre": (" x",)},
    {"genre": ("a\0b",)},
    {"genre": ("a\nb",)},
    {"genre": ("a", "a")},
    {"Genre": ()},
]


def test_labels_that_no_tag_can_hold_are_not_accepted() -> None:
    for groups in IMPOSSIBLE:
        with pytest.raises(TextError):
            Labels(groups)


def test_a_score_must_be_a_number() -> None:
    with pytest.raises(TextError, match="not a number"):
        Labels({}, {"rock": float("nan")})


FRAMES = st.lists(
    st.builds(Frame, st.sampled_from(["TIT2", "PRIV", "APIC", "XABC"]), st.binary(max_size=300)), max_size=6
)


@settings(max_examples=50, deadline=None)
@given(frames=FRAMES, version=st.sampled_from([3, 4]), room=st.sampled_from([0, 100, 5000]))
def test_id3_frames_survive_as_bytes(frames: list[Frame], version: int, room: int) -> None:
    frames = [frame for frame in frames if frame.body]
    data = id3.render(Id3(version, tuple(frames), room))
    again = id3.parse(data + b"audio")
    assert again.frames == tuple(frames)
    assert again.span == len(data)
    assert id3.render(again) == data


@settings(max_examples=50, deadline=None)
@given(
    version=st.sampled_from([2, 3, 4]),
    texts=st.lists(
        st.text(st.characters(exclude_characters="\0\ufeff", exclude_categories=["Cs"]), min_size=1), min_size=1
    ),
)
def test_id3_texts_come_back(version: int, texts: list[str]) -> None:
    tag = Id3(version, ())
    frame = id3.text_frame(tag, "TXXX", tuple(texts), title="tonearm:x")
    assert id3.fields(tag, frame) == ["tonearm:x", *texts]


def test_id3_of_old_and_odd_writers() -> None:
    two = b"ID3\2\0\0" + b"\0\0\0\x12" + b"TT2\0\0\6\0Title" + bytes(6)
    assert id3.parse(two).frames == (Frame("TT2", b"\0Title"),)
    assert id3.render(id3.parse(two)) == two
    big = bytes(200)  # sizes of 8 bits a byte in version 4, as old iTunes wrote them
    frames = b"PRIV" + len(big).to_bytes(4) + b"\0\0" + big + b"TIT2" + (6).to_bytes(4) + b"\0\0" + b"\3Title"
    four = b"ID3\4\0\0" + bytes([0, 0, len(frames) >> 7, len(frames) & 127]) + frames
    assert [frame.id for frame in id3.parse(four).frames] == ["PRIV", "TIT2"]
    unsynchronised = b"ID3\3\0\x80" + b"\0\0\0\x0e" + b"PRIV" + (3).to_bytes(4) + b"\0\0" + b"\xff\0\xe0\1"
    assert id3.parse(unsynchronised).frames == (Frame("PRIV", b"\xff\xe0\1"),)


def test_id3_that_cannot_be_kept_is_refused() -> None:
    for data in [b"", b"ID3\3\0\0\0\0\0\x50short", b"ID3\2\0\x40\0\0\0\0", b"ID3\7\0\0\0\0\0\0"]:
        with pytest.raises(Malformed):
            id3.parse(data)
