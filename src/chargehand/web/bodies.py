"""Reads and decodes the bodies of requests: limited in size and time, and never for long on the event loop.

Invalid JSON and unknown fields are refused before anything is built from them.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from chargehand import codec
from chargehand.errors import PayloadError
from chargehand.model.job import PAYLOAD_LIMIT
from chargehand.model.spelling import field_meant
from chargehand.web.problems import MOST_FAULTS, Fault, Problem, summary

if TYPE_CHECKING:
    from chargehand.web.site import Site

AT_ONCE = 16 << 10
"""The largest body, in bytes, that is decoded on the event loop; a larger one is decoded in a thread."""
LONGEST_FIELD = 64 << 10
"""The largest JSON, in bytes, of a field other than a payload."""
LONGEST_FIELDS = {"after": 2 << 20}
"""The largest JSON, in bytes, of fields that may be longer: 10,000 ids."""


class LimitedRequest(Request):
    """A request whose body is limited: `limit` bytes and `http.body_time` seconds; `model` is what it must contain."""

    def __init__(self, request: Request, limit: int, model: type[BaseModel] | None) -> None:
        super().__init__(request.scope, request.receive)
        self._limit, self._model = limit, model

    async def body(self) -> bytes:
        """Returns the body. Raises Problem if it is too large or too slow, or if the server stops meanwhile."""
        if not hasattr(self, "_body"):
            self._body = await self._read()
        return self._body

    async def _read(self) -> bytes:
        if int(self.headers.get("content-length", "0")[:20]) > self._limit:
            raise too_large(self._limit)
        site: Site = self.app.state.site
        seconds = site.hand.settings.http.body_time
        try:
            async with site.until_closing(seconds):
                return await self._collect()
        except TimeoutError:
            # The rest of the body could not be told from the next request.
            close = {"Connection": "close"} if self.scope.get("http_version", "1.1").startswith("1") else {}
            if site.closing.is_set():
                raise Problem(503, "stopping", "the server is stopping", headers=close) from None
            raise Problem(408, "too-slow", f"the body did not arrive within {seconds:g} s", headers=close) from None

    async def _collect(self) -> bytes:
        parts: list[bytes] = []
        left = self._limit
        async for part in self.stream():
            left -= len(part)
            if left < 0:
                raise too_large(self._limit)
            parts.append(part)
        return b"".join(parts)

    async def json(self) -> Any:
        """Returns the decoded body, in which no field is unknown or too long. Raises Problem."""
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) <= AT_ONCE:
                self._json = decode(body, self._model)
            else:
                site: Site = self.app.state.site
                self._json = await site.in_thread(lambda: decode(body, self._model))
        return self._json


def model_of(route: APIRoute) -> type[BaseModel] | None:
    """Returns the model of the body of a route; None if the route declares none."""
    for field in route.dependant.body_params:
        kinds = get_args(field.field_info.annotation) or (field.field_info.annotation,)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                return kind
    return None


def too_large(limit: int) -> Problem:
    """Returns the problem for a body that exceeds the limit."""
    return Problem(413, "too-large", f"the body is larger than the limit of {limit:,} bytes")


def invalid(faults: Sequence[Fault]) -> Problem:
    """Returns the problem for an invalid body."""
    return Problem(422, "invalid-request", summary(faults), faults=faults)


def _unknown(where: str, name: str, model: type[BaseModel]) -> Fault:
    return Fault(f"{where}/{name}", f"there is no such field{field_meant(name, model.model_fields)}")


def decode(body: bytes | msgspec.Raw, model: type[BaseModel] | None, where: str = "body") -> Any:
    """Returns a JSON text as plain data. Raises Problem at the first fault, for unknown fields of the model, too.

    The model is not validated here; validating the result is cheap, because only a payload can be large.
    """
    if model is None:
        return decoded(body, where)
    size = memoryview(body).nbytes
    if size <= AT_ONCE:
        plain: Any = decoded(body, where)
        if isinstance(plain, dict):
            fields = cast("dict[str, Any]", plain)
            unknown = [name for name in fields if name not in model.model_fields]
            if unknown:
                raise invalid([_unknown(where, name[:100], model) for name in unknown[:MOST_FAULTS]])
        return cast("Any", plain)
    # Only names and positions: nothing is built from a body that has an unknown field or a long one.
    outline = decoded(body, where, _outline(model) | None)
    if outline is None:
        return None
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        raw: msgspec.Raw = getattr(outline, name)
        length = memoryview(raw).nbytes
        most = LONGEST_FIELDS.get(name, LONGEST_FIELD)
        if length > most and field.annotation is not Any:
            raise invalid([Fault(f"{where}/{name}", f"has {length:,} bytes; at most {most:,} are allowed")])
        if field.annotation is Any and least_size(raw) > 2 * PAYLOAD_LIMIT:
            text = f"the payload has {length:,} bytes; the maximum is {PAYLOAD_LIMIT:,} bytes of compact JSON"
            raise _beyond_limits(PayloadError(text), f"{where}/{name}")
        if length:
            found[name] = decoded(raw, f"{where}/{name}")
    return found


def least_size(text: msgspec.Raw) -> int:
    """Returns a size that JSON has at least without white space and escapes, so that it need not be decoded to know."""
    found = bytes(text)
    return len(found) - sum(found.count(space) for space in b" \t\r\n") - 5 * found.count(b"\\")


def decoded(text: bytes | msgspec.Raw, where: str, kind: Any = Any) -> Any:
    """Decodes JSON, as a type if one is given. Raises Problem at the first fault."""
    try:
        if kind is Any:  # other types only find positions
            # Latin-1 copes with any body, and the marks that count are single bytes in UTF-8.
            codec.check_limits(str(memoryview(text), "latin-1"), "the body", codec.REQUEST_DEPTH)
        return msgspec.json.decode(text, type=kind)
    except PayloadError as error:
        raise _beyond_limits(error, where) from None
    except RecursionError:
        raise _beyond_limits(codec.too_deep("the body"), where) from None
    except msgspec.ValidationError as error:
        raise invalid([Fault(where, str(error))]) from None
    except ValueError as error:
        raise invalid([Fault(where, f"is not JSON: {error}")]) from None


def _beyond_limits(error: PayloadError, where: str) -> Problem:
    return Problem(422, "payload", str(error), faults=[Fault(where, str(error))])


@cache
def _outline(model: type[BaseModel]) -> Any:
    """Returns a type that finds the fields of a model in a JSON text without decoding them."""
    fields = [(name, msgspec.Raw, msgspec.Raw()) for name in model.model_fields]
    return msgspec.defstruct(f"{model.__name__}Outline", fields, forbid_unknown_fields=True)
