"""Jobs enqueued in a transaction of the caller's own appear with its commit, and not without it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from detent import Backoff, Context, Detent, JobExists, JobFailed, Limit, Unique, group
from detent.errors import BadOption, IllegalTransition, UnknownConnection, UnknownJob
from detent.stores import run_migrations
from tests.postgres.server import databases


class Shop:
    """An app on a database that has a table of its user's too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Detent(url)

        @self.app.job(retry=Backoff(retries=1), tags=["mail"])
        def mail(number: int) -> str:
            return f"order {number}"

        @self.app.job(limit=Limit(rate=1, per=3600))
        def limited() -> None: ...

        self.mail, self.limited = mail, limited


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite://{tmp_path}/shop.db"
    run_migrations(url)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (number integer)")
    shop = Shop(url)
    with shop.app:
        yield shop


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[Shop]:
    url = databases().of(tmp_path)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (number integer)")
    shop = Shop(url)
    with shop.app:
        yield shop


def connected(shop: Shop) -> sqlite3.Connection:
    return sqlite3.connect(shop.url.removeprefix("sqlite://"))


def test_a_rollback_takes_the_job_with_it(lite: Shop) -> None:
    with closing(connected(lite)) as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        gone = lite.mail.using(conn=connection).enqueue(1)
        connection.rollback()
        connection.execute("INSERT INTO orders VALUES (2)")
        kept = lite.mail.using(conn=connection).enqueue(2)
        connection.commit()
    assert lite.app.drain() == [kept.id]
    assert kept.result() == "order 2"
    with pytest.raises(UnknownJob):
        gone.status()


def test_nothing_is_started_for_it(lite: Shop) -> None:
    """No thread and no store: a process that only enqueues inside needs neither."""
    before = threading.active_count()
    with closing(connected(lite)) as connection, connection:
        lite.mail.using(conn=connection).enqueue(1)
        assert threading.active_count() == before


def test_many_are_written_in_one_transaction_and_keys_count_one_by_one(lite: Shop) -> None:
    only = lite.mail.using(unique=True)
    with closing(connected(lite)) as connection, connection:
        first, *_, again, last = lite.app.enqueue_many(
            [only.bind(1), *(lite.mail.bind(n) for n in range(1_001)), only.bind(1), only.bind(2)],
            conn=connection,
        )
        assert (again.id, again.is_new, last.is_new) == (first.id, False, True)
    assert len(lite.app.drain()) == 1_003
    assert last.result() == "order 2"


def test_a_key_that_is_taken_is_told_and_the_transaction_goes_on(lite: Shop) -> None:
    only = lite.mail.using(unique=Unique(on_conflict="reject"))
    with closing(connected(lite)) as connection, connection:
        inside = only.using(conn=connection)
        kept = inside.enqueue(1)
        with pytest.raises(JobExists) as caught:
            inside.enqueue(1)
        assert caught.value.fields["id"] == kept.id
    assert lite.app.drain() == [kept.id]


def test_what_a_transaction_cannot_do_is_refused_before_anything_is_written(lite: Shop) -> None:
    good = lite.mail.bind(1)
    replacing = lite.mail.using(unique=Unique(on_conflict="replace")).bind(1)
    with closing(connected(lite)) as connection, connection:
        for wrong, error in [
            (replacing, BadOption),
            (lite.limited.bind(), BadOption),
            (lite.mail.using(priority=10**12).bind(1), IllegalTransition),
        ]:
            with pytest.raises(error):
                lite.app.enqueue_many([good, wrong], conn=connection)
        with pytest.raises(UnknownConnection):
            lite.mail.using(conn=object()).enqueue(1)
    assert lite.app.drain() == []


def test_a_limit_that_the_store_knows_holds_inside_too(lite: Shop) -> None:
    lite.app.set_limits([lite.limited.bind()])
    with closing(connected(lite)) as connection, connection:
        inside = lite.limited.using(conn=connection)
        inside.enqueue_many([lite.limited.bind(), lite.limited.bind()])
    assert len(lite.app.drain()) == 1


def test_a_call_keeps_its_connection_wherever_it_is_enqueued(lite: Shop) -> None:
    with closing(connected(lite)) as connection:
        call = lite.mail.using(conn=connection).bind(1)
        lite.app.enqueue_many([call])
        lite.app.enqueue_many([call, lite.mail.bind(2)], conn=connection)
        connection.rollback()
        assert lite.app.drain() == []
        for calls in [call, lite.mail.bind(2)], [lite.mail.bind(2), call]:
            with pytest.raises(BadOption):
                lite.app.enqueue_many(calls)
        with pytest.raises(BadOption):
            lite.app.enqueue_many([call], conn=object())


def test_what_cannot_be_part_of_a_transaction_refuses_to_be(lite: Shop) -> None:
    call = lite.mail.using(conn=object()).bind(1)

    @lite.app.job(retry=0)
    def first(ctx: Context) -> None:
        ctx.enqueue(call)

    handle = first.enqueue()
    lite.app.drain()
    with pytest.raises(JobFailed, match="transaction of your own"):
        handle.result()
    with pytest.raises(BadOption, match="workflow"):
        lite.app.start(group(call))
    lite.app.schedules.add("@daily", call)
    with pytest.raises(BadOption, match="schedule"):
        lite.app.schedules.put()


def test_a_forked_process_gives_names_of_its_own(lite: Shop) -> None:
    mine = lite.app.connection.identity
    assert lite.app.connection.identity is mine
    child = os.fork()
    if child == 0:
        os._exit(0 if lite.app.connection.identity is not mine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_store_in_memory_has_no_transactions_of_others() -> None:
    """So it does in tests what a commit would have done, whatever the connection is."""
    with Detent("memory:") as app:

        @app.job
        def mail() -> int:
            return 1

        handle = mail.using(conn=object()).enqueue()
        app.drain()
        assert handle.result() == 1


def through_psycopg(shop: Shop, is_kept: bool) -> str:
    with psycopg.connect(shop.url) as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        made = shop.mail.using(conn=connection).enqueue(1)
        if not is_kept:
            connection.rollback()
    return made.id


def through_sqlalchemy(shop: Shop, is_kept: bool) -> str:
    address = shop.url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(address.replace("sqlite://", "sqlite:///"))
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES (1)"))
        made = shop.mail.using(conn=session).enqueue(1)
        session.commit() if is_kept else session.rollback()
    engine.dispose()
    return made.id


def through_asyncpg(shop: Shop, is_kept: bool) -> str:
    async def work() -> str:
        connection = await asyncpg.connect(shop.url)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO orders VALUES (1)")
        made = await shop.mail.using(conn=connection).aenqueue(1)
        await (transaction.commit() if is_kept else transaction.rollback())
        await connection.close()
        return made.id

    return asyncio.run(work())


def through_async_sqlalchemy(shop: Shop, is_kept: bool) -> str:
    async def work() -> str:
        engine = create_async_engine(shop.url.replace("postgresql:", "postgresql+asyncpg:"))
        async with AsyncSession(engine) as session:
            await session.execute(text("INSERT INTO orders VALUES (1)"))
            [made] = await shop.app.aenqueue_many([shop.mail.bind(1)], conn=session)
            await (session.commit() if is_kept else session.rollback())
        await engine.dispose()
        return made.id

    return asyncio.run(work())


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize(
    "through", [through_psycopg, through_sqlalchemy, through_asyncpg, through_async_sqlalchemy]
)
def test_postgresql_keeps_both_or_neither(grown: Shop, through: Any, is_kept: bool) -> None:
    made = through(grown, is_kept)
    with psycopg.connect(grown.url) as connection:
        assert connection.execute("SELECT number FROM orders").fetchall() == [(1,)] * is_kept
    assert grown.app.drain() == [made] * is_kept


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_session_on_sqlite_keeps_both_or_neither(lite: Shop, is_kept: bool) -> None:
    made = through_sqlalchemy(lite, is_kept)
    with closing(connected(lite)) as connection:
        assert connection.execute("SELECT number FROM orders").fetchall() == [(1,)] * is_kept
    assert lite.app.drain() == [made] * is_kept
