"""Converts Python values to JSON and back: plain data, dataclasses, msgspec structs and pydantic models. Never pickle.

It also holds the escape for what a Python str can contain, but neither UTF-8 nor a column of PostgreSQL: lone
surrogates, which stand for the bytes of file names that are not UTF-8, and NUL. Texts are escaped where they leave the
application's code and restored where they return to it; sockets, stores, HTTP and records hold them escaped.

Workers load this module, so it imports msgspec only when a value needs it.
"""

import json
import re
from collections.abc import Iterable
from itertools import accumulate
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, cast

from chargehand.errors import PayloadError

MARK = "\U0010fade"
"""Begins an escape: `x00` (NUL), `x80` to `xff` (a byte, as os.fsdecode returns it), `ud800` to `udfff`, or MARK again.

A private character that is not printable and that no known font or text uses.
"""
_UNSAFE = f"[\0\ud800-\udfff{MARK}]"
_UNSAFE_IN_JSON = rf"\\u0000|\\.|[\ud800-\udfff{MARK}]"
_ESCAPE = f"{MARK}(?:{MARK}|x00|x[89a-f][0-9a-f]|ud(?:[89abdef][0-9a-f]|c[0-7])[0-9a-f])"


def escape(text: str) -> str:
    """Returns the text as valid Unicode without NUL; ordinary text is returned unchanged."""
    return text if _is_ordinary(text, "\0") else re.sub(_UNSAFE, _escaped, text)


def restore(text: str) -> str:
    """Returns the text that `escape` was given; what is not an escape is returned unchanged."""
    return re.sub(_ESCAPE, _restored, text) if MARK in text else text


def clean(text: str) -> str:
    """Returns a text that may contain escapes already, such as a search, as valid Unicode without NUL."""
    return text if _is_ordinary(text, "\0") else re.sub(_UNSAFE, _cleaned, text)


def readable(text: str) -> str:
    """Returns a text for people, with `\\xe9` for an escaped byte: valid Unicode without NUL and escapes."""
    return clean(text).replace(MARK, "\\")


def to_utf8(text: str) -> bytes:
    """Encodes a text that may contain escapes already; lone surrogates are escaped."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean(text).encode()


def escape_json(text: str) -> str:
    """Returns a JSON text, made with ensure_ascii=False, with its strings escaped."""
    return text if _is_ordinary(text, "\\u0000") else re.sub(_UNSAFE_IN_JSON, _escaped_in_json, text)


def restore_json(text: str) -> str:
    """Returns a JSON text with its strings restored: `json` can decode it, but UTF-8 may not be able to encode it."""
    return re.sub(_ESCAPE, _restored_in_json, text) if MARK in text else text


def _is_ordinary(text: str, nul: str) -> bool:
    """Whether no character needs an escape; cheap, because nearly all texts are ordinary."""
    if nul in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return MARK not in text


def _escaped(found: re.Match[str]) -> str:
    if found[0] == MARK:
        return MARK + MARK
    code = ord(found[0])
    return f"{MARK}x{code & 0xFF:02x}" if code == 0 or 0xDC80 <= code <= 0xDCFF else f"{MARK}u{code:04x}"


def _cleaned(found: re.Match[str]) -> str:
    return MARK if found[0] == MARK else _escaped(found)


def _escaped_in_json(found: re.Match[str]) -> str:
    if found[0] == "\\u0000":
        return f"{MARK}x00"
    return found[0] if found[0][0] == "\\" else _escaped(found)


def _restored(found: re.Match[str]) -> str:
    kind, digits = found[0][1], found[0][2:]
    if kind == MARK:
        return MARK
    code = int(digits, 16)
    return chr(code + 0xDC00) if kind == "x" and code else chr(code)


def _restored_in_json(found: re.Match[str]) -> str:
    return _restored(found) if found[0] != f"{MARK}x00" else "\\u0000"


DEPTH_LIMIT = 100
"""The maximum number of arrays and objects around a value: far less than any supported interpreter can decode."""
DIGITS_LIMIT = 640
"""The maximum number of digits in a row in a number: Python converts integers of so many digits however it is set."""
ALWAYS_ALLOWED = 2 * DEPTH_LIMIT
"""A JSON text of at most so many characters is within both limits."""
_DIGITS = "0123456789"
_NO_MARKS = bytes(code for code in range(256) if code not in b'"[]{}')
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 0xFF, ord("}"): 0xFF}.get(code, 0) for code in range(256))
"""Maps each bracket to the change of the depth, as a signed byte."""


REQUEST_DEPTH = 3
"""The arrays and objects of a request around a payload: `{"jobs": [{"payload": …}]}`."""


def check_limits(text: str, what: str, around: int = 0) -> None:
    """Raises PayloadError if a JSON text is nested too deeply or has a number with too many digits.

    `around`: the levels around the application's values, which do not count. Without these limits the interpreter's own
    would apply, which differ between its versions and with the depth of the stack. Most texts have too few brackets and
    digits for a closer look.
    """
    if len(text) <= ALWAYS_ALLOWED:
        return
    if text.count("[") + text.count("{") > DEPTH_LIMIT and _depth(text) > DEPTH_LIMIT + around:
        raise too_deep(what)
    if _has_long_number(text) and _has_long_number("".join(_unescaped(text).split('"')[::2])):
        raise _too_long(what)


def too_deep(what: str) -> PayloadError:
    """Returns the error for a value that is nested too deeply."""
    return PayloadError(
        f"{what} is nested more than {DEPTH_LIMIT} levels deep: flatten it, or pass the inner part as a string of JSON"
    )


def _too_long(what: str) -> PayloadError:
    return PayloadError(f"{what} has a number of more than {DIGITS_LIMIT} digits: pass it as a string")


def _unescaped(text: str) -> str:
    """Returns a JSON text in which every quotation mark begins or ends a string."""
    return text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text


def _depth(text: str) -> int:
    """Returns the depth of a JSON text with brackets; those in strings do not count."""
    marks = _unescaped(text).encode(errors="replace").translate(None, _NO_MARKS).replace(b'""', b"")
    if b'"' in marks:  # there are strings with brackets
        marks = b"".join(marks.split(b'"')[::2])
    steps = marks.translate(_STEPS).replace(b"\x01\xff", b"")  # without the innermost level, which has most brackets
    return 1 + max(accumulate(memoryview(steps).cast("b")), default=0)


def _has_long_number(text: str) -> bool:
    """Whether more than DIGITS_LIMIT digits follow each other: if so, one of them is at a multiple of that number."""
    for at in range(DIGITS_LIMIT, len(text), DIGITS_LIMIT):
        if text[at] in _DIGITS:
            before, after = text[at - DIGITS_LIMIT : at], text[at : at + DIGITS_LIMIT]
            digits = len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            if digits > DIGITS_LIMIT:
                return True
    return False


def _has_long_integer(value: Any) -> bool:
    """Whether plain data that cannot be encoded has an integer with too many digits; it may also contain itself."""
    todo, seen = [value], set[int]()
    while todo:
        each = todo.pop()
        if isinstance(each, int) and abs(each) >= 10**DIGITS_LIMIT:
            return True
        if isinstance(each, dict | list | tuple) and id(cast(Any, each)) not in seen:
            seen.add(id(cast(Any, each)))
            todo.extend(cast("dict[Any, Any]", each).values() if isinstance(each, dict) else cast("list[Any]", each))
    return False


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


def to_json(value: Any, what: str, around: int = 0) -> str:
    """Encodes a value as JSON, escaped; `what` names the value in the error message. Raises PayloadError."""
    if value is None:
        return "null"
    return escape_json(_encode(value, what, around))


def restored(value: Any, what: str) -> Any:
    """Returns plain data with its strings restored. Raises PayloadError if a string is not valid Unicode."""
    text = _encode(value, what)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{what} contains a lone surrogate, which must be escaped: {error}") from error
    return json.loads(restore_json(text)) if MARK in text else value


def _encode(value: Any, what: str, around: int = 0) -> str:
    try:
        text = _encoder.encode(value)
    except RecursionError as error:
        raise too_deep(what) from error
    except (TypeError, ValueError) as error:
        if _has_long_integer(value):
            raise _too_long(what) from None
        raise PayloadError(f"{what} cannot be written as JSON: {_why_not_json(value, '', 0) or error}") from error
    check_limits(text, what, around)
    return text


_INSTEAD: dict[type[Any], str] = {
    bytes: "pass text, for example base64, or store a file and pass its path",
    bytearray: "pass text, for example base64, or store a file and pass its path",
    memoryview: "pass text, for example base64, or store a file and pass its path",
    set: "pass a list",
    frozenset: "pass a list",
    float: "pass None for a number that is not finite",
    GeneratorType: "pass a list of what it yields",
    AsyncGeneratorType: "pass a list of what it yields",
    CoroutineType: "an `await` is missing before the call",
}


_IDS = ("Flow", "Job", "Ref")
"""Classes of Chargehand whose objects have an id, which stands for them."""


def _why_not_json(value: Any, where: str, depth: int) -> str | None:
    """Returns which part of a value is not JSON, and what to pass instead; None if every part is, or is too deep."""
    if depth > DEPTH_LIMIT:
        return None
    if isinstance(value, dict):
        inner = [(f"{where}[{key!r}]", part) for key, part in cast("dict[Any, Any]", value).items()]
        wrong = next((key for key in cast("dict[Any, Any]", value) if type(key) not in _KEYS), None)
        if wrong is not None:
            return f"{where or 'it'} has the key {wrong!r:.100}: keys must be strings"
    elif isinstance(value, list | tuple):
        inner = [(f"{where}[{at}]", part) for at, part in enumerate(cast("list[Any]", value))]
    elif names := _fields(value):
        inner = [(f"{where}.{name}", getattr(value, name, None)) for name in names]
    else:
        return _why_not_part(value, where)
    return next((why for at, part in inner if (why := _why_not_json(part, at, depth + 1))), None)


def _fields(value: Any) -> Iterable[str]:
    """Returns the names of the fields of a dataclass or struct; none for other values."""
    kind = cast("Any", type(value))
    return getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__struct_fields__", ())


_KEYS: tuple[Any, ...] = (str, int, float, bool, type(None))


def _why_not_part(value: Any, where: str) -> str | None:
    """Returns why a value that contains no others is not JSON, and what to pass instead; None if it is."""
    try:
        _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        kind: Any = cast("Any", type(value))
        if hasattr(value, "__fspath__"):
            instead = "pass str(path)"
        elif isinstance(value, type) or callable(value):
            instead = "pass data, not code: workers run in other processes"
        elif kind.__name__ in _IDS and kind.__module__.startswith("chargehand."):
            instead = "pass its id"
        elif hasattr(kind, "_meta") or hasattr(kind, "__mapper__"):  # a model of Django or SQLAlchemy
            instead = "pass its primary key, and load it in the handler"
        elif isinstance(value, Exception):
            instead = "raise it, or pass its text"
        else:
            instead = _INSTEAD.get(kind, "pass plain data, a dataclass, a msgspec struct or a pydantic model")
        shown = repr(value) if kind is float else f"of the type {kind.__name__}"
        return f"{where.lstrip('.') or 'it'} is {shown}: {instead}"
    return None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str, wanted: Any, what: str) -> Any:
    """Decodes escaped JSON that a person wrote as the wanted type. Raises PayloadError, also beyond the limits."""
    check_limits(text, what)
    try:
        return from_json(text, wanted, what)
    except PayloadError as error:
        if not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        quoted = """; in JSON, names and texts have double quotation marks: '{"path": "a b"}', '"a b"'"""
        raise PayloadError(f"{error}{quoted}") from error


def from_json(text: str | bytes, wanted: Any, what: str) -> Any:
    """Decodes escaped JSON as the wanted type. Raises PayloadError, which says where the value does not match.

    The limits do not apply: an earlier version, which had none, may have stored the text.
    """
    try:
        plain = restore_json(text if isinstance(text, str) else text.decode())
        value = json.loads(plain, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise too_deep(what) from error
    except ValueError as error:
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

        return msgspec.convert(value, wanted, str_keys=True, dec_hook=_nested)
    except (TypeError, ValueError) as error:
        name = str(wanted) if hasattr(wanted, "__args__") else getattr(wanted, "__qualname__", str(wanted))
        places = _places(error)
        first = "; ".join(f"{place}: {text}" if place else text for place, text in places[:3])
        more = f"; and {len(places) - 3} more" if len(places) > 3 else ""
        wrong = PayloadError(f"{what} is of the wrong type, not a {name}: {first}{more}")
        wrong.places = places
        raise wrong from error


def _nested(wanted: Any, value: Any) -> Any:
    """Converts plain data to a pydantic model that is inside another type; called for types that msgspec does not know.

    msgspec adds the place of the model to the error, and would add the input values, which may be secret.
    """
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        raise TypeError(f"Expected `{getattr(wanted, '__name__', wanted)}`, got `{type(value).__name__}`")
    try:
        return validate(value)
    except ValueError as error:
        places = _places(error)
        raise ValueError("; ".join(f"{place}: {text}" if place else text for place, text in places[:3])) from None


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
    refuse_stars(value, text, what)
    if wanted in (None, Any, object) or (type(value) is wanted and hasattr(wanted, "model_validate")):
        return text  # pydantic models validate when they are created; dataclasses and structs do not
    from_json(text, wanted, what)
    return text


_STARS = '"**********"'
"""What pydantic writes for a SecretStr, in JSON."""


def refuse_stars(value: Any, text: str, what: str) -> None:
    """Raises PayloadError if JSON has only stars for a secret of pydantic: the handler would work with the stars."""
    if _STARS in text and (place := _secret_in(value, "")) is not None:
        name = place.strip(".") or "it"
        raise PayloadError(
            f"{what} has a secret of pydantic, which JSON shows as stars: {name}: take a str, and hide its value from "
            "readers with the option hide= of the crew"
        )


def _secret_in(value: Any, where: str) -> str | None:
    """Returns where a value that was encoded, and so does not contain itself, has a secret of pydantic."""
    if hasattr(value, "get_secret_value"):
        return where
    if isinstance(value, dict):
        inner = [(f"{where}[{key!r}]", part) for key, part in cast("dict[Any, Any]", value).items()]
    elif isinstance(value, list | tuple):
        inner = [(f"{where}[{at}]", part) for at, part in enumerate(cast("list[Any]", value))]
    else:
        names = getattr(cast("Any", type(value)), "model_fields", None) or _fields(value)
        inner = [(f"{where}.{name}", getattr(value, name, None)) for name in names]
    return next((found for at, part in inner if (found := _secret_in(part, at)) is not None), None)
