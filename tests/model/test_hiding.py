"""Which values are hidden by the names of their fields."""

import json
from typing import Any

import pytest

from chargehand.model.hiding import HIDDEN, text_without, without


# spec: HK-4
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"token": "a", "user": 7}, {"token": HIDDEN, "user": 7}),
        ({"TOKEN": {"deep": "a"}, "tokens": "b"}, {"TOKEN": HIDDEN, "tokens": "b"}),
        ([{"a": [{"Token": None}]}, "token"], [{"a": [{"Token": HIDDEN}]}, "token"]),
        (("token", 1), ["token", 1]),
        ("token", "token"),
        (None, None),
        ({1: {"token": 2}}, {1: {"token": HIDDEN}}),
    ],
)
def test_values_are_hidden_at_any_depth_whatever_their_case(value: Any, shown: Any) -> None:
    assert without(value, {"token"}) == shown
    assert without(shown, {"token"}) == shown


# spec: HK-4
def test_texts_are_shown_without_the_values_of_these_fields() -> None:
    payload = {
        "token": "s3cret-7",
        "Auth": {"pin": 123456, "short": "ab"},
        "list": [{"token": "s3cret-77"}],
        "user": "admin1",
    }
    text = "s3cret-77 and s3cret-7 of admin1, 123456, ab"
    assert text_without(text, payload, {"token", "auth"}) == f"{HIDDEN} and {HIDDEN} of admin1, {HIDDEN}, ab"
    assert text_without(text, None, {"token"}) == text


# spec: HK-4
@pytest.mark.parametrize(
    "secret", ['ab"c\\d é\x01-77', 'it\'s "7" 🙈', "first-line\n\tsecond-line\n", "k\n" + "x" * 40]
)
@pytest.mark.parametrize("write", [repr, ascii, json.dumps, lambda value: json.dumps(value, ensure_ascii=False)])
def test_texts_are_shown_without_values_that_are_escaped(secret: str, write: Any) -> None:
    payload = {"token": secret}
    written = write([secret])
    expected = f"bad: {written[:2]}{HIDDEN}{written[-2:]}"
    assert text_without(f"bad: {written}", payload, {"token"}) == expected


# spec: HK-4
def test_texts_are_shown_without_the_lines_of_a_value() -> None:
    payload = {"token": "first-line\nsecond-line\nend\n"}
    assert text_without("  | first-line\n  | second-line\n  | end", payload, {"token"}) == (
        f"  | {HIDDEN}\n  | {HIDDEN}\n  | end"
    )
