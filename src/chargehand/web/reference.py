"""Renders the OpenAPI document as an HTML page without scripts and without external resources."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'"


def page(described: Mapping[str, Any]) -> str:
    """Returns the HTML page of an OpenAPI document."""
    about = described["info"]
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(about["title"])}: HTTP</title>',
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="dashboard/chargehand.css">',
        f"</head><body><main><h1>{escape(about['title'])} {escape(about['version'])}</h1>",
        *(f"<p>{escape(text)}</p>" for text in about["description"].strip().split("\n\n")),
        '<p>OpenAPI document: <a href="openapi.json">openapi.json</a></p>',
    ]
    for path, operations in described["paths"].items():
        parts += [_operation(verb.upper(), path, each, described) for verb, each in operations.items()]
    return "\n".join([*parts, "</main></body></html>"])


def _operation(verb: str, path: str, operation: Mapping[str, Any], described: Mapping[str, Any]) -> str:
    parts = [f"<details><summary><code>{verb} {escape(path)}</code> {escape(_first_line(operation))}</summary>"]
    parts += [f"<p>{escape(text)}</p>" for text in operation.get("description", "").split("\n\n")[1:]]
    wanted = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    parts += [f"<ul>{''.join(wanted)}</ul>"] if wanted else []
    parts.append(_shown("Request body", operation.get("requestBody", {}), described))
    answers = operation["responses"].items()
    parts += [_shown(f"Response {status}", answer, described) for status, answer in answers if status.startswith("2")]
    return "".join([*parts, "</details>"])


def _first_line(operation: Mapping[str, Any]) -> str:
    return operation.get("description", operation.get("summary", "")).partition("\n\n")[0]


def _parameter(parameter: Mapping[str, Any]) -> str:
    needed = ", required" if parameter.get("required") else ""
    about = parameter.get("description", "")
    return f"<li><code>{escape(parameter['name'])}</code> ({escape(parameter['in'])}{needed}) {escape(about)}</li>"


def _shown(what: str, body: Mapping[str, Any], described: Mapping[str, Any]) -> str:
    """Returns the example of a request or response body, if it has one, and the fields with descriptions."""
    content = body.get("content", {}).get("application/json", {})
    schema = _schema(content.get("schema", {}), described)
    found = content.get("example", next(iter(schema.get("examples", ())), None))
    if found is None:
        return ""
    fields = [
        f"<li><code>{escape(name)}</code> {escape(field['description'])}</li>"
        for name, field in schema.get("properties", {}).items()
        if "description" in field
    ]
    example = escape(json.dumps(found, indent=2, ensure_ascii=False))
    return f"<p>{escape(what)}:</p><pre>{example}</pre>" + (f"<ul>{''.join(fields)}</ul>" if fields else "")


def _schema(schema: Mapping[str, Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema that a reference names; the first of several."""
    for each in (schema, *schema.get("anyOf", ())):
        if "$ref" in each:
            return described["components"]["schemas"][each["$ref"].rpartition("/")[2]]
    return schema
