"""Slots: the instants that an expression names in a time zone.

Cron fields are about what clocks on the wall show. A local time that clocks jump over is no slot;
one that they show twice is a slot the first time. Intervals know no clocks: their slots are equally
far apart, from the moment the schedule was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import islice, takewhile
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim

from detent.engine.cron import every_us, fields_of
from detent.errors import BadSchedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


class Timetable(Protocol):
    """When something is to happen."""

    def next_after(self, at: int) -> int | None:
        """The first slot later than that instant; `None` if there never is one."""
        ...

    def newest(self, since: int, until: int, limit: int) -> list[int]:
        """The latest slots from `since` to `until`, both included; oldest first."""
        ...


class Every:
    """Slots that are equally far apart, counted from an anchor, which is none itself."""

    def __init__(self, length_us: int, anchor: int) -> None:
        self._length = length_us
        self._anchor = anchor

    def next_after(self, at: int) -> int:
        passed = max(at - self._anchor, 0) // self._length
        return self._anchor + (passed + 1) * self._length

    def newest(self, since: int, until: int, limit: int) -> list[int]:
        last = (until - self._anchor) // self._length
        first = max(-((self._anchor - since) // self._length), last - limit + 1, 1)
        return [self._anchor + number * self._length for number in range(first, last + 1)]


class Cron:
    """Slots that cron fields name on the clocks of a time zone."""

    def __init__(self, fields: str, zone: ZoneInfo) -> None:
        self._fields = fields
        self._zone = zone

    def next_after(self, at: int) -> int | None:
        later = (slot for slot in self._slots(self._shown(at)) if slot > at)
        return next(later, None)

    def newest(self, since: int, until: int, limit: int) -> list[int]:
        earlier = self._slots(self._latest_shown(until) + _SECOND, reverse=True)
        past = takewhile(lambda slot: slot >= since, (one for one in earlier if one <= until))
        return list(islice(past, limit))[::-1]

    def _slots(self, start: datetime, *, reverse: bool = False) -> Iterator[int]:
        """The instants of all slots whose local time lies after (or before) a local time."""
        for local in CronSim(self._fields, start, reverse=reverse):
            at = _instant(local.replace(tzinfo=self._zone))
            # What comes back as another local time was never shown by a clock.
            if self._shown(at) == local:
                yield at

    def _shown(self, at: int) -> datetime:
        """What clocks show at that instant."""
        return self._clock(at).replace(tzinfo=None, fold=0)

    def _latest_shown(self, at: int) -> datetime:
        """The latest local time that was shown by then for the first time.

        When clocks were put back a moment ago, that is later than what they show.
        """
        clock = self._clock(at)
        first, now = clock.replace(fold=0).utcoffset(), clock.utcoffset()
        assert first is not None  # noqa: S101 - a time in a zone has an offset
        assert now is not None  # noqa: S101
        return clock.replace(tzinfo=None, fold=0) + (first - now)

    def _clock(self, at: int) -> datetime:
        return (_EPOCH + at * _US).astimezone(self._zone)


def timetable(expression: str, zone: str, anchor: int) -> Timetable:
    """The slots of an expression in a time zone, or `BadSchedule`."""
    length_us = every_us(expression)
    if length_us is not None:
        zone_of(zone)
        return Every(length_us, anchor)
    return Cron(_checked(expression), zone_of(zone))


@lru_cache(1_000)
def _checked(expression: str) -> str:
    """Checking costs more than asking for a slot, and the same texts come again and again."""
    return fields_of(expression)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name, which is `UTC` or an area and a place.

    Offsets and letters like EST are refused: they know no summer time, and hardly ever mean what
    was meant.
    """
    if name not in _zones():
        why = f"time zone {name!r} is not known; use UTC or a name like Europe/Berlin"
        raise BadSchedule(why, field="zone", text=name)
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    """Asked by name and not by file, because some file systems take any spelling."""
    return frozenset(name for name in available_timezones() if "/" in name) | {"UTC"}


def _instant(clock: datetime) -> int:
    return (clock - _EPOCH) // _US
