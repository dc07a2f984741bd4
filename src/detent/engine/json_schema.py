"""Checks a value against a JSON Schema: the part of the standard that describes data.

Patterns are not among it: one that somebody writes could hold up every other request. Neither are
references to elsewhere. What is unknown is ignored, as the standard asks; what is known and cannot
be checked here is refused when the schema is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

DEPTH_MAX: Final = 64
STEPS_MAX: Final = 20_000
"""How many parts of a schema are looked at for one value: branches within branches have no end."""
_UNFIT: Final = ("pattern", "patternProperties", "$dynamicRef", "unevaluatedProperties")
_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, float) and value.is_integer())
    ),
}
_BOUNDS: Final[dict[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minimum": ("number", lambda value, bound: value >= bound),
    "maximum": ("number", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("number", lambda value, bound: value > bound),
    "exclusiveMaximum": ("number", lambda value, bound: value < bound),
    "multipleOf": ("number", lambda value, bound: bound > 0 and value % bound == 0),
    "minLength": ("string", lambda value, bound: len(value) >= bound),
    "maxLength": ("string", lambda value, bound: len(value) <= bound),
    "minItems": ("array", lambda value, bound: len(value) >= bound),
    "maxItems": ("array", lambda value, bound: len(value) <= bound),
    "minProperties": ("object", lambda value, bound: len(value) >= bound),
    "maxProperties": ("object", lambda value, bound: len(value) <= bound),
}


_FORMS: Final[dict[str, tuple[type, ...]]] = {
    "type": (str, list),
    "enum": (list,),
    "properties": (dict,),
    "required": (list,),
    "items": (dict, bool),
    "prefixItems": (list,),
    "additionalProperties": (dict, bool),
    "allOf": (list,),
    "anyOf": (list,),
    "oneOf": (list,),
    "not": (dict, bool),
    **dict.fromkeys(_BOUNDS, (int, float)),
}
"""What stands under a word that is known here."""


class _Root:
    """The schema that references lead into, and how much of it was looked at."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.steps = 0


def unfit(schema: Any, depth: int = 0) -> str | None:
    """What of a schema cannot be checked here, if anything."""
    if depth > DEPTH_MAX:
        return f"it is nested deeper than {DEPTH_MAX}"
    if isinstance(schema, list):
        return next((found for one in schema if (found := unfit(one, depth + 1))), None)
    if not isinstance(schema, dict):
        return None
    ref = schema.get("$ref")
    if isinstance(ref, str) and not ref.startswith("#"):
        return "$ref leads elsewhere"
    bad = next((name for name in _UNFIT if name in schema), None)
    for name, forms in _FORMS.items():
        if name in schema and not isinstance(schema[name], forms):
            return f"{name} of another form"
    return bad or unfit(list(schema.values()), depth + 1)


def faults(schema: Any, value: Any) -> Iterator[str]:
    """What is wrong with a value, and where."""
    return _faults(schema, value, "$", _Root(schema), 0)


def _faults(schema: Any, value: Any, at: str, root: _Root, depth: int) -> Iterator[str]:
    root.steps += 1
    is_much = depth > DEPTH_MAX or root.steps > STEPS_MAX
    if schema is False or is_much:
        yield f"{at}: {'there is too much to check' if is_much else 'nothing may stand here'}"
    if not isinstance(schema, dict) or is_much:
        return
    if "$ref" in schema:
        yield from _faults(_found(root.schema, schema["$ref"]), value, at, root, depth + 1)
    yield from _plain(schema, value, at)
    yield from _inside(schema, value, at, root, depth)
    yield from _combined(schema, value, at, root, depth)


def _plain(schema: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    kinds = schema.get("type", [])
    named = [kinds] if isinstance(kinds, str) else kinds
    if named and not any(_TYPES.get(kind, _any)(value) for kind in named):
        yield f"{at}: must be {' or '.join(map(str, named))}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{at}: is not among what is allowed"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{at}: is not what it must be"
    for name, (kind, holds) in _BOUNDS.items():
        if name in schema and _TYPES[kind](value) and not holds(value, schema[name]):
            yield f"{at}: {name} {schema[name]} is not met"


def _inside(
    schema: Mapping[str, Any], value: Any, at: str, root: _Root, depth: int
) -> Iterator[str]:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{at}: {name} is missing"
        for name, one in value.items():
            inner = known.get(name, schema.get("additionalProperties", True))
            yield from _faults(inner, one, f"{at}.{name}", root, depth + 1)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for number, one in enumerate(value):
            inner = first[number] if number < len(first) else schema.get("items", True)
            yield from _faults(inner, one, f"{at}[{number}]", root, depth + 1)


def _combined(
    schema: Mapping[str, Any], value: Any, at: str, root: _Root, depth: int
) -> Iterator[str]:
    def fits(one: Any) -> bool:
        return next(_faults(one, value, at, root, depth + 1), None) is None

    for one in schema.get("allOf", ()):
        yield from _faults(one, value, at, root, depth + 1)
    if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
        yield f"{at}: is none of what it may be"
    if "oneOf" in schema and sum(map(fits, schema["oneOf"])) != 1:
        yield f"{at}: is not exactly one of what it may be"
    if "not" in schema and fits(schema["not"]):
        yield f"{at}: is what it must not be"


def _found(root: Any, ref: Any) -> Any:
    """What a reference within the schema leads to; nothing if it leads nowhere."""
    here = root
    for part in str(ref).removeprefix("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        here = here.get(name, False) if isinstance(here, dict) and name else here
    return here


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON is: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _any(_: Any) -> bool:
    return True
