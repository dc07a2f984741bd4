"""The store on PostgreSQL: a pool for all, one for those who may have to wait, a listener."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from detent.errors import StoreError, StoreOpen
from detent.lifecycle.event import Event
from detent.lifecycle.job import Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Flow, Workflow
from detent.stores import api
from detent.stores.alike import Alike
from detent.stores.api import Key, Record, Store, Stored, Unit, Want
from detent.stores.births import Births
from detent.stores.bounds import need_size
from detent.stores.checks import Check
from detent.stores.pieces import walked
from detent.stores.postgres import (
    address,
    bearing,
    feeding,
    placing,
    pruning,
    reading,
    upkeep,
    writing,
)
from detent.stores.postgres import workers as staff
from detent.stores.postgres.address import Address
from detent.stores.postgres.connection import Connection, open_connection
from detent.stores.postgres.faults import FAULTS, translated
from detent.stores.postgres.lanes import Lanes
from detent.stores.postgres.listening import Crier, Listener
from detent.stores.postgres.marks import Marks
from detent.stores.postgres.migrate import prepare
from detent.stores.postgres.nearby import ALONE, TOLD, Near, Nearby
from detent.stores.postgres.pool import Pool
from detent.stores.postgres.server import ServerClock, need_fit, promises
from detent.stores.postgres.sorting import Batch, sort
from detent.stores.postgres.stepping import Step
from detent.stores.select import FIRST_PAGE, Filter, Page
from detent.stores.workers import need_legal

P = ParamSpec("P")
T = TypeVar("T")
_KEYED: Final = 2
"""Connections for steps that may have to wait for somebody's own transaction."""
_FOLD_S: Final = 1.0
_CLOCK_S: Final = 2.0
"""How often the server is asked what time it is: its workers' beats are good for 15 seconds."""
_LOOK_S: Final = 1.0
"""After so long somebody looks again even if no word has come."""


def connect(
    url: str, clock: Callable[[], int] | None = None, patience_s: float | None = None
) -> Store:
    """The store of this database, not opened yet."""
    return PostgresStore(address.read(url), clock, patience_s=patience_s)


class _Open(msgspec.Struct, frozen=True):
    """What there is only while the store is open."""

    pool: Pool
    keyed: Pool
    crier: Crier
    listener: Listener
    sequencing: asyncio.Lock
    nearby: Nearby
    loop: asyncio.AbstractEventLoop
    timing: asyncio.Task[None]


class PostgresStore(Alike[_Open]):
    """Records and their histories in one database, shared by any number of processes."""

    backend = "postgres"
    has_transactions = True

    def __init__(
        self,
        where: Address,
        clock: Callable[[], int] | None,
        marks: Marks | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        super().__init__(clock)
        self._is_on_time = clock is None
        """Whether its time is the server's, and nobody has said otherwise."""
        self._address = where
        self._patience_s = patience_s
        self._lanes = Lanes()
        self._marks = Marks() if marks is None else marks
        self._folded_at = 0.0
        self._is_limited = False

    @property
    def connections(self) -> int:
        """How many steps it takes at once."""
        return self._address.connections

    # --- opening and closing ------------------------------------------------------------------

    async def __aenter__(self) -> Store:
        if self._inside is not None:
            raise StoreOpen("This store is open already; open the address once more instead")
        self._process = os.getpid()
        try:
            await self._connect()
        except FAULTS as error:
            raise translated(error) from error
        return self

    async def _connect(self) -> None:
        connection = await open_connection(self._address)
        try:
            clock = await need_fit(connection)
            await prepare(connection)
            row = await connection.fetch_row("any_limit")
            self._is_limited = row is not None and row[0]
        finally:
            await connection.close()
        self._clock = clock if self._is_on_time else self._clock
        name = uuid.uuid4().hex
        pool = Pool(self._address, self._address.connections, self._patience_s, self._lanes.forget)
        listener = Listener(self._address, name, partial(self._bell.ring, here=True))
        if self._address.listen_url != self._address.url:
            # A wrong one would be noticed by nobody: who hears nothing looks by itself.
            await (await open_connection(self._address, self._address.listen_url)).close()
        keyed = Pool(self._address, _KEYED, self._patience_s, self._lanes.forget)
        nearby, loop = Nearby(self._address), asyncio.get_running_loop()
        crier = Crier(pool, name)
        timing = asyncio.ensure_future(self._keep_time(clock, pool))
        self._inside = _Open(pool, keyed, crier, listener, asyncio.Lock(), nearby, loop, timing)

    async def __aexit__(self, *_: object) -> None:
        opened, self._inside = self._inside, None
        self._bell.stop()
        if opened is not None:
            opened.timing.cancel()
            await asyncio.wait([opened.timing])
            # Backwards, and each of them whatever becomes of the others.
            async with AsyncExitStack() as parts:
                parts.push_async_callback(opened.listener.stop)
                parts.push_async_callback(opened.keyed.close)
                parts.push_async_callback(opened.pool.close)
                parts.push_async_callback(opened.crier.stop)
                parts.push_async_callback(opened.nearby.close)

    async def doubts(self) -> Sequence[Check]:
        """Settings of the server under which it loses what it said is stored."""
        return promises(await self._run(Connection.fetch, "promises"))

    async def _keep_time(self, clock: ServerClock, pool: Pool) -> None:
        """Go by the server's clock, also when that is set, or is another's."""
        while self._is_on_time:
            await asyncio.sleep(_CLOCK_S)
            # A server that is away has no time; whoever needs it hears that.
            with suppress(StoreError):
                await pool.run(clock.read)

    async def _run(
        self,
        operation: Callable[Concatenate[Connection, P], Awaitable[T]],
        *args: P.args,
        **more: P.kwargs,
    ) -> T:
        return await self._opened().pool.run(lambda one: operation(one, *args, **more))

    def _tell(self) -> None:
        """Something may have become claimable, here and elsewhere."""
        self._bell.ring()
        if self._inside is not None:
            self._inside.crier.cry()

    # --- the side that changes something --------------------------------------------------------

    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        opened = self._opened(now)
        need_size(units, want)
        batch = sort(units)
        seen = self._bell.rung
        step = Step(self._lanes, batch, want, now, self._marks.told(seen))
        if want is not None:
            await opened.listener.start()
        elif len(units) == 1 and (batch.born is not None or batch.fresh):
            step.word = opened.crier.word()
        stepped = await (opened.keyed if batch.keyed else opened.pool).run(step.run)
        if want is not None:
            reached = step.reached if self._marks.minds(step.took_s) else ()
            self._marks.keep(reached, step.took_s, seen)
            stepped = await self._with_rest(want, stepped, now, is_short=step.is_short)
        self._is_limited = self._is_limited if step.is_limited is None else step.is_limited
        is_plain = batch.ends is not None or batch.born is not None
        self._is_limited |= not is_plain and any(unit.limits for unit in units)
        if step.word is not None and step.has_told:
            opened.crier.went_along(step.word)
            self._bell.ring()
        elif step.has_opened or self._may_have_let_in(batch):
            self._tell()
        return replace(stepped, claimed=replace(stepped.claimed, seen=seen))

    async def step_near(
        self, units: Sequence[Unit], cross: Callable[[], Awaitable[api.Stepped]]
    ) -> api.Stepped:
        near = self._opened().nearby.here()
        if near is None:
            return await cross()
        if isinstance(units, Births) and await self._send_near(units, near):
            return api.Stepped((api.Committed(),))
        near.crossing += 1
        try:
            return await cross()
        finally:
            near.crossing -= 1

    async def _send_near(self, births: Births, near: Near) -> bool:
        """Whether a lone one was stored from here, by a statement that sends word along."""
        if len(births) > 1 or near.has_company:
            return False
        common = bearing.shared(births.rows[0][0])
        lane = None if common is None else self._lanes.get(common.lane)
        if common is None or lane is None:
            return False
        values = bearing.lone(births, common, lane)
        if not near.is_free(values):
            return False
        return await self._told_near(near, values, self._opened().crier)

    async def _told_near(self, near: Near, values: list[Any], crier: Crier) -> bool:
        word = crier.word()
        if word is None:
            if is_stored := await near.send(ALONE, values):
                crier.cry_from_afar()
        elif is_stored := await near.send(TOLD, [*values, word.name]):
            crier.went_along(word)
        self._bell.ring()
        return is_stored

    def _may_have_let_in(self, batch: Batch) -> bool:
        """Whether somebody may claim what could not be claimed before: a job came, or room did."""
        if batch.ends is not None:
            return self._is_limited
        return batch.born is not None or any(self._may_let_in(unit) for unit in batch.units)

    def _may_let_in(self, unit: Unit) -> bool:
        if unit.gates or unit.limits or any(new.job.state == "available" for new in unit.new):
            return True
        moved = [move for move in unit.moves if move.events]
        if any(move.job.state == "available" for move in moved):
            return True
        return self._is_limited and any(move.job.lease is None for move in moved)

    async def _with_rest(
        self, want: Want, stepped: api.Stepped, now: int, *, is_short: bool
    ) -> api.Stepped:
        """What stands before a mark, was missed or had no lane is granted too.

        If that fails, the answer there is stands.
        """
        jobs = stepped.claimed.jobs
        given = {stored.job.lease for stored in jobs}
        rest = replace(want, leases=tuple(one for one in want.leases if one not in given))
        if not rest.leases or stepped.claimed.lost:
            return stepped
        self._marks.drop()
        with suppress(StoreError):
            # With something to do already, nobody waits until it is known whether there is more.
            placed = 0 if jobs else await self._run(placing.place)
            if placed or is_short:
                more = (await self._run(Step(self._lanes, sort(()), rest, now).run)).claimed
                claimed = replace(more, jobs=(*jobs, *more.jobs))
                return replace(stepped, claimed=claimed)
        return stepped

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[api.Due]:
        self._opened(now)
        if time.monotonic() > self._folded_at + _FOLD_S:
            self._folded_at = time.monotonic()
            await self._run(upkeep.fold)
            await self._place()
        return await self._run(upkeep.take_due, now, max(limit, 0), now + hold_us)

    async def _place(self) -> None:
        if await self._run(placing.place):
            self._tell()

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        self._opened(now)
        return await self._run(upkeep.take_due_records, now, max(limit, 0), now + hold_us)

    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        self._opened(now)
        return await self._run(upkeep.note, notes)

    async def beat(self, workers: Sequence[api.WorkerRow], *, now: int) -> Sequence[bool]:
        self._opened(now, workers)
        return await self._run(staff.beat, workers, now)

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        self._opened(now, workers)
        return await self._run(staff.declare_lost, workers, now)

    async def bury(self, deaths: Sequence[api.Death], *, now: int) -> Sequence[bool]:
        self._opened(now, deaths)
        return await self._run(staff.bury, deaths, now)

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        self._opened(now)
        await self._sequence()
        return await self._run(staff.forget, before, max(limit, 0))

    async def ship(self, lives: Sequence[api.Life], *, now: int) -> Sequence[bool]:
        need_legal(lives)
        self._opened(now, lives)
        return await self._run(staff.ship, lives)

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        self._opened(now)
        return await self._run(upkeep.extend, leases)

    async def prune(self, rules: Sequence[api.Retention], *, now: int, limit: int = 1_000) -> int:
        self._opened(now)
        await self._sequence()
        return await self._run(pruning.prune, rules, now, max(limit, 0))

    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        self._opened(now)
        return await self._run(pruning.forget_results, now, max(limit, 0))

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        await self._sequence()
        while (draft := await self._run(feeding.draft, max(limit, 0))) is not None:
            if await self._run(feeding.add, draft):
                return draft.block
        return None

    async def append_logs(self, lines: Sequence[tuple[Key, api.Line]]) -> Sequence[int]:
        return await self._opened().pool.run(writing.Appending(lines).run)

    async def _sequence(self, what: Literal["events", "lines"] = "events") -> None:
        # In one process one is enough: whoever waits here would only wait for the row instead.
        async with self._opened().sequencing:
            await self._run(feeding.sequence, what)

    # --- the side that only looks ---------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return await self._run(reading.get, keys)

    async def heads(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return await self._run(reading.heads, keys)

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        return await walked(lambda part: self._run(reading.find, chosen, part), page)

    async def flows(self, keys: Sequence[Key]) -> Sequence[Flow | None]:
        return await self._run(reading.flows, keys)

    async def find_workflows(
        self, tenant: str | None = None, state: str | None = None, page: Page = FIRST_PAGE
    ) -> Sequence[Workflow]:
        return await self._run(reading.find_workflows, tenant, state, page)

    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[Record]:
        return await self._run(reading.records, kind, tenant, after, max(limit, 0))

    async def record(self, keys: Sequence[api.Named]) -> Sequence[Record | None]:
        return await self._run(reading.record, keys)

    async def limits(self, tenant: str = "") -> Sequence[api.Limited]:
        return await self._run(reading.limits, tenant)

    async def gates(self, tenant: str = "") -> Sequence[api.GateRow]:
        return await self._run(reading.gates, tenant)

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[api.WorkerRow]:
        self._opened(now)
        return await self._run(staff.overdue, now, max(limit, 0))

    async def workers(self, limit: int = 1_000, *, gone: bool = False) -> Sequence[api.WorkerRow]:
        return await self._run(staff.listed, max(limit, 0), gone)

    async def instances(self, keys: Sequence[Key]) -> Sequence[Instance | None]:
        return await self._run(staff.instances, keys)

    async def find_instances(
        self, slot: str | None = None, after: Key | None = None, limit: int = 1_000
    ) -> Sequence[Instance]:
        return await self._run(staff.find_instances, slot, after, limit)

    async def unquiet(self, runs: Sequence[tuple[Key, str]]) -> Sequence[Key]:
        return await self._run(reading.unquiet, runs)

    async def held_by(self, holder: str, limit: int, but: Sequence[str] = ()) -> Sequence[Stored]:
        return await self._run(reading.held_by, holder, limit, but)

    async def weight(self, tenant: str, queue: str) -> int:
        return await self._run(reading.weight, tenant, queue)

    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        return await self._run(reading.counts, tenant)

    async def history(self, key: Key) -> Sequence[Event]:
        return await self._run(reading.history, key)

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[api.Fed]]:
        await self._sequence()
        return await self._run(reading.histories, keys)

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        return await self._run(reading.leases, leases)

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Fed]:
        await self._sequence()
        return await self._run(feeding.feed, after, max(limit, 0))

    async def leaves(self, after: int = 0, limit: int = 10_000) -> Sequence[tuple[int, bytes]]:
        return await self._run(reading.leaves, after, max(limit, 0))

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        return await self._run(feeding.blocks, after, max(limit, 0))

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        await self._sequence("lines")
        return await self._run(reading.logs, key, after, max(limit, 0))

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        await self._sequence("lines")
        return await self._run(reading.log_tail, after, max(limit, 0))

    async def keys(self, after: Key | None = None, limit: int = 1_000) -> Sequence[Key]:
        return await self._run(reading.keys, after or ("", ""), max(limit, 0))

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        if not await self._opened().listener.start():
            if self._inside is None:
                return False
            if seen is not None:
                # What came since then, before anybody listened, is not known.
                return True
        if timeout_s <= _LOOK_S:
            return await self._bell.wait(timeout_s, seen)
        await self._bell.wait(_LOOK_S, seen)
        return self._inside is not None
