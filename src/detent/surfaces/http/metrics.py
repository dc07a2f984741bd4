"""What a server counts about itself and tells about its store, in the words of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from detent.engine.engine import Engine
from detent.surfaces.http.job_counts import Watching

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class _Requests(Collector):
    """Requests, counted by one loop: without the locks of counters that many threads share."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._spent: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def saw(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        buckets = self._spent.get(route)
        if buckets is None:
            buckets = self._spent[route] = [0] * (len(_SECONDS) + 1)
        buckets[bisect_left(_SECONDS, seconds)] += 1
        self._sums[route] = self._sums.get(route, 0.0) + seconds

    def collect(self) -> Iterator[Metric]:
        """What was counted so far."""
        labels = ("method", "route", "status")
        requests = CounterMetricFamily(
            "detent_http_requests", "Requests by route and status.", labels=labels
        )
        for (method, route, status), count in self._counts.items():
            requests.add_metric((method, route, str(status)), count)
        yield requests
        spent = HistogramMetricFamily(
            "detent_http_request_seconds", "How long requests took.", labels=("route",)
        )
        for route, buckets in self._spent.items():
            spent.add_metric((route,), _summed(buckets), self._sums[route])
        yield spent


def _summed(buckets: list[int]) -> list[tuple[str, float]]:
    """Each bucket with all that is smaller, as Prometheus wants it."""
    told, total = list[tuple[str, float]](), 0
    for most, count in zip((*map(str, _SECONDS), "+Inf"), buckets, strict=True):
        total += count
        told.append((most, total))
    return told


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = _Requests()
        self.registry.register(self._requests)
        self._watching = Watching(self.registry)
        self._others: list[CollectorRegistry] = []

    def add(self, registry: CollectorRegistry) -> None:
        """Tell also what a surface counts."""
        self._others.append(registry)

    async def text(self, engine: Engine) -> bytes:
        """Everything that is counted, as it is now."""
        await self._watching.catch_up(engine)
        return b"".join(map(generate_latest, (self.registry, *self._others)))

    def saw(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """One request more. What clients make up is not a label: it would have no end."""
        if route is None:
            method, route = "other", "unknown"
        self._requests.saw(method, route, status, seconds)
