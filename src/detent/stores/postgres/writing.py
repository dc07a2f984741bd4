"""Units that have passed every fence are written, table by table and in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import astuple, replace

from detent.lifecycle.event import Event
from detent.lifecycle.job import Accepted, Job
from detent.lifecycle.workflow import Flow
from detent.stores import api, flows
from detent.stores.api import Key, Line, Move, New, Outcome, Record, Unit, key_of, name_of
from detent.stores.legal import is_storable
from detent.stores.postgres import arrays
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.faults import UNFIT, is_clash, is_held_twice
from detent.stores.postgres.judging import Head, Judge, lock
from detent.stores.postgres.lanes import Lane, Lanes, numbers_of
from detent.stores.postgres.sorting import waves
from detent.stores.postgres.switching import put_gates, put_limits


class Written(msgspec.Struct, frozen=True):
    """The answers to some units, if the transaction around them holds."""

    outcomes: list[Outcome]
    has_opened: bool
    """Whether a step opened."""
    locked: dict[Key, Flow]
    """The workflows that are locked now, and how they stand."""


async def commit(
    connection: Connection, lanes: Lanes, units: Sequence[Unit], now: int, *, is_bold: bool = False
) -> Written:
    """Judge these units under locks and write those that nothing speaks against.

    A bold one fails as a whole when the database refuses a row; that is rare and saves questions.
    """
    outcomes: list[Outcome] = []
    locked: dict[Key, Flow] = {}
    has_opened = False
    runs = list(waves(units))
    await lock(connection, units, is_alone=len(runs) == 1)
    for wave in runs:
        judge = Judge(connection, now)
        refused = await judge.outcomes(wave)
        accepted = [unit for unit, why in zip(wave, refused, strict=True) if why is None]
        writing = _Writing(connection, lanes, judge, now)
        written = iter(await (writing.write_boldly if is_bold else writing.write)(accepted))
        outcomes += [next(written) if why is None else why for why in refused]
        locked |= judge.flows.known
        has_opened |= judge.flows.has_opened
    return Written(outcomes, has_opened, locked)


async def append(connection: Connection, lines: Sequence[tuple[Key, Line]]) -> list[int]:
    """The cursors of these lines; 0 where they cannot be kept."""
    kept = [number for number, line in enumerate(lines) if is_storable(line)]
    rows = [(*lines[n][0], lines[n][1].at, lines[n][1].level, lines[n][1].text) for n in kept]
    told = columns(("tenants", "ids", "ats", "levels", "texts"), rows)
    written = await connection.fetch("logs_put", **told) if rows else []
    cursors = {kept[number - 1]: cursor for number, cursor in written}
    return [cursors.get(number, 0) for number in range(len(lines))]


class Appending:
    """Lines that are appended once, whatever happens to the connection on the way.

    A line has nothing that tells it from another, so the transaction itself is asked about.
    """

    def __init__(self, lines: Sequence[tuple[Key, Line]]) -> None:
        self._lines = lines
        self._cursors: list[int] = []
        self._xid: str | None = None

    async def run(self, connection: Connection) -> list[int]:
        """The cursors of the lines."""
        status = await self._status(connection)
        if status == "committed":
            return self._cursors
        async with connection.transaction():
            if status == "in progress":
                await connection.run("savepoint")
            cursors = await append(connection, self._lines)
            # If the first attempt was still under way, these lines have waited for its end.
            if status == "in progress" and await self._status(connection) == "committed":
                await connection.run("undo")
                return self._cursors
            row = await connection.fetch_row("xact_id")
            self._cursors, self._xid = cursors, None if row is None else row[0]
        return self._cursors

    async def _status(self, connection: Connection) -> str | None:
        """What became of the attempt before this one, if there was any."""
        if self._xid is None:
            return None
        row = await connection.fetch_row("xact_status", xid=self._xid)
        return None if row is None else row[0]


class _Change:
    """What one unit changes in the end: its own moves, and what its workflows add to them."""

    def __init__(self, unit: Unit, judge: Judge, now: int) -> None:
        self.moves = {key_of(move.job): move for move in unit.moves}
        self.news = {key_of(new.job): new for new in unit.new}
        self.events: list[Event] = []
        self.puts = [(record, unit.command_id) for record in unit.puts]
        self.gates, self.limits = unit.gates, unit.limits
        if unit.flow is not None:
            self.events += judge.flows.apply(unit.flow.answer)
        for move in unit.moves:
            self.events += move.events
        for new in unit.new:
            self.events += new.events
        self._follow(unit, judge, now)

    def _follow(self, unit: Unit, judge: Judge, now: int) -> None:
        changes, heard = flows.heard_of(unit, lambda key: judge.heads[key].job)
        events, recalled = judge.flows.follow(changes, heard, now, unit.command_id)
        self.events += events
        for job, answer in recalled:
            self._recall(key_of(job), answer)

    def _recall(self, key: Key, answer: Accepted) -> None:
        """It is called off in the same breath: only where it ends up is written."""
        if key in self.news:
            self.news[key] = replace(self.news[key], job=answer.job, wake_at=None)
        else:
            self.moves[key] = replace(self.moves[key], job=answer.job, wake_at=None)


class _Writing:
    """What a few units of one transaction write."""

    def __init__(self, connection: Connection, lanes: Lanes, judge: Judge, now: int) -> None:
        self._connection = connection
        self._lanes = lanes
        self._judge = judge
        self._now = now

    async def write_boldly(self, units: Sequence[Unit]) -> list[Outcome]:
        """All together, or an error."""
        if units:
            await self._write([_Change(unit, self._judge, self._now) for unit in units])
        return [api.Committed()] * len(units)

    async def write(self, units: Sequence[Unit]) -> list[Outcome]:
        """All together; when the database refuses a row, each by itself."""
        if not units:
            return []
        before = self._judge.flows.copied()
        try:
            async with self._connection.savepoint():
                return await self.write_boldly(units)
        except UNFIT as why:
            # A unit names its leases itself; only a claim finds what it had taken before.
            if is_clash(why) and not is_held_twice(why):
                raise
            self._judge.flows = before
            if len(units) == 1:
                return [api.Rejected(str(why))]
            return [outcome for unit in units for outcome in await self.write([unit])]

    async def _write(self, changes: Sequence[_Change]) -> None:
        moves = [move for change in changes for move in change.moves.values()]
        news = [new for change in changes for new in change.news.values()]
        events = [event for change in changes for event in change.events]
        # Where nothing happened but to jobs that moved, that is written with them.
        is_plain = sum(len(move.events) for move in moves) == len(events)
        if moves:
            await self._move([move for move in moves if move.events], with_events=is_plain)
            await self._rearm([move for move in moves if not move.events])
            await self._put_asides([move for move in moves if move.job.erased_at is None])
            await self._erase([move.job for move in moves if move.job.erased_at is not None])
        if news:
            await self._push(news)
        await self._judge.flows.save(self._connection)
        await self._put_records([put for change in changes for put in change.puts])
        await put_gates(self._connection, [row for change in changes for row in change.gates])
        await put_limits(self._connection, [row for change in changes for row in change.limits])
        if events and not is_plain:
            await self._connection.fetch("record", **arrays.recorded(events))

    def _shut(self, jobs: Iterable[Job]) -> set[Key]:
        return {key_of(job) for job in jobs if self._judge.flows.is_shut(job)}

    # --- moves --------------------------------------------------------------------------------

    async def _move(self, moves: Sequence[Move], *, with_events: bool) -> None:
        if not moves:
            return
        lanes = await self._new_lanes(moves)
        shut = self._shut(move.job for move in moves)
        told = arrays.moves_of(enumerate(moves), lanes, shut) | arrays.no_asides()
        told |= arrays.events_of(enumerate(moves)) if with_events else arrays.no_events()
        await self._connection.fetch("move", **told, now=self._now)
        taking = [move.job.holder for move in moves if self._takes(move)]
        if taking:
            # Put into hands that were empty and given up: somebody must look there again.
            await self._connection.fetch("workers_reopened", workers=taking)

    def _before(self, job: Job) -> Head:
        return self._judge.heads[key_of(job)]

    def _takes(self, move: Move) -> bool:
        before, job = self._before(move.job).job, move.job
        return job.lease not in (None, before.lease) and not job.wire

    async def _new_lanes(self, moves: Sequence[Move]) -> dict[Key, int]:
        """The lanes of jobs that change their queue."""
        changed = [move.job for move in moves if move.job.queue != self._before(move.job).job.queue]
        # One that has no lane yet is placed where it stands then.
        changed = [job for job in changed if self._before(job).lane is not None]
        if not changed:
            return {}
        lanes = [self._before(job).lane for job in changed]
        found = await self._connection.fetch("lane_names", lanes=lanes)
        names = {lane: (kind, key) for lane, kind, key in found}
        after: dict[Key, Lane] = {}
        for job in changed:
            kind, key = names[self._before(job).lane]
            lane = (job.tenant, job.queue, kind, job.profile, str.__str__(job.delivery), key)
            after[key_of(job)] = Lane(*lane)
        numbers = await numbers_of(self._connection, set(after.values()))
        return {key: numbers[lane] for key, lane in after.items()}

    async def _rearm(self, moves: Sequence[Move]) -> None:
        if not moves:
            return
        names = ("tenants", "ids", "wakes", "leases", "with_result", "with_failure")
        rows = [(*key_of(one.job), one.wake_at, one.job.lease, *_brings(one)) for one in moves]
        await self._connection.fetch("rearm", **columns((*names, "with_checkpoint"), rows))

    # --- what is kept beside ------------------------------------------------------------------

    async def _put_asides(self, moves: Sequence[Move]) -> None:
        for statement, column, field in (
            ("checkpoints_put", "checkpoints", "checkpoint"),
            ("metas_put", "metas", "meta"),
        ):
            rows = [(*key_of(move.job), getattr(move, field)) for move in moves]
            rows = [row for row in rows if row[2] is not None]
            if rows:
                told = columns(("tenants", "ids", column), rows)
                await self._connection.fetch(statement, **told)
        results = [
            (*key_of(m.job), m.result, m.result_until) for m in moves if m.result is not None
        ]
        if results:
            told = columns(("tenants", "ids", "results", "untils"), results)
            await self._connection.fetch("results_put", **told)
        failures = [(*key_of(m.job), *astuple(m.failure)) for m in moves if m.failure is not None]
        if failures:
            names = ("attempts", "ats", "codes", "messages", "types", "details", "backtraces")
            told = columns(("tenants", "ids", *names), failures)
            await self._connection.fetch("failures_put", **told)
        lines = [(key_of(move.job), line) for move in moves for line in move.lines]
        if lines:
            await append(self._connection, lines)

    async def _erase(self, jobs: Sequence[Job]) -> None:
        """Nothing is left of what a job was about or said, and no later move brings any."""
        if jobs:
            keys = [key_of(job) for job in jobs]
            await self._connection.fetch("erase", **columns(("tenants", "ids"), keys))

    async def _put_records(self, puts: Sequence[tuple[Record, str]]) -> None:
        dropped = [name_of(record) for record, _ in puts if record.data is None]
        if dropped:
            told = columns(("kinds", "tenants", "ids"), dropped)
            await self._connection.fetch("records_dropped", **told)
        kept = [
            (*name_of(record), record.version, record.data, record.wake_at, command_id)
            for record, command_id in puts
            if record.data is not None
        ]
        if kept:
            names = ("kinds", "tenants", "ids", "versions", "data", "wakes", "commands")
            await self._connection.fetch("records_put", **columns(names, kept))

    # --- new jobs -----------------------------------------------------------------------------

    async def _push(self, news: Sequence[New]) -> None:
        told = arrays.news_of(news, self._lanes, self._shut(new.job for new in news))
        await self._connection.fetch("push", **told, **arrays.no_events(), now=self._now)
        await self._promise(news)
        steps = {(new.job.tenant, new.job.step) for new in news if new.job.step is not None}
        if steps:
            await self._connection.fetch("steps_reopened", **columns(("tenants", "ids"), steps))

    async def _promise(self, news: Iterable[New]) -> None:
        rows = [
            (new.job.tenant, one.key, one.digest, one.expires_at, new.job.id)
            for new in news
            if (one := new.idempotency) is not None
        ]
        if rows:
            # Of several under one key the last word counts: a statement writes a row once.
            newest = {row[:2]: row for row in rows}
            names = ("tenants", "keys", "digests", "expiries", "ids")
            await self._connection.fetch("promise", **columns(names, newest.values()))


def _brings(move: Move) -> tuple[bool, bool, bool]:
    """Whether there is a result, an error, a checkpoint to be kept beside the job."""
    if move.job.erased_at is not None:
        return False, False, False
    return move.result is not None, move.failure is not None, move.checkpoint is not None
