"""The two ways in: the connection is recognised, the unit judged fit, and then it is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from detent.stores.bounds import need_time
from detent.stores.inside.fit import need_end_only, need_new_only
from detent.stores.inside.ways import way_of
from detent.stores.shapes import Outcome, Unit

Clock = Callable[[], int]


def enqueue(connection: Any, unit: Unit, now: int, *, clock: Clock | None = None) -> Outcome:
    """The answer to a unit of new jobs, written in the transaction that this connection is in.

    `Committed` means that it will be, together with everything else in the transaction. Outside of
    one it is a transaction of its own.
    """
    need_new_only(unit)
    return _written(connection, unit, now, clock)


async def aenqueue(connection: Any, unit: Unit, now: int, *, clock: Clock | None = None) -> Outcome:
    """The same for a connection that is awaited."""
    need_new_only(unit)
    return await _awritten(connection, unit, now, clock)


def complete(connection: Any, unit: Unit, now: int, *, clock: Clock | None = None) -> Outcome:
    """The answer to a unit that ends one job, written in the transaction of this connection.

    It is fenced by the version and the lease of the job as this transaction sees it, and holds the
    row of that job until the transaction ends. `Stale` has the job as it is.
    """
    need_end_only(unit)
    return _written(connection, unit, now, clock)


async def acomplete(
    connection: Any, unit: Unit, now: int, *, clock: Clock | None = None
) -> Outcome:
    """The same for a connection that is awaited."""
    need_end_only(unit)
    return await _awritten(connection, unit, now, clock)


def _written(connection: Any, unit: Unit, now: int, clock: Clock | None) -> Outcome:
    way = way_of(connection, is_async=False)
    _need_time(now, clock)
    outcome: Outcome = way(connection, unit, now)
    return outcome


async def _awritten(connection: Any, unit: Unit, now: int, clock: Clock | None) -> Outcome:
    way = way_of(connection, is_async=True)
    _need_time(now, clock)
    outcome: Outcome = await way(connection, unit, now)
    return outcome


def _need_time(now: int, clock: Clock | None) -> None:
    need_time(now, clock() if clock else time.time_ns() // 1_000)
