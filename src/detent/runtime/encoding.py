"""Values as JSON and back: what msgspec knows, dataclasses, and pydantic's if it is there.

Nothing else ever becomes a payload or a result, so reading one runs no code of whoever wrote it.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import msgspec.inspect

from detent.runtime.outcomes import Outcome
from detent.runtime.pydantic_rules import complaint_of, keeper_of

_NULL = b"null"
_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")


class BadValue(ValueError):
    """A value that is not what it should be: `path` is where in it, `why` is what is wrong."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}" if path else why)
        self.path = path
        self.why = why


def encode(value: object) -> bytes:
    """The value as JSON, equal values as equal JSON; `BadValue` if it has none."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_plain, order="deterministic")
        text = msgspec.json.encode(plain)
    except RecursionError:
        raise BadValue("", "it contains itself, or is nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadValue("", str(error)) from None
    if _NULL in text:
        # That is how numbers that JSON does not have are written too.
        _need_finite(plain, "")
    return text


def _need_finite(value: Any, path: str) -> None:
    """Refuse NaN and infinite numbers: whoever reads them back would find nothing there."""
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(path, f"{value} is no number of JSON: use None, or a string")
    if isinstance(value, dict):
        for name, item in value.items():
            _need_finite(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _need_finite(item, f"{path}[{at}]")


def digest_of(text: str) -> str:
    """What an event carries in place of the text."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def mended(text: str, most: int) -> str:
    """The nearest text that any store can keep: what is said must never fail what is done."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class Reader:
    """Reads JSON into values of one type."""

    def __init__(self, hint: Any) -> None:
        self._decoder = msgspec.json.Decoder(hint, dec_hook=_built)
        self._keep = keeper_of(hint)

    def read(self, data: bytes | str | msgspec.Raw) -> Any:
        """The value; `BadValue` says where it is none of that type."""
        try:
            value = self._decoder.decode(bytes(data) if isinstance(data, msgspec.Raw) else data)
        except RecursionError:
            raise BadValue("", "it is nested too deeply") from None
        except msgspec.DecodeError as error:
            raise _misfit(error) from None
        return value if self._keep is None else _kept(self._keep, value)


def is_foreign(kind: type) -> bool:
    """Whether neither JSON nor anybody here knows what values of that class are made of."""
    is_open = kind is object or getattr(kind, "_is_protocol", False)
    if is_open or hasattr(kind, "model_validate_json") or issubclass(kind, _KNOWN):
        return False
    return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)


def _misfit(error: msgspec.DecodeError) -> BadValue:
    message, inner = str(error), error.__cause__
    found = _AT.search(message)
    path, why = (found[1], message[: found.start()]) if found else ("", message)
    # Where a model begins msgspec knows; where in it something is wrong only the model does.
    if isinstance(inner, BadValue):
        path, why = path + inner.path, inner.why
    return BadValue(path, why)


def _plain(value: Any) -> Any:
    """What msgspec does not know itself: a pydantic model says what it is made of.

    A text, a number or a moment of a class of its own is written as what it is: template engines
    and libraries of data make such, and whoever passes one on sees no difference.
    """
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    for kind, plain in _ROOTS:
        if isinstance(value, kind):
            return plain(value)
    raise TypeError(_why_not(value))


_KNOWN = (str, int, float, list, dict)
"""What JSON has itself: a class that is derived from one of them is made of it again."""
_ROOTS: tuple[tuple[type, Any], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (datetime, lambda value: datetime.fromisoformat(datetime.isoformat(value))),
)


def _why_not(value: Any) -> str:
    name = type(value).__qualname__
    if isinstance(value, Outcome):
        return f"{name} is raised, not returned: raise {name}(...)"
    if inspect.iscoroutine(value):
        value.close()
        return "it is a coroutine that nobody awaited: make the function async def, or await it"
    return f"{name} cannot be written as JSON: use plain values, or an id to load it by"


def _built(kind: type, value: Any) -> Any:
    """The way back. A strict model wants to know that it reads JSON, so it is given JSON."""
    if any(issubclass(kind, root) and isinstance(value, root) for root in _KNOWN):
        made: Any = kind
        return made(value)
    if not hasattr(kind, "model_validate_json"):
        raise TypeError(f"{kind!r} cannot be read from JSON")
    return _kept(kind.model_validate_json, msgspec.json.encode(value))


def _kept(keep: Callable[[Any], Any], value: Any) -> Any:
    """What pydantic makes of it."""
    try:
        return keep(value)
    except ValueError as error:
        raise BadValue(*complaint_of(error)) from None
