"""Instants and lengths of time as Open Job Spec writes them. Inside they are microseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from detent.lifecycle.job.values import INSTANT_MAX
from detent.lifecycle.profile import SPAN_US_MAX
from detent.surfaces.http.problems import Problem

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_MS = 1_000
_SECONDS_MAX = SPAN_US_MAX // 1_000_000
_SPAN = re.compile(
    r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,8})M)?(?:(\d{1,10}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_TEST_PREFIX = re.compile(r"^test-[0-9a-f-]{36}/")
_SIZES = (604_800, 86_400, 3_600, 60)
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def public_tenant(tenant: str) -> str:
    """The tenant as clients name it: without the prefix of a test run (`resetting.py`)."""
    return _TEST_PREFIX.sub("", tenant)


def told(at: int) -> str:
    """An instant with milliseconds, in UTC."""
    return _told_ms(at // _MS)


@lru_cache(4_096)
def _told_ms(at_ms: int) -> str:
    # One job shows the same instant several times, and jobs of one moment share it.
    at = _EPOCH + timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds")[:-6] + "Z"


def millis(us: int) -> int:
    """Microseconds in the unit of the wire."""
    return us // _MS


def instant(field: str, value: object, now: int) -> tuple[int, str]:
    """An instant, and how it is echoed: as it was written, or as what `+PT5S` comes to."""
    if isinstance(value, str) and value.startswith("+"):
        at = now + span(field, value[1:])
        return at, told(at)
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise _bad(field, "must be an RFC 3339 instant with a time zone, or +<ISO 8601 duration>")
    # Python reads at most six digits of a fraction.
    text = re.sub(r"(\.\d{6})\d+", r"\1", value.upper().replace("Z", "+00:00"))
    try:
        at = (datetime.fromisoformat(text) - _EPOCH) // _US
    except (ValueError, OverflowError):
        raise _bad(field, "is no instant of the calendar") from None
    return min(max(at, 0), INSTANT_MAX), value


def span(field: str, value: object) -> int:
    """The length of an ISO 8601 duration."""
    found = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not any(found.groups()) or str(value).endswith("T"):
        raise _bad(field, "must be an ISO 8601 duration like PT1S, PT5M or P1DT2H")
    seconds = sum(
        int(n or 0) * size for n, size in zip(found.groups()[:4], _SIZES, strict=True)
    ) + float(found[5] or 0)
    return min(round(seconds * 1_000_000), SPAN_US_MAX)


def span_ms(field: str, value: object) -> int:
    """A length that is given in whole milliseconds."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _bad(field, "must be a positive number of milliseconds")
    return min(value * _MS, SPAN_US_MAX)


def seconds(field: str, value: object) -> int:
    """A length that is given in seconds, which may have a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(field, "must be a number of seconds")
    if not 0 < value <= _SECONDS_MAX:
        raise _bad(field, "must be a positive number of seconds, at most 100 years")
    return max(round(value * _MS), 1) * _MS


def duration(us: int) -> str:
    """A length as ISO 8601 has it."""
    seconds, rest = divmod(us, 1_000_000)
    if rest:
        return f"PT{seconds}.{rest:06d}".rstrip("0") + "S"
    for size, unit in ((3_600, "H"), (60, "M")):
        if seconds and seconds % size == 0:
            return f"PT{seconds // size}{unit}"
    return f"PT{seconds}S"


def _bad(field: str, why: str) -> Problem:
    return Problem(400, "invalid_request", f"{field} {why}", field=field)
