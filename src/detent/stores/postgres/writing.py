"""Units that have passed every fence are written, table by table and in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import astuple

from detent.stores import api
from detent.stores.api import Key, Line, Move, New, Outcome, Unit, key_of
from detent.stores.postgres import arrays
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.faults import UNFIT, is_clash
from detent.stores.postgres.judging import Head, Judge
from detent.stores.postgres.lanes import Lane, Lanes, lane_of, numbers_of
from detent.stores.postgres.sorting import waves

__all__ = ["append", "commit"]


async def commit(
    connection: Connection, lanes: Lanes, units: Sequence[Unit], now: int
) -> list[Outcome]:
    """The answers to these units, if the transaction around it holds."""
    outcomes: list[Outcome] = []
    for wave in waves(units):
        judge = Judge(connection, now)
        refused = await judge.outcomes(wave)
        accepted = [unit for unit, why in zip(wave, refused, strict=True) if why is None]
        written = iter(await _Writing(connection, lanes, judge.heads, now).write(accepted))
        outcomes += [next(written) if why is None else why for why in refused]
    return outcomes


async def append(connection: Connection, lines: Sequence[tuple[Key, Line]]) -> list[int]:
    """The cursors of these lines; 0 where there is no such job."""
    rows = [(*key, line.at, line.level, line.text) for key, line in lines]
    told = columns(("tenants", "ids", "ats", "levels", "texts"), rows)
    found = {number: cursor for number, cursor in await connection.fetch("logs_put", **told)}
    return [found.get(number, 0) for number in range(1, len(lines) + 1)]


class _Writing:
    """What a few units of one transaction write."""

    def __init__(
        self, connection: Connection, lanes: Lanes, heads: dict[Key, Head], now: int
    ) -> None:
        self._connection = connection
        self._lanes = lanes
        self._heads = heads
        self._now = now

    async def write(self, units: Sequence[Unit]) -> list[Outcome]:
        """All together; when the database refuses a row, each by itself."""
        if not units:
            return []
        try:
            async with self._connection.savepoint():
                await self._write(units)
        except UNFIT as why:
            if is_clash(why):
                raise
            if len(units) == 1:
                return [api.Rejected(str(why))]
            return [outcome for unit in units for outcome in await self.write([unit])]
        return [api.Committed()] * len(units)

    async def _write(self, units: Sequence[Unit]) -> None:
        moves = [move for unit in units for move in unit.moves]
        news = [new for unit in units for new in unit.new]
        if moves:
            await self._move([move for move in moves if move.events])
            await self._rearm([move for move in moves if not move.events])
            await self._put_asides(moves)
        if news:
            await self._push(news)
        events = [
            event for unit in units for one in (*unit.moves, *unit.new) for event in one.events
        ]
        if events:
            await self._connection.fetch("record", **arrays.recorded(events))

    # --- moves --------------------------------------------------------------------------------

    async def _move(self, moves: Sequence[Move]) -> None:
        if not moves:
            return
        lanes = await self._new_lanes(moves)
        rows = [(n, move, lanes.get(key_of(move.job))) for n, move in enumerate(moves)]
        told = {**arrays.moves_of(rows), **arrays.no_events(), **arrays.no_asides()}
        await self._connection.fetch("move", **told, now=self._now)
        taking = [move.job.holder for move in moves if self._takes(move)]
        if taking:
            # Put into hands that were empty and given up: somebody must look there again.
            await self._connection.fetch("workers_reopened", workers=taking)

    def _takes(self, move: Move) -> bool:
        before, job = self._heads[key_of(move.job)].job, move.job
        return job.lease not in (None, before.lease) and not job.wire

    async def _new_lanes(self, moves: Sequence[Move]) -> dict[Key, int]:
        """The lanes of jobs that change their queue."""
        changed = [m.job for m in moves if m.job.queue != self._heads[key_of(m.job)].job.queue]
        # One that has no lane yet is placed where it stands then.
        before = {key_of(job): self._heads[key_of(job)].lane for job in changed}
        changed = [job for job in changed if before[key_of(job)] is not None]
        if not changed:
            return {}
        found = await self._connection.fetch("lane_names", lanes=list(before.values()))
        names = {lane: (kind, key) for lane, kind, key in found}
        after: dict[Key, Lane] = {}
        for job in changed:
            kind, key = names[before[key_of(job)]]
            lane = (job.tenant, job.queue, kind, job.profile, str.__str__(job.delivery), key)
            after[key_of(job)] = Lane(*lane)
        numbers = await numbers_of(self._connection, set(after.values()))
        return {key: numbers[lane] for key, lane in after.items()}

    async def _rearm(self, moves: Sequence[Move]) -> None:
        if not moves:
            return
        names = ("tenants", "ids", "wakes", "with_result", "with_failure")
        rows = [
            (*key_of(move.job), move.wake_at, move.result is not None, move.failure is not None)
            for move in moves
        ]
        await self._connection.fetch("rearm", **columns(names, rows))

    async def _put_asides(self, moves: Sequence[Move]) -> None:
        results = [(*key_of(m.job), m.result) for m in moves if m.result is not None]
        if results:
            told = columns(("tenants", "ids", "results"), results)
            await self._connection.fetch("results_put", **told)
        failures = [(*key_of(m.job), *astuple(m.failure)) for m in moves if m.failure is not None]
        if failures:
            names = ("attempts", "ats", "codes", "messages", "types", "details", "backtraces")
            told = columns(("tenants", "ids", *names), failures)
            await self._connection.fetch("failures_put", **told)
        lines = [(key_of(move.job), line) for move in moves for line in move.lines]
        if lines:
            await append(self._connection, lines)

    # --- new jobs -----------------------------------------------------------------------------

    async def _push(self, news: Sequence[New]) -> None:
        told = arrays.news_of((new, self._lanes[lane_of(new.job, new.body)]) for new in news)
        await self._connection.fetch("push", **told, **arrays.no_events(), now=self._now)
        await self._promise(news)

    async def _promise(self, news: Iterable[New]) -> None:
        rows = {
            (new.job.tenant, one.key): (
                new.job.tenant,
                one.key,
                one.digest,
                one.expires_at,
                new.job.id,
            )
            for new in news
            if (one := new.idempotency) is not None
        }
        if rows:
            names = ("tenants", "keys", "digests", "expiries", "ids")
            await self._connection.fetch("promise", **columns(names, rows.values()))
