"""What of a call is secret: places that its type names, and whatever its `redact=` changes.

A redacting function is handed the arguments by name, as JSON has them, and gives them back as
anybody may see them. What it puts in the place of a value is not kept, since it may be made of the
value: all that counts is which places it changed or left out. Those are locked like named ones.
Whoever does not know the function (another protocol, a command line) locks all arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from detent.errors import BadArguments, BadSignature

Redact: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
ALL: Final = "kwargs"
"""The place of all arguments that have names."""
_MISSING: Final = object()
_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Hidden(msgspec.Struct, frozen=True):
    """What a type says about its secrets: `paths` into its arguments, and a function."""

    paths: tuple[str, ...] = ()
    redact: Redact | None = None

    def need_sound(self, job: str, function: Callable[..., Any]) -> None:
        """Refuse a function that could miss an argument, or would have to be awaited."""
        if self.redact is None:
            return
        kinds = [one.kind for one in inspect.signature(function).parameters.values()]
        if any(kind in _UNNAMED for kind in kinds):
            why = "redact= is handed arguments by name, and some of its parameters have none"
        elif not _is_plain(self.redact):
            why = "redact= must be a plain function of the arguments"
        else:
            return
        raise BadSignature(f"{job} cannot be a job: {why}", job=job, option="redact")

    @property
    def declared(self) -> tuple[str, ...]:
        """The places that those lock who know nothing but this."""
        named = tuple(f"{ALL}.{path}" for path in self.paths)
        return named if self.redact is None else (ALL, *named)

    def places(self, job: str, payload: str) -> tuple[str, ...]:
        """The places in this payload that are secret."""
        named = tuple(f"{ALL}.{path}" for path in self.paths)
        if self.redact is None:
            return named
        # One more of its own, so that it may be changed and given back.
        found, own = _NAMED.decode(payload), _NAMED.decode(payload)
        shown = self._shown(job, own.kwargs)
        return (*named, *_changed(found.kwargs, shown, ALL))

    def _shown(self, job: str, given: dict[str, Any]) -> Mapping[str, Any]:
        assert self.redact is not None  # noqa: S101 - asked only where there is one
        try:
            shown: object = self.redact(given)
        except Exception as error:
            why = f"its redact= has raised {type(error).__name__}"
        else:
            if isinstance(shown, Mapping):
                return shown
            why = "its redact= must return the arguments as anybody may see them"
        raise BadArguments(f"{job}: {why}, so nothing was stored", job=job, path="", why=why)


class _Kwargs(msgspec.Struct):
    kwargs: dict[str, Any] = {}


_NAMED = msgspec.json.Decoder(_Kwargs)


def _is_plain(function: object) -> bool:
    return callable(function) and not inspect.iscoroutinefunction(function)


def _changed(given: Any, shown: Any, at: str) -> Iterator[str]:
    """Where the two differ, as near as a path can say: a list is changed as a whole."""
    if not isinstance(given, dict) or not isinstance(shown, Mapping):
        if type(given) is not type(shown) or given != shown:
            yield at
        return
    differ = [name for name in given if _is_other(given[name], shown.get(name, _MISSING))]
    if any("." in name or not name for name in differ):
        yield at
        return
    for name in differ:
        yield from _changed(given[name], shown.get(name, _MISSING), f"{at}.{name}")


def _is_other(given: Any, shown: Any) -> bool:
    return next(_changed(given, shown, ""), None) is not None
