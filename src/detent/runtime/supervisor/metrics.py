"""Numbers for whoever collects them: a small interface, silent by default."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from detent.complaining import Complaint

PREFIX: Final = "lifecycle_"
_log = logging.getLogger("detent.supervisor.metrics")


class Metrics(Protocol):
    """What a collector offers. Names come with their prefix, labels with bounded values."""

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        """One more of these."""
        ...

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """One measured value: seconds, bytes, or a share."""
        ...


class NoMetrics:
    """Collects nothing."""

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Nothing."""


class Harmless:
    """Passes every number on; a collector that fails is complained about, and costs no move."""

    def __init__(self, inner: Metrics) -> None:
        self._inner = inner
        self._complaint = Complaint(_log, "the collection of numbers fails")

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        """As the collector does it."""
        self._tell(lambda: self._inner.count(name, labels))

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """As the collector does it."""
        self._tell(lambda: self._inner.observe(name, value, labels))

    def _tell(self, telling: Callable[[], None]) -> None:
        try:
            telling()
        except Exception as error:
            # Its message may name the number, and then each would be news.
            self._complaint.say(type(error).__name__)


def harmless(metrics: Metrics | None) -> Metrics:
    """What somebody handed in, or nothing: whoever counts need not look at what becomes of it."""
    return NoMetrics() if metrics is None else Harmless(metrics)
