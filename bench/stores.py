"""What a store costs: its calls, beside the same SQL in a tight loop without our code.

"raw" is the limit of the database under our own tables, indexes, triggers and durability: the
statements of the store with values made beforehand, no fences, no decisions, no threads. What is
ours includes the decision of the lifecycle about every claim and every completion.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Awaitable
from itertools import count
from pathlib import Path
from typing import TypeVar

from bench.measure import Bench, Case, Goal
from bench.raw_sqlite import Raw
from detent import stores
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import (
    RECORDS_MAX,
    Body,
    Committed,
    Move,
    New,
    Store,
    Stored,
    Unit,
    Want,
    WorkerRow,
)

__all__ = ["Ours", "bench", "bench_large"]

T = TypeVar("T")
NOW = 1_700_000_000_000_000
FOREVER = NOW * 2
USER, WORKER = By(Actor.USER, "bench"), By(Actor.WORKER, "w1")
PASTS = {"1k": 1_000, "100k": 100_000}
PASTS_LARGE = {**PASTS, "2M": 2_000_000}
BACKLOG = 20_000
BATCHES = (1, 10, 100)
CALLERS = 200
BULK = 20_000
READY = 30_000


class Ours:
    """A store and an event loop to ask it from."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._numbers = count(1)
        self._units: list[Unit] = []
        self._ready: list[Unit] = []
        self.store: Store = self.wait(stores.open(url).__aenter__())
        self.wait(self.store.beat([WorkerRow("w1", FOREVER)], now=NOW))

    def wait(self, asked: Awaitable[T]) -> T:
        """The answer to one call."""
        return self._loop.run_until_complete(asked)

    def close(self) -> None:
        """Give the threads and files back."""
        self.wait(self.store.__aexit__(None, None, None))
        self._loop.close()

    def units(self, number: int) -> list[Unit]:
        """So many new jobs, each in a unit of its own."""
        return [self._new() for _ in range(number)]

    def prepare(self, number: int) -> None:
        """Make units beforehand: making them is not the business of a store."""
        self._ready = self.units(number)

    def _new(self) -> Unit:
        number = next(self._numbers)
        ctx = j.Context(USER, f"command-{number}", place=number)
        asked = j.Enqueue(id=f"{number:032}", profile="python")
        made = j.decide(None, asked, NOW, ctx)
        assert isinstance(made, j.Accepted)
        return Unit(ctx.command_id, new=(New(made.job, made.events, Body("mail.send")),))

    def push(self) -> None:
        """One job, by one caller who waits for it."""
        self.wait(self._push())

    async def _push(self) -> None:
        unit = self._ready.pop() if self._ready else self._new()
        assert (await self.store.step([unit], now=NOW)).outcomes == (Committed(),)

    async def step_in_pieces(self, units: list[Unit]) -> None:
        """A bulk, in steps of the size that a store takes, all of them asked for at once."""
        pieces = [units[at : at + RECORDS_MAX] for at in range(0, len(units), RECORDS_MAX)]
        await asyncio.gather(*(self.store.step(piece, now=NOW) for piece in pieces))

    def push_many(self, number: int) -> None:
        """So many jobs in one commit."""
        units, self._ready = self._ready[:number], self._ready[number:]
        units += self.units(number - len(units))
        self.wait(self.store.step(units, now=NOW))

    def push_by_many(self) -> None:
        """One job each by many callers at the same time."""
        self.wait(self._push_by_many())

    async def _push_by_many(self) -> None:
        await asyncio.gather(*(self._push() for _ in range(CALLERS)))

    def step(self, number: int) -> None:
        """Complete what was claimed, claim as many again: the life of a busy worker."""
        command = f"want-{next(self._numbers)}"
        leases = tuple(f"{command}-{one}" for one in range(number))
        want = Want(command_id=command, by=WORKER, holder="w1", leases=leases, queues=("default",))
        stepped = self.wait(self.store.step(self._units, now=NOW, want=want))
        assert stepped.outcomes == (Committed(),) * len(self._units)
        assert len(stepped.claimed.jobs) == number, "the backlog is used up"
        self._units = [self._completed(claimed) for claimed in stepped.claimed.jobs]

    def _completed(self, claimed: Stored) -> Unit:
        job = claimed.job
        ctx = j.Context(WORKER, f"command-{next(self._numbers)}")
        made = j.decide(job, j.Complete(lease=job.lease), NOW, ctx)
        assert isinstance(made, j.Accepted)
        move = Move(job.version, made.job, made.events, lease=job.lease)
        return Unit(ctx.command_id, moves=(move,))


def bench() -> Bench:
    """Inserts one by one, by many and in bulk; steps of several sizes beside two pasts."""
    return _bench(PASTS)


def bench_large() -> Bench:
    """The same with a past that takes minutes to make."""
    return _bench(PASTS_LARGE)


def _bench(pasts: dict[str, int]) -> Bench:
    folder = Path(tempfile.mkdtemp(prefix="detent-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    empty = _template(folder / "empty.db", 0)
    cases, goals = _inserts(folder, empty)
    for name, past in pasts.items():
        template = _template(folder / f"{name}.db", past)
        more, wanted = _steps(folder, template, f"{name} finished")
        cases, goals = [*cases, *more], [*goals, *wanted]
    return Bench(tuple(cases), tuple(goals))


def _url(path: Path) -> str:
    return f"sqlite://{path}"


def _template(path: Path, past: int) -> Path:
    """A database with so many finished jobs, made once and copied."""
    Ours(_url(path)).close()
    raw = Raw(path)
    if past:
        raw.grow("completed", 1, past)
        raw.grow("available", past + 1, BACKLOG)
    raw.close()
    return path


def _copy(template: Path, path: Path) -> Path:
    return Path(shutil.copy(template, path))


def _inserts(folder: Path, empty: Path) -> tuple[list[Case], list[Goal]]:
    ours = Ours(_url(_copy(empty, folder / "ours.db")))
    raw = Raw(_copy(empty, folder / "raw.db"))
    bulk = ours.units(BULK)
    ours.prepare(READY)
    numbers = count(1)

    def bulk_of_ours() -> None:
        path = _copy(empty, folder / f"bulk-{next(numbers)}.db")
        fresh = Ours(_url(path))
        fresh.wait(fresh.step_in_pieces(bulk))
        fresh.close()
        path.unlink()

    def bulk_of_raw() -> None:
        path = _copy(empty, folder / f"bulk-{next(numbers)}.db")
        fresh = Raw(path)
        fresh.push(BULK)
        fresh.close()
        path.unlink()

    names = {"ours": ours, "raw": raw, "bulk_of_ours": bulk_of_ours, "bulk_of_raw": bulk_of_raw}
    cases = [
        Case("insert: one by one", "ours.push()", names),
        Case("insert: one by one, raw", "raw.push(1)", names),
        Case(f"insert: {CALLERS} callers", "ours.push_by_many()", names, CALLERS),
        Case(f"insert: {CALLERS} per commit, raw", f"raw.push({CALLERS})", names, CALLERS),
        Case(f"insert: bulk of {BULK}", "bulk_of_ours()", names, BULK),
        Case(f"insert: bulk of {BULK}, raw", "bulk_of_raw()", names, BULK),
    ]
    goals = [
        Goal("insert: one by one", "insert: one by one, raw", 0.9),
        Goal(f"insert: {CALLERS} callers", f"insert: {CALLERS} per commit, raw", 0.5),
        Goal(f"insert: {CALLERS} callers", "insert: one by one", 8.0),
        Goal(f"insert: bulk of {BULK}", f"insert: bulk of {BULK}, raw", 0.5),
    ]
    return cases, goals


def _steps(folder: Path, template: Path, past: str) -> tuple[list[Case], list[Goal]]:
    cases, goals = [], []
    for number in BATCHES:
        name = f"{number}-{template.name}"
        names = {
            "ours": Ours(_url(_copy(template, folder / f"ours-{name}"))),
            "raw": Raw(_copy(template, folder / f"raw-{name}")),
        }
        mine, theirs = (f"step of {number}, {past}{raw}" for raw in ("", ", raw"))
        cases.append(Case(mine, f"ours.step({number})", names, number))
        cases.append(Case(theirs, f"raw.step({number})", names, number))
        goals.append(Goal(mine, theirs, 0.4))
    return cases, goals
