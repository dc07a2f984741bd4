"""What is counted here, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from detent.lifecycle.views import Category

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)


class Gauges:
    """The counters of the engines of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._failures = Counter(
            "detent_engine_failures",
            "Failures by category, each counted by one server.",
            ("category",),
            registry=registry,
        )
        for category in Category:
            self._failures.labels(category.value)
        self._engines = Gauge("detent_engines", "Engines connected here.", registry=registry)
        self._readers = Gauge(
            "detent_event_subscribers",
            "Subscribers by whether they still get the old names.",
            ("names",),
            registry=registry,
        )
        self._waits = Histogram(
            "detent_dispatch_seconds",
            "From queued to dispatched.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._faults = Counter(
            "detent_engine_loop_faults",
            "Errors in the server's own loops that nobody foresaw.",
            ("loop",),
            registry=registry,
        )

    def failed(self, category: Category) -> None:
        """One failure more."""
        self._failures.labels(category.value).inc()

    def faulted(self, loop: str) -> None:
        """A loop of ours has met what it should not have."""
        self._faults.labels(loop).inc()

    def waited(self, us: int) -> None:
        """How long a job was queued."""
        self._waits.observe(max(us, 0) / 1e6)

    def watch(
        self, engines: Callable[[], int], old: Callable[[], int], new: Callable[[], int]
    ) -> None:
        """Who is connected is counted when somebody asks."""
        self._engines.set_function(engines)
        self._readers.labels("old").set_function(old)
        self._readers.labels("new").set_function(new)
