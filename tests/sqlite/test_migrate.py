"""The tables and their version: made once, never by code that is too old."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from detent.errors import SchemaAhead, SchemaBehind, UnsupportedStore
from detent.stores.api import WorkerRow
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.migrate import KNOWN, pending_migrations
from detent.stores.sqlite.statements import split
from tests.contract.making import Clock


def opened(path: Path, *, migrate: bool = True) -> None:
    async def open_and_close() -> None:
        async with SqliteStore(path, Clock(), migrate=migrate):
            pass

    asyncio.run(open_and_close())


def meta(path: Path, **changes: object) -> dict[str, str]:
    """Change what the file says about itself; what it says then."""
    connection = sqlite3.connect(path, isolation_level=None)
    for name, value in changes.items():
        connection.execute("UPDATE detent_meta SET value = ? WHERE name = ?", (str(value), name))
    found = dict(connection.execute("SELECT name, value FROM detent_meta").fetchall())
    connection.close()
    return found


def test_a_new_file_gets_the_newest_tables_and_keeps_its_identity(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    opened(path)
    first = meta(path)
    assert first["schema_version"] == str(KNOWN)
    assert len(first["store_id"]) == 36
    opened(path)
    assert meta(path) == first


def test_workers_of_the_first_tables_are_kept_and_known_to_be_gone(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    first, *_ = pending_migrations(f"sqlite:///{path}")
    path.touch(0o600)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in split(first.sql):
        connection.execute(statement)
    connection.execute("INSERT INTO detent_workers VALUES ('old', 7, 2), ('new', 8, 0)")
    connection.close()

    async def read() -> list[WorkerRow]:
        async with SqliteStore(path, Clock()) as store:
            return [*await store.workers(gone=True), *await store.workers()]

    assert asyncio.run(read()) == [WorkerRow("old", 7, lost=True, ended_at=7), WorkerRow("new", 8)]


def test_tables_that_need_newer_code_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    opened(path)
    meta(path, schema_version=KNOWN + 2, min_code=KNOWN + 1)
    with pytest.raises(SchemaAhead) as refused:
        opened(path)
    assert refused.value.fields == {
        "version": KNOWN + 2,
        "known": KNOWN,
        "min_code": KNOWN + 1,
    }


def test_newer_tables_that_this_code_can_still_use_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    opened(path)
    meta(path, schema_version=KNOWN + 1, min_code=KNOWN)
    opened(path)
    assert meta(path)["schema_version"] == str(KNOWN + 1)


def test_older_tables_are_refused_when_migrating_was_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    with pytest.raises(SchemaBehind):
        opened(path, migrate=False)
    opened(path)
    opened(path, migrate=False)


def test_somebody_elses_tables_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    path.touch(0o600)
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE detent_jobs (mine)")
    with pytest.raises(UnsupportedStore, match="already exists"):
        opened(path)
    names = other.execute("SELECT name FROM sqlite_schema").fetchall()
    assert names == [("detent_jobs",)]
    other.close()


def test_nothing_of_ours_can_have_a_name_that_somebody_else_uses(tmp_path: Path) -> None:
    """People enqueue inside their own database: only the prefix belongs to us."""
    path = tmp_path / "detent.db"
    path.touch(0o600)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE jobs (mine)")
    other.execute("CREATE TABLE meta (name, value)")
    opened(path)
    names = {name for (name,) in other.execute("SELECT name FROM sqlite_schema")}
    not_ours = {"jobs", "meta", "sqlite_sequence"}
    ours = {name.removeprefix("sqlite_autoindex_") for name in names - not_ours}
    assert "detent_jobs" in ours
    assert {name.partition("_")[0] for name in ours} == {"detent"}
    other.close()


def test_a_script_is_split_where_its_statements_end() -> None:
    script = "-- one; still a comment\nSELECT 1;\n\nCREATE TRIGGER t BEGIN\n SELECT 2;\nEND;\n"
    assert [one.split()[-1] for one in split(script)] == ["1;", "END;"]
