"""What is not done inside somebody's transaction is said in words that a program can read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from msgspec.structs import replace
from psycopg.rows import dict_row

from detent.errors import (
    BatchTooLarge,
    ClockAhead,
    SchemaBehind,
    StoreBusy,
    UnfitUnit,
    UnknownConnection,
    WrongIsolation,
)
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import Committed, Idempotency, Record, Taken, Unique, Unit
from detent.stores.inside import aenqueue, enqueue
from detent.stores.inside.postgres import in_our_words
from detent.stores.inside.ways import KNOWN
from tests.contract.making import SECOND, USER, Clock, Maker
from tests.inside.test_together import LIVE
from tests.inside.yard import Yard
from tests.postgres.server import databases

make = Maker(Clock())
only_sqlite3 = pytest.mark.parametrize("way", ["sqlite3"])
only_psycopg = pytest.mark.parametrize("way", ["psycopg"])


def test_an_unknown_connection_hears_which_are_known() -> None:
    with pytest.raises(UnknownConnection) as caught:
        enqueue(object(), make.pushed(), make.now)
    assert caught.value.fields == {"kind": "builtins.object", "known": KNOWN}
    assert all(known in caught.value.message for known in KNOWN)


def test_a_connection_that_is_awaited_is_sent_to_the_other_function() -> None:
    class AsyncConnection:
        __module__ = "psycopg"

    with pytest.raises(UnknownConnection, match=r"goes with await aenqueue\(\.\.\.\)"):
        enqueue(AsyncConnection(), make.pushed(), make.now)


@only_sqlite3
async def test_a_connection_that_blocks_is_sent_to_the_other_function(yard: Yard) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(UnknownConnection, match=r"goes with enqueue\(\.\.\.\)"):
        await aenqueue(connection, make.pushed(), make.now)
    connection.close()
    assert yard.rows() == (0, 0)


def test_a_foreign_database_is_unknown_behind_a_known_library() -> None:
    class Connection:
        __module__ = "sqlalchemy.engine.base"
        dialect = sqlalchemy.create_engine("mysql://", module=sqlite3).dialect

    class BaseDatabaseWrapper:
        __module__ = "django.db.backends.base.base"
        vendor = "oracle"

        def validate_no_broken_transaction(self) -> None: ...

    for connection in (Connection(), BaseDatabaseWrapper()):
        with pytest.raises(UnknownConnection, match=r"mysql|oracle"):
            enqueue(connection, make.pushed(), make.now)


def _leased() -> Unit:
    new = make.new()
    return make.inserting(replace(new, job=replace(new.job, lease="L")))


def _of_workflow() -> Unit:
    return make.pushed(workflow="w", step="s")


UNFIT: dict[str, Callable[[], Unit]] = {
    "no new job": lambda: Unit("c"),
    "moves a job": lambda: replace(
        make.pushed(), moves=make.doing(make.new().job, j.Cancel(), USER).moves
    ),
    "moves a workflow": lambda: replace(
        make.pushed(), flow=make.flowing(None, w.Make(id="w", steps=(w.StepPlan("s"),))).flow
    ),
    "writes a small record": lambda: replace(make.pushed(), puts=(Record("k", "i", 1, "{}"),)),
    "belongs to a workflow": _of_workflow,
    "in somebody's hands": _leased,
}


@pytest.mark.parametrize("why", UNFIT)
def test_whatever_is_more_than_new_jobs_is_refused_before_anything_is_sent(why: str) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(UnfitUnit, match=why):
        enqueue(connection, UNFIT[why](), make.now)
    connection.close()


def test_a_clock_ahead_and_too_many_jobs_are_refused_as_in_a_step() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ClockAhead):
        enqueue(connection, make.pushed(), make.now, clock=lambda: make.now - 6 * SECOND)
    with pytest.raises(BatchTooLarge):
        enqueue(connection, Unit("c", new=(make.new(),) * 1_001), make.now)
    connection.close()


def test_a_database_without_our_tables_asks_for_a_migration(tmp_path: Path) -> None:
    with pytest.raises(SchemaBehind, match="detent migrate"):
        enqueue(sqlite3.connect(tmp_path / "no.db"), make.pushed(), make.now)
    with psycopg.connect(databases().empty()) as connection:
        with pytest.raises(SchemaBehind, match="detent migrate"):
            enqueue(connection, make.pushed(), make.now)
        connection.rollback()


@only_sqlite3
async def test_a_locked_file_is_busy(yard: Yard) -> None:
    path, world = yard.url.removeprefix("sqlite://"), yard.world
    first, second = sqlite3.connect(path), sqlite3.connect(path, timeout=0)
    assert enqueue(first, world.make.pushed(), world.now) == Committed()
    with pytest.raises(StoreBusy):
        enqueue(second, world.make.pushed(), world.now)
    first.commit()
    assert enqueue(second, world.make.pushed(), world.now) == Committed()
    second.commit()
    first.close()
    second.close()
    assert yard.rows() == (0, 2)


@only_sqlite3
async def test_what_the_caller_makes_of_rows_and_texts_is_left_alone(yard: Yard) -> None:
    path, world = yard.url.removeprefix("sqlite://"), yard.world
    connection = sqlite3.connect(path)
    connection.row_factory = lambda *_: {"not": "a row"}
    connection.text_factory = bytes
    held = await world.push(unique=Unique("f", LIVE))
    asked = world.make.pushed(unique=Unique("f", LIVE))
    assert enqueue(connection, asked, world.now) == Taken("unique", held)
    assert connection.text_factory is bytes
    connection.close()


@only_sqlite3
async def test_outside_a_transaction_it_is_one_of_its_own(yard: Yard) -> None:
    path, world = yard.url.removeprefix("sqlite://"), yard.world
    connection = sqlite3.connect(path, isolation_level=None)
    assert enqueue(connection, world.make.pushed(), world.now) == Committed()
    assert not connection.in_transaction
    connection.close()
    assert yard.rows() == (0, 1)


@only_psycopg
async def test_rows_may_be_dictionaries(yard: Yard) -> None:
    connection: psycopg.Connection[Any] = psycopg.connect(yard.url, row_factory=dict_row)
    with connection:
        assert enqueue(connection, yard.world.make.pushed(), yard.world.now) == Committed()
    assert yard.rows() == (0, 1)


@only_psycopg
@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
async def test_keys_need_a_transaction_that_sees_who_was_faster(yard: Yard, level: str) -> None:
    world, promise = yard.world, Idempotency("k", "d", yard.world.now + SECOND)
    with psycopg.connect(yard.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level]
        for keyed in ({"unique": Unique("f", LIVE)}, {"idempotency": promise}):
            with pytest.raises(WrongIsolation):
                enqueue(connection, world.make.pushed(**keyed), world.now)
        assert enqueue(connection, world.make.pushed(), world.now) == Committed()
    assert yard.rows() == (0, 1)


def test_what_a_driver_says_about_itself_stays_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), in_our_words():
        raise ZeroDivisionError


def test_no_driver_is_imported_that_nobody_uses() -> None:
    program = (
        "import sys, detent.stores.inside\n"
        "foreign = {'psycopg', 'asyncpg', 'sqlalchemy', 'django', 'aiosqlite'}\n"
        "assert not foreign & {name.partition('.')[0] for name in sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603
