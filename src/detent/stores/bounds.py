"""Refuses what no store accepts: a clock that is ahead, too much at once, unstorable text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.errors import BadName, BatchTooLarge, ClockAhead
from detent.stores.legal import is_storable
from detent.stores.shapes import RECORDS_MAX, UNIT_MAX, Unit, Want
from detent.stores.uniform import Uniform

AHEAD_US_MAX: Final = 5_000_000
"""How far a caller's clock may be ahead of the store's."""
TURNS_US: Final = 86_400_000_000
"""How long whoever was served is remembered: of those before, all are first in turn."""
AGAIN_US: Final = 60_000_000
"""After how long a result is looked at again whose workflow still goes on."""


def need_time(now: int, clock: int) -> None:
    """A clock that runs ahead would end leases early and could not be taken back."""
    ahead = now - clock
    if ahead > AHEAD_US_MAX:
        why = f"The caller's clock is {ahead} us ahead of the store's; set both by one source"
        raise ClockAhead(why, ahead_us=ahead, limit_us=AHEAD_US_MAX)


def need_size(units: Sequence[Unit], want: Want | None, *, alone: int = UNIT_MAX) -> None:
    """While one step is written nobody else can write: a large one is asked for in pieces."""
    asked = len(units) if isinstance(units, Uniform) else sum(unit.size for unit in units)
    asked += len(want.leases) if want else 0
    most = alone if len(units) == 1 and want is None else RECORDS_MAX
    if asked > most:
        why = f"A step of {asked} records and leases is too large; {most} is the most"
        raise BatchTooLarge(why, asked=asked, limit=most)


def need_storable(rows: Sequence[object]) -> None:
    """Refuse what one database would take, another would garble and a third would raise at."""
    for row in rows:
        if not is_storable(row):
            why = "A name with NUL or half a character, or a number beyond 64 bits, cannot be kept"
            raise BadName(f"{why}: {row!r}")
