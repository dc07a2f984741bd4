"""Makes the parameters of statements: arrays of rows, or one array per column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

from msgspec.structs import astuple

from detent.lifecycle.event import Event
from detent.stores.api import Key, Move, New
from detent.stores.postgres.lanes import Lanes, lane_of
from detent.stores.postgres.rows import body_row, event_row, job_row, moving_row, rest_of
from detent.stores.postgres.statements import SQL

_ENQUEUED: Final = (
    *("tenant", "id", "state", "profile", "queue", "priority", "delivery", "allowed"),
    *("losses_allowed", "created_at", "place", "held", "run_at", "expires_at", "available_us"),
    *("pending_us", "active_us", "rerun_of"),
)
_enqueued_row: Final = attrgetter(*_ENQUEUED)
FRESH: Final = (
    *("at" if name == "created_at" else name for name in _ENQUEUED),
    *("wake_at", "lane", "type", "payload", "meta", "tags", "retry", "schema", "key"),
    *("actor", "actor_id", "command_id", "rest"),
)
"""What is told about a fresh job."""
_ended_row: Final = attrgetter(
    *("ended_at", "cause", "failures", "losses", "handed_back", "run_at", "returned_by", "delay_us")
)
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


def listed(numbers: Iterable[int | None]) -> str:
    """Numbers as one text, for a statement that takes it apart; what is none says so.

    Before the first array of numbers that is sent over a connection the driver asks the server what
    that is, which takes longer than most of our statements.
    """
    return ",".join(map(str, numbers))


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Rows turned into named columns; no rows are empty columns."""
    turned = list(zip(*rows, strict=True))
    return dict(zip(names, turned or [()] * len(names), strict=True))


def moves_of(
    moves: Iterable[tuple[int, Move]], lanes: Mapping[Key, int], shut: Collection[Key]
) -> dict[str, Sequence[Any]]:
    """Moves with their numbers, the new lanes of some, and those that may not be claimed."""
    return {"moves": [_move_row(*one, lanes, shut) for one in moves]}


def _move_row(
    number: int, move: Move, lanes: Mapping[Key, int], shut: Collection[Key]
) -> tuple[Any, ...]:
    job = move.job
    key = (job.tenant, job.id)
    leaves = any(event.target is not None for event in move.events)
    asides = (move.result is not None, move.failure is not None, move.checkpoint is not None)
    head = (number, move.version, move.lease, lanes.get(key), leaves, key in shut, *asides, *key)
    return (*head, move.wake_at, *moving_row(job))


def events_of(moves: Iterable[tuple[int, Move]]) -> dict[str, Sequence[Any]]:
    """The events of moves, beside the numbers of the moves."""
    rows = [
        (number, None, None, *event_row(event)) for number, move in moves for event in move.events
    ]
    return {"events": rows}


def reports_of(moves: Sequence[tuple[int, Move]]) -> dict[str, Sequence[Any]]:
    """Moves that are reports, with their numbers, in the order in which their rows are locked."""
    rows = [_report_row(*one) for one in moves]
    rows.sort(key=itemgetter(1, 2))
    return {"reports": rows}


def _report_row(number: int, move: Move) -> tuple[Any, ...]:
    job, event = move.job, astuple(move.events[0])
    at, name, source, target, actor, actor_id, command_id = event[3:10]
    how = (at, name, source, target, actor, actor_id, command_id, rest_of(event))
    brings = (move.wake_at, move.result is not None, move.failure is not None)
    return (number, job.tenant, job.id, move.version, move.lease, *how, *_ended_row(job), *brings)


def asides_of(moves: Iterable[tuple[int, Move]]) -> dict[str, Sequence[Any]]:
    """Results, errors and log lines, beside the numbers of the moves."""
    results, failures, lines = [], [], []
    for number, move in moves:
        lines += [(number, line.at, line.level, line.text) for line in move.lines]
        if move.result is not None:
            results.append((number, move.result, move.result_until))
        if move.failure is not None:
            failures.append((number, *astuple(move.failure)))
    return {
        **columns(("result_numbers", "results", "result_untils"), results),
        **columns(_FAILURE, failures),
        **columns(("line_numbers", "line_ats", "line_levels", "line_texts"), lines),
    }


def fresh_of(news: Sequence[New], lanes: Lanes) -> dict[str, Sequence[Any]]:
    """New jobs that are fresh, each with the number of its lane and its event."""
    rows = [fresh_row(new, lanes[lane_of(new.job, new.body)]) for new in news]
    return {"fresh": rows, **_tags_of(news)}


def lone_of(new: New, lanes: Lanes) -> list[Any]:
    """The values of the statement for one new job that is fresh."""
    row = fresh_row(new, lanes[lane_of(new.job, new.body)])
    return SQL["enqueue_one"].values(dict(zip(FRESH, row, strict=True)))


def fresh_row(new: New, lane: int) -> tuple[Any, ...]:
    """All that is told about a new job that is fresh."""
    job, body, event = new.job, new.body, astuple(new.events[0])
    mine = (*_enqueued_row(job), new.wake_at, lane)
    return (*mine, *body_row(body), *event[7:10], rest_of(event))


def news_of(
    news: Sequence[New], lanes: Lanes, shut: Collection[Key] = ()
) -> dict[str, Sequence[Any]]:
    """New jobs, each with the number of its lane."""
    return {"news": [_new_row(new, lanes, shut) for new in news], **_tags_of(news)}


def _tags_of(news: Sequence[New]) -> dict[str, Sequence[Any]]:
    tags = [(new.job.tenant, tag, new.job.id) for new in news for tag in new.body.tags]
    return columns(("tag_tenants", "tag_texts", "tag_ids"), tags)


def _new_row(new: New, lanes: Lanes, shut: Collection[Key]) -> tuple[Any, ...]:
    job, lane = new.job, lanes[lane_of(new.job, new.body)]
    fingerprint = None if new.unique is None else new.unique.fingerprint
    gated = (job.tenant, job.id) in shut
    return (*job_row(job), new.wake_at, lane, fingerprint, gated, *body_row(new.body))


def recorded(events: Iterable[Event]) -> dict[str, Sequence[Any]]:
    """Events beside the keys of their records."""
    rows = [(None, event.tenant, event.record, *event_row(event)) for event in events]
    return {"events": rows}


def no_events() -> dict[str, Sequence[Any]]:
    """For statements whose events are written apart."""
    return {"events": ()}


def no_asides() -> dict[str, Sequence[Any]]:
    """For statements whose results, errors and lines are written apart."""
    return asides_of(())
