"""Checks the constraints of pydantic in `Annotated` types, where pydantic is installed.

msgspec reads a value and passes over words that are not its own, so `Annotated[int, Field(gt=5)]`
would promise what nobody sees to. They are asked second, of the value that was read: they may
narrow or mend it, and a type means the same with them and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

_SPEAKERS = ("pydantic", "annotated_types")


def keeper_of(hint: Any) -> Callable[[Any], Any] | None:
    """Whoever sees to such words about a value, if there are any; `ValueError` says what is wrong.

    `TypeError` if pydantic itself cannot make sense of them.
    """
    if not any(_is_spoken(word) for word in _words(hint)):
        return None
    try:
        pydantic, core = import_module("pydantic"), import_module("pydantic_core")
    except ImportError:
        return None
    try:
        keep: Callable[[Any], Any] = _adapter(pydantic, hint).validate_python
    except (pydantic.errors.PydanticUserError, core.SchemaError) as error:
        raise TypeError(str(error)) from None
    return keep


def _words(hint: Any) -> Iterator[Any]:
    """Whatever is said about a type and about those in it; a class says of itself what it is."""
    parts: Sequence[Any] = get_args(hint)
    if get_origin(hint) is Annotated:
        yield from parts[1:]
        parts = parts[:1]
    for part in parts:
        yield from _words(part)


def _is_spoken(word: Any) -> bool:
    return type(word).__module__.split(".")[0] in _SPEAKERS


def _adapter(pydantic: Any, hint: Any) -> Any:
    """Structs are nothing that pydantic knows; a model does not let others say how it is read."""
    try:
        return pydantic.TypeAdapter(hint, config={"arbitrary_types_allowed": True})
    except pydantic.errors.PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return pydantic.TypeAdapter(hint)


def complaint_of(error: Any) -> tuple[str, str]:
    """Where in the value the first complaint of pydantic is, as a path, and what it is."""
    found = error.errors()[0]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]]
    return "".join(parts), str(found["msg"])
