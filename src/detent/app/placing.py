"""The short way of plain calls to the store: what they share is known, so little is left to do.

New jobs are made where the caller is. Where the store is one for all threads and loops they are
handed to it from there, and only there is waited; elsewhere they cross the bridge, ready made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from detent.app.asking import Call
from detent.app.handle import Handle
from detent.engine import limits
from detent.engine.engine import Engine
from detent.engine.moulds import is_plain
from detent.engine.spans import tracing
from detent.runtime.bridge import need_no_loop
from detent.stores.api import Unit

if TYPE_CHECKING:
    from detent.app.detent import Detent

__all__ = ["aplaced", "placed"]

R = TypeVar("R")


def placed(app: Detent, calls: Sequence[Call[R]]) -> list[Handle[R]] | None:
    """The jobs, stored; nothing if these calls need the long way."""
    if not _are_plain(calls):
        return None
    engine = app.ready or app.bridge.run(app.engine())
    made = _made(engine, calls)
    if engine.enqueueing.is_anywhere:
        need_no_loop()
        engine.enqueueing.store_new_here(made)
    else:
        app.bridge.run(engine.enqueueing.store_new(made))
    return _handles(app, made)


async def aplaced(app: Detent, calls: Sequence[Call[R]]) -> list[Handle[R]] | None:
    """The same, awaited."""
    if not _are_plain(calls):
        return None
    engine = app.ready
    if engine is None:
        engine = await app.bridge.reach(app.engine())
    made = _made(engine, calls)
    storing = engine.enqueueing.store_new(made)
    await (storing if engine.enqueueing.is_anywhere else app.bridge.reach(storing))
    return _handles(app, made)


def _are_plain(calls: Sequence[Call[Any]]) -> bool:
    # Whoever traces is told of each enqueue, which only the long way does.
    return tracing() is None and all(
        call.mould is not None and call.caught is None and is_plain(call.payload) for call in calls
    )


def _made(engine: Engine, calls: Sequence[Call[Any]]) -> list[Unit]:
    limits.need_batch(len(calls))
    moulded = [(call.mould, call.payload) for call in calls if call.mould is not None]
    for _, payload in moulded:
        limits.need_payload(payload)
    return engine.enqueueing.moulded(moulded)


def _handles(app: Detent, made: Sequence[Unit]) -> list[Handle[Any]]:
    return [Handle(app, unit.command_id, unit.new[0].job.tenant) for unit in made]
