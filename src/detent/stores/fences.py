"""The third fence: whether a lease is over, and whether a worker is trusted. Pure."""

from __future__ import annotations

from typing import Final

from detent.lifecycle.job import Lease

MISSING: Final = Lease(0, lost=True)
"""A row that is not there counts as lost."""


def is_over(row: Lease, *, wire: bool, now: int) -> bool:
    """A wire lease ends by itself; a worker is lost only once it has been marked so."""
    return row.lost or (wire and row.until <= now)


def is_alive(row: Lease, now: int) -> bool:
    """Whether a worker may be given anything."""
    return not row.lost and now < row.until
