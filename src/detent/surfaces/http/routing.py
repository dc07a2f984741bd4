"""Routes as data: what is called how, who may, and what answers. One lookup per request.

A path without names in it is found at once; others part by part, so that no number of routes makes
a request slower.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from detent.engine.access import Scope
from detent.surfaces.http.caller import Reach
from detent.surfaces.http.exchange import Call, Reply

Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]
Hear: TypeAlias = Callable[[Reply | Exception], None]
Prompt: TypeAlias = Callable[[Call, Hear], bool]
"""Answers without a task, by calling whoever is to hear it; if it cannot, nothing has happened."""


class Route(msgspec.Struct, frozen=True):
    """One operation. `scope` of `None` is open to anybody; `reach` says who is bound too tightly.

    What follows is for the document.
    `takes` and `gives` name the shapes of bodies, `type` is that of a reply that is no JSON, and
    `query` and `headers` have the shapes of what may be asked behind the path and beside it. `name`
    is what a surface that lists its operations by name calls it.
    """

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    reach: Reach
    says: str = ""
    statuses: tuple[int, ...] = (200,)
    takes: str | None = None
    gives: str = "Anything"
    needs_body: bool = False
    type: str | None = None
    query: Mapping[str, Mapping[str, Any]] = {}
    headers: Mapping[str, Mapping[str, Any]] = {}
    prompt: Prompt | None = None
    name: str = ""


class _Node:
    """A part of paths: what may follow it, by name or whatever it is."""

    __slots__ = ("any", "methods", "name", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.name = ""
        self.methods: dict[str, Route] = {}


class Routes:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all = tuple(routes)
        self._root = _Node()
        self._plain: dict[tuple[str, str], Route] = {}
        for route in self.all:
            self._add(route)

    def find(self, method: str, path: str) -> tuple[Route | None, Mapping[str, str]]:
        """The route, with what the names in its path stand for; `None` when there is none."""
        plain = self._plain.get((method, path))
        if plain is not None:
            return plain, {}
        found = self._walk(path)
        if found is None:
            return None, {}
        node, params = found
        return node.methods.get(method), params

    def methods(self, path: str) -> tuple[str, ...]:
        """What may be asked of that path; nothing if there is no such path."""
        found = self._walk(path)
        return () if found is None else tuple(sorted(found[0].methods))

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            self._plain[route.method, route.path] = route
        node = self._root
        for part in route.path.split("/")[1:]:
            node = _next(node, part)
        node.methods[route.method] = route

    def _walk(self, path: str) -> tuple[_Node, dict[str, str]] | None:
        node, params = self._root, dict[str, Any]()
        for part in path.split("/")[1:]:
            known = node.parts.get(part)
            if known is not None:
                node = known
            elif node.any is not None and part:
                node = node.any
                params[node.name] = part
            else:
                return None
        return (node, params) if node.methods else None


def _next(node: _Node, part: str) -> _Node:
    if not part.startswith("{"):
        return node.parts.setdefault(part, _Node())
    if node.any is None:
        node.any = _Node()
        node.any.name = part[1:-1]
    return node.any
