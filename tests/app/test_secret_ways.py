"""Whichever way a job comes in, its secrets are locked: nothing of them is in the file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from detent import Call, Context, Detent, Job, JobFailed, chain, group, stages
from detent.engine.enqueueing import Enqueued
from detent.engine.keyring import new_key
from detent.engine.verbs import Rerun
from detent.errors import BadOption
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.stores import run_migrations
from detent.stores.select import Filter
from tests.cli.inside import Desk

TOKEN = "s3cr3t-t0ken"  # noqa: S105 - it is looked for
OPERATOR = By(Actor.USER, "operator")


class Shop:
    """An app on a file, with a job that takes a secret and remembers what it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "shop.db"
        self.url = f"sqlite://{self.path}"
        run_migrations(self.url)
        self.got: list[str] = []
        self.app = Detent(self.url)
        got = self.got

        @self.app.job(secret=("token",), meta={"note": "plain-text"})
        def pay(token: str) -> None:
            got.append(token)

        self.pay: Job[..., Any, ..., Any] = pay

    def need_locked(self, jobs: int = 1) -> None:
        """The function gets what was passed, that often; the file has nothing of it, ever."""
        assert b"s3cr3t" not in self.bytes()
        assert b"plain-text" in self.bytes()
        self.app.drain()
        assert self.got == [TOKEN] * jobs
        self.app.close()
        assert b"s3cr3t" not in self.bytes()

    def bytes(self) -> bytes:
        """Every byte that the database has on disk, its log included, except the key."""
        files = [one for one in self.folder.iterdir() if not one.name.endswith("-key")]
        return b"".join(one.read_bytes() for one in files if one.is_file())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.app:
        yield made


def test_enqueue(shop: Shop) -> None:
    shop.pay.enqueue(TOKEN)
    asyncio.run(shop.pay.aenqueue(TOKEN))
    shop.need_locked(2)


def test_enqueue_many(shop: Shop) -> None:
    shop.app.enqueue_many([shop.pay.bind(TOKEN), shop.pay.bind(TOKEN)])
    shop.pay.enqueue_many([shop.pay.bind(TOKEN)])
    shop.need_locked(3)


def test_inside_a_transaction_of_ones_own(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.path)) as connection, connection:
        shop.pay.using(conn=connection).enqueue(TOKEN)
        shop.app.enqueue_many([shop.pay.bind(TOKEN)], conn=connection)
        shop.pay.using(conn=connection, idempotency_key="k").enqueue(TOKEN)
    shop.need_locked(3)


def test_with_the_end_of_another_job(shop: Shop) -> None:
    @shop.app.job
    def first(ctx: Context) -> None:
        ctx.enqueue(shop.pay.bind(TOKEN))

    first.enqueue()
    assert len(shop.app.drain()) == 2
    shop.need_locked()


def test_without_a_key_the_handler_hears_that_it_cannot_be_enqueued(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.app.job(retry=0)
    def first(ctx: Context) -> None:
        ctx.enqueue(shop.pay.bind(TOKEN))

    monkeypatch.setattr("detent.app.connection.stores.file_of", lambda _: None)
    monkeypatch.delenv("DETENT_SECRET_KEY", raising=False)
    monkeypatch.delenv("DETENT_SECRET_KEYS", raising=False)
    handle = first.enqueue()
    assert len(shop.app.drain()) == 1
    with pytest.raises(JobFailed) as caught:
        handle.result()
    assert caught.value.fields["error_code"] == "no_secret_key"


def test_workflows(shop: Shop) -> None:
    shop.app.start(chain(shop.pay.bind(TOKEN), [shop.pay.bind(TOKEN)]))
    shop.app.start(group(shop.pay.bind(TOKEN)), id="mine")
    assert not shop.app.start(group(shop.pay.bind(TOKEN)), id="mine").is_new
    shop.need_locked(3)


def test_a_workflow_that_comes_in_pieces(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.engine.building.RECORDS_MAX", 2)
    monkeypatch.setattr("detent.engine.building.PIECE", 1)
    shop.app.start(group(*(shop.pay.bind(TOKEN) for _ in range(3))))
    shop.need_locked(3)


def test_jobs_that_are_added_to_a_workflow(shop: Shop) -> None:
    handle = shop.app.start(stages({"one": shop.pay.bind(TOKEN), "two": []}))
    handle.add("two", [shop.pay.bind(TOKEN)])
    asyncio.run(handle.aadd("two", [shop.pay.bind(TOKEN)]))
    shop.need_locked(3)


def test_schedules_take_none(shop: Shop) -> None:
    with pytest.raises(BadOption, match="secret"):
        shop.app.schedules.add("@hourly", shop.pay.bind(TOKEN))
    with pytest.raises(BadOption, match="secret"):
        shop.app.schedule("@hourly")(shop.pay)
    shop.app.drain()
    assert b"s3cr3t" not in shop.bytes()


def test_a_rerun_has_them_locked_anew(shop: Shop) -> None:
    handle = shop.pay.enqueue(TOKEN)
    shop.app.drain()
    again = shop.app.bridge.run(_rerun(shop.app, handle.id))
    assert isinstance(again, Enqueued)
    shop.app.drain()
    assert isinstance(shop.app.bridge.run(_rerun(shop.app, again.job.id)), Enqueued)
    with closing(sqlite3.connect(shop.path)) as raw:
        payloads = [one for (one,) in raw.execute("SELECT payload FROM detent_bodies")]
    assert len(set(payloads)) == 3
    shop.need_locked(3)


async def _rerun(app: Detent, job: str) -> object:
    [answer] = await (await app.engine()).operators.apply(Rerun(), [("", job)], OPERATOR, "again")
    return answer


def test_a_rerun_without_the_key_is_refused_and_others_are_not(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.app.job
    def plain() -> None: ...

    locked, other = shop.pay.enqueue(TOKEN), plain.enqueue()
    shop.app.drain()
    shop.app.close()
    shop.path.with_name("shop.db-key").unlink()
    monkeypatch.setenv("DETENT_SECRET_KEY", new_key())

    async def both() -> list[Any]:
        engine = await shop.app.engine()
        keys = [("", locked.id), ("", other.id)]
        found = [one for one in await engine.store.get(keys) if one is not None]
        foreseen = engine.operators.foresee(Rerun(), found, OPERATOR, "again")
        assert [type(one) for one in foreseen] == [Refusal, Enqueued]
        return await engine.operators.apply(Rerun(), keys, OPERATOR, "again")

    refused, made = shop.app.bridge.run(both())
    assert isinstance(refused, Refusal)
    assert refused.code == "secret_unreadable"
    assert isinstance(made, Enqueued)


def test_the_command_line_reruns_them_and_shows_none(shop: Shop) -> None:
    handle = shop.pay.enqueue(TOKEN)
    shop.app.drain()
    desk = Desk(shop.path)
    desk.said("jobs", "rerun", handle.id, "--reason", "again")
    assert desk.data("jobs", "show", handle.id)["payload"]["kwargs"] == {"token": "[secret]"}
    assert "[secret]" in desk.said("jobs", "show", handle.id)
    shop.need_locked(2)


def test_around_enqueue_stands_around_all_of_them(shop: Shop) -> None:
    heard: list[str] = []

    @shop.app.around_enqueue
    def marked(call: Call[Any]) -> Iterator[None]:
        call.options["tags"] = ["marked"]
        yield
        heard.append("plain")

    @shop.app.around_enqueue
    async def awaited(_: Call[Any]) -> AsyncIterator[None]:
        yield
        heard.append("awaited")

    call = shop.pay.bind(TOKEN)
    shop.pay.enqueue(TOKEN)
    shop.app.enqueue_many([call])
    with closing(sqlite3.connect(shop.path)) as connection, connection:
        shop.pay.using(conn=connection).enqueue(TOKEN)
    handle = shop.app.start(stages({"one": call, "two": []}))
    handle.add("two", [call])
    asyncio.run(handle.aadd("two", [call]))
    asyncio.run(shop.app.astart(group(call)))

    async def tags() -> list[tuple[str, ...]]:
        return [one.body.tags for one in await (await shop.app.engine()).store.find(Filter())]

    assert shop.app.bridge.run(tags()) == [("marked",)] * 7
    assert heard == ["awaited", "plain"] * 7
    assert "tags" not in call.options
    shop.need_locked(7)


def test_what_is_refused_around_it_is_not_started(shop: Shop) -> None:
    @shop.app.around_enqueue
    def never(call: Call[Any]) -> Iterator[None]:
        if call.signature.name == "pay":
            raise PermissionError("not today")
        yield

    with pytest.raises(PermissionError):
        shop.app.start(group(shop.pay.bind(TOKEN)))
    with closing(sqlite3.connect(shop.path)) as connection, pytest.raises(PermissionError):
        shop.pay.using(conn=connection).enqueue(TOKEN)
    assert shop.app.drain() == []
