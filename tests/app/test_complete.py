"""A handler ends its job in its own transaction: with its rows, exactly once, or not at all."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from detent import Context, Detent, JobFailed, Limit, group
from detent.errors import BadOption, BadResult, UnfitUnit
from detent.stores import run_migrations
from tests.postgres.server import databases

ROOT = Path(__file__).resolve().parents[2]
LATER_US = 60_000_000


class Place:
    """A database with a table of the caller's beside ours."""

    def __init__(self, url: str) -> None:
        self.url = url
        run_migrations(url)
        with closing(self.connect()) as connection:
            connection.execute("DROP TABLE IF EXISTS orders")
            connection.execute("CREATE TABLE orders (what text)")
            connection.commit()

    def connect(self) -> Any:
        is_file = self.url.startswith("sqlite:")
        return sqlite3.connect(self.url[9:]) if is_file else psycopg.connect(self.url)

    def orders(self) -> int:
        with closing(self.connect()) as connection:
            [number] = connection.execute("SELECT count(*) FROM orders").fetchone()
            return int(number)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    is_file = request.param == "sqlite"
    return Place(f"sqlite://{tmp_path}/shop.db" if is_file else databases().of(tmp_path))


ORDER = "INSERT INTO orders (what) VALUES ('one')"


def test_the_job_ends_with_the_rows_and_what_it_returns_later_is_ignored(place: Place) -> None:
    with Detent(place.url) as app:

        @app.job
        def follow() -> None: ...

        @app.job(retry=0)
        def pay(ctx: Context, fails: bool) -> str:
            ctx.enqueue(follow.bind())
            with closing(place.connect()) as connection:
                connection.execute(ORDER)
                ctx.complete("in mine", conn=connection)
                connection.commit()
            ctx.log("after the end")
            if fails:
                raise ValueError("too late")
            return "too late"

        one, two = pay.enqueue(False), pay.enqueue(True)
        assert len(app.drain()) == 4
        for handle in (one, two):
            assert handle.result(timeout=5) == "in mine"
            names = [event.name for event in handle.history()]
            assert names == ["enqueue", "claim", "complete"]
            assert [line.text for line in handle.logs()] == ["after the end"]
        assert place.orders() == 2


def test_after_a_rollback_the_run_goes_on_as_if_nothing_had_been_said(place: Place) -> None:
    with Detent(place.url) as app:

        @app.job(retry=0)
        def pay(ctx: Context, how: str) -> str:
            with closing(place.connect()) as connection:
                connection.execute(ORDER)
                ctx.complete("in mine", conn=connection)
                connection.rollback()
                if how == "again":
                    connection.execute(ORDER)
                    ctx.complete("second", conn=connection)
                    connection.commit()
            if how == "fail":
                raise ValueError("declined")
            return "returned"

        handles = [pay.enqueue(how) for how in ("return", "again", "fail")]
        app.drain()
        assert [one.result(timeout=5) for one in handles[:2]] == ["returned", "second"]
        with pytest.raises(JobFailed, match="declined"):
            handles[2].result()
        assert place.orders() == 1


def test_a_job_that_was_touched_meanwhile_still_ends(place: Place) -> None:
    with Detent(place.url) as app:

        @app.job
        def pay(ctx: Context) -> None:
            ctx.save({"half": True})
            app.handle(ctx.job_id).cancel("no longer needed")
            with closing(place.connect()) as connection:
                connection.execute(ORDER)
                ctx.complete(conn=connection)
                connection.commit()

        handle = pay.enqueue()
        app.drain()
        assert handle.status().state == "completed"
        assert place.orders() == 1


def test_with_drivers_that_are_awaited(place: Place) -> None:
    is_file = place.url.startswith("sqlite:")
    driver = "sqlite+aiosqlite" if is_file else "postgresql+asyncpg"
    url = place.url.replace("sqlite://", f"{driver}:///").replace("postgresql:", f"{driver}:")
    with Detent(place.url) as app:

        @app.job
        async def pay(ctx: Context) -> Any:
            engine = create_async_engine(url)
            async with AsyncSession(engine) as session, session.begin():
                await session.execute(sqlalchemy.text(ORDER))
                await ctx.acomplete(1, conn=session)
            await engine.dispose()

        @app.job
        async def plain(ctx: Context) -> Any:
            connection = await asyncpg.connect(place.url)
            async with connection.transaction():
                await connection.execute(ORDER)
                await ctx.acomplete(2, conn=connection)
            await connection.close()

        handles = [pay.enqueue()] if is_file else [pay.enqueue(), plain.enqueue()]
        app.drain()
        assert [handle.result(timeout=5) for handle in handles] == [1, 2][: len(handles)]
        assert place.orders() == len(handles)


def test_what_cannot_end_inside_is_refused_where_the_handler_hears_it(place: Place) -> None:
    with Detent(place.url) as app:
        heard: list[type[BaseException]] = []

        @app.job(limit=Limit(concurrency=1))
        def limited() -> None: ...

        @app.job
        def pay(ctx: Context, how: str) -> None:
            if how == "limited":
                ctx.enqueue(limited.bind())
            with closing(place.connect()) as connection:
                try:
                    ctx.complete(object() if how == "bad" else 1, conn=connection)
                except (BadOption, BadResult, UnfitUnit) as error:
                    heard.append(type(error))

        pay.enqueue("limited")
        pay.enqueue("bad")
        app.start(group(pay.bind("member")))
        app.drain()
        assert sorted(kind.__name__ for kind in heard) == ["BadOption", "BadResult", "UnfitUnit"]


def test_in_memory_it_ends_at_once() -> None:
    with Detent("memory:") as app:

        @app.job
        def pay(ctx: Context) -> str:
            ctx.complete("in mine", conn=None)
            return "too late"

        @app.job
        async def later(ctx: Context) -> str:
            await ctx.acomplete("in mine", conn=None)
            return "too late"

        handles = [pay.enqueue(), later.enqueue()]
        app.drain()
        assert [handle.result() for handle in handles] == ["in mine"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("dies", "runs"), [("after", 0), ("before", 1)])
def test_killed_after_its_commit_it_is_done_and_before_it_is_run_again(
    place: Place, dies: str, runs: int
) -> None:
    ahead = [0]
    with Detent(place.url, clock=lambda: time.time_ns() // 1_000 + ahead[0]) as app:

        @app.job(name="pay", retry=2)
        def pay(ctx: Context, _number: int) -> Any:
            with closing(place.connect()) as connection:
                connection.execute(ORDER)
                ctx.complete("paid again", conn=connection)
                connection.commit()

        handle = pay.enqueue(1)
        child = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "tests.app.completer", place.url, dies],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        child.kill()
        child.communicate()
        ran: list[str] = []
        # Upkeep grants a while after every gap in its own turns, so time goes in small steps.
        while ahead[0] < LATER_US:
            ran += app.drain()
            ahead[0] += 1_000_000
        assert ran == [handle.id] * runs
        assert handle.result(timeout=5) == ("paid again" if runs else "paid")
        assert place.orders() == 1
