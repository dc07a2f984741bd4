"""What a server counts about itself and tells about its store, in the words of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from detent.engine.engine import Engine
from detent.surfaces.http.watching import Watching

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "detent_http_requests",
            "Requests by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._durations = Histogram(
            "detent_http_request_seconds",
            "How long requests took.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._watching = Watching(self.registry)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def text(self, engine: Engine) -> bytes:
        """Everything that is counted, as it is now."""
        await self._watching.catch_up(engine)
        return generate_latest(self.registry)

    def saw(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request more. What clients make up is not a label: it would have no end."""
        known = self._children.get((method, route, status))
        if known is None:
            name = "other" if route == "unknown" else method
            known = (
                self._requests.labels(name, route, str(status)),
                self._durations.labels(route),
            )
            if route != "unknown":
                self._children[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)
