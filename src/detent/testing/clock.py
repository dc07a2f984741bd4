"""A clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detent.app.waiting import moment
from detent.runtime.outcomes import Span, us_of

START = datetime(2030, 1, 1, tzinfo=UTC)
"""A round moment, far from now, so that whoever mixes the clocks up notices."""


class VirtualClock:
    """Gives microseconds, as stores want them."""

    def __init__(self, start: datetime = START) -> None:
        self._us = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def __call__(self) -> int:
        return self._us

    @property
    def now(self) -> datetime:
        """The present moment."""
        return moment(self._us)

    def advance(self, span: Span) -> None:
        """Let that much time pass at once."""
        self._us += us_of(span)

    def advance_to(self, us: int) -> None:
        """Let time pass until that moment; never backwards."""
        self._us = max(self._us, us)
