"""Options that many commands share, declared once: a class of them is one parameter of a command.

Typer reads the options of a command from its signature. `expanded` gives it one in which every
parameter that is a `Bundle` stands for the fields of that bundle.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Any, get_type_hints


class Bundle:
    """A frozen dataclass whose fields are options."""


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, its bundles written out as the options they stand for."""
    hints = get_type_hints(command, include_extras=True)
    told = inspect.signature(command).parameters.values()
    bundles = {one.name: hints[one.name] for one in told if _is_bundle(hints[one.name])}
    own = [one.replace(annotation=hints[one.name]) for one in told if one.name not in bundles]
    written = [_parameter(kind, field) for kind in bundles.values() for field in fields(kind)]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, kind in bundles.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    # What Typer asks: the options as they stand here, not those of the function behind.
    vars(called)["__signature__"] = inspect.Signature([*map(_by_name, own), *written])
    called.__annotations__ = {}
    return called


def _is_bundle(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Bundle)


def _by_name(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(kind: type, field: Field[Any]) -> inspect.Parameter:
    hint = get_type_hints(kind, include_extras=True)[field.name]
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
    )
