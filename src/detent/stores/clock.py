"""How far the clocks of a caller and of a store may differ."""

from __future__ import annotations

from detent.errors import ClockAhead

__all__ = ["AHEAD_US_MAX", "need_time"]

AHEAD_US_MAX = 5_000_000
"""How far a caller's clock may be ahead of the store's."""


def need_time(now: int, own: int) -> None:
    """Refuse a clock that runs ahead: it would end leases early and could not be taken back."""
    ahead = now - own
    if ahead > AHEAD_US_MAX:
        why = f"The caller's clock is {ahead} us ahead of the store's; set both by one source"
        raise ClockAhead(why, ahead_us=ahead, limit_us=AHEAD_US_MAX)
