"""Enqueues calls in a transaction of the caller, in the caller's own thread or loop.

The store is not asked, and nothing crosses the bridge: whoever holds a transaction open must not
wait for somebody who may be waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from detent.app.asking import Call
from detent.engine import limits
from detent.engine.joining import Joining
from detent.engine.otel_spans import producing
from detent.errors import BadOption
from detent.stores import inside

if TYPE_CHECKING:
    from detent.app.detent import Detent
    from detent.app.handle import Handle

R = TypeVar("R")


def enqueue_inside(app: Detent, calls: Sequence[Call[R]], conn: Any) -> list[Handle[R]]:
    """Enqueue in the transaction of a connection that blocks."""
    clock = app.connection.now
    with _joining(app, calls) as joining:
        for piece in joining.pieces:
            piece.hear(inside.enqueue(conn, piece.unit, joining.now, clock=clock))
    return app.handles_of(calls, joining.answers())


async def aenqueue_inside(app: Detent, calls: Sequence[Call[R]], conn: Any) -> list[Handle[R]]:
    """Enqueue in the transaction of a connection that is awaited."""
    clock = app.connection.now
    with _joining(app, calls) as joining:
        for piece in joining.pieces:
            piece.hear(await inside.aenqueue(conn, piece.unit, joining.now, clock=clock))
    return app.handles_of(calls, joining.answers())


@contextmanager
def _joining(app: Detent, calls: Sequence[Call[Any]]) -> Iterator[Joining]:
    limits.need_batch(len(calls))
    now = app.connection.now()
    asks = [call.ask(now) for call in calls]
    for call, ask in zip(calls, asks, strict=True):
        limits.need_job(ask)
        _need_told(app, call)
    connection = app.connection
    with producing(asks) as spans:
        joining = Joining(spans.asks, app.by, connection.identity, connection.secrets, now)
        yield joining
        spans.hear(joining.answers())


def _need_told(app: Detent, call: Call[Any]) -> None:
    """A limit is no part of the transaction, so the store must have heard of it before."""
    if not app.connection.has_told(call.limit()):
        why = "its limit is not in the store yet, and cannot be put there inside a transaction"
        fix = "call app.set_limits([...]) with such calls before it"
        raise BadOption(f"{call.signature.name}: {why}: {fix}", option="limit")
