"""What a handler returns is what it says that it gives, or the job fails: a result that nobody can read is none."""

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from chargehand.errors import PayloadError
from chargehand.worker.perform import checkable, result_text


@dataclass
class Data:
    a: int


class Model(BaseModel):
    a: int


class Struct(msgspec.Struct):
    a: int


class Typed(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("gives", "result"),
    [
        (Data, Data(1)), (Data, {"a": 1}), (Model, Model(a=1)), (Model, {"a": 1}), (Struct, Struct(1)), (int, 1),
        (float, 1), (int, True), (dict, {}), (str, "ü"), (None, 5), (type(None), None), (Any, object), (object, 1),
        (list[Model], [1]), (Model | None, None), (Typed, {"b": 1}),
    ],
)  # fmt: skip
def test_what_fits_or_cannot_be_told_is_a_result(gives: Any, result: Any) -> None:  # spec: WK-1
    told = result_text(5 if result is object else result, checkable(gives))
    assert told == result_text(5 if result is object else result)


@pytest.mark.parametrize(
    ("gives", "result", "words"),
    [
        (Data, {"b": 1}, "not a Data"),
        (Data, None, "not a Data"),
        (Model, {"nonsense": 1}, "not a Model: a: Field required"),
        (Struct, [1, 2], "not a Struct"),
        (int, "1", "expected int, got str"),
        (dict, [], "expected dict, got list"),
    ],
)
def test_what_does_not_fit_is_told(gives: Any, result: Any, words: str) -> None:  # spec: WK-1
    with pytest.raises(PayloadError, match=f"the result is of the wrong type.*{words}"):
        result_text(result, checkable(gives))
