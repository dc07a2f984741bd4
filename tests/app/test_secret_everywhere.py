"""On a file and on a server: one canary, every way in, and it is nowhere to be found."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from detent import Context, Detent, Job, chain, group
from detent.engine.asks import Ask
from detent.engine.declared import KIND
from detent.engine.enqueueing import Enqueued
from detent.engine.keyring import new_key
from detent.engine.schedule import Plan
from detent.engine.shaping import Order, Part
from detent.engine.verify import Verification
from detent.errors import BadArguments, BadSchedule
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.workflow import StepPlan
from detent.stores import run_migrations
from tests.cli.inside import Desk
from tests.inside.callers import Django
from tests.postgres.server import databases

CANARY = "c4n4ry-t0ken"
OPERATOR = By(Actor.USER, "operator")
NAMED = f'{{"kwargs":{{"token":"{CANARY}"}}}}'


class Mine:
    """An app with a job that takes a secret, complains about it, and remembers what it got."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.got: list[str] = []
        self.app = Detent(url)
        got = self.got

        @self.app.job(secret=("token",), meta={"note": "plain-text"}, retry=0)
        def pay(ctx: Context, token: str) -> None:
            got.append(token)
            ctx.log(f"paying with {token}")
            ctx.progress(50, token)
            raise ValueError(f"refused: {token}")

        self.pay: Job[..., Any, ..., Any] = pay

    @property
    def is_file(self) -> bool:
        return self.url.startswith("sqlite:")

    def everything(self) -> bytes:
        """Every byte of the database: its files, or all rows of all its tables."""
        if self.is_file:
            files = [one for one in self.folder.iterdir() if not one.name.endswith("-key")]
            return b"".join(one.read_bytes() for one in files if one.is_file())
        with psycopg.connect(self.url) as connection:
            names = connection.execute(
                "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'detent'"
            ).fetchall()
            return b"".join(self._rows(connection, *name) for name in names)

    def _rows(self, connection: psycopg.Connection[Any], *name: str) -> bytes:
        statement = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(*name))
        with connection.cursor() as cursor, cursor.copy(statement) as rows:
            return b"".join(map(bytes, rows))

    def verified(self) -> str:
        async def work() -> str:
            store = (await self.app.engine()).store
            return repr([one async for one in Verification(store).findings()])

        return self.app.bridge.run(work())

    async def hooked(self) -> None:
        webhooks = (await self.app.engine()).webhooks
        await webhooks.add("http://127.0.0.1:9/hook", ["job.discarded"])

    def posted(self) -> str:
        """What would be sent to a webhook; nobody listens there."""

        async def work() -> str:
            webhooks = (await self.app.engine()).webhooks
            while await webhooks.turn():
                pass
            made = await webhooks.deliveries()
            assert made
            return repr(made)

        return self.app.bridge.run(work())

    def shown(self, job: str) -> list[str]:
        """What the command line says about a job, if it can reach the store."""
        if not self.is_file:
            return []
        desk = Desk(Path(self.url.removeprefix("sqlite://")))
        words = [("jobs", word, job) for word in ("show", "history", "logs", "why")]
        said = [desk.said(*one, *more) for one in words for more in ((), ("--json",))]
        return [*said, desk.said("verify"), desk.said("jobs", "list", "--json")]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def mine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mine]:
    monkeypatch.setenv("DETENT_SECRET_KEY", new_key())
    monkeypatch.setenv("DETENT_WEBHOOK_ALLOW", "127.0.0.0/8")
    url = f"sqlite://{tmp_path}/shop.db" if request.param == "sqlite" else databases().of(tmp_path)
    run_migrations(url)
    made = Mine(url, tmp_path)
    with made.app:
        yield made


def _through(url: str, driver: str) -> str:
    return url.replace("sqlite://", f"{driver}:///").replace("postgresql:", f"{driver}:")


def _on_raw_drivers(mine: Mine) -> int:
    """Inside a transaction of each driver that the database has; how many jobs that makes."""
    if mine.is_file:
        with closing(sqlite3.connect(mine.url.removeprefix("sqlite://"))) as one, one:
            mine.pay.using(conn=one).enqueue(CANARY)
        return 1
    with psycopg.connect(mine.url) as two:
        mine.pay.using(conn=two).enqueue(CANARY)

    async def awaited() -> None:
        three = await asyncpg.connect(mine.url)
        async with three.transaction():
            await mine.pay.using(conn=three).aenqueue(CANARY)
        await three.close()

    asyncio.run(awaited())
    return 2


def _on_alchemy_and_django(mine: Mine) -> int:
    engine = sqlalchemy.create_engine(
        _through(mine.url, "sqlite" if mine.is_file else "postgresql+psycopg")
    )
    with Session(engine) as session, session.begin():
        mine.pay.using(conn=session).enqueue(CANARY)
    engine.dispose()

    async def awaited() -> None:
        made = create_async_engine(
            _through(mine.url, "sqlite+aiosqlite" if mine.is_file else "postgresql+asyncpg")
        )
        async with AsyncSession(made) as session, session.begin():
            await mine.pay.using(conn=session).aenqueue(CANARY)
        await made.dispose()
        caller = Django()
        await caller.open(mine.url)
        await caller.begin()
        await caller._do(mine.pay.using(conn=caller.connection).enqueue, CANARY)  # noqa: SLF001
        await caller.commit()
        await caller.close()

    asyncio.run(awaited())
    return 3


def test_whichever_way_it_comes_in_it_is_nowhere(
    mine: Mine, caplog: pytest.LogCaptureFixture
) -> None:
    @mine.app.job
    def first(ctx: Context) -> None:
        ctx.enqueue(mine.pay.bind(CANARY))

    told: list[str] = []
    mine.app.on("discarded", name="told")(lambda event: told.append(repr(event)))
    mine.app.deliver()
    mine.app.bridge.run(mine.hooked())
    handle = mine.pay.enqueue(CANARY)
    asyncio.run(mine.pay.aenqueue(CANARY))
    mine.app.enqueue_many([mine.pay.bind(CANARY)])
    first.enqueue()
    mine.app.start(group(mine.pay.bind(CANARY)))
    mine.app.start(chain(mine.pay.bind(CANARY)))
    made = 6 + _on_raw_drivers(mine) + _on_alchemy_and_django(mine)
    mine.app.drain()
    assert mine.got == [CANARY] * made
    mine.app.deliver()
    assert len(told) == made
    assert b"plain-text" in mine.everything()
    said = [*told, caplog.text, mine.verified(), mine.posted(), *mine.shown(handle.id)]
    assert CANARY not in "".join(said)
    assert CANARY.encode() not in mine.everything()


async def _raw(app: Detent, ask: Ask) -> object:
    [answer] = await (await app.engine()).enqueue([ask], OPERATOR)
    return answer


def test_whoever_does_not_know_the_program_goes_by_what_it_declared(mine: Mine) -> None:
    run = mine.app.bridge.run
    assert isinstance(run(_raw(mine.app, Ask(type="pay", payload=NAMED))), Enqueued)
    for unnamed in (f'["{CANARY}"]', f'{{"args":["{CANARY}"]}}', f'"{CANARY}"', '{"x":1}'):
        with pytest.raises(BadArguments, match="by name") as caught:
            run(_raw(mine.app, Ask(type="pay", payload=unnamed)))
        assert CANARY not in str(caught.value)
    order = Order(parts=(Part(StepPlan("one"), (Ask(type="pay", payload=NAMED),)),))

    async def ordered() -> None:
        await (await mine.app.engine()).workflows.create(order, OPERATOR)

    run(ordered())
    assert mine.app.drain()
    assert mine.got == [CANARY] * 2
    assert CANARY.encode() not in mine.everything()


def test_a_schedule_made_elsewhere_is_refused(mine: Mine) -> None:
    async def added(app: Detent) -> None:
        plan = Plan(name="x", expression="@hourly", job=Ask(type="pay", payload=NAMED))
        await (await app.engine()).schedules.add(plan, OPERATOR)

    mine.app.drain()
    with Detent(mine.url) as other, pytest.raises(BadSchedule, match="secret"):
        other.bridge.run(added(other))
    if mine.is_file:
        desk = Desk(Path(mine.url.removeprefix("sqlite://")))
        refused = desk.run("schedules", "add", "x", "@hourly", "pay", "--payload", NAMED)
        assert refused.code == 2
        assert CANARY not in refused.said + refused.complained
    assert CANARY.encode() not in mine.everything()


def test_what_was_declared_once_stays_declared(mine: Mine) -> None:
    async def told(app: Detent) -> tuple[str, ...]:
        engine = await app.engine()
        await engine.declared.tell({"pay": ("kwargs.pin",), "other": ()})
        [record] = await engine.store.record([(KIND, "", "pay")])
        assert record is not None
        assert record.version == 2
        await engine.declared.tell({"pay": ("kwargs.pin",)})
        return (await engine.declared.of(["pay", "other", "pay"]))["pay"]

    assert mine.app.bridge.run(told(mine.app)) == ("kwargs.pin", "kwargs.token")


def test_a_complaint_about_a_secret_does_not_quote_it() -> None:
    with Detent("memory:") as app:

        @app.job(secret=("kind",))
        def pay(kind: Literal["a", "b"]) -> None: ...

        with pytest.raises(BadArguments) as caught:
            pay.enqueue(CANARY)  # type: ignore[arg-type]
        assert CANARY not in str(caught.value)
        assert "secret" in str(caught.value)
