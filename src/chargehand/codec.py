"""Converts Python values to JSON and back: plain data, dataclasses, msgspec structs and pydantic models. Never pickle.

Workers load this module, so it imports msgspec only when a value needs it.
"""

import json
from typing import Any

from chargehand.errors import PayloadError

_CHANGED: tuple[Any, ...] = (bytes, bytearray, memoryview, set, frozenset)
"""Types that msgspec could encode, but that would be decoded as a different type."""


def _plain(value: Any) -> Any:
    """Converts a value that JSON does not support into plain data; called by the encoder."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if type(value) in _CHANGED:
        raise TypeError(f"{type(value).__name__} is not JSON")
    import msgspec

    return msgspec.to_builtins(value, enc_hook=_refuse)


def _refuse(value: Any) -> Any:
    """Converts a pydantic model nested in another value; raises TypeError for anything else."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"{type(value).__qualname__} is not JSON")


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


_PLAIN_TYPES: tuple[Any, ...] = (dict, list, str, int, float, bool)


def to_json(value: Any, what: str) -> str:
    """Encodes a value as JSON; `what` names the value in the error message. Raises PayloadError."""
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
    """Decodes JSON as the wanted type. Raises PayloadError, which says where the value does not match."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"{what} is not JSON: {error}") from error
    return as_type(value, wanted, what)


def as_type(value: Any, wanted: Any, what: str) -> Any:
    """Converts plain data to the wanted type. Raises PayloadError."""
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
        first = "; ".join(f"{place}: {text}" if place else text for place, text in places[:3])
        more = f"; and {len(places) - 3} more" if len(places) > 3 else ""
        wrong = PayloadError(f"{what} is of the wrong type, not a {name}: {first}{more}")
        wrong.places = places
        raise wrong from error


def _places(error: Exception) -> tuple[tuple[str, str], ...]:
    """Returns the path and message of each validation error, without the input values, which may be secret."""
    listed = getattr(error, "errors", None)
    if listed is not None:
        return tuple(("/".join(str(step) for step in one["loc"]), str(one["msg"])) for one in listed())
    text, _, place = str(error).partition(" - at `$")
    return ((place.rstrip("`").replace("[", ".").replace("]", "").strip(".").replace(".", "/"), text),)


def encode_typed(value: Any, wanted: Any, what: str) -> str:
    """Encodes a value as JSON after checking that the receiver can decode it as the wanted type."""
    text = to_json(value, what)
    if wanted in (None, Any, object) or (type(value) is wanted and hasattr(wanted, "model_validate")):
        return text  # pydantic models validate when they are created; dataclasses and structs do not
    from_json(text, wanted, what)
    return text
