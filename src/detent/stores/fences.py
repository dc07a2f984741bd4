"""What the row behind a lease says: the third fence, in two questions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from detent.lifecycle.job import Lease
from detent.stores.legal import is_grantable
from detent.stores.shapes import Claimed, Want

__all__ = ["MISSING", "denied", "is_alive", "is_over"]

MISSING: Final = Lease(0, lost=True)
"""A row that is not there counts as lost."""


def is_over(row: Lease, *, wire: bool, now: int) -> bool:
    """A wire lease ends by itself; a worker is lost only once it has been marked so."""
    return row.lost or (wire and row.until <= now)


def is_alive(row: Lease, now: int) -> bool:
    """Whether a worker may be given anything."""
    return not row.lost and now < row.until


def denied(want: Want, row_of: Callable[[str], Lease], now: int) -> Claimed | None:
    """The answer to a wish that is granted nothing, whatever there is.

    `row_of` tells the row of a worker instance, and is only asked about names that can be kept.
    """
    if not is_grantable(want):
        return Claimed()
    return None if want.wire or is_alive(row_of(want.holder), now) else Claimed(lost=True)
