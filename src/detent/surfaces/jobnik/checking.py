"""What requests may bring: bodies, questions behind the path, and ids in it.

A rule takes the place of a value, for the message, and the value as it was written; it gives what
the surface works with. Objects stay the text they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw

from detent.surfaces.http.exchange import Call
from detent.surfaces.http.problems import Problem
from detent.surfaces.jobnik.faults import UNKNOWN, invalid

BODY: Final = "request/body"
BODY_BYTES_MAX: Final = 1024 * 1024
ITEMS_MAX: Final = 20_000
"""Tasks in one request, which is all or nothing: so many come in one commit."""
Rule: TypeAlias = Callable[[str, Any], Any]

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_NUL: Final = b"\\u0000"
_DIGITS_MAX: Final = 9


# --- bodies -----------------------------------------------------------------------------------


def body_of(call: Call) -> bytes:
    """The body, if it is JSON that we can keep; the type is looked at first, then the size."""
    if call.media_type != "application/json":
        raise Problem(415, UNKNOWN, f"unsupported media type {call.media_type[:100]}")
    if len(call.body) > BODY_BYTES_MAX:
        raise Problem(413, UNKNOWN, "request entity too large")
    try:
        found = msgspec.json.decode(call.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"{BODY} must be JSON: {error}") from None
    if _NUL in call.body and _has_nul(found):
        raise invalid(f"{BODY} must NOT have NUL characters")
    return call.body


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(one) for pair in value.items() for one in pair)
    return isinstance(value, list) and any(map(_has_nul, value))


def checked(
    raw: bytes | Raw,
    rules: Mapping[str, Rule],
    required: Collection[str] = (),
    *,
    path: str = BODY,
    closed: bool = True,
) -> dict[str, Any]:
    """The fields of an object, each as its rule gives it."""
    fields = _fields(raw, path)
    for name in required:
        if name not in fields:
            raise invalid(f"{path} must have required property '{name}'")
    if closed and not fields.keys() <= rules.keys():
        raise invalid(f"{path} must NOT have additional properties")
    return {
        name: rules[name](f"{path}/{name}", value)
        for name, value in fields.items()
        if name in rules
    }


def items_of(raw: bytes) -> Sequence[Raw]:
    """The elements of an array, of which there must be some."""
    try:
        found = msgspec.json.decode(raw, type=list[Raw])
    except msgspec.DecodeError:
        raise invalid(f"{BODY} must be array") from None
    if not found:
        raise invalid(f"{BODY} must NOT have fewer than 1 items")
    if len(found) > ITEMS_MAX:
        raise invalid(f"{BODY} must NOT have more than {ITEMS_MAX} items")
    return found


def _fields(raw: bytes | Raw, path: str) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.DecodeError:
        raise invalid(f"{path} must be object") from None


def an_object(path: str, raw: Raw | bytes) -> str:
    """A JSON object, as the text it was."""
    _fields(raw, path)
    return bytes(raw).decode().strip()


def text(least: int, most: int, pattern: re.Pattern[str] | None = None) -> Rule:
    """A string of so many characters."""

    def rule(path: str, raw: Any) -> str:
        value = _value(raw)
        if not isinstance(value, str):
            raise invalid(f"{path} must be string")
        if len(value) < least:
            raise invalid(f"{path} must NOT have fewer than {least} characters")
        if len(value) > most:
            raise invalid(f"{path} must NOT have more than {most} characters")
        if pattern is not None and pattern.fullmatch(value) is None:
            raise invalid(f'{path} must match pattern "{pattern.pattern}"')
        return value

    return rule


def one_of(words: Collection[str]) -> Rule:
    """One of these words."""

    def rule(path: str, raw: Any) -> str:
        value = _value(raw)
        if not isinstance(value, str) or value not in words:
            told = ", ".join(words)
            raise invalid(f"{path} must be equal to one of the allowed values: {told}")
        return value

    return rule


def integer(least: int, most: int) -> Rule:
    """A whole number; behind a path its digits."""

    def rule(path: str, raw: Any) -> int:
        value = _value(raw)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:_DIGITS_MAX]) if isinstance(raw, str) else value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid(f"{path} must be integer")
        if value < least:
            raise invalid(f"{path} must be >= {least}")
        if value > most:
            raise invalid(f"{path} must be <= {most}")
        return value

    return rule


def flag(path: str, raw: Any) -> bool:
    """True or false; behind a path as these two words, and no other."""
    value = {"true": True, "false": False}.get(raw) if isinstance(raw, str) else _value(raw)
    if not isinstance(value, bool):
        raise invalid(f"{path} must be boolean")
    return value


def date(path: str, raw: Any) -> int:
    """An instant of the calendar, in milliseconds: finer is not told to anybody here."""
    value = _value(raw)
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        raise invalid(f'{path} must match format "date-time"')
    told = re.sub(r"(\.\d{6})\d+", r"\1", value.upper().replace("Z", "+00:00"))
    try:
        return (datetime.fromisoformat(told) - _EPOCH) // _MS
    except (ValueError, OverflowError):
        raise invalid(f'{path} must match format "date-time"') from None


def uuid(path: str, raw: Any) -> str:
    """A UUID with dashes, of whatever version; upper case is the same one."""
    value = _value(raw)
    if not isinstance(value, str) or _UUID.fullmatch(value) is None:
        raise invalid(f'{path} must match format "uuid"')
    return value.lower()


def _value(raw: Any) -> Any:
    return raw if isinstance(raw, str) else msgspec.json.decode(raw)


# --- the rest of a request ----------------------------------------------------------------------


def id_of(call: Call, name: str) -> str:
    """The id in the path."""
    return str(uuid(f"request/params/{name}", call.param(name)))


def query_of(call: Call, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """What is asked behind the path: nothing unknown, and nothing twice."""
    # A plus of a time zone that nobody escaped is no space.
    told = call.query_string.decode("latin-1").replace("+", "%2B")
    found: dict[str, Any] = {}
    for name, value in parse_qsl(told, keep_blank_values=True):
        if name not in rules:
            raise invalid(f"Unknown query parameter '{name[:100]}'")
        if name in found:
            raise invalid(f"request/query/{name} must NOT be there twice")
        found[name] = rules[name](f"request/query/{name}", value)
    return found
