"""Reads the ways in which times are written: cron fields, `@daily` and `@every 5m`.

What is read here is checked here: a text that is wrong is refused with the field that is wrong, so
that a surface can point at it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NoReturn

from cronsim import CronSim, CronSimError

from detent.errors import BadSchedule
from detent.lifecycle.profile import SPAN_US_MAX

EXPRESSION_MAX = 200
"""Characters; the longest sensible expressions have some eighty."""

_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_EVERY = "@every"
_SPAN = re.compile(r"(?:\d{1,9}[wdhms])+", re.ASCII)
_PART = re.compile(r"(\d+)([wdhms])", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_ANY_TIME = datetime(2000, 1, 1)  # noqa: DTZ001 - cron fields are about local times


def every_us(expression: str) -> int | None:
    """The distance between two slots of `@every 1h30m`, or `None` for anything else."""
    word, _, span = expression.strip().lower().partition(" ")
    if word != _EVERY:
        return None
    span = span.strip()
    if not _SPAN.fullmatch(span):
        _refuse(expression, "every", f"{span!r} is no time span like 90s, 5m, 1h30m, 1d or 2w")
    length = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(span))
    length_us = length * 1_000_000
    if not 0 < length_us <= SPAN_US_MAX:
        _refuse(expression, "every", "a time span is at least one second and at most 100 years")
    return length_us


def fields_of(expression: str) -> str:
    """The five or six fields that an expression stands for, checked; a name is written out."""
    if len(expression) > EXPRESSION_MAX:
        _refuse(expression[:20], "expression", f"longer than {EXPRESSION_MAX} characters")
    text = expression.strip()
    if text.startswith("@"):
        text = _named(expression, text.lower())
    parts = text.upper().split()
    names = _FIELDS[-len(parts) :] if len(parts) in (5, 6) else ()
    if not names:
        why = f"{len(parts)} fields; cron has five, or six with seconds"
        _refuse(expression, "expression", f"{why}, and every five minutes is @every 5m")
    _need_no_weekday(expression, parts[-3])
    _check(expression, dict(zip(names, parts, strict=True)))
    return " ".join(parts)


def _named(expression: str, word: str) -> str:
    if word not in _NAMES:
        known = ", ".join([*_NAMES, "@every 5m"])
        _refuse(expression, "expression", f"unknown name; there are {known}")
    return _NAMES[word]


def _need_no_weekday(expression: str, days: str) -> None:
    """`15W` means different days to different programs, and wanders into the next month in some."""
    if "W" in days:
        _refuse(expression, "day-of-month", f"{days!r}: the nearest weekday (W) is not supported")


def _check(expression: str, fields: dict[str, str]) -> None:
    """Each field on its own first: only then is it known which of them is wrong."""
    for name, text in fields.items():
        alone = [text if one == name else "*" for one in fields]
        if not _is_readable(" ".join(alone)):
            _refuse(expression, name, f"{text!r} is nothing that field can say")
    if not _is_readable(" ".join(fields.values())):
        _refuse(expression, "day-of-month", "no month of the expression has such a day")


def _is_readable(fields: str) -> bool:
    try:
        CronSim(fields, _ANY_TIME)
    except (CronSimError, ValueError):
        return False
    return True


def _refuse(expression: str, field: str, why: str) -> NoReturn:
    raise BadSchedule(f"schedule {expression!r}: {field}: {why}", field=field, text=expression)
