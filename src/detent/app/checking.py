"""Checks options where they are given, so that no job is stored that cannot run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from detent.errors import BadOption
from detent.lifecycle.profile import SPAN_US_MAX
from detent.runtime.outcomes import us_of

_SHOWN_CHARS_MAX: Final = 60


def need(option: str, value: Any, is_right: bool, what: str) -> None:
    """Refuse a value, and say what the option is."""
    if not is_right:
        shown = repr(value)[:_SHOWN_CHARS_MAX]
        raise BadOption(f"{option} is {what}, not {shown}", option=option, value=shown)


def id_of(given: str | UUID) -> str:
    """An id as the store has it, also if a database or a framework has made a UUID of it."""
    need("id", given, isinstance(given, str | UUID), "a text, as handle.id has it")
    return str(given)


def is_whole(value: object, least: int | None = None) -> bool:
    """Whether it is a whole number; True is no 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return least is None or value >= least


def is_names(value: object) -> bool:
    """Whether it is several texts. One alone is no list of its letters."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
        return False
    return all(isinstance(one, str) for one in value)


def is_span(value: Any) -> bool:
    """Whether it is some length of time, more than none."""
    return _is_lasting(value) and us_of(value) > 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime)


def _is_end(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or isinstance(value, datetime | timedelta)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_lasting(value: Any) -> bool:
    """A delay that is over already is none: it may have been computed from a moment."""
    try:
        return not isinstance(value, bool) and us_of(value) <= SPAN_US_MAX
    except BadOption:
        return False


_Kind: TypeAlias = tuple[Callable[[Any], bool], str]
_NAME: Final[_Kind] = _is_text, "a text"
_SPAN: Final[_Kind] = is_span, "more than 0 seconds, or a timedelta, up to 100 years"
_NAMES: Final[_Kind] = is_names, "several texts, like ['one']"
_KINDS: Final[Mapping[str, _Kind]] = {
    "name": _NAME,
    "queue": _NAME,
    "key": _NAME,
    "tenant": _NAME,
    "idempotency_key": _NAME,
    "priority": (is_whole, "a whole number, higher goes first"),
    "delay": (_is_lasting, "seconds, or a timedelta, up to 100 years"),
    "at": (_is_moment, "a datetime with a time zone"),
    "timeout": _SPAN,
    "queue_timeout": _SPAN,
    "expires": (_is_end, "seconds, a timedelta, or a datetime with a time zone"),
    "losses": (is_whole, "how many workers may die on it"),
    "tags": _NAMES,
    "secret": _NAMES,
    "meta": (_is_mapping, "a mapping of names to JSON values"),
    "queues": _NAMES,
    "types": _NAMES,
    "tenants": _NAMES,
    "slots": (is_whole, "how many jobs run at once"),
    "sync_slots": (is_whole, "how many jobs run at once in threads and processes"),
}


def need_kinds(options: Mapping[str, Any]) -> None:
    """Refuse options that are of another kind than they should be.

    `None` is nothing said, except about whose a job is: that must not be forgotten by mistake.
    """
    for option, value in options.items():
        kind = _KINDS.get(option)
        if kind is not None and (value is not None or option == "tenant"):
            is_right, what = kind
            need(option, value, is_right(value), what)
