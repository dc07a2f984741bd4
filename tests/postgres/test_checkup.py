"""What is wrong with a server is told within seconds, and nothing is changed by asking."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from detent import stores
from detent.app.connection import keyring_of
from detent.engine.asks import Ask
from detent.engine.doctor.examination import Patient, examined
from detent.engine.doctor.starting import doubts
from detent.engine.engine import Engine
from detent.errors import BadUrl
from detent.stores.checks import Check, Grade
from detent.stores.postgres.address import read
from detent.stores.postgres.checkup import apart, open_long
from detent.stores.postgres.connection import open_connection
from tests.contract.making import USER
from tests.postgres.running import sql
from tests.postgres.server import databases
from tools.postgres import Server

SECOND = 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server as an operator would set it up, with tables in it."""
    with Server(max_prepared_transactions="2", max_connections="20") as server:
        stores.run_migrations(server.url("postgres"))
        yield server


def looked(url: str, within_s: float = 5.0) -> dict[str, Check]:
    found = asyncio.run(stores.checkup(url, within_s=within_s))
    return {one.name: one for one in found}


def wrong(url: str) -> set[str]:
    return {name for name, one in looked(url).items() if one.grade is not Grade.OK}


def test_a_server_that_is_set_up_well_has_nothing_wrong(server: Server) -> None:
    found = looked(server.url("postgres"))
    assert {one.grade for one in found.values()} == {Grade.OK}
    assert found["rights"].graded(production=True) is Grade.WARN
    assert "superuser" in found["rights"].found


def _written(url: str) -> list[str]:
    """Every row of every table."""
    asked = "SELECT relname FROM pg_class WHERE relnamespace = 'detent'::regnamespace"
    names = [name for (name,) in sql(url, f"{asked} AND relkind = 'r' ORDER BY relname")]
    rows = [sql(url, f"SELECT t::text FROM detent.{name} AS t ORDER BY 1") for name in names]  # noqa: S608
    return [text for some in rows for (text,) in some]


def test_nothing_is_changed_by_looking(tmp_path: Path) -> None:
    url = databases().of(tmp_path)

    async def fill() -> None:
        async with stores.open(url) as store:
            await Engine(store).enqueue([Ask(type="x")] * 3, USER)

    asyncio.run(fill())
    before = _written(url)
    found = asyncio.run(examined(Patient(url, url, None, keyring_of)))
    assert {"retention", "seals", "upkeep"} <= {one.name for one in found}
    assert _written(url) == before


def test_settings_that_lose_what_was_promised_are_bad(tmp_path: Path) -> None:
    found = looked(databases().of(tmp_path))
    bad = {name for name, one in found.items() if one.grade is Grade.BAD}
    assert bad == {"fsync", "full_page_writes", "synchronous_commit"}
    assert found["autovacuum"].grade is Grade.WARN


def test_what_a_role_has_set_for_itself_counts(server: Server) -> None:
    url = server.url("postgres")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE ROLE hasty LOGIN SUPERUSER")
        admin.execute("ALTER ROLE hasty SET synchronous_commit = off")
    assert wrong(url.replace("postgres@", "hasty@")) == {"synchronous_commit"}


async def _doubted(url: str) -> list[str]:
    async with stores.open(url) as store:
        return [one.name for one in await doubts(Engine(store))]


def test_whoever_starts_is_told_of_it_in_the_log(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "detent.engine.doctor"):
        assert asyncio.run(_doubted(server.url("postgres"))) == []
        assert caplog.text == ""
        names = asyncio.run(_doubted(databases().of(tmp_path)))
    assert names == ["fsync", "full_page_writes", "synchronous_commit"]
    assert "synchronous_commit is off: a job is said to be stored before" in caplog.text


async def _long(url: str) -> Check:
    connection = await open_connection(read(url))
    try:
        return await open_long(connection, 0)
    finally:
        await connection.close()


def test_a_transaction_that_somebody_holds_open_is_named(server: Server) -> None:
    url = server.url("postgres")
    with psycopg.connect(url, application_name="a report") as held:
        held.execute("SELECT 1")
        found = asyncio.run(_long(url))
        assert found.grade is Grade.WARN
        name = f"pid {held.info.backend_pid} (postgres, a report) is idle in transaction"
        assert name in found.found
        # It is only just open, so nobody need be warned.
        assert looked(url)["transactions"].grade is Grade.OK
    assert asyncio.run(_long(url)).grade is Grade.OK


def test_a_transaction_that_was_prepared_and_forgotten_is_named(server: Server) -> None:
    url = server.url("postgres")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'left behind'")
        assert "left behind" in asyncio.run(_long(url)).found
        admin.execute("ROLLBACK PREPARED 'left behind'")


def test_few_connections_are_left(server: Server) -> None:
    url = server.url("postgres")
    held = [psycopg.connect(url) for _ in range(8)]
    try:
        assert wrong(url) == {"connections"}
    finally:
        for one in held:
            one.close()


def test_dead_rows_that_nobody_cleans_away_are_told(tmp_path: Path) -> None:
    url = databases().of(tmp_path)
    assert looked(url)["dead rows"].grade is Grade.OK
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("INSERT INTO detent.meta SELECT n, '' FROM generate_series(1, 60000) AS n")
        admin.execute("DELETE FROM detent.meta WHERE value = ''")
        # Otherwise the server tells of it when it finds the time; one before 15 does so at once.
        if admin.info.server_version >= 150_000:
            admin.execute("SELECT pg_stat_force_next_flush()")
        told = looked(url)["dead rows"]
        assert (told.grade, told.found[:6]) == (Grade.WARN, "meta: ")
        admin.execute("VACUUM detent.meta")


def test_a_role_that_lacks_rights_is_told_which(server: Server) -> None:
    url = server.url("postgres")
    worker = url.replace("postgres@", "worker@")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE ROLE worker LOGIN")
        assert "USAGE on the schema" in looked(worker)["rights"].found
        admin.execute("GRANT USAGE ON SCHEMA detent TO worker")
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA detent TO worker")
        admin.execute("REVOKE DELETE ON detent.leases FROM worker")
        lacking = looked(worker)["rights"]
        assert lacking.grade is Grade.BAD
        assert lacking.found.startswith("worker lacks USAGE on ") or "leases" in lacking.found
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA detent TO worker")
        admin.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA detent TO worker")
    assert wrong(worker) == set()


def test_a_database_without_tables_and_one_whose_tables_are_older_or_newer(tmp_path: Path) -> None:
    assert looked(databases().empty())["tables"].found == "the database has no tables of Detent"
    url = databases().of(tmp_path)
    before = _version(url)
    try:
        _set_version(url, before - 1, 1)
        assert "pending: " in looked(url)["tables"].found
        _set_version(url, before + 1, 1)
        assert looked(url)["tables"].grade is Grade.WARN
        _set_version(url, before + 1, before + 1)
        assert "[schema_ahead]" in looked(url)["tables"].found
    finally:
        _set_version(url, before, 1)


def _version(url: str) -> int:
    [[version]] = sql(url, "SELECT value FROM detent.meta WHERE name = 'schema_version'")
    return int(version)


def _set_version(url: str, version: int, min_code: int) -> None:
    for name, value in {"schema_version": version, "min_code": min_code}.items():
        sql(url, "UPDATE detent.meta SET value = %s WHERE name = %s", str(value), name)


def test_events_that_nobody_seals_are_told_with_their_age(tmp_path: Path) -> None:
    url = databases().of(tmp_path)
    hour = 3_600 * SECOND

    async def run() -> None:
        async with stores.open(url, clock=lambda: time.time_ns() // 1_000 - hour) as store:
            await Engine(store).enqueue([Ask(type="x")] * 3, USER)
            found = await stores.checkup(url, within_s=5)
            told = next(one for one in found if one.name == "seals")
            assert told.grade is Grade.WARN
            assert told.found.startswith("3 events not sealed yet, the oldest for 36")
            await store.feed()
            found = await stores.checkup(url, within_s=5)
            assert next(one for one in found if one.name == "seals").found == told.found
            await store.seal()

    asyncio.run(run())
    assert looked(url)["seals"].found == "every event is sealed"


def test_what_somebody_has_locked_is_told_and_not_waited_for(server: Server) -> None:
    url = server.url("postgres")
    with psycopg.connect(url) as held:
        held.execute("LOCK TABLE detent.jobs IN ACCESS EXCLUSIVE MODE")
        found = asyncio.run(examined(Patient(url, url, None, keyring_of)))
        assert (found[-1].name, found[-1].grade) == ("jobs", Grade.BAD)
        assert "[store_busy]" in found[-1].found
        held.rollback()
        held.execute("LOCK TABLE detent.gates IN ACCESS EXCLUSIVE MODE")
        told = {one.name: one for one in asyncio.run(examined(Patient(url, url, None, keyring_of)))}
    assert told["pauses"].grade is Grade.BAD
    assert told["webhooks"].grade is told["workers"].grade is Grade.OK


def test_clocks_that_are_apart() -> None:
    assert apart(1 * SECOND).grade is Grade.OK
    assert apart(-90 * SECOND).grade is Grade.WARN
    assert "-90.0 s" in apart(-90 * SECOND).found


def test_a_server_that_stands_still_is_not_waited_for(server: Server) -> None:
    os.kill(server.process, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        [found] = looked(server.url("postgres"), within_s=0.5).values()
        assert time.monotonic() - begun < 5
    finally:
        os.kill(server.process, signal.SIGCONT)
    assert found.grade is Grade.BAD
    assert "does not answer within 0.5 s" in found.found


def test_a_server_that_is_away_and_one_that_does_not_let_us_in(server: Server) -> None:
    [away] = looked("postgresql://postgres@127.0.0.1:1/x").values()
    assert (away.grade, "[store_unavailable]" in away.found) == (Grade.BAD, True)
    [unknown] = looked(server.url("nothing")).values()
    assert (unknown.grade, "[store_refused]" in unknown.found) == (Grade.BAD, True)
    with pytest.raises(BadUrl):
        looked("postgresql://postgres@localhost:99999/x")


class _Pooler:
    """Hands everything on, but makes up the number by which a query is called off."""

    def __init__(self, server: Server) -> None:
        self._path = str(server.folder / ".s.PGSQL.5432")
        self._serving: list[asyncio.Task[None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inward, outward = await asyncio.open_unix_connection(self._path)
        self._serving.append(asyncio.create_task(self._ask(reader, outward)))
        self._serving.append(asyncio.create_task(self._answer(inward, writer)))

    async def done(self) -> None:
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, outward: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while said := await reader.read(65_536):
                outward.write(said)
        outward.close()
        await outward.wait_closed()

    async def _answer(self, inward: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await inward.read(1):
            size = await inward.readexactly(4)
            body = await inward.readexactly(int.from_bytes(size) - 4)
            writer.write(head + size + ((7).to_bytes(4) + body[4:] if head == b"K" else body))
        writer.close()
        await writer.wait_closed()


def test_a_pooler_in_between_is_noticed(server: Server) -> None:
    async def run() -> None:
        pooler = _Pooler(server)
        listening = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
        direct = quote(server.url("postgres"), safe="")
        async with listening:
            found = {one.name: one for one in await stores.checkup(url, within_s=5)}
            told = await stores.checkup(f"{url}&listen_url={direct}", within_s=5)
            await pooler.done()
        assert found["pooler"].grade is Grade.WARN
        assert {one.name: one.grade for one in told}["pooler"] is Grade.OK

    asyncio.run(run())
