"""Slots: chance against a walker that looks at every minute, over the days when clocks change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.engine.timetable import Every, Timetable, timetable
from detent.errors import BadSchedule

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NEVER = Every(SECOND, 2**62)

# Where clocks change: by an hour in the north and by half an hour on Lord Howe, in the south.
CHANGES = {
    "Europe/Berlin": [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)],
    "America/New_York": [
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        datetime(2026, 11, 1, 6, tzinfo=UTC),
    ],
    "Australia/Lord_Howe": [
        datetime(2026, 4, 4, 15, tzinfo=UTC),
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    ],
}


def us(at: datetime) -> int:
    return round(at.timestamp()) * SECOND


def at(text: str) -> int:
    return us(datetime.fromisoformat(text))


def shown(instants: list[int], zone: str) -> list[str]:
    return [
        datetime.fromtimestamp(one / SECOND, ZoneInfo(zone)).isoformat(" ", "minutes")
        for one in instants
    ]


# --- the walker: an expression as sets, and a look at every minute ------------------------------


class Field(NamedTuple):
    """The text of a cron field and what it means."""

    text: str
    means: frozenset[int]


class Fields(NamedTuple):
    """A whole expression."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self)

    def fits(self, local: datetime) -> bool:
        """Whether a clock on the wall that shows this shows a slot."""
        in_time = local.minute in self.minute.means and local.hour in self.hour.means
        return in_time and local.month in self.month.means and self._fits_day(local.date())

    def _fits_day(self, day: date) -> bool:
        by_day = day.day in self.day.means
        by_weekday = day.isoweekday() % 7 in {one % 7 for one in self.weekday.means}
        if self.day.text.startswith("*") or self.weekday.text.startswith("*"):
            return by_day and by_weekday
        return by_day or by_weekday


def walked(fields: Fields, zone: str, since: int, until: int) -> list[int]:
    """Every minute in which the clocks of the zone show a slot for the first time."""
    found, seen = [], set()
    for local, instant in _minutes(zone, since - 3 * HOUR, until):
        is_first = local not in seen
        seen.add(local)
        if is_first and instant >= since and fields.fits(local):
            found.append(instant)
    return found


def _minutes(zone: str, since: int, until: int) -> Iterator[tuple[datetime, int]]:
    one = datetime.fromtimestamp(since // SECOND, UTC).replace(second=0)
    while us(one) <= until:
        yield one.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0), us(one)
        one += timedelta(minutes=1)


@st.composite
def a_field(draw: st.DrawFn, low: int, high: int) -> Field:
    """One of the ways to fill a field, with its meaning worked out by hand."""
    start = draw(st.integers(low, high))
    end = draw(st.integers(start, high))
    step = draw(st.integers(1, 12))
    some = draw(st.lists(st.integers(low, high), min_size=2, max_size=5, unique=True))
    ways = {
        "*": range(low, high + 1),
        f"*/{step}": range(low, high + 1, step),
        f"{start}": (start,),
        f"{start}-{end}": range(start, end + 1),
        f"{start}/{step}": range(start, high + 1, step),
        ",".join(map(str, some)): some,
    }
    if start < end:
        ways[f"{start}-{end}/{step}"] = range(start, end + 1, step)
    text = draw(st.sampled_from(sorted(ways)))
    return Field(text, frozenset(ways[text]))


def _fields() -> st.SearchStrategy[Fields]:
    day = st.one_of(st.just(Field("*", frozenset(range(1, 32)))), a_field(1, 31))
    month = st.one_of(st.just(Field("*", frozenset(range(1, 13)))), a_field(1, 12))
    weekday = st.one_of(st.just(Field("*", frozenset(range(8)))), a_field(0, 7))
    return st.builds(Fields, a_field(0, 59), a_field(0, 23), day, month, weekday)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    fields=_fields(),
    zone=st.sampled_from(sorted(CHANGES)),
    which=st.integers(0, 1),
    begins=st.integers(-26 * 60, -1),
    # Half of the time it ends while clocks show what they have shown before.
    ends=st.one_of(st.integers(0, 60), st.integers(0, 36 * 60)),
)
def test_slots_are_what_a_look_at_every_minute_finds(
    fields: Fields, zone: str, which: int, begins: int, ends: int
) -> None:
    since = us(CHANGES[zone][which]) + begins * MINUTE
    until = us(CHANGES[zone][which]) + ends * MINUTE
    expected = walked(fields, zone, since, until)
    # A day that no month of the expression has is refused: the walker does not find it either.
    table: Timetable = NEVER
    with nullcontext() if expected else suppress(BadSchedule):
        table = timetable(fields.text, zone, 0)
    found, slot = [], table.next_after(since - 1)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = table.next_after(slot)
    assert found == expected
    assert table.newest(since, until, 10_000) == expected
    assert table.newest(since, until, 3) == expected[-3:]


# --- what is known of clocks ----------------------------------------------------------------------


def slots(expression: str, zone: str, since: str, number: int) -> list[str]:
    table, found = timetable(expression, zone, 0), [at(since)]
    for _ in range(number):
        later = table.next_after(found[-1])
        assert later is not None
        found.append(later)
    return shown(found[1:], zone)


def test_a_local_time_that_does_not_exist_is_skipped() -> None:
    assert slots("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00Z", 3) == [
        "2026-03-28 02:30+01:00",
        "2026-03-30 02:30+02:00",
        "2026-03-31 02:30+02:00",
    ]


def test_a_local_time_that_comes_twice_fires_the_first_time() -> None:
    assert slots("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == [
        "2026-10-25 02:30+02:00",
        "2026-10-26 02:30+01:00",
    ]
    assert slots("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:29Z", 3) == [
        "2026-10-25 02:30+02:00",
        "2026-10-25 03:00+01:00",
        "2026-10-25 03:30+01:00",
    ]


def test_half_an_hour_of_lord_howe_is_skipped_and_comes_twice() -> None:
    assert slots("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00Z", 2) == [
        "2026-10-03 02:15+10:30",
        "2026-10-05 02:15+11:00",
    ]
    assert slots("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T16:00Z", 2) == [
        "2026-04-05 01:45+11:00",
        "2026-04-06 01:45+10:30",
    ]


def test_what_was_shown_before_clocks_were_put_back_has_passed() -> None:
    """It is five past two for the second time: the newest slot was at five to three."""
    table = timetable("*/5 * * * *", "Europe/Berlin", 0)
    newest = table.newest(0, at("2026-10-25T01:05Z"), 2)
    assert shown(newest, "Europe/Berlin") == ["2026-10-25 02:50+02:00", "2026-10-25 02:55+02:00"]
    assert table.next_after(at("2026-10-25T01:05Z")) == at("2026-10-25T02:00Z")


def test_names_are_written_out() -> None:
    assert slots("@Daily", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-02 00:00+00:00"]
    assert slots("@weekly", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-04 00:00+00:00"]
    assert slots("@hourly", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-01 01:00+00:00"]


def test_seconds_last_days_and_numbered_weekdays_are_understood() -> None:
    six = timetable("*/15 * * * * *", "UTC", 0)
    assert six.next_after(at("2026-01-01T00:00Z") + 1) == at("2026-01-01T00:00:15Z")
    assert slots("0 0 L * *", "UTC", "2026-02-01T00:00Z", 1) == ["2026-02-28 00:00+00:00"]
    assert slots("0 9 * * MON#1", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-05 09:00+00:00"]
    assert slots("0 9 * * fri", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-02 09:00+00:00"]


@given(
    anchor=st.integers(0, 10**9),
    length=st.integers(1, 3_600),
    since=st.integers(-(10**6), 10**6),
    lasts=st.integers(0, 10**5),
)
def test_intervals_are_counted_from_their_anchor(
    anchor: int, length: int, since: int, lasts: int
) -> None:
    table = timetable(f"@every {length}s", "UTC", anchor)
    since, until = anchor + since * SECOND + 1, anchor + (since + lasts) * SECOND
    step = length * SECOND
    expected = [one for one in range(anchor + step, until + 1, step) if one >= since]
    assert table.newest(since, until, 5) == expected[-5:]
    first = table.next_after(since - 1)
    assert first is not None
    assert first >= max(since, anchor + step)
    assert (first - anchor) % step == 0
    assert first - step < max(since, anchor + step)


def test_spans_are_added_up() -> None:
    assert timetable("@every 1h30m", "UTC", 7).next_after(0) == 7 + 90 * MINUTE
    assert timetable("@every 1d", "UTC", 0).next_after(0) == 24 * HOUR


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("99 * * * *", "minute"),
        ("* 25 * * *", "hour"),
        ("0 0 32 * *", "day-of-month"),
        ("0 0 * 13 *", "month"),
        ("0 0 * * 8", "day-of-week"),
        ("60 * * * * *", "second"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("9" * 150 + " * * * *", "minute"),
        ("0 0 15W * *", "day-of-month"),
        ("0 0 LW * *", "day-of-month"),
        ("0 0 31 2,4 *", "day-of-month"),
        ("0 0 * * *  * *", "expression"),
        ("0 0 * *", "expression"),
        ("", "expression"),
        ("@reboot", "expression"),
        ("@everyday", "expression"),
        ("*," * 200 + "* * * * *", "expression"),
        ("@every", "every"),
        ("@every soon", "every"),
        ("@every 0s", "every"),
        ("@every 999999999w", "every"),
        ("@every 5", "every"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_field(expression: str, field: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        timetable(expression, "UTC", 0)
    assert (refused.value.code, refused.value.fields["field"]) == ("bad_schedule", field)


@pytest.mark.parametrize(
    "zone",
    ["EST", "CET", "+02:00", "europe/berlin", "Mars/Phobos", "", "../etc/passwd", "right/UTC"],
)
def test_only_areas_and_places_are_time_zones(zone: str) -> None:
    for expression in ("@daily", "@every 5m"):
        with pytest.raises(BadSchedule) as refused:
            timetable(expression, zone, 0)
        assert refused.value.fields["field"] == "zone"


def test_a_rare_day_is_found_however_far_away() -> None:
    found = slots("0 0 * 2 MON#5", "UTC", "2026-01-01T00:00Z", 1)
    assert found == ["2044-02-29 00:00+00:00"]
