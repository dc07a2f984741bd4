"""The long way through a store, and what any way has left in its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.job.stamping import Stamp
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Body, Outcome, Stored, Unit, Want
from detent.stores.births import Births, Mould
from detent.stores.sqlite import SqliteStore, claim
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import USER
from tests.contract.world import World

T = TypeVar("T")


async def within(world: World, run: Callable[[Transaction], T]) -> T:
    """What that answers inside a transaction."""
    assert isinstance(world.store, SqliteStore)
    return await world.store._writing().do(run)  # noqa: SLF001 - nobody else gets there


def mould(key: str | None = None, **more: Any) -> Mould:
    """What plain jobs have in common that differ in nothing but their arguments."""
    stamp = Stamp.of(j.Enqueue(id="none", profile="python", **more), USER)
    assert isinstance(stamp, Stamp)
    return Mould(stamp, Body("mail.send", key=key, retry=RetryPolicy(max_attempts=5)))


def lone(name: str, now: int, payload: str = "[]", of: Mould | None = None) -> Births:
    """One new job of such a mould."""
    return Births([(of or mould(), name, now, now, payload)])


async def one_by_one(world: World, some: Sequence[Unit]) -> list[Outcome]:
    """The long way: every unit by itself, with all fences."""

    def run(tx: Transaction) -> list[Outcome]:
        careful = Transaction(tx.connection, is_careful=True)
        outcomes = list(careful.commit(some, world.now))
        careful.finish()
        return outcomes

    return await within(world, run)


async def taken_one_by_one(world: World, want: Want) -> list[Stored]:
    """The same wish, each job by a decision of its own."""

    def run(tx: Transaction) -> list[Stored]:
        wants = [replace(want, leases=(lease,)) for lease in want.leases]
        return [job for one in wants for job in claim.claim(tx, one, world.now).jobs]

    return await within(world, run)


def tables_of(path: Path) -> dict[str, list[Any]]:
    """All rows of all tables, but for what is another in every file."""
    with sqlite3.connect(path) as found:
        names = [
            row[0] for row in found.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        ]
        kept = [one for one in names if one not in ("detent_meta", "sqlite_sequence")]
        return {name: sorted(map(repr, found.execute(f"SELECT * FROM {name}"))) for name in kept}  # noqa: S608
