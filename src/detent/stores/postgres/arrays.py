"""Units as the columns of a statement: what is sent is arrays, one element per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import astuple

from detent.lifecycle.event import Event
from detent.stores.api import Move, New
from detent.stores.postgres.columns import EVENT, JOB, MOVING
from detent.stores.postgres.rows import body_row, event_row, job_row, moving_row

__all__ = [
    "asides_of",
    "columns",
    "events_of",
    "moves_of",
    "news_of",
    "no_asides",
    "no_events",
    "recorded",
]

_MOVE: Final = (
    *("numbers", "fences", "fence_leases", "lanes", "leaves", "with_result", "with_failure"),
    *("tenants", "ids", "wakes", *(f"move_{name}" for name in MOVING)),
)
_NEW: Final = (
    *(f"job_{name}" for name in JOB),
    *("wakes", "lanes", "fingerprints", "types", "payloads", "metas", "tags", "retries", "schemas"),
)
_EVENT: Final = tuple(f"event_{name}" for name in EVENT)
_FAILURE: Final = tuple(
    f"failure_{name}"
    for name in (
        "numbers",
        "attempts",
        "ats",
        "codes",
        "messages",
        "types",
        "details",
        "backtraces",
    )
)


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Rows turned into named columns; no rows are empty columns."""
    turned = list(zip(*rows, strict=True))
    return dict(zip(names, turned or [()] * len(names), strict=True))


def moves_of(moves: Sequence[tuple[int, Move, int | None]]) -> dict[str, Sequence[Any]]:
    """Moves with their numbers and, where the lane changes, the number of the new one."""
    return columns(_MOVE, (_move_row(*one) for one in moves))


def _move_row(number: int, move: Move, lane: int | None) -> tuple[Any, ...]:
    job = move.job
    leaves = any(event.target is not None for event in move.events)
    asides = (move.result is not None, move.failure is not None)
    head = (number, move.version, move.lease, lane, leaves, *asides, job.tenant, job.id)
    return (*head, move.wake_at, *moving_row(job))


def events_of(moves: Iterable[tuple[int, Move]]) -> dict[str, Sequence[Any]]:
    """The events of moves, beside the numbers of the moves."""
    rows = [(number, *event_row(event)) for number, move in moves for event in move.events]
    return columns(("event_numbers", *_EVENT), rows)


def asides_of(moves: Iterable[tuple[int, Move]]) -> dict[str, Sequence[Any]]:
    """Results and errors, beside the numbers of the moves."""
    results, failures = [], []
    for number, move in moves:
        if move.result is not None:
            results.append((number, move.result))
        if move.failure is not None:
            failures.append((number, *astuple(move.failure)))
    return {**columns(("result_numbers", "results"), results), **columns(_FAILURE, failures)}


def news_of(news: Iterable[tuple[New, int]]) -> dict[str, Sequence[Any]]:
    """New jobs, each with the number of its lane."""
    return columns(_NEW, (_new_row(*one) for one in news))


def _new_row(new: New, lane: int) -> tuple[Any, ...]:
    fingerprint = None if new.unique is None else new.unique.fingerprint
    return (*job_row(new.job), new.wake_at, lane, fingerprint, *body_row(new.body))


def recorded(events: Iterable[Event]) -> dict[str, Sequence[Any]]:
    """Events beside the keys of their records."""
    rows = ((event.tenant, event.record, *event_row(event)) for event in events)
    return columns(("event_tenants", "event_records", *_EVENT), rows)


def no_events() -> dict[str, Sequence[Any]]:
    """For statements whose events are written apart."""
    return {**events_of(()), **recorded(())}


def no_asides() -> dict[str, Sequence[Any]]:
    """For statements whose results and errors are written apart."""
    return asides_of(())
