"""Payloads in the form that a document asks for: an array, an object, or named inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMED = frozenset({"args", "kwargs"})


def as_args(payload: Any) -> list[Any]:
    """A payload where an array is wanted: an array as it is, anything else as its only element."""
    return list(payload) if isinstance(payload, (list, tuple)) else [payload]


def as_object(payload: Any) -> dict[str, Any]:
    """A payload where an object is wanted: an object as it is, anything else under `args`."""
    return dict(payload) if isinstance(payload, Mapping) else {"args": as_args(payload)}


def inputs_of(payload: Any) -> Any:
    """Arguments that all have names, by name; those of other ways in as an object."""
    if isinstance(payload, Mapping) and payload.keys() <= _NAMED and not payload.get("args"):
        return payload.get("kwargs", {})
    return as_object(payload)
