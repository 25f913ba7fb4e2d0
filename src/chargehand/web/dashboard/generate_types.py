"""Writes the TypeScript types of the dashboard from the OpenAPI document.

`--check` writes nothing, and exits with status 1 if the file differs from what would be written.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chargehand import Chargehand
from chargehand.web.answers import EVENTS
from chargehand.web.api import create
from chargehand.web.site import Site

TYPES = Path(__file__).parent / "source" / "src" / "types.ts"
HEAD = "// Generated from the OpenAPI document by `make dashboard` (generate_types.py). Do not edit.\n"
_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def generated() -> str:
    """Returns the text of types.ts."""
    with TemporaryDirectory() as folder:
        api = create(Site(Chargehand(f"{folder}/chargehand.db"), ""))
        schemas: dict[str, dict[str, Any]] = api.openapi()["components"]["schemas"]
    types = [_declared(name, schema) for name, schema in sorted(schemas.items())]
    events = " | ".join(event.__name__ for event in EVENTS)
    return "\n".join([HEAD, *types, f"export type LiveEvent = {events};\n"])


def _declared(name: str, schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_type(schema)};\n"
    required = schema.get("required", ())
    lines = [f"  {field}{'' if field in required else '?'}: {_type(of)};" for field, of in schema["properties"].items()]
    return "\n".join([f"export interface {name} {{", *lines, "}\n"])


def _type(schema: Mapping[str, Any]) -> str:
    """Returns the TypeScript type of a JSON schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(_type(each) for each in schema['prefixItems'])}]"
        case "array":
            item = _type(schema.get("items", {}))
            return f"({item})[]" if " " in item else f"{item}[]"
        case "object":
            of = schema.get("additionalProperties", {})
            return f"Record<string, {'unknown' if of is True else _type(of)}>"
        case str(name):
            return _SIMPLE[name]
        case _:
            return "unknown"


def main() -> int:
    """Writes the file, or with `--check` returns 1 if it differs from what would be written."""
    text = generated()
    if "--check" in sys.argv:
        return int(TYPES.read_text() != text)
    TYPES.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
