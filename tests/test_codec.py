"""Values to JSON and back: what fits comes back as it was, and what does not is refused in words."""

import dataclasses
import datetime
import json
import sys
from collections import Counter
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from chargehand.codec import (
    DEPTH_LIMIT,
    DIGITS_LIMIT,
    MARK,
    as_type,
    check_limits,
    clean,
    encode_typed,
    escape,
    escape_json,
    from_json,
    parse_json,
    readable,
    restore,
    restore_json,
    restored,
    to_json,
    to_utf8,
)
from chargehand.errors import PayloadError

steady = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAN, INF = float("nan"), float("inf")


class Mood(Enum):
    CALM = "calm"


@dataclasses.dataclass
class DataSong:
    path: str
    length: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list[str])


class StructSong(msgspec.Struct):
    path: str
    length: float = 0.0
    tags: list[str] = []


class ModelSong(BaseModel):
    path: str
    length: float = 0.0
    tags: list[str] = []


class Album(msgspec.Struct):
    songs: list[StructSong]
    mood: Mood
    recorded: datetime.date


@dataclasses.dataclass
class Shelf:
    model: ModelSong


SONGS: list[Any] = [DataSong, StructSong, ModelSong]

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# spec: WK-1
@steady
@given(plain)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    text = to_json(value, "x")
    assert "\n" not in text
    assert from_json(text, None, "x") == value


# spec: WK-1
@pytest.mark.parametrize("kind", SONGS)
def test_a_typed_value_comes_back_as_its_type(kind: Any) -> None:
    song = kind(path="ü/a.flac", length=1.5, tags=["a", "b"])
    text = encode_typed(song, kind, "x")
    assert json.loads(text) == {"path": "ü/a.flac", "length": 1.5, "tags": ["a", "b"]}
    back = from_json(text, kind, "x")
    assert type(back) is kind
    assert back == song


# spec: WK-1
@pytest.mark.parametrize("kind", SONGS)
def test_plain_data_may_stand_for_a_typed_value(kind: Any) -> None:
    assert json.loads(encode_typed({"path": "a"}, kind, "x")) == {"path": "a"}
    assert from_json('{"path":"a"}', kind, "x") == kind(path="a")


# spec: WK-1
@pytest.mark.parametrize("kind", SONGS)
@pytest.mark.parametrize("wrong", [{}, {"path": 5}, {"path": "a", "length": "long"}, [], "a", None, 5])
def test_a_value_that_does_not_fit_is_refused_on_both_sides(kind: Any, wrong: Any) -> None:
    with pytest.raises(PayloadError, match="the payload is of the wrong type, not a "):
        encode_typed(wrong, kind, "the payload")
    with pytest.raises(PayloadError, match="the payload is of the wrong type, not a "):
        from_json(json.dumps(wrong), kind, "the payload")


# spec: WK-1, SE-4
@pytest.mark.parametrize("kind", SONGS)
def test_what_does_not_fit_is_told_in_one_line_with_its_place_and_without_the_value(kind: Any) -> None:
    with pytest.raises(PayloadError) as refused:
        as_type({"path": "a", "tags": ["b", 12345]}, kind, "the payload")
    assert [place for place, _ in refused.value.places] == ["tags/1"]
    assert "tags/1: " in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "12345" not in str(refused.value)


# spec: WK-1
@pytest.mark.parametrize("kind", [DataSong, StructSong])
def test_a_typed_value_with_a_field_of_the_wrong_type_is_refused_before_it_is_sent(kind: Any) -> None:
    """Neither checks its fields when it is made; the worker would refuse what was enqueued without a word."""
    with pytest.raises(PayloadError, match="wrong type"):
        encode_typed(kind(path=5), kind, "the payload")


# spec: WK-1
def test_one_type_is_not_another_that_looks_like_it() -> None:
    with pytest.raises(PayloadError):
        encode_typed(Shelf(ModelSong(path="a")), StructSong, "x")


# spec: WK-1
def test_values_within_values_are_written() -> None:
    album = Album([StructSong("a")], Mood.CALM, datetime.date(2026, 1, 2))
    text = encode_typed(album, Album, "x")
    assert json.loads(text)["recorded"] == "2026-01-02"
    assert from_json(text, Album, "x") == album
    assert json.loads(to_json({"shelf": Shelf(ModelSong(path="a"))}, "x"))["shelf"]["model"]["path"] == "a"
    assert json.loads(to_json([ModelSong(path="a"), StructSong("b"), DataSong("c")], "x"))[1]["path"] == "b"


# spec: WK-1
@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (dict, {"a": 1}),
        (list, [1]),
        (str, "a"),
        (int, 5),
        (float, 1.5),
        (float, 5),
        (bool, True),
        (None, [1]),
        (Any, {"a": [None]}),
        (object, 5),
        (list[int], [1, 2]),
        (dict[str, int], {"a": 1}),
        (int | None, None),
        (tuple[int, str], [1, "a"]),
    ],
)
def test_a_plain_type_takes_what_is_of_it(wanted: Any, value: Any) -> None:
    back = from_json(encode_typed(value, wanted, "x"), wanted, "x")
    assert back == (tuple(value) if wanted == tuple[int, str] else value)


# spec: WK-1
@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (dict, []),
        (dict, None),
        (list, {}),
        (str, 5),
        (str, None),
        (int, True),
        (int, 1.5),
        (int, "5"),
        (float, "1"),
        (float, True),
        (bool, 1),
        (list[int], ["a"]),
        (dict[str, int], {"a": "b"}),
        (int | None, "x"),
        (tuple[int, str], [1]),
    ],
)
def test_a_plain_type_takes_nothing_else(wanted: Any, value: Any) -> None:
    with pytest.raises(PayloadError, match="the result is of the wrong type"):
        encode_typed(value, wanted, "the result")
    with pytest.raises(PayloadError, match="the result is of the wrong type"):
        as_type(value, wanted, "the result")


# spec: WK-1, SE-4
@pytest.mark.parametrize(
    "value",
    [
        NAN,
        INF,
        {"a": -INF},
        [NAN],
        DataSong("a", NAN),
        StructSong("a", INF),
        ModelSong(path="a", length=NAN),
        object(),
        [object()],
        lambda: None,
        DataSong,
        {(1, 2): 3},
        {b"a": 1},
        1j,
    ],
)
def test_what_is_not_json_is_refused_in_words(value: Any) -> None:
    with pytest.raises(PayloadError, match=r"the result cannot be written as JSON: .+"):
        to_json(value, "the result")


# spec: WK-1, SE-4
def test_what_goes_round_in_circles_is_refused_in_words() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(PayloadError, match="cannot be written as JSON"):
        to_json(circle, "x")
    song = StructSong("a")
    song.tags = song  # type: ignore[assignment]
    with pytest.raises(PayloadError, match="nested more than 100 levels"):
        to_json(song, "x")


# limits

TOO_DEEP = f"x is nested more than {DEPTH_LIMIT} levels deep: "
TOO_LONG = f"x has a number of more than {DIGITS_LIMIT} digits: "


# spec: SE-3
@pytest.mark.parametrize("depth", [DEPTH_LIMIT + 1, 500, 2_000, 5_000, 10_000, 100_000])
def test_what_is_too_deep_is_refused_in_words_on_both_sides(depth: int) -> None:
    """Python 3.11 encodes and decodes 990 levels, Python 3.13 several thousand."""
    for opening, closing in ("[]", ('{"a":', "}"), ('[{"a":', "}]")):
        text = opening * depth + "1" + closing * depth
        with pytest.raises(PayloadError, match=TOO_DEEP):
            parse_json(text, None, "x")
        with pytest.raises(PayloadError, match=TOO_DEEP):
            check_limits(text, "x")
    for value in (nested(depth), {"a": nested(depth - 1)}, DataSong("a", tags=nested(depth - 1))):
        with pytest.raises(PayloadError, match=TOO_DEEP):
            to_json(value, "x")
        with pytest.raises(PayloadError, match=TOO_DEEP):
            restored(value, "x")


# spec: SE-3
def test_what_is_just_not_too_deep_comes_back() -> None:
    value = nested(DEPTH_LIMIT)
    assert parse_json(to_json(value, "x"), None, "x") == restored(value, "x") == value
    song = DataSong("a", tags=nested(DEPTH_LIMIT - 1))
    assert json.loads(to_json(song, "x"))["tags"] == song.tags


# spec: SE-3
@steady
@given(
    st.recursive(
        st.integers() | st.text(st.sampled_from('[]{}"\\ü1')),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('[{"\\')), inner),
        max_leaves=6,
    ),
    st.integers(DEPTH_LIMIT - 8, DEPTH_LIMIT + 2),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_depth_is_counted_outside_of_strings(value: Any, around: int, indent: int | None, ascii_only: bool) -> None:
    for _ in range(around):
        value = [value, "]" * 3, "[" * 3] if around % 2 else {'"[': value, "}\\": 1}
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if depth_of(value) <= DEPTH_LIMIT:
        check_limits(text, "x")
        assert json.loads(to_json(value, "x")) == value
    else:
        with pytest.raises(PayloadError, match=TOO_DEEP):
            check_limits(text, "x")
        with pytest.raises(PayloadError, match=TOO_DEEP):
            to_json(value, "x")


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth_of(each) for each in inner), default=0)


# spec: SE-3
@pytest.mark.parametrize("before", [0, 1, 600, 638, 639, 640, 641, 1279, 5_000])
@pytest.mark.parametrize("template", ["[%s]", "[-%s]", "[0.%s]", "[1e-%s]", '{"a":[1,%s,2]}', '["\\\\",%s,"\\""]'])
def test_a_number_with_too_many_digits_is_refused_wherever_it_is(before: int, template: str) -> None:
    padding = " " * before
    check_limits(padding + template % ("9" * DIGITS_LIMIT), "x")
    for digits in (DIGITS_LIMIT + 1, 2 * DIGITS_LIMIT, 4_299):
        with pytest.raises(PayloadError, match=TOO_LONG):
            check_limits(padding + template % ("9" * digits), "x")
        text = "a" * before + template % ("9" * digits)
        assert json.loads(to_json([text, text], "x")) == [text, text], "a string is no number"


# spec: SE-3
def test_integers_are_limited_by_their_digits_not_by_a_setting_of_the_interpreter() -> None:
    most = 10**DIGITS_LIMIT - 1
    assert from_json(to_json([most, -most], "x"), None, "x") == [most, -most]
    for value in (most + 1, -most - 1, 10**4_000):
        with pytest.raises(PayloadError, match=TOO_LONG):
            to_json({"a": [value]}, "x")
    before = sys.get_int_max_str_digits()
    try:
        for setting in (DIGITS_LIMIT, 0):
            sys.set_int_max_str_digits(setting)
            assert from_json(to_json(most, "x"), None, "x") == most
            with pytest.raises(PayloadError, match=TOO_LONG):
                to_json([10**5_000], "x")
            with pytest.raises(PayloadError, match=TOO_LONG):
                parse_json("9" * 5_000, None, "x")
    finally:
        sys.set_int_max_str_digits(before)


# spec: SE-3
def test_what_an_earlier_version_stored_beyond_the_limits_can_be_read() -> None:
    assert from_json("[" * 300 + "]" * 300, None, "x") == json.loads("[" * 300 + "]" * 300)
    assert from_json("9" * 1_000, None, "x") == 10**1_000 - 1


# spec: WK-1
@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), {1, 2}, frozenset({1}), {"a": b"x"}])
def test_what_would_come_back_as_something_else_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match=r"is of the type .*: pass"):
        encode_typed(value, None, "x")


# spec: WK-1, SE-4
@pytest.mark.parametrize(
    "text", ["", "{", "nope", "{'a': 1}", "[1,]", '"\x01"', b"\xff\xfe\xfd", "1 2", "NaN", "-Infinity"]
)
def test_text_that_is_not_json_is_refused_in_words(text: str | bytes) -> None:
    with pytest.raises(PayloadError, match="the payload is not JSON"):
        from_json(text, None, "the payload")


# spec: WK-1
def test_bytes_of_json_are_read_like_text() -> None:
    assert from_json('{"ü":1}'.encode(), dict, "x") == {"ü": 1}


# spec: WK-1
def test_a_type_that_nobody_can_make_from_json_is_refused_in_words() -> None:
    class Strange:
        pass

    with pytest.raises(PayloadError, match="Strange"):
        from_json("{}", Strange, "x")


# spec: SE-4
def test_a_payload_error_is_a_value_error_for_callers_who_know_no_better() -> None:
    assert issubclass(PayloadError, ValueError)


# names that are not UTF-8

ANY = st.text(
    st.characters(categories=None)
    | st.characters(categories=["Cs"])
    | st.sampled_from(["\0", MARK, "x", "u", "d", "c", "0", "8", "9", "e", "\\", '"'])
)
"""Any text that Python can hold, often with what has a meaning in an escape."""
KNOWN = [
    ("caf\udce9.mp3", f"caf{MARK}xe9.mp3"),
    ("\udc80\udcff", f"{MARK}x80{MARK}xff"),
    ("a\0b", f"a{MARK}x00b"),
    ("\ud83d\ude00", f"{MARK}ud83d{MARK}ude00"),
    ("\ud800\udc7f\udd00", f"{MARK}ud800{MARK}udc7f{MARK}udd00"),
    (MARK, MARK + MARK),
    (f"{MARK}xe9", f"{MARK}{MARK}xe9"),
]


@steady
@given(ANY)
def test_every_text_comes_back_and_is_valid_without_nul(text: str) -> None:
    kept = escape(text)
    assert restore(kept) == text
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    assert clean(kept) == kept
    assert to_utf8(kept) == kept.encode()


@steady
@given(st.text(st.characters(exclude_categories=["Cs", "Co"], exclude_characters="\0")))
def test_an_ordinary_text_is_unchanged(text: str) -> None:
    assert escape(text) == restore(text) == clean(text) == readable(text) == text
    assert escape_json(to_json(text, "it")) == restore_json(to_json(text, "it")) == json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize(("text", "kept"), KNOWN)
def test_the_escape_stays_as_stores_hold_it(text: str, kept: str) -> None:
    assert (escape(text), restore(kept)) == (kept, text)
    assert json.loads(to_json(text, "it")) == kept


@pytest.mark.parametrize("text", [MARK, f"{MARK}x41", f"{MARK}udce9", f"{MARK}uffff", f"{MARK}x8", f"{MARK} x80"])
def test_what_is_no_escape_is_kept(text: str) -> None:
    """A store of an earlier version may hold such a text."""
    assert restore(text) == text
    assert restore(escape(text)) == text


@steady
@given(ANY)
def test_what_people_see_can_be_shown_everywhere(text: str) -> None:
    for shown in (readable(text), readable(escape(text))):
        assert MARK not in shown
        assert "\0" not in shown
        assert shown.encode().decode() == shown
    assert readable("caf\udce9\0") == readable(escape("caf\udce9\0")) == "caf\\xe9\\x00"


@steady
@given(st.recursive(ANY | st.integers(), lambda deeper: st.lists(deeper) | st.dictionaries(ANY, deeper), max_leaves=8))
def test_any_texts_in_a_value_come_back_through_strict_json(value: Any) -> None:
    text = to_json(value, "the payload")
    assert from_json(text, None, "the payload") == from_json(text.encode(), None, "the payload") == value
    assert "\\u0000" not in text.replace("\\\\", "")
    assert restored(msgspec.json.decode(text), "it") == value  # a strict decoder reads it


@pytest.mark.parametrize("kind", SONGS)
def test_a_typed_value_may_have_the_name_of_any_file(kind: Any) -> None:
    song = kind(path="caf\udce9\0.mp3", tags=["\udcff"])
    assert from_json(encode_typed(song, kind, "the payload"), kind, "the payload") == song


class Token(BaseModel):
    token: SecretStr
    old: str = ""


class Playlist(BaseModel):
    songs: dict[str, Token]


@dataclasses.dataclass
class Compilation:
    first: ModelSong
    rest: list[ModelSong]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ([ModelSong(path="a")], list[ModelSong]),
        ({"a": ModelSong(path="a")}, dict[str, ModelSong]),
        (ModelSong(path="a"), ModelSong | None),
        (None, ModelSong | None),
        ((1, ModelSong(path="a")), tuple[int, ModelSong]),
        (Compilation(ModelSong(path="a"), [ModelSong(path="b")]), Compilation),
        ({1: "a", 2: "b"}, dict[int, str]),
    ],
)
def test_pydantic_models_and_numbers_as_keys_inside_other_types(value: Any, wanted: Any) -> None:  # spec: RP-2
    text = encode_typed(value, wanted, "x")
    assert from_json(text, wanted, "x") == value


def test_the_place_of_an_error_in_a_nested_model_has_no_values() -> None:
    with pytest.raises(PayloadError, match=r"not a list\[.*ModelSong\]: 1: path: Input should be a valid") as refused:
        from_json('[{"path":"a"},{"path":4711}]', list[ModelSong], "x")
    assert "4711" not in str(refused.value)
    with pytest.raises(PayloadError, match="Expected `Counter`, got `dict`"):
        from_json('{"a":1}', Counter, "x")


def test_a_secret_of_pydantic_is_refused_instead_of_its_stars() -> None:
    secret = Token(token=SecretStr("abc"))
    for value, place in (
        (secret, "token"),
        ({"a": [secret]}, r"\['a'\]\[0\].token"),
        (Playlist(songs={"a": secret}), "songs"),
    ):
        with pytest.raises(PayloadError, match=rf"stars: {place}.*hide="):
            encode_typed(value, None, "x")
    assert encode_typed("*" * 10, str, "x") == '"**********"'
    assert encode_typed(ModelSong(path="*" * 10), ModelSong, "x")


def test_a_call_that_is_not_awaited_is_named() -> None:
    async def label() -> str:
        return "rock"

    forgotten = label()
    with pytest.raises(PayloadError, match=r"label'\] is of the type coroutine: an `await` is missing before the call"):
        to_json({"label": forgotten}, "x")
    forgotten.close()


@pytest.mark.parametrize("text", ["a b", "{'path': 'a'}", "{path: 1}"])
def test_json_without_quotation_marks_is_answered_with_an_example(text: str) -> None:
    with pytest.raises(PayloadError, match=r"""x is not JSON: .*double quotation marks: '{"path": "a b"}', '"a b"'"""):
        parse_json(text, str, "x")


class Pair(NamedTuple):
    x: int
    y: str


class Entry(TypedDict):
    when: datetime.datetime


NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


@dataclasses.dataclass
class Packed:
    data: bytes
    numbers: set[int]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (NOON, datetime.datetime), (NOON.date(), datetime.date), (datetime.timedelta(days=2), datetime.timedelta),
        (Decimal("1.10"), Decimal), (UUID(int=5), UUID), (Mood.CALM, Mood), ((1, "a"), tuple[int, str]),
        (Pair(1, "y"), Pair), ({"when": NOON}, Entry), (Packed(b"\xff", {1, 2}), Packed),
    ],
)  # fmt: skip
def test_values_of_the_table_in_the_documentation_come_back_as_they_were(value: Any, wanted: Any) -> None:
    found = from_json(encode_typed(value, wanted, "x"), wanted, "x")
    assert (found, type(found)) == (value, type(value))
