"""Python values to JSON text and back: plain data, dataclasses, msgspec structs, pydantic models. Never pickle.

It imports no library until a value needs one, because workers load it.
"""

import json
from typing import Any

from chargehand.errors import PayloadError

_CHANGED: tuple[Any, ...] = (bytes, bytearray, memoryview, set, frozenset)
"""What could be written, but would come back as something else."""


def _plain(value: Any) -> Any:
    """A model as plain data; asked by the encoder for whatever JSON does not know."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if type(value) in _CHANGED:
        raise TypeError(f"a {type(value).__name__} is not JSON")
    import msgspec

    return msgspec.to_builtins(value, enc_hook=_refuse)


def _refuse(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"a {type(value).__qualname__} is not JSON")


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


_PLAIN_TYPES: tuple[Any, ...] = (dict, list, str, int, float, bool)


def to_json(value: Any, what: str) -> str:
    """JSON text of a value; `what` names it in the error."""
    if value is None:
        return "null"
    try:
        text = _encoder.encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"{what} cannot be written as JSON: {error}") from error
    return text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def from_json(text: str | bytes, wanted: Any, what: str) -> Any:
    """The value of a JSON text as the wanted type; a PayloadError that says where it does not fit."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"{what} is not JSON: {error}") from error
    return as_type(value, wanted, what)


def as_type(value: Any, wanted: Any, what: str) -> Any:
    """Plain data as the wanted type."""
    if wanted in (None, Any, object):
        return value
    if wanted in _PLAIN_TYPES:
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise PayloadError(f"{what} is of the wrong type: expected {wanted.__name__}, got {type(value).__name__}")
        return value
    validate = getattr(wanted, "model_validate", None)
    try:
        if validate is not None:
            return validate(value)
        import msgspec

        return msgspec.convert(value, wanted)
    except (TypeError, ValueError) as error:
        name = getattr(wanted, "__qualname__", str(wanted))
        places = _places(error)
        said = "; ".join(f"{place}: {text}" if place else text for place, text in places[:3])
        more = f"; and {len(places) - 3} more" if len(places) > 3 else ""
        wrong = PayloadError(f"{what} is of the wrong type, not a {name}: {said}{more}")
        wrong.places = places
        raise wrong from error


def _places(error: Exception) -> tuple[tuple[str, str], ...]:
    """Where something does not fit, and what; pydantic's values are not repeated: they may be long, or secret."""
    listed = getattr(error, "errors", None)
    if listed is not None:
        return tuple(("/".join(str(step) for step in one["loc"]), str(one["msg"])) for one in listed())
    text, _, place = str(error).partition(" - at `$")
    return ((place.rstrip("`").replace("[", ".").replace("]", "").strip(".").replace(".", "/"), text),)


def encode_typed(value: Any, wanted: Any, what: str) -> str:
    """JSON text of a value after a check that it is what the other side expects."""
    text = to_json(value, what)
    if wanted in (None, Any, object) or (type(value) is wanted and hasattr(wanted, "model_validate")):
        return text  # a pydantic model has checked itself; dataclasses and structs have not
    from_json(text, wanted, what)
    return text
