"""Instants and lengths of time as people read them, in sentences and tables. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS, _SECOND = 1_000, 1_000_000
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def told_at(at: int) -> str:
    """An instant in UTC, to the millisecond: what is closer together is told by its order."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="milliseconds")[:-6] + "Z"


def told_span(us: int) -> str:
    """A length of time in its two largest units."""
    if abs(us) < _SECOND:
        return f"{us // _MS} ms"
    seconds = abs(us) // _SECOND
    parts: list[tuple[int, str]] = []
    for name, size in _UNITS:
        number, seconds = divmod(seconds, size)
        if number or parts:
            parts.append((number, name))
    said = " ".join(f"{number} {name}" for number, name in parts[:2] if number)
    return f"-{said}" if us < 0 else said


def counted(number: int, word: str) -> str:
    """One job, two jobs."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
