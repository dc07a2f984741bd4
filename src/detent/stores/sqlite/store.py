"""The store on one SQLite file: the write side through the writer, the read side through a pool."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from detent.errors import StoreOpen
from detent.lifecycle.job import Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Flow, Workflow
from detent.stores import api
from detent.stores.alike import Alike, wall_clock
from detent.stores.api import Key, Store, Stored, Unit, Want
from detent.stores.births import Birth, Births
from detent.stores.bounds import need_size
from detent.stores.pieces import walked
from detent.stores.select import FIRST_PAGE, Filter, Page
from detent.stores.sqlite import claim, place, pruning, reader, sealing, upkeep
from detent.stores.sqlite import workers as staff
from detent.stores.sqlite.connection import need_version, open_writer
from detent.stores.sqlite.faults import translated
from detent.stores.sqlite.growing import Growth
from detent.stores.sqlite.migrate import bring_up_to_date
from detent.stores.sqlite.patience import PATIENCE, Patience
from detent.stores.sqlite.pool import Pool
from detent.stores.sqlite.sleeping import Sleep
from detent.stores.sqlite.threads import beside
from detent.stores.sqlite.transaction import Transaction
from detent.stores.sqlite.turns import Turns
from detent.stores.sqlite.writer import Writer
from detent.stores.workers import need_legal


def connect(
    url: str, clock: Callable[[], int] | None = None, patience_s: float | None = None
) -> Store:
    """The store of this file, not opened yet."""
    patience = PATIENCE if patience_s is None else Patience(turn_s=patience_s)
    return SqliteStore(place.path_of(url), clock or wall_clock, patience=patience)


class _Open(NamedTuple):
    """What there is only while the store is open; no thread or lock of it survives a fork."""

    writer: Writer
    pool: Pool


class SqliteStore(Alike[_Open]):
    """Records and their histories in one file. Several processes may open it at the same time."""

    backend = "sqlite"
    has_transactions = True

    def __init__(
        self,
        path: Path,
        clock: Callable[[], int],
        *,
        migrate: bool = True,
        patience: Patience = PATIENCE,
    ) -> None:
        super().__init__(clock)
        self._path = path
        self._patience = patience
        self._migrate = migrate

    # --- opening and closing ------------------------------------------------------------------

    async def __aenter__(self) -> Store:
        if self._inside is not None:
            raise StoreOpen("This store is open already; open the file once more instead")
        self._process = os.getpid()
        await beside(self._open)
        return self

    def _open(self) -> None:
        need_version()
        place.prepare(self._path)
        turns = Turns(self._path, self._patience.turn_s)
        try:
            with turns:
                connection = self._connect()
        except BaseException:
            turns.close()
            raise
        log = self._path.with_name(f"{self._path.name}-wal")
        writer = Writer(connection, turns, Sleep(log), self._bell.ring, Growth(log))
        self._inside = _Open(writer, Pool(self._path, self._patience.read_s))
        self._bell.start(writer.watch)

    def _connect(self) -> sqlite3.Connection:
        """The connection that writes, on tables that are up to date."""
        try:
            connection = open_writer(self._path)
            try:
                bring_up_to_date(connection, migrate=self._migrate)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise translated(error) from error
        return connection

    async def __aexit__(self, *_: object) -> None:
        opened, self._inside = self._inside, None
        self._bell.stop()
        if opened is not None:
            await beside(opened.pool.close)
            await beside(opened.writer.close)

    def _writing(self, now: int | None = None, rows: Sequence[object] = ()) -> Writer:
        return self._opened(now, rows).writer

    def _reading(self, now: int | None = None) -> Pool:
        return self._opened(now).pool

    # --- the side that changes something --------------------------------------------------------

    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        writer = self._writing(now)
        need_size(units, want)
        seen = self._bell.rung

        def run(tx: Transaction) -> api.Stepped:
            outcomes = tx.commit(units, now)
            if want is None:
                return api.Stepped(outcomes)
            return api.Stepped(outcomes, replace(claim.claim(tx, want, now), seen=seen))

        return await writer.do(run, _lone(units, want))

    def step_here(self, units: Sequence[Unit], *, now: int) -> api.Stepped:
        writer = self._writing(now)
        need_size(units, None)
        birth = _lone(units, None)
        if birth is not None and (born := writer.bear_here(birth)) is not None:
            return born
        return writer.do_here(lambda tx: api.Stepped(tx.commit(units, now)))

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[api.Due]:
        until, most = now + hold_us, max(limit, 0)
        return await self._writing(now).do(lambda tx: upkeep.take_due(tx, now, most, until))

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[api.Record]:
        until, most = now + hold_us, max(limit, 0)
        return await self._writing(now).do(lambda tx: upkeep.take_due_records(tx, now, most, until))

    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        return await self._writing(now).do(lambda tx: upkeep.note(tx, notes))

    async def beat(self, workers: Sequence[api.WorkerRow], *, now: int) -> Sequence[bool]:
        return await self._writing(now, workers).do(lambda tx: staff.beat(tx, workers, now))

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        return await self._writing(now, workers).do(lambda tx: staff.declare_lost(tx, workers, now))

    async def bury(self, deaths: Sequence[api.Death], *, now: int) -> Sequence[bool]:
        return await self._writing(now, deaths).do(lambda tx: staff.bury(tx, deaths, now))

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        most = max(limit, 0)
        return await self._writing(now).do(lambda tx: staff.forget(tx, before, most))

    async def ship(self, lives: Sequence[api.Life], *, now: int) -> Sequence[bool]:
        need_legal(lives)
        return await self._writing(now, lives).do(lambda tx: staff.ship(tx, lives))

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        return await self._writing(now).do(lambda tx: upkeep.extend(tx, leases))

    async def prune(self, rules: Sequence[api.Retention], *, now: int, limit: int = 1_000) -> int:
        writer, read, most = self._writing(now), self._reading().read, max(limit, 0)
        gone = 0
        # What others have let go meanwhile is looked for no more, so this comes to an end.
        while jobs := await read(pruning.over, rules, most - gone):
            for start in range(0, len(jobs), pruning.SLICE):
                some = jobs[start : start + pruning.SLICE]
                gone += await writer.do(partial(pruning.forget_jobs, jobs=some))
        for key in await read(pruning.empty, rules, most):
            await writer.do(partial(pruning.forget_flow, key=key))
        await writer.do(partial(pruning.forget_promises, now=now, limit=most))
        return gone

    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        writer, gone = self._writing(now), 0
        jobs = await self._reading().read(pruning.results_over, now, max(limit, 0))
        for start in range(0, len(jobs), pruning.SLICE):
            some = jobs[start : start + pruning.SLICE]
            gone += await writer.do(partial(pruning.forget_results, jobs=some, now=now))
        return gone

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        while (draft := await self._reading().read(sealing.draft, limit)) is not None:
            if await self._writing().do(partial(sealing.add, made=draft)):
                return draft.block
        return None

    async def append_logs(self, lines: Sequence[tuple[Key, api.Line]]) -> Sequence[int]:
        return await self._writing().do(lambda tx: upkeep.append_logs(tx, lines))

    # --- the side that only looks ---------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return await self._reading().read(reader.get, keys)

    async def heads(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return await self._reading().read(reader.heads, keys)

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        return await walked(lambda part: self._reading().read(reader.find, chosen, part), page)

    async def flows(self, keys: Sequence[Key]) -> Sequence[Flow | None]:
        return await self._reading().read(reader.flows, keys)

    async def find_workflows(
        self, tenant: str | None = None, state: str | None = None, page: Page = FIRST_PAGE
    ) -> Sequence[Workflow]:
        return await self._reading().read(reader.find_workflows, tenant, state, page)

    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[api.Record]:
        return await self._reading().read(reader.records, kind, tenant, after, limit)

    async def record(self, keys: Sequence[api.Named]) -> Sequence[api.Record | None]:
        return await self._reading().read(reader.record, keys)

    async def limits(self, tenant: str = "") -> Sequence[api.Limited]:
        return await self._reading().read(reader.limits, tenant)

    async def gates(self, tenant: str = "") -> Sequence[api.GateRow]:
        return await self._reading().read(reader.gates, tenant)

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[api.WorkerRow]:
        return await self._reading(now).read(staff.overdue, now, limit)

    async def workers(self, limit: int = 1_000, *, gone: bool = False) -> Sequence[api.WorkerRow]:
        return await self._reading().read(staff.listed, limit, gone)

    async def instances(self, keys: Sequence[Key]) -> Sequence[Instance | None]:
        return await self._reading().read(staff.instances, keys)

    async def find_instances(
        self, slot: str | None = None, after: Key | None = None, limit: int = 1_000
    ) -> Sequence[Instance]:
        return await self._reading().read(staff.find_instances, slot, after, limit)

    async def unquiet(self, runs: Sequence[tuple[Key, str]]) -> Sequence[Key]:
        return await self._reading().read(reader.unquiet, runs)

    async def held_by(self, holder: str, limit: int, but: Sequence[str] = ()) -> Sequence[Stored]:
        return await self._reading().read(reader.held_by, holder, limit, but)

    async def weight(self, tenant: str, queue: str) -> int:
        return await self._reading().read(reader.weight, tenant, queue)

    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        return await self._reading().read(reader.counts, tenant)

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[api.Fed]]:
        return await self._reading().read(reader.histories, keys)

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        return await self._reading().read(reader.leases, leases)

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Fed]:
        return await self._reading().read(reader.feed, after, limit)

    async def leaves(self, after: int = 0, limit: int = 10_000) -> Sequence[tuple[int, bytes]]:
        return await self._reading().read(reader.leaves, after, limit)

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        return await self._reading().read(reader.blocks, after, limit)

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        return await self._reading().read(reader.logs, key, after, limit)

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        return await self._reading().read(reader.log_tail, after, limit)

    async def keys(self, after: Key | None = None, limit: int = 1_000) -> Sequence[Key]:
        return await self._reading().read(reader.keys, after, max(limit, 0))


def _lone(units: Sequence[Unit], want: Want | None) -> Birth | None:
    """The one job that is born, if nothing else is to be done."""
    if want is not None or not isinstance(units, Births) or len(units) != 1:
        return None
    return units.rows[0]
