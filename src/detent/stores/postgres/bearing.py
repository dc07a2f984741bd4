"""The parameters of statements for many new jobs: what they share is sent once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from detent.stores.births import SAMPLE_AT, Births, Mould, around_place, sample
from detent.stores.postgres.arrays import FRESH, fresh_row, listed
from detent.stores.postgres.lanes import Lane, Lanes, lane_of
from detent.stores.postgres.statements import SQL

_MOULDS: Final = 1_024
_OWN: Final = frozenset(
    ("id", "at", "place", "payload", "command_id", "rest", "wake_at", "lane", "run_at")
)
"""What is not the same for all, or nothing."""


_ALONE: Final = SQL["enqueue_one"].names
ID: Final = _ALONE.index("id")
_COMMAND_ID, _AT, _PLACE, _PAYLOAD, _REST, _WAKE_AT, _LANE = map(
    _ALONE.index, ("command_id", "at", "place", "payload", "rest", "wake_at", "lane")
)


class Shared(msgspec.Struct, frozen=True):
    """What the jobs of a mould share; for one alone also as the values of its statement."""

    lane: Lane
    told: dict[str, Any]
    alone: list[Any]


def asked(births: Births, common: Shared, lanes: Lanes) -> dict[str, Any]:
    """What the statement is told about these jobs, which have one mould."""
    _, ids, ats, places, payloads = zip(*births.rows, strict=True)
    own = {"ids": ids, "ats": listed(ats), "places": listed(places), "payloads": payloads}
    return {**common.told, **own, "lane": lanes[common.lane]}


def lone(births: Births, common: Shared, lane: int) -> list[Any]:
    """The values of the statement for one new job, the only one of them."""
    _, name, at, place, payload = births.rows[0]
    told = common.told
    wakes_after = told["wakes_after"]
    values = common.alone.copy()
    values[ID] = values[_COMMAND_ID] = name
    values[_AT], values[_PLACE], values[_PAYLOAD], values[_LANE] = at, place, payload, lane
    values[_REST] = f"{told['before']}{place}{told['after']}"
    values[_WAKE_AT] = None if wakes_after is None else at + wakes_after
    return values


@lru_cache(_MOULDS)
def shared(mould: Mould) -> Shared | None:
    """What goes for all jobs of this mould; nothing if they cannot be written by the column."""
    new = sample(mould)
    if new is None:
        return None
    told = dict(zip(FRESH, fresh_row(new, lane=0), strict=True))
    before, after = around_place(told["rest"])
    wakes_after = None if new.wake_at is None else new.wake_at - SAMPLE_AT
    fixed = {name: value for name, value in told.items() if name not in _OWN}
    more = {"before": before, "after": after, "wakes_after": wakes_after}
    alone = [fixed.get(name) for name in _ALONE]
    return Shared(lane_of(new.job, new.body), {**fixed, **more}, alone)
