"""JSON responses, and their OpenAPI schemas, which are derived from the response structs."""

from typing import Any

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from chargehand.web.problems import MEDIA, TYPE, Fault, ProblemDocument

_REFERENCE = "#/components/schemas/{name}"
_kinds: dict[str, Any] = {"ProblemDocument": ProblemDocument}
_models: dict[str, Any] = {}
"""The schemas of models that no parameter of a route has as its type."""
REFUSALS = {
    400: "The request is malformed.",
    401: "An API key is missing, unknown, revoked or expired.",
    403: "The key does not have the scope, or a page of another site sent the request.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    421: "This server does not serve that host.",
    422: "The request is invalid; `errors` lists the reasons.",
    431: "The headers are too large.",
    503: "The store or the node is unavailable, or the server is stopping.",
}
MORE = {404: "Not found.", 409: "Not possible in the current state."}
_EXAMPLE = ProblemDocument(
    type=f"{TYPE}invalid-request",
    title="Unprocessable Entity",
    status=422,
    detail="query/limit: Input should be less than or equal to 500",
    request_id="0199c0ffee",
    errors=(Fault("query/limit", "Input should be less than or equal to 500"),),
)


def respond(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns a response with a struct as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def answers(
    kind: type[Any], example: Any, *refusals: int, status: int = 200, also: int | None = None
) -> dict[int | str, dict[str, Any]]:
    """Returns the `responses` of a route: this struct, and these problems besides those of every route."""
    _kinds[kind.__name__] = kind
    one = {"$ref": _REFERENCE.format(name=kind.__name__)}
    content = {
        "schema": {"type": "array", "items": one} if isinstance(example, list) else one,
        "example": msgspec.to_builtins(example, enc_hook=_plain),
    }
    good = {"description": (kind.__doc__ or "").partition("\n")[0], "content": {"application/json": content}}
    found: dict[int | str, dict[str, Any]] = {each: good for each in (status, also) if each is not None}
    return found | {each: problem(MORE[each]) for each in refusals}


def also(*kinds: type[Any]) -> list[dict[str, str]]:
    """Adds structs that no route returns as its body to the document, and returns references to them."""
    _kinds.update({kind.__name__: kind for kind in kinds})
    return [{"$ref": _REFERENCE.format(name=kind.__name__)} for kind in kinds]


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Adds a model of a request body, and those within it, to the document, and returns a reference to it."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    _models.update({**schema.pop("$defs", {}), model.__name__: schema})
    return {"$ref": _REFERENCE.format(name=model.__name__)}


def examples_of(model: type[BaseModel]) -> list[Any]:
    """Returns the examples of a model."""
    extra: Any = model.model_config.get("json_schema_extra")
    return extra["examples"]


def problem(description: str) -> dict[str, Any]:
    """Returns the OpenAPI description of a problem response."""
    content = {
        "schema": {"$ref": _REFERENCE.format(name="ProblemDocument")},
        "example": msgspec.to_builtins(_EXAMPLE),
    }
    return {"description": description, "content": {MEDIA: content}}


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _as_sent(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a struct as it is sent: with every field, unless it leaves out defaults."""
    if "properties" not in schema:
        return schema
    properties = dict(schema["properties"])
    if properties.get("progress") == {}:  # JSON that the store has already encoded
        properties["progress"] = {"anyOf": [{"$ref": _REFERENCE.format(name="Progress")}, {"type": "null"}]}
    omits = name in _kinds and _kinds[name].__struct_config__.omit_defaults
    return {**schema, "properties": properties, "required": schema["required"] if omits else list(properties)}


def describe(api: FastAPI, description: str) -> None:
    """Makes the application generate its OpenAPI document with the structs and the security schemes."""

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            document = get_openapi(title=api.title, version=api.version, description=description, routes=api.routes)
            _, structs = msgspec.json.schema_components(list(_kinds.values()), ref_template=_REFERENCE)
            components = document.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            schemas |= {name: _as_sent(name, schema) for name, schema in structs.items()} | _models
            components["securitySchemes"] = {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`ch_…`) or the token (`ct_…`).",
                },
                "cookie": {"type": "apiKey", "in": "cookie", "name": api.state.site.cookie},
            }
            api.openapi_schema = document
        return api.openapi_schema

    api.openapi = openapi
