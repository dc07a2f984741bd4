"""The numbers of a supervisor in the words of Prometheus, at an address of their own.

They are told by the supervisor itself, not through the store: also while the database is away. The
counters of prometheus-client are not used: where `PROMETHEUS_MULTIPROC_DIR` is set for the program
of the user, they would write into its files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from threading import Lock
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from detent.app.fleet.orders import Web
from detent.errors import BadOption, CannotListen
from detent.surfaces.http.listening import need_place

SETS_MAX: Final = 1_000
"""So many sets of labels one metric may have; what comes after them is counted as `other`."""
_LOCAL: Final = Web().host
_PORT_MAX: Final = 65_535
_HELP: Final = "Of the supervisor of this fleet."
_SECONDS: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400)
_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1)
_MANY: Final = (0, 1, 2, 5, 10, 25, 50, 100)
_Labels = tuple[tuple[str, str], ...]


class _Spread:
    """How values of one kind are spread."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Each with all that is smaller, as Prometheus wants it."""
        names = (*map(str, self._bounds), "+Inf")
        return list(zip(names, accumulate(self._counts), strict=True))


class Numbers(Collector):
    """Collects what a supervisor counts; scraped from another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, dict[_Labels, int]] = {}
        self._spreads: dict[str, dict[_Labels, _Spread]] = {}

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        """One more of these."""
        with self._lock:
            known = self._counts.setdefault(name, {})
            key = _bounded(known, labels)
            known[key] = known.get(key, 0) + 1

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """One measured value."""
        with self._lock:
            known = self._spreads.setdefault(name, {})
            key = _bounded(known, labels)
            if key not in known:
                known[key] = _Spread(_bounds_of(name))
            known[key].add(value)

    def collect(self) -> list[Metric]:
        """What was counted so far."""
        with self._lock:
            counted = [_counter(name, known) for name, known in self._counts.items()]
            return [*counted, *(_histogram(name, known) for name, known in self._spreads.items())]


def _bounded(known: Mapping[_Labels, object], labels: Mapping[str, str]) -> _Labels:
    """Slots come and go under names that somebody else chooses: time series must not."""
    key = tuple(sorted(labels.items()))
    if key in known or len(known) < SETS_MAX:
        return key
    return tuple((name, "other") for name, _ in key)


def _bounds_of(name: str) -> tuple[float, ...]:
    if name.endswith("_seconds"):
        return _SECONDS
    return _SHARES if name.endswith("_ratio") else _MANY


def _counter(name: str, known: Mapping[_Labels, int]) -> Metric:
    family = CounterMetricFamily(name.removesuffix("_total"), _HELP, labels=_names(known))
    for key, count in known.items():
        family.add_metric([value for _, value in key], count)
    return family


def _histogram(name: str, known: Mapping[_Labels, _Spread]) -> Metric:
    family = HistogramMetricFamily(name, _HELP, labels=_names(known))
    for key, spread in known.items():
        family.add_metric([value for _, value in key], spread.buckets(), spread.total)
    return family


def _names(known: Mapping[_Labels, object]) -> list[str]:
    return [name for name, _ in next(iter(known))]


def place_of(text: str) -> Web:
    """Where numbers are told: `HOST:PORT`, or a port of this host alone."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or _LOCAL
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        why = f"{text[:100]!r} is no address: it is HOST:PORT or a port, such as {_LOCAL}:9100"
        raise BadOption(why, option="metrics", value=text[:100])
    return Web(host=host, port=int(port))


def need_metrics_place(place: Web) -> None:
    """Refuse an address where nobody could listen now, before anything is started."""
    need_place(place.host, place.port, option="--metrics", alone="Give --metrics a port alone")


@contextmanager
def told_at(place: Web, numbers: Numbers) -> Iterator[None]:
    """Whoever asks there is told the numbers, until this is left."""
    registry = CollectorRegistry()
    registry.register(numbers)
    try:
        server, thread = start_http_server(place.port, place.host, registry)
    except OSError as fault:
        why = f"Nobody can listen at {place.url}: {fault.strerror}"
        raise CannotListen(why, host=place.host, port=place.port) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
