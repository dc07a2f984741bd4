"""The OpenAPI document, made from the routes that there are: it cannot say what is not so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from detent.surfaces.http.routing import Route

_NAME = re.compile(r"\{(\w+)\}")
_NO_CONTENT: Final = 204
_BODIES: Final = ("POST", "PUT", "PATCH")
Schema: TypeAlias = dict[str, Any]
Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]


def object_of(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """The shape of an object with these fields."""
    told: Schema = {"type": "object", "properties": properties}
    return {**told, "required": list(required)} if required else told


def ref(name: str) -> Schema:
    """A shape of the document, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(name: str) -> Schema:
    """The shape of a list of them."""
    return {"type": "array", "items": ref(name)}


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
    parameters += [_optional("query", *one) for one in route.query.items()]
    parameters += [_optional("header", *one) for one in route.headers.items()]
    if parameters:
        told["parameters"] = parameters
    if route.takes is not None:
        content = {kind: {"schema": ref(route.takes)} for kind in (media, "application/json")}
        told["requestBody"] = {"required": route.needs_body, "content": content}
    if route.scope is not None:
        told["security"] = [{"key": []}, {}]
        told["x-detent-scope"] = route.scope.value
    return told


def _responses(route: Route, media: str) -> dict[str, Any]:
    kind = route.type or media
    schema = {"type": "string"} if kind != media else ref(route.gives)
    good: dict[str, Any] = {
        str(status): {"description": "Done."}
        | ({} if status == _NO_CONTENT else {"content": {kind: {"schema": schema}}})
        for status in route.statuses
    }
    bad = {"description": "Refused.", "content": {media: {"schema": ref("Error")}}}
    return {**good, "4XX": bad, "5XX": bad}


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _optional(place: str, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": dict(schema)}


def _id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method.lower(), *words])
