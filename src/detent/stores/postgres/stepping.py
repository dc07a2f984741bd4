"""Steps: one statement where nothing unusual can be seen, questions first where something can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.stores import api
from detent.stores.api import Claimed, Outcome, Stepped, Unit, Want
from detent.stores.postgres import arrays, claiming, writing
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.faults import UNFIT
from detent.stores.postgres.lanes import Lanes, lane_of
from detent.stores.postgres.sorting import Batch

__all__ = ["Step"]


class Step:
    """One step: its units, its wish, and the time it was asked at."""

    def __init__(self, lanes: Lanes, batch: Batch, want: Want | None, now: int) -> None:
        self._lanes = lanes
        self._batch = batch
        self._want = want
        self._now = now

    async def run(self, connection: Connection) -> Stepped:
        """The answers, when everything is durable."""
        batch = self._batch
        if not batch.units:
            return Stepped((), await self._claim(connection))
        try:
            if batch.news:
                return await self._push(connection)
            if batch.moves and self._want is None:
                return await self._move(connection)
            if batch.fusable and self._want is not None:
                return await self._move_and_claim(connection, self._want)
        except UNFIT:
            # Nothing was committed. One unit is at fault: asked one by one, the others are not hurt.
            pass
        return await self._carefully(connection)

    async def _claim(self, connection: Connection) -> Claimed:
        if self._want is None:
            return Claimed()
        return await claiming.claim(connection, self._want, self._now)

    async def _carefully(self, connection: Connection) -> Stepped:
        """Every unit is judged before it is written, all in one transaction."""
        async with connection.transaction():
            outcomes = await self._judged(connection, self._batch.units)
            claimed = await self._claim(connection)
        return Stepped(tuple(outcomes), claimed)

    async def _judged(self, connection: Connection, units: Sequence[Unit]) -> list[Outcome]:
        return await writing.commit(connection, self._lanes, units, self._now)

    # --- at once ------------------------------------------------------------------------------

    async def _push(self, connection: Connection) -> Stepped:
        """New jobs, and a claim after them that sees them."""
        if self._want is None:
            await self._send_news(connection)
            return self._all_committed(Claimed())
        async with connection.transaction():
            await self._send_news(connection)
            claimed = await self._claim(connection)
        return self._all_committed(claimed)

    async def _send_news(self, connection: Connection) -> None:
        news = [new for unit in self._batch.units for new in unit.new]
        told = arrays.news_of((new, self._lanes[lane_of(new.job, new.body)]) for new in news)
        events = arrays.recorded(event for new in news for event in new.events)
        await connection.fetch("push", **told, **events, now=self._now)

    def _all_committed(self, claimed: Claimed) -> Stepped:
        return Stepped((api.Committed(),) * len(self._batch.units), claimed)

    async def _move(self, connection: Connection) -> Stepped:
        rows = await connection.fetch("move", **self._told_moves())
        held = {number for (number,) in rows}
        return Stepped(await self._answers(connection, held))

    async def _move_and_claim(self, connection: Connection, want: Want) -> Stepped:
        told = {**self._told_moves(), **claiming.asked(want, self._now)}
        rows = await connection.fetch("step", **told)
        _, held, claims, is_again, *_ = rows[0]
        found = [row[4:] for row in rows]
        claimed = await claiming.claimed(connection, want, claims, is_again, found)
        return Stepped(await self._answers(connection, set(held)), claimed)

    def _told_moves(self) -> dict[str, Any]:
        moves = [(number, unit.moves[0]) for number, unit in enumerate(self._batch.units)]
        return {
            **arrays.moves_of([(*one, None) for one in moves]),
            **arrays.events_of(moves),
            **arrays.asides_of(moves),
            "now": self._now,
        }

    async def _answers(self, connection: Connection, held: set[int]) -> tuple[Outcome, ...]:
        """Those that a fence refused are asked about; all others are durable already."""
        units = self._batch.units
        if len(held) == len(units):
            return (api.Committed(),) * len(units)
        missed = [unit for number, unit in enumerate(units) if number not in held]
        async with connection.transaction():
            judged = iter(await self._judged(connection, missed))
        return tuple(api.Committed() if n in held else next(judged) for n in range(len(units)))
