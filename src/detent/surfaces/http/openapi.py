"""The OpenAPI document, made from the routes that there are: it cannot say what is not so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from detent.surfaces.http.routing import Route

__all__ = ["Schemas", "document"]

_NAME = re.compile(r"\{(\w+)\}")
_NO_CONTENT: Final = 204
_BODIES: Final = ("POST", "PUT", "PATCH")
Schemas = Mapping[str, Mapping[str, Any]]


def document(routes: Sequence[Route], schemas: Schemas, media: str, version: str) -> dict[str, Any]:
    """The whole document. `schemas` has what routes take and give, and `Error`."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, media)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Detent", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, media: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": _id(route),
        "summary": route.says,
        "responses": _responses(route, media),
    }
    parameters = [_parameter(name) for name in _NAME.findall(route.path)]
    parameters += [_query(name, schema) for name, schema in route.query.items()]
    if parameters:
        told["parameters"] = parameters
    if route.takes is not None:
        content = {kind: {"schema": _ref(route.takes)} for kind in (media, "application/json")}
        told["requestBody"] = {"required": route.needs_body, "content": content}
    if route.scope is not None:
        told["security"] = [{"key": []}, {}]
        told["x-detent-scope"] = route.scope.value
    return told


def _responses(route: Route, media: str) -> dict[str, Any]:
    kind = route.type or media
    schema = {"type": "string"} if kind != media else _ref(route.gives)
    good: dict[str, Any] = {
        str(status): {"description": "Done."}
        | ({} if status == _NO_CONTENT else {"content": {kind: {"schema": schema}}})
        for status in route.statuses
    }
    bad = {"description": "Refused.", "content": {media: {"schema": _ref("Error")}}}
    return {**good, "4XX": bad, "5XX": bad}


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": dict(schema)}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method.lower(), *words])
