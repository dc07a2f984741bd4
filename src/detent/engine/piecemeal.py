"""Does long work in short pieces, so that others get their turn in the loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

PIECE: Final = 500
"""A few milliseconds of work."""

T = TypeVar("T")
M = TypeVar("M")


async def piecemeal(make: Callable[[T], M], items: Sequence[T]) -> list[M]:
    """What is made of each of them, in order; a few are made at once."""
    made: list[M] = []
    for first in range(0, len(items), PIECE):
        if first:
            await asyncio.sleep(0)
        made += map(make, items[first : first + PIECE])
    return made
