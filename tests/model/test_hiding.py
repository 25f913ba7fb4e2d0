"""Which values are hidden by the names of their fields."""

from typing import Any

import pytest

from chargehand.model.hiding import HIDDEN, without


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
