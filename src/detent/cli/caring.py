"""How a fleet looks after its workers: options of `detent worker` and `detent up`."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated

import typer
from msgspec.structs import replace

from detent.app.fleet.fleet import Fleet
from detent.app.fleet.orders import Orders, Web
from detent.cli.bundles import Bundle
from detent.cli.durations import span_option, span_us
from detent.cli.output import errors_end
from detent.extras import needs_extra
from detent.runtime.supervisor.backoff import Backoff
from detent.runtime.supervisor.breaker import Breaker

_log = logging.getLogger("detent.fleet")
_NEVER = "never"
_US = 1_000_000


def _stall(text: str) -> str:
    if text != _NEVER:
        span_us(text)
    return text


@dataclass(frozen=True)
class Care(Bundle):
    """When a worker that does not answer is replaced, how fast one that ended is followed, and
    where the numbers of that are told.
    """

    stall: Annotated[
        str,
        typer.Option(
            metavar="SPAN",
            callback=_stall,
            help="How long a coroutine may hold up its worker before that is replaced, or never.",
        ),
    ] = "1m"
    backoff: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="The wait before the first restart."),
    ] = Backoff().initial_s
    backoff_max: Annotated[
        str, span_option(meaning="What the wait grows to, twice as long each time.")
    ] = "30s"
    restarts: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="More of them within the window open the breaker of a slot."
        ),
    ] = Breaker().most
    restart_window: Annotated[str, span_option(meaning="The window in which they count.")] = "1m"
    cool_down: Annotated[
        str, span_option(meaning="How long an open breaker waits before it tries again.")
    ] = "5m"
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Tell the numbers of the supervisor to Prometheus there."
        ),
    ] = None

    def given(self, orders: Orders) -> Orders:
        """The orders with these options applied."""
        stall_s = None if self.stall == _NEVER else _seconds(self.stall)
        with errors_end():
            settings = replace(orders.told.settings, stall_s=stall_s)
            metrics = None if self.metrics is None else _metrics_place(self.metrics)
            return replace(
                orders,
                metrics=metrics,
                told=replace(orders.told, settings=settings),
                backoff=Backoff(self.backoff, _seconds(self.backoff_max)),
                breaker=Breaker(
                    self.restarts, _seconds(self.restart_window), _seconds(self.cool_down)
                ),
            )


def metered(fleet: Fleet) -> AbstractContextManager[None]:
    """While it is entered, the numbers of the fleet are told, if that was asked for."""
    place, numbers = fleet.orders.metrics, fleet.numbers
    if place is None or numbers is None:
        return nullcontext()
    from detent.app.fleet.numbers import told_at  # noqa: PLC0415 - loads Prometheus

    _log.info("the numbers of the supervisor are told at %s/metrics", place.url)
    return told_at(place, numbers)


def _metrics_place(text: str) -> Web:
    with needs_extra("server", "The option --metrics"):
        from detent.app.fleet.numbers import need_metrics_place, place_of  # noqa: PLC0415
    place = place_of(text)
    need_metrics_place(place)
    return place


def _seconds(span: str) -> float:
    return span_us(span) / _US
