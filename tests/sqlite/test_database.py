"""What the database itself refuses, whoever asks: with plain SQL, past all of our code."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from detent import stores
from detent.lifecycle import JOB, MACHINES
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from tests.contract.making import USER, Clock, Maker
from tests.sqlite.processes import url_of

INSERT = (
    "INSERT INTO detent_events (tenant, record, version, at, name, source, target, actor, actor_id,"
    " command_id, kind) VALUES ('', ?, ?, 0, ?, ?, ?, 'user', '', '', ?)"
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file with live and ended records, not all sealed, opened by somebody else."""
    path = tmp_path / "detent.db"

    async def fill() -> None:
        clock = Clock()
        make = Maker(clock)
        async with stores.open(url_of(path), clock=clock) as store:
            units = [make.pushed(id=f"job-{number}") for number in (1, 2, 3)]
            ends = [make.doing(unit.new[0].job, j.Cancel(), USER) for unit in units[:2]]
            made = w.Make(id="w", steps=tuple(w.chain("a")), jobs={"a": 1})
            flow = make.flowing(None, made, make.new(workflow="w", step="a"))
            await store.step([*units, *ends[:1], flow], now=clock.now)
            await store.seal()
            await store.step(ends[1:], now=clock.now)

    asyncio.run(fill())
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE detent_events SET at = 1",
        "UPDATE detent_events SET pos = 9 WHERE pos = 1",
        "DELETE FROM detent_events",
        # The newest event of an ended job is not sealed yet.
        "DELETE FROM detent_events WHERE record = 'job-2'",
    ],
)
def test_events_are_neither_changed_nor_deleted(
    database: sqlite3.Connection, statement: str
) -> None:
    database.execute("DELETE FROM detent_bodies")
    database.execute("DELETE FROM detent_jobs WHERE ended_at IS NOT NULL")
    with pytest.raises(sqlite3.IntegrityError, match="an event is never"):
        database.execute(statement)


def test_live_jobs_and_workflows_are_not_deleted(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM detent_bodies")
    for table in ("detent_jobs", "detent_workflows", "detent_steps"):
        with pytest.raises(sqlite3.IntegrityError, match="is never deleted before"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - a list of our own


def test_replacing_an_event_is_refused_too(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(INSERT, ("job-1", 1, "enqueue", None, "available", "job"))


@pytest.mark.parametrize("kind", MACHINES)
def test_exactly_the_declared_moves_can_be_stored(database: sqlite3.Connection, kind: str) -> None:
    machine = MACHINES[kind]
    places = [None, *(state.name for state in machine.states)]
    stored = set()
    for number, move in enumerate(product(places, machine.events, places)):
        source, event, target = move
        try:
            database.execute(INSERT, (f"r{number}", 1, event, source, target, kind))
        except sqlite3.IntegrityError:
            continue
        stored.add(move)
    assert stored == machine.triples


def test_an_unknown_kind_of_record_has_no_moves(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="no lifecycle declares"):
        database.execute(INSERT, ("x", 1, "enqueue", None, "available", "letter"))


@pytest.mark.parametrize("end", sorted(JOB.terminal))
def test_a_second_end_is_refused(database: sqlite3.Connection, end: str) -> None:
    event, source = next((e, s) for s, e, t in sorted(JOB.triples, key=str) if t == end)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        database.execute(INSERT, ("job-1", 3, event, source, end, "job"))


@pytest.mark.parametrize(
    "change",
    [
        "state = 'sleeping'",
        "state = 'active', ended_at = NULL",
        "state = 'available'",
        "lease = 'L'",
        "version = 0",
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    database: sqlite3.Connection, change: str
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        database.execute(f"UPDATE detent_jobs SET {change}")  # noqa: S608 - a list of our own


def test_a_body_without_a_job_is_refused(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        database.execute("INSERT INTO detent_bodies (seq, payload, meta) VALUES (99, '', '')")
