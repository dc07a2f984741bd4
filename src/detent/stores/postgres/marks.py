"""Marks: how far claims have come in each lane, while it is slow to look from the start.

As long as anybody in the database keeps an old snapshot, the index entries of claimed jobs cannot
go, and every claim walks over all of them again. A claim that begins where the last one ended does
not. But something may come to stand before a mark: a retry with an older place, a better priority,
a late commit. So marks are kept only while claims are slow, and never for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from detent.stores.postgres.arrays import columns, listed

SLOW_S: Final = 0.005
"""A claim that takes longer has probably walked over what is dead."""
KEPT_S: Final = 1.0
"""After so long somebody looks from the start again."""
_NAMES: Final = ("mark_lanes", "mark_ranks", "mark_places", "mark_ids")


class Position(NamedTuple):
    """Where a job stands in its lane; what is claimed first is smallest."""

    rank: int
    place: int
    id: str


def told_of(marks: Iterable[tuple[int, Position]]) -> dict[str, Sequence[Any]]:
    """Lanes with their marks as the parameters of a claim."""
    told = columns(_NAMES, [(lane, *position) for lane, position in marks])
    return {name: one if name == "mark_ids" else listed(one) for name, one in told.items()}


NO_MARKS: Final = told_of(())
"""For a claim that looks from the start."""


class Marks:
    """The last claimed position of each lane, since the last look from the start."""

    def __init__(self, slow_s: float = SLOW_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._slow_s = slow_s
        self._clock = clock
        self._last: dict[int, Position] = {}
        self._since = 0.0
        self._rung = 0

    def told(self, rung: int) -> dict[str, Sequence[Any]]:
        """What to hand in now; nothing is left of it once the bell has rung or a second is over."""
        if rung != self._rung or self._clock() >= self._since + KEPT_S:
            self.drop()
        return told_of(self._last.items()) if self._last else NO_MARKS

    def minds(self, took_s: float) -> bool:
        """Whether it matters where a claim that took so long has ended."""
        return bool(self._last) or took_s > self._slow_s

    def keep(self, taken: Sequence[tuple[int, Position]], took_s: float, rung: int) -> None:
        """Remember what a claim took that was begun when the bell had rung so often.

        What was rung for since then may stand before it, so a claim that was overtaken by a bell
        leaves no mark.
        """
        if not taken:
            # Nobody knows where a claim stands that was made with care.
            self.drop()
        if self._last and rung != self._rung:
            return
        if not self._last:
            if took_s <= self._slow_s:
                return
            self._since, self._rung = self._clock(), rung
        for lane, position in taken:
            self._last[lane] = max(position, self._last.get(lane, position))

    def drop(self) -> None:
        """Look from the start next time."""
        self._last.clear()
