"""The fast path for plain calls: everything but their arguments is prepared beforehand.

New jobs are made where the caller is. Where the store is one for all threads and loops they are
handed to it from there, and only there is waited; elsewhere they cross the bridge, ready made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from detent.app.asking import Call
from detent.app.handle import Handle
from detent.engine import limits
from detent.engine.moulds import is_plain
from detent.engine.otel_spans import tracing
from detent.runtime.bridge import need_no_loop
from detent.stores.births import Births, Mould

if TYPE_CHECKING:
    from detent.app.detent import Detent

R = TypeVar("R")


def placed(app: Detent, calls: Sequence[Call[R]]) -> list[Handle[R]] | None:
    """The jobs, stored; nothing if these calls need the long way."""
    plain = _plain(calls)
    if plain is None:
        return None
    enqueueing = (app.ready or app.bridge.run(app.engine())).enqueueing
    made = enqueueing.moulded(plain)
    if enqueueing.is_anywhere:
        need_no_loop()
        enqueueing.store_new_here(made)
    elif enqueueing.is_near(made):
        near, far = partial(enqueueing.store_few, made, app.bridge.ask), enqueueing.store_new
        app.bridge.run_alone(near, partial(far, made))
    else:
        app.bridge.run(enqueueing.store_new(made))
    return _handles(app, made)


async def aplaced(app: Detent, calls: Sequence[Call[R]]) -> list[Handle[R]] | None:
    """The same, awaited."""
    plain = _plain(calls)
    if plain is None:
        return None
    engine = app.ready
    if engine is None:
        engine = await app.bridge.reach(app.engine())
    enqueueing = engine.enqueueing
    made = enqueueing.moulded(plain)
    if enqueueing.is_short(made):
        await enqueueing.store_few(made, app.bridge.ask)
        return _handles(app, made)
    storing = enqueueing.store_new(made)
    await (storing if enqueueing.is_anywhere else app.bridge.reach(storing))
    return _handles(app, made)


def _plain(calls: Sequence[Call[Any]]) -> list[tuple[Mould, str]] | None:
    """The moulds and payloads of these calls; nothing if any needs the long way."""
    if tracing() is not None:
        # Whoever traces is told of each enqueue, which only the long way does.
        return None
    plain: list[tuple[Mould, str]] = []
    for call in calls:
        if call.mould is None or call.caught is not None or not is_plain(call.payload):
            return None
        plain.append((call.mould, call.payload))
    limits.need_batch(len(plain))
    for _, payload in plain:
        limits.need_payload(payload)
    return plain


def _handles(app: Detent, made: Births) -> list[Handle[Any]]:
    return [Handle(app, birth[1], birth[0].tenant) for birth in made.rows]
